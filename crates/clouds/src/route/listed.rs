//! The routes that a cloud has, once it is known that they can be.

use controller::metadata::name;
use k8s_openapi::api::core::v1::Node;
use machinery::net::Cidr;

use crate::provider::{Refusal, nonsense};
use crate::v1::{NodeAddress, Route};

/// Routes of one cluster; a list with more is not believed: upstream's largest clusters have half of it.
const ROUTES_MAX: usize = 10_000;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    route: Route,
    /// Nothing if it is no network: then the route is nobody's business here.
    destination: Option<Cidr>,
}

impl Listed {
    /// Reads an answer.
    ///
    /// # Errors
    /// There are too many: whoever leaves out some of them would make these anew for ever.
    pub(super) fn read(routes: Vec<Route>) -> Result<Vec<Self>, Refusal> {
        if routes.len() > ROUTES_MAX {
            return nonsense(format!("there must be at most {ROUTES_MAX} routes, not {}", routes.len()));
        }
        let read = |route: Route| Self { destination: Cidr::legacy(&route.destination_cidr), route };
        Ok(routes.into_iter().map(read).collect())
    }

    pub(super) fn name(&self) -> &str {
        &self.route.name
    }

    pub(super) fn destination(&self) -> &str {
        &self.route.destination_cidr
    }

    pub(super) fn as_listed(&self) -> Route {
        self.route.clone()
    }

    /// Whether it is about addresses of the cluster's Pods. Source: `isResponsibleForRoute`.
    pub(super) fn is_in(&self, clusters: &[Cidr]) -> bool {
        self.destination.is_some_and(|destination| {
            let ends = [destination.network().first(), destination.last()];
            clusters.iter().any(|cluster| ends.into_iter().any(|end| cluster.contains(end)))
        })
    }

    /// Whether it leads packets for this range to that Node. Source: `getRouteAction`.
    pub(super) fn leads(&self, node: &Node, range: &str, addresses: &[NodeAddress]) -> bool {
        let Route { target_node, target_node_addresses: targets, enable_node_addresses, blackhole, .. } =
            &self.route;
        let is_same =
            || targets.len() == addresses.len() && targets.iter().all(|target| addresses.contains(target));
        target_node == name(&node.metadata)
            && self.destination.is_some()
            && self.destination == Cidr::legacy(range)
            && !blackhole
            && (!enable_node_addresses || is_same())
    }
}
