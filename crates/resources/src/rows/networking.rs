//! `networking` and `discovery`.

use crate::columns as c;
use crate::resource::{Resource, STATUS, Scope};
use crate::strategies as s;

const fn net(version: &'static str) -> (&'static str, &'static str) {
    ("networking.k8s.io", version)
}

const fn ip_address(version: &'static str) -> Resource {
    Resource::new(net(version), "ipaddresses", "ipaddress", "IPAddress", Scope::Cluster)
        .short(&["ip"])
        .stored_as("networking.k8s.io/v1", None)
        .strategy(&s::IP_ADDRESS)
        .columns(c::IP_ADDRESS)
}

const fn service_cidr(version: &'static str) -> Resource {
    Resource::new(net(version), "servicecidrs", "servicecidr", "ServiceCIDR", Scope::Cluster)
        .stored_as("networking.k8s.io/v1", None)
        .sub(&[STATUS])
        .strategy(&s::SERVICE_CIDR)
        .columns(c::SERVICE_CIDR)
}

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    Resource::new(
        ("discovery.k8s.io", "v1"),
        "endpointslices",
        "endpointslice",
        "EndpointSlice",
        Scope::Namespaced,
    )
    .strategy(&s::ENDPOINT_SLICE)
    .columns(c::ENDPOINT_SLICE),
    Resource::new(net("v1"), "ingressclasses", "ingressclass", "IngressClass", Scope::Cluster)
        .strategy(&s::INGRESS_CLASS)
        .columns(c::INGRESS_CLASS),
    Resource::new(net("v1"), "ingresses", "ingress", "Ingress", Scope::Namespaced)
        .short(&["ing"])
        .stored_at("/registry/ingress/")
        .sub(&[STATUS])
        .strategy(&s::INGRESS)
        .columns(c::INGRESS),
    ip_address("v1"),
    Resource::new(net("v1"), "networkpolicies", "networkpolicy", "NetworkPolicy", Scope::Namespaced)
        .short(&["netpol"])
        .strategy(&s::NETWORK_POLICY)
        .columns(c::NETWORK_POLICY),
    service_cidr("v1"),
    ip_address("v1beta1").off(),
    service_cidr("v1beta1").off(),
];
