//! The Pods behind a Service, and the ports. Shared by Endpoints and EndpointSlices.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use controller::metadata::{created, key, label, name, namespace};
use controller::pod::Pod;
use controller::{Change, Informers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::pod::{condition, is_finished, is_ready, node_name};
use controller::selector::contains;

/// When the change that is being published happened. Source: `core/v1`.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Marks what belongs to a headless Service. Source: `core/v1`.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";

/// A Service and what its endpoints follow from.
pub struct ServicePods {
    /// The Service.
    pub service: Arc<Service>,
    /// The Pods that its selector selects, in key order.
    pub pods: Vec<Arc<Pod>>,
    /// The Nodes of these Pods that are there, with their zones.
    pub nodes: BTreeMap<String, Option<String>>,
    /// The newest revision of any Pod seen.
    pub revision: u64,
}

impl ServicePods {
    /// Nothing for a Service whose endpoints are somebody else's: without a selector, or ExternalName.
    pub(crate) fn gather(informers: &Informers, key: &str) -> Option<Self> {
        let service = informers.informer::<Service>().get(key).filter(|service| is_selecting(service))?;
        let informer = informers.informer::<Pod>();
        let mut pods = informer.in_namespace(namespace(&service.metadata));
        pods.retain(|pod| selects(&service, pod));
        let known = informers.informer::<Node>();
        let mut nodes = BTreeMap::new();
        for pod in &pods {
            let name = node_name(pod);
            if !nodes.contains_key(name) {
                nodes.extend(known.get(name).map(|node| (name.to_owned(), zone(&node))));
            }
        }
        Some(Self { service, pods, nodes, revision: informer.revision() })
    }

    /// The newest change among the Service and its Pods, as the annotation says it.
    pub(crate) fn trigger_time(&self) -> String {
        let changes = self.pods.iter().map(|pod| {
            let ready = condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
            ready.map_or_else(|| created(&pod.metadata), |time| time.0)
        });
        let newest = changes.chain([created(&self.service.metadata)]).max();
        newest.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
    }
}

fn zone(node: &Node) -> Option<String> {
    label(&node.metadata, ZONE).map(str::to_owned)
}

/// Whether a controller makes the endpoints of `service`.
pub(crate) fn is_selecting(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        spec.selector.as_ref().is_some_and(|selector| !selector.is_empty())
            && spec.type_.as_deref() != Some("ExternalName")
    })
}

fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    match (selector, pod.metadata.labels.as_ref()) {
        (Some(selector), Some(labels)) => contains(labels, selector),
        _ => false,
    }
}

/// The Services whose endpoints change when this Pod changes so.
pub(crate) fn services_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && facts(old) == facts(new)
    {
        return Vec::new();
    }
    let Some(object) = change.object() else { return Vec::new() };
    let services = informers.informer::<Service>().in_namespace(namespace(&object.metadata));
    let either = |service: &&Arc<Service>| {
        is_selecting(service)
            && [&change.old, &change.new].into_iter().flatten().any(|pod| selects(service, pod))
    };
    services.iter().filter(either).map(|service| key(&service.metadata)).collect()
}

/// All that endpoints take from a Pod and that can change.
fn facts(pod: &Pod) -> impl PartialEq + '_ {
    let status = pod.status.as_ref();
    (
        &pod.metadata.uid,
        pod.metadata.labels.as_ref(),
        pod.metadata.deletion_timestamp.is_some(),
        status.and_then(|status| status.pod_ips.as_ref()),
        status.and_then(|status| status.pod_ip.as_ref()),
        (is_ready(pod), is_finished(pod), node_name(pod)),
    )
}

/// All Services with endpoints, when a Node comes or goes, or is in another zone.
pub(crate) fn services_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let zone = |node: &Option<Arc<Node>>| node.as_deref().map(zone);
    if zone(&change.old) == zone(&change.new) {
        return Vec::new();
    }
    let services = informers.informer::<Service>().list();
    services.iter().filter(|service| is_selecting(service)).map(|service| key(&service.metadata)).collect()
}

/// Whether the Service has no address of its own.
pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// Whether Pods that are not ready are published as if they were.
pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// The ports of `service`.
pub(crate) fn ports(service: &Service) -> &[ServicePort] {
    service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default()
}

/// The protocol of `port`.
pub(crate) fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The number that `port` has on `pod`; none if the Pod has no port of that name.
pub(crate) fn resolve(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let wanted = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) if name.is_empty() => return Some(port.port),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .find(|found| {
            found.name.as_deref() == Some(wanted.as_str())
                && found.protocol.as_deref().unwrap_or("TCP") == protocol(port)
        })
        .map(|found| found.container_port)
}

/// The addresses of `pod`, its first one first.
pub(crate) fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let listed: Vec<IpAddr> =
        status.pod_ips.iter().flatten().filter_map(|address| address.ip.parse().ok()).collect();
    if !listed.is_empty() {
        return listed;
    }
    status.pod_ip.iter().filter_map(|address| address.parse().ok()).collect()
}

/// The address types of `service`, `IPv4` and `IPv6`, the first one first.
pub(crate) fn families(service: &Service) -> Vec<&str> {
    let spec = service.spec.as_ref();
    let listed: Vec<&str> =
        spec.iter().flat_map(|spec| spec.ip_families.iter().flatten()).map(String::as_str).collect();
    if !listed.is_empty() {
        return listed;
    }
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).and_then(|ip| ip.parse::<IpAddr>().ok());
    match address {
        Some(IpAddr::V6(_)) => vec!["IPv6"],
        _ => vec!["IPv4"],
    }
}

/// `IPv4` or `IPv6`.
pub(crate) fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The hostname that DNS gives the Pod under `service`, if it asks for one.
pub(crate) fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_member = spec.subdomain.as_deref() == Some(name(&service.metadata));
    spec.hostname.clone().filter(|hostname| is_member && !hostname.is_empty())
}

/// A reference to `pod`.
pub(crate) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The labels of `service` that its endpoints carry too, with the one for headless Services.
pub(crate) fn copied_labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// The annotations of `service` that its endpoints carry too.
pub(crate) fn copied_annotations(service: &Service) -> BTreeMap<String, String> {
    let mut annotations = service.metadata.annotations.clone().unwrap_or_default();
    annotations
        .retain(|key, _| key != TRIGGER_TIME && key != "kubectl.kubernetes.io/last-applied-configuration");
    annotations
}
