//! Nodes.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{AGE, Column, NAME, column, condition, flag, joined, list, text, text_or, wide};

/// Nodes.
pub const NODE: &[Column] = &[
    NAME,
    column("Status", |o, _| status(o).into()).says("The status of the node"),
    column("Roles", |o, _| roles(o).into()).says("The roles of the node"),
    AGE,
    column("Version", |o, _| text(o, "/status/nodeInfo/kubeletVersion").into())
        .of("io.k8s.api.core.v1.NodeSystemInfo", "kubeletVersion"),
    wide("Internal-IP", |o, _| address(o, "InternalIP").into())
        .of("io.k8s.api.core.v1.NodeStatus", "addresses"),
    wide("External-IP", |o, _| address(o, "ExternalIP").into())
        .of("io.k8s.api.core.v1.NodeStatus", "addresses"),
    wide("OS-Image", |o, _| text_or(o, "/status/nodeInfo/osImage", "<unknown>").into())
        .of("io.k8s.api.core.v1.NodeSystemInfo", "osImage"),
    wide("Kernel-Version", |o, _| text_or(o, "/status/nodeInfo/kernelVersion", "<unknown>").into())
        .of("io.k8s.api.core.v1.NodeSystemInfo", "kernelVersion"),
    wide("Container-Runtime", |o, _| {
        text_or(o, "/status/nodeInfo/containerRuntimeVersion", "<unknown>").into()
    })
    .of("io.k8s.api.core.v1.NodeSystemInfo", "containerRuntimeVersion"),
];

fn status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        "True" => "Ready",
        "" => "Unknown",
        _ => "NotReady",
    };
    let suffix = if flag(node, "/spec/unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{ready}{suffix}")
}

fn roles(node: &Value) -> String {
    let labels = Metadata::of(node).labels();
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    joined(roles, "<none>")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let address = list(node, "/status/addresses").iter().find(|a| text(a, "/type") == kind);
    address.map_or("<none>", |a| text(a, "/address"))
}
