//! Limits of a container's cgroup.

use cri::v1;
use serde_json::{Map, Value, json};

use super::{HostDevice, Input};

pub(super) fn resources(input: &Input<'_>) -> Value {
    let mut resources = Map::new();
    resources.insert("devices".into(), json!(device_rules(input)));
    if let Some(wanted) = input.config.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
        limits(wanted, &mut resources);
    }
    Value::Object(resources)
}

/// What is limited, without the rules for devices.
pub(crate) fn limits_document(wanted: &v1::LinuxContainerResources) -> Value {
    let mut resources = Map::new();
    limits(wanted, &mut resources);
    Value::Object(resources)
}

/// Only what is set is written: 0 is CRI's "not set".
fn limits(wanted: &v1::LinuxContainerResources, resources: &mut Map<String, Value>) {
    let mut cpu = Map::new();
    for (name, value) in
        [("shares", wanted.cpu_shares), ("quota", wanted.cpu_quota), ("period", wanted.cpu_period)]
    {
        if value != 0 {
            cpu.insert(name.into(), json!(value));
        }
    }
    for (name, value) in [("cpus", &wanted.cpuset_cpus), ("mems", &wanted.cpuset_mems)] {
        if !value.is_empty() {
            cpu.insert(name.into(), json!(value));
        }
    }
    let mut memory = Map::new();
    for (name, value) in
        [("limit", wanted.memory_limit_in_bytes), ("swap", wanted.memory_swap_limit_in_bytes)]
    {
        if value != 0 {
            memory.insert(name.into(), json!(value));
        }
    }
    for (name, value) in [("cpu", cpu), ("memory", memory)] {
        if !value.is_empty() {
            resources.insert(name.into(), Value::Object(value));
        }
    }
    if !wanted.hugepage_limits.is_empty() {
        let limits = wanted.hugepage_limits.iter();
        let limits: Vec<Value> =
            limits.map(|it| json!({ "pageSize": it.page_size, "limit": it.limit })).collect();
        resources.insert("hugepageLimits".into(), json!(limits));
    }
    if !wanted.unified.is_empty() {
        let unified: std::collections::BTreeMap<_, _> = wanted.unified.iter().collect();
        resources.insert("unified".into(), json!(unified));
    }
}

/// Nothing but what is named; what every container has libcontainer adds itself.
fn device_rules(input: &Input<'_>) -> Vec<Value> {
    if super::security_context(input.config).privileged {
        return vec![json!({ "allow": true, "access": "rwm" })];
    }
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    rules.extend(input.devices.iter().map(rule));
    rules
}

fn rule(device: &HostDevice) -> Value {
    json!({
        "allow": true,
        "type": if device.is_block { "b" } else { "c" },
        "major": device.major,
        "minor": device.minor,
        "access": device.access,
    })
}
