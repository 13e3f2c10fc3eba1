//! `networking` and `discovery`.

use serde_json::Value;

use super::{AGE, Column, NAME, column, first_three, joined, len, list, selector, text, text_or};

/// EndpointSlices.
pub const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    column("AddressType", |o, _| text(o, "/addressType").into())
        .of("io.k8s.api.discovery.v1.EndpointSlice", "addressType"),
    column("Ports", |o, _| {
        let port = |port: &Value| match port.get("port").and_then(Value::as_i64) {
            Some(number) => number.to_string(),
            None => port.get("name").and_then(Value::as_str).unwrap_or("*").to_owned(),
        };
        first_three(&list(o, "/ports").iter().map(port).collect::<Vec<_>>(), "<unset>").into()
    })
    .of("io.k8s.api.discovery.v1.EndpointSlice", "ports"),
    column("Endpoints", |o, _| {
        let addresses = list(o, "/endpoints").iter().flat_map(|e| list(e, "/addresses"));
        let texts: Vec<_> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
        first_three(&texts, "<unset>").into()
    })
    .of("io.k8s.api.discovery.v1.EndpointSlice", "endpoints"),
    AGE,
];

/// Ingresses.
pub const INGRESS: &[Column] = &[
    NAME,
    column("Class", |o, _| {
        let annotation = text_or(o, "/metadata/annotations/kubernetes.io~1ingress.class", "<none>");
        text_or(o, "/spec/ingressClassName", annotation).into()
    })
    .says("The name of the IngressClass resource that should be used for additional configuration"),
    column("Hosts", |o, _| {
        let hosts: Vec<_> = list(o, "/spec/rules")
            .iter()
            .map(|r| text(r, "/host").to_owned())
            .filter(|h| !h.is_empty())
            .collect();
        first_three(&hosts, "*").into()
    })
    .says("Hosts that incoming requests are matched against before the ingress rule"),
    column("Address", |o, _| {
        let ingress = list(o, "/status/loadBalancer/ingress").iter();
        let places = ingress.map(|i| text_or(i, "/ip", text(i, "/hostname"))).filter(|t| !t.is_empty());
        // Upstream sorts them, as it collects them in a set.
        joined(places.collect::<std::collections::BTreeSet<_>>(), "").into()
    })
    .says("Address is a list containing ingress points for the load-balancer"),
    column("Ports", |o, _| if len(o, "/spec/tls") > 0 { "80, 443" } else { "80" }.into())
        .says("Ports of TLS configurations that open"),
    AGE,
];

/// IngressClasses.
pub const INGRESS_CLASS: &[Column] = &[
    NAME,
    column("Controller", |o, _| text(o, "/spec/controller").into())
        .says("Controller that is responsible for handling this class"),
    column("Parameters", |o, _| parameters(o).into())
        .says("A reference to a resource with additional parameters"),
    AGE,
];

fn parameters(class: &Value) -> String {
    let (kind, name) = (text(class, "/spec/parameters/kind"), text(class, "/spec/parameters/name"));
    match text(class, "/spec/parameters/apiGroup") {
        _ if kind.is_empty() => "<none>".to_owned(),
        "" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}

/// NetworkPolicies.
pub const NETWORK_POLICY: &[Column] = &[
    NAME,
    column("Pod-Selector", |o, _| selector(o, "/spec/podSelector").into())
        .of("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector"),
    AGE,
];

/// IPAddresses.
pub const IP_ADDRESS: &[Column] = &[
    NAME,
    column("ParentRef", |o, _| {
        if o.pointer("/spec/parentRef").is_none() {
            return "<none>".into();
        }
        let part = |field: &str| text(o, &format!("/spec/parentRef/{field}"));
        let parts = ["resource", "group", "namespace", "name"].map(part);
        let [resource, group, namespace, name] = parts;
        let resource = machinery::group::group_resource(group, resource).to_lowercase();
        if namespace.is_empty() {
            format!("{resource}/{name}")
        } else {
            format!("{resource}/{namespace}/{name}")
        }
        .into()
    })
    .of("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"),
    AGE,
];

/// ServiceCIDRs.
pub const SERVICE_CIDR: &[Column] = &[
    NAME,
    column("CIDRs", |o, _| joined(list(o, "/spec/cidrs").iter().filter_map(Value::as_str), "").into())
        .of("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs"),
    AGE,
];
