//! `autoscaling/v1` HorizontalPodAutoscalers: a CPU target is all they have; the rest of v2 travels in annotations.
//!
//! The annotations hold the metrics in v1's own form, in which each source has its fields flat. Nothing is lost on the
//! way there and back. Source: `pkg/apis/autoscaling/{annotations.go,v1/conversion.go}`.

use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ANNOTATIONS: [&str; 4] = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR];
/// Without any metric. Source: `DefaultCPUUtilization`.
const CPU_PERCENT_DEFAULT: i64 = 80;

/// A field of a metric source: in v1, and where it is in v2.
type Field = (&'static str, &'static str);

/// What metrics of a spec are called. Source: `MetricSpec` of both versions.
const SPEC: &[(&str, &[Field])] = &[
    (
        "resource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name"),
            ("container", "/container"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
    (
        "object",
        &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("averageValue", "/target/averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
];

/// What metrics of a status are called. Source: `MetricStatus` of both versions.
const STATUS: &[(&str, &[Field])] = &[
    (
        "resource",
        &[
            ("name", "/name"),
            ("currentAverageUtilization", "/current/averageUtilization"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name"),
            ("container", "/container"),
            ("currentAverageUtilization", "/current/averageUtilization"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    ),
    (
        "object",
        &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
            ("currentValue", "/current/value"),
            ("averageValue", "/current/averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("currentValue", "/current/value"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    ),
];

/// A v1 object becomes a v2 one.
pub(super) fn to_v2(object: &mut Map<String, Value>) {
    let mut kept = take_annotations(object);
    let mut list = |name: &str| match kept.remove(name) {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    };
    let (others, current, conditions) = (list(METRICS), list(CURRENT_METRICS), list(CONDITIONS));
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let percent = spec.remove("targetCPUUtilizationPercentage");
        let percent = percent.or_else(|| others.is_none().then(|| CPU_PERCENT_DEFAULT.into()));
        let mut metrics: Vec<Value> =
            others.into_iter().flatten().map(|metric| with_target_type(nested(&metric, SPEC))).collect();
        metrics.extend(percent.map(cpu_metric));
        spec.insert("metrics".to_owned(), metrics.into());
        if let Some(behavior) = kept.remove(BEHAVIOR) {
            spec.insert("behavior".to_owned(), recased(behavior, char::to_ascii_lowercase));
        }
    }
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let percent = status.remove("currentCPUUtilizationPercentage");
    if let Some(current) = current {
        let metrics: Vec<Value> = current.iter().map(|metric| nested(metric, STATUS)).collect();
        status.insert("currentMetrics".to_owned(), metrics.into());
    } else if let Some(percent) = percent {
        let resource = json!({"name": "cpu", "current": {"averageUtilization": percent}});
        status.insert("currentMetrics".to_owned(), json!([{"type": "Resource", "resource": resource}]));
    }
    if let Some(conditions) = conditions {
        status.insert("conditions".to_owned(), conditions.into());
    }
}

/// A v2 object becomes a v1 one.
pub(super) fn from_v2(object: &mut Map<String, Value>) {
    drop(take_annotations(object));
    let mut kept: Vec<(&str, Value)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = take_list(spec, "metrics");
        let (cpu, others): (Vec<_>, Vec<_>) =
            metrics.into_iter().partition(|m| cpu_percent(m, "target").is_some());
        if let Some(percent) = cpu.last().and_then(|metric| cpu_percent(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
        }
        if !others.is_empty() {
            kept.push((METRICS, others.iter().map(|metric| flat(metric, SPEC)).collect()));
        }
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            kept.push((BEHAVIOR, recased(behavior, char::to_ascii_uppercase)));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = take_list(status, "currentMetrics");
        if let Some(percent) = metrics.iter().rev().find_map(|metric| cpu_percent(metric, "current")) {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
        }
        if !metrics.is_empty() {
            kept.push((CURRENT_METRICS, metrics.iter().map(|metric| flat(metric, STATUS)).collect()));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            kept.push((CONDITIONS, conditions.into()));
        }
    }
    if kept.is_empty() {
        return;
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.extend(kept.into_iter().map(|(name, value)| (name.to_owned(), value.to_string().into())));
    }
}

/// Takes what the annotations hold out of them; what cannot be read is dropped.
fn take_annotations(object: &mut Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return kept };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return kept;
    };
    for name in ANNOTATIONS {
        let text = annotations.remove(name);
        let value = text.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
        kept.extend(value.map(|value| (name.to_owned(), value)));
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    kept
}

fn take_list(object: &mut Map<String, Value>, name: &str) -> Vec<Value> {
    match object.remove(name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn cpu_metric(percent: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// The percentage in `amount` (`target` or `current`) of a metric about all of the Pods' CPU.
fn cpu_percent(metric: &Value, amount: &str) -> Option<Value> {
    let is_cpu = metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu");
    metric.pointer(&format!("/resource/{amount}/averageUtilization")).filter(|_| is_cpu).cloned()
}

/// A v1 metric in v2's form.
fn nested(metric: &Value, sources: &[(&str, &[Field])]) -> Value {
    let mut new = json!({"type": metric.get("type")});
    for (source, fields) in sources {
        let Some(old) = metric.get(*source) else { continue };
        for (name, pointer) in *fields {
            if let Some(value) = old.get(*name) {
                put(&mut new, &format!("/{source}{pointer}"), value.clone());
            }
        }
    }
    new
}

/// A v2 metric in v1's form.
fn flat(metric: &Value, sources: &[(&str, &[Field])]) -> Value {
    let mut new = json!({"type": metric.get("type")});
    for (source, fields) in sources {
        let Some(old) = metric.get(*source) else { continue };
        for (name, pointer) in *fields {
            if let Some(value) = old.pointer(pointer) {
                put(&mut new, &format!("/{source}/{name}"), value.clone());
            }
        }
    }
    new
}

/// v1 does not say of which type a target is: it follows from what is given.
fn with_target_type(mut metric: Value) -> Value {
    for target in
        metric.as_object_mut().into_iter().flatten().filter_map(|(_, source)| source.get_mut("target"))
    {
        let target_type = ["averageUtilization", "averageValue", "value"]
            .into_iter()
            .zip(["Utilization", "AverageValue", "Value"])
            .find(|(field, _)| target.get(*field).is_some());
        if let Some((_, target_type)) = target_type {
            target["type"] = target_type.into();
        }
    }
    metric
}

fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for name in pointer.split('/').skip(1) {
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(name).or_insert_with(|| json!({}));
    }
    *at = value;
}

/// The same with another case of the first letter of each name: upstream writes its internal names here.
fn recased(value: Value, case: fn(&char) -> char) -> Value {
    match value {
        Value::Object(map) => {
            let rename = |(name, value): (String, Value)| {
                let mut letters = name.chars();
                let first: String = letters.next().iter().map(case).collect();
                (format!("{first}{}", letters.as_str()), recased(value, case))
            };
            Value::Object(map.into_iter().filter(|(_, value)| !value.is_null()).map(rename).collect())
        }
        Value::Array(list) => list.into_iter().map(|value| recased(value, case)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Map<String, Value> {
        serde_saphyr::from_str(yaml).unwrap()
    }

    /// A v2 object there and back.
    fn check(v2: &str) -> Value {
        let stored = parse(v2);
        let mut map = stored.clone();
        from_v2(&mut map);
        let served = Value::Object(map.clone());
        to_v2(&mut map);
        assert_eq!(Value::Object(map), Value::Object(stored));
        served
    }

    #[test]
    fn a_cpu_percentage_is_a_resource_metric_in_v2() {
        let v2 = "{metadata: {name: h}, spec: {metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]}}";
        assert_eq!(check(v2)["spec"], json!({"targetCPUUtilizationPercentage": 70}));
    }

    #[test]
    fn without_any_metric_v1_means_most_of_the_cpu() {
        let mut map = parse("{metadata: {name: h}, spec: {maxReplicas: 3}}");
        to_v2(&mut map);
        assert_eq!(map["spec"]["metrics"], json!([cpu_metric(80.into())]));
    }

    #[test]
    fn other_metrics_travel_in_v1s_form() {
        let served = check(
            "{metadata: {name: h}, spec: {metrics: [\
             {type: Pods, pods: {metric: {name: qps}, target: {type: AverageValue, averageValue: '5'}}}, \
             {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: rps}, target: {type: Value, value: 10k}}}, \
             {type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 50}}}]}}",
        );
        let sent: Value =
            serde_json::from_str(served["metadata"]["annotations"][METRICS].as_str().unwrap()).unwrap();
        assert_eq!(
            sent,
            json!([
                {"type": "Pods", "pods": {"metricName": "qps", "targetAverageValue": "5"}},
                {"type": "Object", "object": {"target": {"kind": "Ingress", "name": "i"}, "metricName": "rps", "targetValue": "10k"}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "targetAverageUtilization": 50}},
            ])
        );
    }

    #[test]
    fn behaviour_status_and_conditions_survive() {
        let served = check(
            "{metadata: {name: h, annotations: {own: x}}, spec: {behavior: {scaleDown: {stabilizationWindowSeconds: 60, policies: [{type: Pods, value: 1, periodSeconds: 15}]}}, \
             metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]}, \
             status: {conditions: [{type: AbleToScale, status: 'True'}], currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 40, averageValue: 400m}}}]}}",
        );
        let annotations = &served["metadata"]["annotations"];
        assert_eq!(annotations["own"], "x");
        assert_eq!(
            annotations[BEHAVIOR],
            r#"{"ScaleDown":{"Policies":[{"PeriodSeconds":15,"Type":"Pods","Value":1}],"StabilizationWindowSeconds":60}}"#
        );
        assert_eq!(annotations[CONDITIONS], r#"[{"status":"True","type":"AbleToScale"}]"#);
        assert_eq!(served["status"], json!({"currentCPUUtilizationPercentage": 40}));
    }
}
