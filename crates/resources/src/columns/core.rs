//! The core group, Pods and Nodes apart; also Events and Leases.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    AGE, Column, NAME, column, first_three, integer, joined, labels, len, list, map, number, since, text,
    text_or, wide,
};

/// Namespaces.
pub const NAMESPACE: &[Column] = &[
    NAME,
    column("Status", |o, _| text(o, "/status/phase").into()).says("The status of the namespace"),
    AGE,
];

/// ConfigMaps.
pub const CONFIG_MAP: &[Column] = &[
    NAME,
    column("Data", |o, _| (len(o, "/data") + len(o, "/binaryData")).into())
        .of("io.k8s.api.core.v1.ConfigMap", "data"),
    AGE,
];

/// Secrets.
pub const SECRET: &[Column] = &[
    NAME,
    column("Type", |o, _| text(o, "/type").into()).of("io.k8s.api.core.v1.Secret", "type"),
    column("Data", |o, _| len(o, "/data").into()).of("io.k8s.api.core.v1.Secret", "data"),
    AGE,
];

/// ServiceAccounts.
pub const SERVICE_ACCOUNT: &[Column] = &[
    NAME,
    column("Secrets", |o, _| len(o, "/secrets").into()).of("io.k8s.api.core.v1.ServiceAccount", "secrets"),
    AGE,
];

/// Services.
pub const SERVICE: &[Column] = &[
    NAME,
    column("Type", |o, _| text(o, "/spec/type").into()).of("io.k8s.api.core.v1.ServiceSpec", "type"),
    column("Cluster-IP", |o, _| {
        text_or(o, "/spec/clusterIPs/0", text_or(o, "/spec/clusterIP", "<none>")).into()
    })
    .of("io.k8s.api.core.v1.ServiceSpec", "clusterIP"),
    column("External-IP", |o, _| external_ip(o).into()).of("io.k8s.api.core.v1.ServiceSpec", "externalIPs"),
    column("Port(s)", |o, _| ports(o).into()).of("io.k8s.api.core.v1.ServiceSpec", "ports"),
    AGE,
    wide("Selector", |o, _| labels(map(o, "/spec/selector")).into())
        .of("io.k8s.api.core.v1.ServiceSpec", "selector"),
];

fn external_ip(service: &Value) -> String {
    let external_ips = list(service, "/spec/externalIPs").iter().filter_map(Value::as_str);
    match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = list(service, "/status/loadBalancer/ingress").iter();
            let given = ingress.map(|i| text_or(i, "/ip", text(i, "/hostname"))).filter(|t| !t.is_empty());
            joined(given.chain(external_ips), "<pending>")
        }
        _ => joined(external_ips, "<none>"),
    }
}

fn ports(service: &Value) -> String {
    let ports: Vec<_> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (self::number(port, "/port"), text(port, "/protocol"));
            match self::number(port, "/nodePort") {
                0 => format!("{number}/{protocol}"),
                node_port => format!("{number}:{node_port}/{protocol}"),
            }
        })
        .collect();
    joined(ports.iter().map(String::as_str), "<none>")
}

/// Endpoints.
pub const ENDPOINTS: &[Column] = &[
    NAME,
    column("Endpoints", |o, _| endpoints(o).into()).of("io.k8s.api.core.v1.Endpoints", "subsets"),
    AGE,
];

fn endpoints(endpoints: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(endpoints, "/subsets") {
        let ports = list(subset, "/ports");
        let ips = list(subset, "/addresses").iter().map(|a| text(a, "/ip"));
        if ports.is_empty() {
            all.extend(ips.map(str::to_owned));
            continue;
        }
        for port in ports {
            let port = number(port, "/port");
            all.extend(list(subset, "/addresses").iter().map(|a| socket_address(text(a, "/ip"), port)));
        }
    }
    first_three(&all, "<none>")
}

fn socket_address(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Events, of the core group and of `events.k8s.io`.
pub const EVENT: &[Column] = &[
    column("Last Seen", |o, now| last_seen(o, now).into()).of("io.k8s.api.core.v1.Event", "lastTimestamp"),
    column("Type", |o, _| text(o, "/type").into()).of("io.k8s.api.core.v1.Event", "type"),
    column("Reason", |o, _| text(o, "/reason").into()).of("io.k8s.api.core.v1.Event", "reason"),
    column("Object", |o, _| event_object(o).into()).of("io.k8s.api.core.v1.Event", "involvedObject"),
    wide("Subobject", |o, _| text_or(o, "/involvedObject/fieldPath", text(o, "/regarding/fieldPath")).into())
        .of("io.k8s.api.core.v1.ObjectReference", "fieldPath"),
    wide("Source", |o, _| event_source(o).into()).of("io.k8s.api.core.v1.Event", "source"),
    column("Message", |o, _| text_or(o, "/message", text(o, "/note")).trim().into())
        .of("io.k8s.api.core.v1.Event", "message"),
    wide("First Seen", |o, now| first_seen(o, now).into()).of("io.k8s.api.core.v1.Event", "firstTimestamp"),
    wide("Count", |o, _| event_count(o).into()).of("io.k8s.api.core.v1.Event", "count"),
    wide("Name", |o, _| text(o, "/metadata/name").into()).typed("string", "name").of(super::META, "name"),
];

fn first_seen(event: &Value, now: Timestamp) -> String {
    let pointers = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    let pointer = pointers.into_iter().find(|p| !text(event, p).is_empty());
    pointer.map_or_else(|| "<unknown>".to_owned(), |pointer| since(event, pointer, now))
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    let pointers = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"];
    let pointer = pointers.into_iter().find(|p| !text(event, p).is_empty());
    pointer.map_or_else(|| first_seen(event, now), |pointer| since(event, pointer, now))
}

fn event_count(event: &Value) -> i64 {
    let counts = ["/series/count", "/count", "/deprecatedCount"].map(|p| number(event, p));
    counts.into_iter().find(|count| *count != 0).unwrap_or(1)
}

fn event_object(event: &Value) -> String {
    let kind = text_or(event, "/involvedObject/kind", text(event, "/regarding/kind")).to_lowercase();
    let name = text_or(event, "/involvedObject/name", text(event, "/regarding/name"));
    if name.is_empty() { kind } else { format!("{kind}/{name}") }
}

fn event_source(event: &Value) -> String {
    let first = |pointers: &[&str]| {
        pointers.iter().map(|pointer| text(event, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let component = first(&[
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]);
    match first(&["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}

/// Leases.
pub const LEASE: &[Column] = &[
    NAME,
    column("Holder", |o, _| text(o, "/spec/holderIdentity").into())
        .of("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity"),
    AGE,
];

/// LeaseCandidates.
pub const LEASE_CANDIDATE: &[Column] = &[
    NAME,
    column("LeaseName", |o, _| text(o, "/spec/leaseName").into())
        .of("io.k8s.api.coordination.v1alpha2.LeaseCandidateSpec", "leaseName"),
    column("BinaryVersion", |o, _| text(o, "/spec/binaryVersion").into()),
    column("EmulationVersion", |o, _| text(o, "/spec/emulationVersion").into()),
    column("Strategy", |o, _| text(o, "/spec/strategy").into())
        .of("io.k8s.api.coordination.v1alpha2.LeaseCandidateSpec", "strategy"),
    AGE,
];

/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/spec/replicas").into())
        .of("io.k8s.api.core.v1.ReplicationControllerSpec", "replicas"),
    integer("Current", |o, _| number(o, "/status/replicas").into())
        .of("io.k8s.api.core.v1.ReplicationControllerStatus", "replicas"),
    integer("Ready", |o, _| number(o, "/status/readyReplicas").into())
        .of("io.k8s.api.core.v1.ReplicationControllerStatus", "readyReplicas"),
    AGE,
    super::CONTAINERS,
    super::IMAGES,
    wide("Selector", |o, _| labels(map(o, "/spec/selector")).into())
        .of("io.k8s.api.core.v1.ReplicationControllerSpec", "selector"),
];

/// PodTemplates.
pub const POD_TEMPLATE: &[Column] = &[
    NAME,
    column("Containers", |o, _| template(o, "/name")).says("Names of each container in the template."),
    column("Images", |o, _| template(o, "/image"))
        .says("Images referenced by each container in the template."),
    column("Pod Labels", |o, _| labels(map(o, "/template/metadata/labels")).into())
        .says("The labels for the pod template."),
];

fn template(object: &Value, field: &str) -> Value {
    joined(list(object, "/template/spec/containers").iter().map(|c| text(c, field)), "").into()
}

/// ResourceQuotas.
pub const RESOURCE_QUOTA: &[Column] = &[
    NAME,
    column("Request", |o, _| quota(o, false).into())
        .says("Request represents a minimum amount of cpu/memory that a container may consume."),
    column("Limit", |o, _| quota(o, true).into()).says(
        "Limits control the maximum amount of cpu/memory that a container may use independent of \
         contention on the node.",
    ),
    AGE,
];

fn quota(quota: &Value, is_limit: bool) -> String {
    let hard = map(quota, "/status/hard").or_else(|| map(quota, "/spec/hard"));
    let used = map(quota, "/status/used");
    let rows = hard.into_iter().flatten().filter(|(name, _)| name.starts_with("limits.") == is_limit);
    let texts: Vec<_> = rows
        .map(|(name, hard)| {
            let used = used.and_then(|u| u.get(name)).and_then(Value::as_str).unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    texts.join(", ")
}

/// ComponentStatuses.
pub const COMPONENT_STATUS: &[Column] = &[
    NAME,
    column("Status", |o, _| match healthy(o).map(|condition| text(condition, "/status")) {
        None => "Unknown".into(),
        Some("True") => "Healthy".into(),
        Some(_) => "Unhealthy".into(),
    })
    .says("Status of the component conditions"),
    column("Message", |o, _| healthy(o).map_or("", |condition| text(condition, "/message")).into())
        .says("Message of the component conditions"),
    column("Error", |o, _| healthy(o).map_or("", |condition| text(condition, "/error")).into())
        .says("Error of the component conditions"),
];

fn healthy(status: &Value) -> Option<&Value> {
    list(status, "/conditions").iter().find(|condition| text(condition, "/type") == "Healthy")
}
