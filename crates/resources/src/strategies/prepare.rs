//! The fields that callers may not set, and those that the server sets, per kind.

use crate::pod_resources::qos_class;
use serde_json::{Map, Value, json};

pub(super) fn child<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    object.as_object_mut()?.entry(name).or_insert_with(|| json!({})).as_object_mut()
}

/// A new Pod is pending and has its quality of service; one with gates says why it is not scheduled.
pub(super) fn pod_create(pod: &mut Value) {
    super::label_keys::join(pod);
    super::app_armor::take_annotations(pod);
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(pod)});
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": null,
        }]);
    }
    if let Some(map) = pod.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// The quality of service never changes, nor is it lost by a writer that leaves it out; nor are the generations that
/// were observed.
pub(super) fn pod_status_update(new: &mut Value, old: &Value) {
    keep_observed_generations(new, old);
    let kept = old.pointer("/status/qosClass").cloned();
    if let Some(status) = child(new, "status") {
        if !status.contains_key("qosClass")
            && let Some(class) = kept
        {
            status.insert("qosClass".to_owned(), class);
        }
        if let Some(ip) =
            status.get("podIP").and_then(Value::as_str).filter(|ip| !ip.is_empty()).map(str::to_owned)
        {
            status.entry("podIPs").or_insert_with(|| json!([{"ip": ip}]));
        }
        if let Some(ip) =
            status.get("hostIP").and_then(Value::as_str).filter(|ip| !ip.is_empty()).map(str::to_owned)
        {
            status.entry("hostIPs").or_insert_with(|| json!([{"ip": ip}]));
        }
    }
}

/// What a writer that does not know of `observedGeneration` leaves out stays, also of conditions: the n-th of a type
/// has the n-th's.
///
/// Source: `preserveOldObservedGeneration`.
fn keep_observed_generations(new: &mut Value, old: &Value) {
    const FIELD: &str = "observedGeneration";
    let observed = |value: &Value| value.get(FIELD).and_then(Value::as_i64).filter(|number| *number != 0);
    let conditions = old.pointer("/status/conditions").and_then(Value::as_array);
    let mut had: Vec<(&Value, Option<i64>)> =
        conditions.into_iter().flatten().map(|condition| (&condition["type"], observed(condition))).collect();
    let Some(status) = new.get_mut("status") else { return };
    let keep = |value: &mut Value, kept: Option<i64>| {
        if let (None, Some(kept), Some(map)) = (observed(value), kept, value.as_object_mut()) {
            map.insert(FIELD.to_owned(), kept.into());
        }
    };
    keep(status, old.get("status").and_then(observed));
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let found = had.iter().position(|(kind, _)| **kind == condition["type"]);
        if let Some((_, generation)) = found.map(|at| had.remove(at)) {
            keep(condition, generation);
        }
    }
}

/// A new namespace is active, and the namespace controller must let go of it before it ends.
pub(super) fn namespace_create(namespace: &mut Value) {
    if let Some(map) = namespace.as_object_mut() {
        map.insert("status".to_owned(), json!({"phase": "Active"}));
    }
    let Some(spec) = child(namespace, "spec") else { return };
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|f| f == "kubernetes")
    {
        list.push("kubernetes".into());
    }
}

/// `spec.finalizers` changes through `/finalize` only.
pub(super) fn namespace_update(new: &mut Value, old: &Value) {
    let kept = old.pointer("/spec/finalizers").cloned();
    if let Some(spec) = child(new, "spec") {
        match kept {
            Some(list) => spec.insert("finalizers".to_owned(), list),
            None => spec.remove("finalizers"),
        };
    }
}

/// A new VolumeAttachment is not attached.
pub(super) fn not_attached(object: &mut Value) {
    set_status(object, json!({"attached": false}));
}

pub(super) fn set_status(object: &mut Value, status: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
}

/// The labels and selector by which a Job knows its Pods, unless the caller manages them. A Job without labels has those
/// of its Pods, as upstream reads it.
pub(super) fn job_create(job: &mut Value) {
    generate_selector(job);
    let labels = job.pointer("/spec/template/metadata/labels").filter(|labels| !labels.is_null()).cloned();
    if let (Some(labels), Some(metadata)) = (labels, child(job, "metadata")) {
        let is_bare = metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty);
        if is_bare {
            metadata.insert("labels".to_owned(), labels);
        }
    }
}

fn generate_selector(job: &mut Value) {
    let uid = job.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = job.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_manual = job.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true);
    if is_manual || uid.is_empty() {
        return;
    }
    let Some(spec) = child(job, "spec") else { return };
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    set_in(selector, "matchLabels", "batch.kubernetes.io/controller-uid", &uid);
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let Some(template) = template.as_object_mut() else { return };
    let metadata = template.entry("metadata").or_insert_with(|| json!({}));
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("job-name", &name),
    ] {
        set_in(metadata, "labels", key, value);
    }
}

/// What the caller set stays: validation says whether it fits.
fn set_in(object: &mut Value, map: &str, key: &str, value: &str) {
    if let Some(map) = child(object, map) {
        map.entry(key).or_insert_with(|| value.into());
    }
}

/// Of the Secrets of a ServiceAccount only the names count.
pub(super) fn secret_names(account: &mut Value) {
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten().filter_map(Value::as_object_mut) {
        secret.retain(|field, _| field == "name");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"requests": both, "limits": both}), "Guaranteed"),
            (json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": both}), "Burstable"),
            (json!({"limits": both}), "Guaranteed"),
            (json!({"requests": {"cpu": "0", "memory": "0"}, "limits": both}), "Burstable"),
            (json!({"limits": {"cpu": "0"}}), "BestEffort"),
        ] {
            assert_eq!(qos_class(&pod(resources.clone())), class, "{resources}");
        }
    }

    #[test]
    fn observed_generations_are_not_lost() {
        let condition = |kind: &str, generation: i64| json!({"type": kind, "observedGeneration": generation});
        let old = json!({"status": {"observedGeneration": 3, "conditions": [
            condition("A", 1), condition("A", 2), condition("B", 3)]}});
        let mut new = json!({"status": {"conditions": [{"type": "A"}, condition("B", 4), {"type": "A"}, {"type": "A"}]}});
        pod_status_update(&mut new, &old);
        assert_eq!(
            new["status"],
            json!({"observedGeneration": 3, "conditions": [
                condition("A", 1), condition("B", 4), condition("A", 2), {"type": "A"}]})
        );
    }

    #[test]
    fn a_namespace_keeps_its_finalizers_through_updates() {
        let mut namespace = json!({});
        namespace_create(&mut namespace);
        let mut new = json!({"spec": {}});
        namespace_update(&mut new, &namespace);
        assert_eq!(new["spec"], json!({"finalizers": ["kubernetes"]}));
    }

    #[test]
    fn a_job_selects_its_pods_by_its_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {}}}});
        job_create(&mut job);
        assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
        let labels = job["spec"]["template"]["metadata"]["labels"].clone();
        assert_eq!(labels["job-name"], "j");
        assert_eq!(job["metadata"]["labels"], labels, "a Job without labels");
        let mut job =
            json!({"metadata": {"name": "j", "uid": "u", "labels": {"a": "b"}}, "spec": {"template": {}}});
        job_create(&mut job);
        assert_eq!(job["metadata"]["labels"], json!({"a": "b"}), "a Job with labels");
    }
}
