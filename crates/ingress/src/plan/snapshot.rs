//! The input of a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::metadata::key;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ports::Ports;
use crate::certificates::Checked;
use crate::gateway::{Gateway, GatewayClass, GatewayInformers, GrpcRoute, HttpRoute, ReferenceGrant};
use crate::matching::Patterns;

/// What names the Service of an EndpointSlice.
pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The type of Secrets that are read; nothing of others is ever seen.
pub const SECRET_TYPE: &str = "kubernetes.io/tls";

/// The input of a plan.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All.
    pub ingresses: Vec<Arc<Ingress>>,
    /// All.
    pub classes: Vec<Arc<IngressClass>>,
    /// By `namespace/name`.
    pub services: BTreeMap<String, Arc<Service>>,
    /// By their Service's `namespace/name`.
    pub slices: BTreeMap<String, Vec<Arc<EndpointSlice>>>,
    /// Those of [`SECRET_TYPE`], by `namespace/name`.
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// Kinds that come and go.
    pub gateways: GatewayObjects,
    /// The ports that Gateways may have.
    pub ports: Ports,
    /// The results that need not be found out again.
    pub checked: Checked,
    /// The same.
    pub patterns: Patterns,
}

/// Objects of the Gateway API, and what their selectors look at.
#[derive(Clone, Debug, Default)]
pub struct GatewayObjects {
    /// All.
    pub classes: Vec<Arc<GatewayClass>>,
    /// All.
    pub gateways: Vec<Arc<Gateway>>,
    /// All.
    pub http_routes: Vec<Arc<HttpRoute>>,
    /// All.
    pub grpc_routes: Vec<Arc<GrpcRoute>>,
    /// All.
    pub grants: Vec<Arc<ReferenceGrant>>,
    /// By name.
    pub namespaces: BTreeMap<String, Arc<Namespace>>,
}

impl GatewayObjects {
    /// The snapshot of what is known now.
    pub fn of(known: &GatewayInformers, namespaces: Vec<Arc<Namespace>>) -> Self {
        let named = namespaces.into_iter().map(|one| (one.metadata.name.clone().unwrap_or_default(), one));
        Self {
            classes: known.classes.informer().list(),
            gateways: known.gateways.informer().list(),
            http_routes: known.http_routes.informer().list(),
            grpc_routes: known.grpc_routes.informer().list(),
            grants: known.grants.informer().list(),
            namespaces: named.collect(),
        }
    }
}

/// Objects by their `namespace/name`.
pub fn by_key<K>(objects: Vec<Arc<K>>, metadata: fn(&K) -> &ObjectMeta) -> BTreeMap<String, Arc<K>> {
    objects.into_iter().map(|object| (key(metadata(&object)), object)).collect()
}

/// EndpointSlices by their Service's `namespace/name`.
pub fn by_service(slices: Vec<Arc<EndpointSlice>>) -> BTreeMap<String, Vec<Arc<EndpointSlice>>> {
    let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for slice in slices {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        if let Some(service) = service {
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            all.entry(format!("{namespace}/{service}")).or_default().push(slice);
        }
    }
    all
}
