//! Objects of the API as providers are told of them.

use controller::metadata::{name, namespace, uid};
use k8s_openapi::api::core::v1::{Node, Service};

use crate::v1;

/// What the cloud calls a Node's machine; empty if nobody has said so.
pub(crate) fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

/// Where a Node is reached, as its status says.
pub(crate) fn addresses(node: &Node) -> Vec<v1::NodeAddress> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    addresses.map(|one| v1::NodeAddress { r#type: one.type_.clone(), address: one.address.clone() }).collect()
}

pub(crate) fn node(node: &Node) -> v1::Node {
    let meta = &node.metadata;
    v1::Node {
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
        provider_id: provider_id(node).to_owned(),
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        addresses: addresses(node),
    }
}

pub(crate) fn service(service: &Service) -> v1::Service {
    let meta = &service.metadata;
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.iter().flatten().map(|port| v1::ServicePort {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        app_protocol: port.app_protocol.clone().unwrap_or_default(),
        port: port.port,
        node_port: port.node_port.unwrap_or_default(),
    });
    let client_ip = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    v1::Service {
        namespace: namespace(meta).to_owned(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        ports: ports.collect(),
        cluster_ips: spec.cluster_ips.unwrap_or_default(),
        ip_families: spec.ip_families.unwrap_or_default(),
        external_ips: spec.external_ips.unwrap_or_default(),
        load_balancer_ip: spec.load_balancer_ip.unwrap_or_default(),
        load_balancer_source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
        external_traffic_policy: spec.external_traffic_policy.unwrap_or_default(),
        health_check_node_port: spec.health_check_node_port.unwrap_or_default(),
        session_affinity: spec.session_affinity.unwrap_or_default(),
        session_affinity_timeout_seconds: client_ip.and_then(|ip| ip.timeout_seconds).unwrap_or_default(),
    }
}
