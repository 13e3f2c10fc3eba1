//! The objects of these kinds that are known while they are served.

use controller::{DynamicKind, Informers};

use super::object::{Gateway, GatewayClass, GrpcRoute, HttpRoute, ReferenceGrant, VERSIONS};

/// All of them.
pub struct GatewayInformers {
    /// Classes.
    pub classes: DynamicKind<GatewayClass>,
    /// Gateways.
    pub gateways: DynamicKind<Gateway>,
    /// HTTPRoutes.
    pub http_routes: DynamicKind<HttpRoute>,
    /// GRPCRoutes.
    pub grpc_routes: DynamicKind<GrpcRoute>,
    /// ReferenceGrants.
    pub grants: DynamicKind<ReferenceGrant>,
}

impl GatewayInformers {
    /// Of these informers.
    pub fn of(informers: &Informers) -> Self {
        Self {
            classes: DynamicKind::of(informers, VERSIONS),
            gateways: DynamicKind::of(informers, VERSIONS),
            http_routes: DynamicKind::of(informers, VERSIONS),
            grpc_routes: DynamicKind::of(informers, VERSIONS),
            grants: DynamicKind::of(informers, VERSIONS),
        }
    }

    /// `true` if all is known that there is: who decides before takes for absent what is only not known.
    pub fn is_settled(&self) -> bool {
        self.classes.is_settled()
            && self.gateways.is_settled()
            && self.http_routes.is_settled()
            && self.grpc_routes.is_settled()
            && self.grants.is_settled()
    }

    /// Waits until all is known.
    pub async fn settled(&self) {
        tokio::join!(
            self.classes.settled(),
            self.gateways.settled(),
            self.http_routes.settled(),
            self.grpc_routes.settled(),
            self.grants.settled(),
        );
    }
}
