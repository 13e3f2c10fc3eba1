//! Between the served and the stored form of objects that two group-versions share.
//!
//! Only `apiVersion` differs for most kinds; the functions here do the rest, in place.

use serde_json::{Map, Value};

/// Both directions; `apiVersion` is set by the caller.
#[derive(Debug)]
pub struct Conversion {
    /// From the served form to the stored one.
    pub to_storage: fn(&mut Map<String, Value>),
    /// From the stored form to the served one.
    pub from_storage: fn(&mut Map<String, Value>),
}

/// `events.k8s.io/v1` Events, stored as core ones.
pub const EVENT: Conversion = Conversion { to_storage: event_to_core, from_storage: event_from_core };

/// `autoscaling/v1` HorizontalPodAutoscalers, stored as v2.
pub const HORIZONTAL_POD_AUTOSCALER: Conversion =
    Conversion { to_storage: hpa_to_v2, from_storage: hpa_from_v2 };

/// New name, old (core) name.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn event_to_core(event: &mut Map<String, Value>) {
    for (served, stored) in EVENT_FIELDS {
        rename(event, served, stored);
    }
}

fn event_from_core(event: &mut Map<String, Value>) {
    for (served, stored) in EVENT_FIELDS {
        rename(event, stored, served);
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

/// The CPU target becomes a resource metric; other metrics travel in an annotation, as upstream does.
fn hpa_to_v2(hpa: &mut Map<String, Value>) {
    let others = hpa
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
        .and_then(Value::as_object_mut)
        .and_then(|a| a.remove(METRICS));
    let Some(spec) = hpa.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let mut metrics = match others.as_ref().and_then(Value::as_str).map(serde_json::from_str) {
        Some(Ok(Value::Array(list))) => list,
        _ => Vec::new(),
    };
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
        let target = serde_json::json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(
            0,
            serde_json::json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}),
        );
    }
    if !metrics.is_empty() {
        spec.insert("metrics".to_owned(), Value::Array(metrics));
    }
    if let Some(status) = hpa.get_mut("status").and_then(Value::as_object_mut)
        && let Some(percent) = status.remove("currentCPUUtilizationPercentage")
    {
        let current = serde_json::json!({"averageUtilization": percent});
        let metric = serde_json::json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
        status.insert("currentMetrics".to_owned(), Value::Array(vec![metric]));
    }
}

fn hpa_from_v2(hpa: &mut Map<String, Value>) {
    let Some(spec) = hpa.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let metrics = match spec.remove("metrics") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|m| cpu_target(m).is_some());
    if let Some(percent) = cpu.first().and_then(cpu_target) {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
    }
    spec.remove("behavior");
    if let Some(status) = hpa.get_mut("status").and_then(Value::as_object_mut)
        && let Some(Value::Array(metrics)) = status.remove("currentMetrics")
        && let Some(percent) = metrics.iter().find_map(|m| m.pointer("/resource/current/averageUtilization"))
    {
        status.insert("currentCPUUtilizationPercentage".to_owned(), percent.clone());
        status.remove("conditions");
    }
    if others.is_empty() {
        return;
    }
    let Some(metadata) = hpa.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(METRICS.to_owned(), Value::Array(others).to_string().into());
    }
}

fn cpu_target(metric: &Value) -> Option<Value> {
    let is_cpu = metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu");
    metric.pointer("/resource/target/averageUtilization").filter(|_| is_cpu).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(conversion: &Conversion, served: Value, stored: Value) {
        let mut map = served.as_object().unwrap().clone();
        (conversion.to_storage)(&mut map);
        assert_eq!(Value::Object(map.clone()), stored);
        (conversion.from_storage)(&mut map);
        assert_eq!(Value::Object(map), served);
    }

    #[test]
    fn events_have_other_field_names_in_core() {
        check(
            &EVENT,
            json!({"note": "n", "regarding": {"kind": "Pod"}, "reportingController": "c"}),
            json!({"message": "n", "involvedObject": {"kind": "Pod"}, "reportingComponent": "c"}),
        );
    }

    #[test]
    fn a_cpu_percentage_is_a_resource_metric_in_v2() {
        check(
            &HORIZONTAL_POD_AUTOSCALER,
            json!({"spec": {"targetCPUUtilizationPercentage": 80}}),
            json!({"spec": {"metrics": [{"type": "Resource", "resource":
                {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}}),
        );
    }
}
