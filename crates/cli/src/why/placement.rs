//! Why no Node takes a Pod, by what the Nodes have: room, labels, taints, and the claims that the Pod waits for.

use machinery::quantity::Quantity;
use serde_json::Value;

use super::{Reason, Snapshot, claim, condition, list, reference, text};

/// What the scheduler's message does not say.
pub(super) fn details(snapshot: &Snapshot, pod: &Value, message: &str) -> Vec<Reason> {
    let object = reference(pod);
    let mut reasons: Vec<Reason> = Vec::new();
    for resource in ["cpu", "memory"] {
        if message.contains(&format!("Insufficient {resource}")) {
            reasons.push(Reason::new(&object, free_resources(snapshot, pod, resource)));
        }
    }
    if ["node affinity/selector", "plugin(s) [NodeAffinity]"].iter().any(|text| message.contains(text)) {
        reasons.extend(labels(snapshot, pod).map(|what| Reason::new(&object, what)));
    }
    if message.contains("untolerated taint") {
        reasons.extend(taints(snapshot).map(|what| Reason::new(&object, what)));
    }
    reasons.extend(claims(snapshot, pod));
    reasons
}

fn nodes(snapshot: &Snapshot) -> impl Iterator<Item = &Value> {
    snapshot.others.iter().filter(|object| text(object, "/kind") == "Node")
}

/// `it asks for 64 of cpu; vm has 1800m of 2 free`
fn free_resources(snapshot: &Snapshot, pod: &Value, resource: &str) -> String {
    let free = nodes(snapshot).map(|node| {
        let name = text(node, "/metadata/name");
        let all = quantity(node.pointer(&format!("/status/allocatable/{resource}")));
        let used =
            snapshot.placed.iter().filter(|pod| text(pod, "/spec/nodeName") == name && holds_room(pod));
        let used = used.fold(Quantity::default(), |sum, pod| sum.plus(requested(pod, resource)));
        format!("{name} has {} of {all} free", all.minus(used))
    });
    let free = free.collect::<Vec<_>>().join(", ");
    let free = if free.is_empty() { "there is no Node".to_owned() } else { free };
    format!("it asks for {} of {resource}; {free}", requested(pod, resource))
}

fn holds_room(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The larger of what all containers ask for, and of what one init container does.
fn requested(pod: &Value, resource: &str) -> Quantity {
    let path = format!("/resources/requests/{resource}");
    let of =
        |list_path: &str| list(pod, list_path).iter().map(|container| quantity(container.pointer(&path)));
    let sum = of("/spec/containers").fold(Quantity::default(), Quantity::plus);
    of("/spec/initContainers").fold(sum, |most, one| if one > most { one } else { most })
}

fn quantity(value: Option<&Value>) -> Quantity {
    value.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Which labels of its nodeSelector no Node has.
fn labels(snapshot: &Snapshot, pod: &Value) -> Option<String> {
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object)?;
    let has = |node: &Value, key: &str, value: &Value| {
        node.pointer("/metadata/labels").and_then(|labels| labels.get(key)) == Some(value)
    };
    let missing = selector.iter().filter(|(key, value)| !nodes(snapshot).any(|node| has(node, key, value)));
    let missing = missing.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let missing = missing.collect::<Vec<_>>().join(", ");
    (!missing.is_empty()).then(|| format!("no Node has the label {missing} of its nodeSelector"))
}

/// `vm has the taint dedicated=gpu:NoSchedule`
fn taints(snapshot: &Snapshot) -> Option<String> {
    let of = |node: &Value| {
        let taint = |taint: &Value| {
            let [key, value, effect] = ["/key", "/value", "/effect"].map(|path| text(taint, path));
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            format!("{key}{value}:{effect}")
        };
        let taints = list(node, "/spec/taints").iter().map(taint).collect::<Vec<_>>().join(", ");
        (!taints.is_empty()).then(|| format!("{} has the taint {taints}", text(node, "/metadata/name")))
    };
    let all = nodes(snapshot).filter_map(of).collect::<Vec<_>>().join("; ");
    (!all.is_empty()).then_some(all)
}

/// What the claims that it uses say, as far as they are not bound.
fn claims(snapshot: &Snapshot, pod: &Value) -> Vec<Reason> {
    let names =
        list(pod, "/spec/volumes").iter().map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let found = names.filter(|name| !name.is_empty()).filter_map(|name| {
        let is_it = |other: &&Value| {
            text(other, "/kind") == "PersistentVolumeClaim" && text(other, "/metadata/name") == name
        };
        snapshot.others.iter().find(is_it)
    });
    // A claim that waits for its first Pod waits for this one.
    let found = found.filter(|claim| condition(claim, "FileSystemResizePending").is_none());
    found.flat_map(|object| claim(snapshot, object).2).collect()
}
