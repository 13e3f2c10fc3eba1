//! Routes of both kinds, and where they attach.
//!
//! Source: `ParentReference`, `AllowedRoutes`, `RouteConditionReason`.

use std::sync::Arc;

use controller::metadata::key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::kind::RouteKind;
use super::listeners::{Namespaces, Site};
use crate::gateway::{GROUP, GrpcRouteSpec, HttpRouteSpec, ParentReference};
use crate::host::Host;
use crate::plan::report::Refusal;
use crate::plan::snapshot::GatewayObjects;

/// What a route asks for.
#[derive(Clone, Copy)]
pub(super) enum RouteSpec<'a> {
    Http(&'a HttpRouteSpec),
    Grpc(&'a GrpcRouteSpec),
}

/// A route of either kind.
pub(super) struct Route<'a> {
    pub(super) kind: RouteKind,
    /// `namespace/name`.
    pub(super) key: String,
    pub(super) namespace: &'a str,
    pub(super) created: Option<Timestamp>,
    pub(super) parents: &'a [ParentReference],
    hosts: Vec<Host>,
    pub(super) spec: RouteSpec<'a>,
}

impl<'a> Route<'a> {
    /// All, the oldest first, then by name.
    pub(super) fn all(objects: &'a GatewayObjects) -> Vec<Self> {
        let http = objects.http_routes.iter().map(|route| {
            let spec = &route.spec;
            Self::new(&route.metadata, RouteSpec::Http(spec), &spec.parent_refs, &spec.hostnames)
        });
        let grpc = objects.grpc_routes.iter().map(|route| {
            let spec = &route.spec;
            Self::new(&route.metadata, RouteSpec::Grpc(spec), &spec.parent_refs, &spec.hostnames)
        });
        let mut all: Vec<Self> = http.chain(grpc).flatten().collect();
        all.sort_by(|one, two| (one.created, &one.key, one.kind).cmp(&(two.created, &two.key, two.kind)));
        all
    }

    /// `None` if it is being deleted.
    fn new(
        metadata: &'a ObjectMeta,
        spec: RouteSpec<'a>,
        parents: &'a [ParentReference],
        hostnames: &'a [String],
    ) -> Option<Self> {
        let kind = match spec {
            RouteSpec::Http(_) => RouteKind::Http,
            RouteSpec::Grpc(_) => RouteKind::Grpc,
        };
        let mut hosts: Vec<Host> = hostnames.iter().map(|host| Host::of_gateway(host)).collect();
        if hosts.is_empty() {
            hosts.push(Host::Any);
        }
        metadata.deletion_timestamp.is_none().then(|| Self {
            kind,
            key: key(metadata),
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            parents,
            hosts,
            spec,
        })
    }

    /// The Gateway that a reference names, by `namespace/name`; `None` if it names something else.
    pub(super) fn gateway(&self, parent: &ParentReference) -> Option<String> {
        let is_gateway = parent.group.as_deref().is_none_or(|group| group == GROUP)
            && parent.kind.as_deref().is_none_or(|kind| kind == "Gateway");
        let namespace = parent.namespace.as_deref().unwrap_or(self.namespace);
        is_gateway.then(|| format!("{namespace}/{}", parent.name))
    }

    /// The hosts that it has in common with a listener.
    fn hosts_at(&self, listener: &Host) -> Vec<Host> {
        let mut hosts: Vec<Host> = self.hosts.iter().filter_map(|host| listener.both(host)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Which listeners of a Gateway take it, with the hosts that it has there.
    pub(super) fn attach(
        &self,
        parent: &ParentReference,
        own: &str,
        sites: &mut [Site<'_>],
        namespaces: &Namespaces,
    ) -> Result<Vec<(usize, Vec<Host>)>, Refusal> {
        let is_named = |site: &Site<'_>| {
            parent.section_name.as_deref().is_none_or(|name| name == site.spec.name)
                && parent.port.is_none_or(|port| port == site.spec.port)
        };
        if !sites.iter().any(is_named) {
            return Err(Refusal::new("NoMatchingParent", "the Gateway has no such listener"));
        }
        let takes = |site: &Site<'_>| {
            is_named(site) && site.takes(self.kind) && site.takes_from(self.namespace, own, namespaces)
        };
        let taking: Vec<usize> =
            sites.iter().enumerate().filter(|(_, site)| takes(site)).map(|(index, _)| index).collect();
        if taking.is_empty() {
            let message = "no listener takes routes of this kind from this namespace";
            return Err(Refusal::new("NotAllowedByListeners", message));
        }
        let mut attached = Vec::new();
        for index in taking {
            let Some(site) = sites.get_mut(index) else { continue };
            // However it goes on: it was let in.
            site.attached += 1;
            let hosts = self.hosts_at(&site.host);
            if !hosts.is_empty() {
                attached.push((index, hosts));
            }
        }
        if attached.is_empty() {
            let message = "no listener has a hostname in common with the route";
            return Err(Refusal::new("NoMatchingListenerHostname", message));
        }
        Ok(attached)
    }

    /// As rows name it.
    pub(super) fn name(&self) -> Arc<str> {
        format!("{} {}", self.kind.as_str(), self.key).into()
    }
}
