//! Workloads: `apps`, `batch`, `autoscaling`.

use machinery::features::Feature;
use serde_json::{Map, Value, json};

use super::{Row, absent, each_quantity, object, objects, quantity, text, unset};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.apps.v1.Deployment", |m| with_spec(m, deployment)),
    ("io.k8s.api.apps.v1.DeploymentSpec", with_template),
    ("io.k8s.api.apps.v1.ReplicaSet", |m| with_spec(m, |spec| absent(spec, "replicas", 1))),
    ("io.k8s.api.apps.v1.ReplicaSetSpec", with_template),
    ("io.k8s.api.apps.v1.StatefulSet", |m| with_spec(m, stateful_set)),
    ("io.k8s.api.apps.v1.StatefulSetSpec", with_template),
    ("io.k8s.api.apps.v1.DaemonSet", |m| with_spec(m, daemon_set)),
    ("io.k8s.api.apps.v1.DaemonSetSpec", with_template),
    ("io.k8s.api.apps.v1.ReplicaSetStatus", |m| counts(m, crate::strategies::REPLICA_SET.status_counts)),
    ("io.k8s.api.apps.v1.StatefulSetStatus", |m| counts(m, crate::strategies::STATEFUL_SET.status_counts)),
    ("io.k8s.api.apps.v1.DaemonSetStatus", |m| counts(m, crate::strategies::DAEMON_SET.status_counts)),
    ("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", |m| {
        counts(m, crate::strategies::POD_DISRUPTION_BUDGET.status_counts);
    }),
    ("io.k8s.api.batch.v1.Job", job),
    ("io.k8s.api.batch.v1.JobSpec", with_template),
    ("io.k8s.api.batch.v1.CronJob", |m| with_spec(m, cron_job)),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", |m| unset(m, "status", "True")),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler", |m| {
        with_spec(m, |spec| absent(spec, "minReplicas", 1))
    }),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", |m| with_spec(m, autoscaler)),
    ("io.k8s.api.autoscaling.v2.HPAScalingRules", |m| quantity(m, "tolerance")),
    ("io.k8s.api.autoscaling.v2.MetricTarget", metric),
    ("io.k8s.api.autoscaling.v2.MetricValueStatus", metric),
    ("io.k8s.api.node.v1.Overhead", |m| each_quantity(m, "podFixed")),
];

fn with_spec(map: &mut Map<String, Value>, fill: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(spec) = object(map, "spec") {
        fill(spec);
    }
}

/// A template without a spec is one with an empty spec, which gets the defaults of every Pod.
fn with_template(spec: &mut Map<String, Value>) {
    if let Some(template) = object(spec, "template") {
        absent(template, "spec", Map::new());
    }
}

fn metric(metric: &mut Map<String, Value>) {
    quantity(metric, "value");
    quantity(metric, "averageValue");
}

/// Numbers that clients expect to be there.
fn counts(status: &mut Map<String, Value>, names: &[&str]) {
    names.iter().for_each(|name| absent(status, name, 0));
}

fn deployment(spec: &mut Map<String, Value>) {
    absent(spec, "replicas", 1);
    if let Some(strategy) = object(spec, "strategy") {
        unset(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object(strategy, "rollingUpdate")
        {
            absent(rolling, "maxUnavailable", "25%");
            absent(rolling, "maxSurge", "25%");
        }
    }
    absent(spec, "revisionHistoryLimit", 10);
    absent(spec, "progressDeadlineSeconds", 600);
}

fn stateful_set(spec: &mut Map<String, Value>) {
    unset(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = object(spec, "updateStrategy") {
        unset(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object(strategy, "rollingUpdate")
        {
            absent(rolling, "partition", 0);
            if Feature::MaxUnavailableStatefulSet.is_on() {
                absent(rolling, "maxUnavailable", 1);
            }
        }
    }
    if let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") {
        unset(policy, "whenDeleted", "Retain");
        unset(policy, "whenScaled", "Retain");
    }
    for claim in objects(spec, "volumeClaimTemplates") {
        unset(claim, "apiVersion", "v1");
        unset(claim, "kind", "PersistentVolumeClaim");
    }
    absent(spec, "replicas", 1);
    absent(spec, "revisionHistoryLimit", 10);
}

fn daemon_set(spec: &mut Map<String, Value>) {
    if let Some(strategy) = object(spec, "updateStrategy") {
        unset(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = object(strategy, "rollingUpdate")
        {
            absent(rolling, "maxUnavailable", 1);
            absent(rolling, "maxSurge", 0);
        }
    }
    absent(spec, "revisionHistoryLimit", 10);
}

fn job(job: &mut Map<String, Value>) {
    let template_labels = job.get("spec").and_then(|s| s.pointer("/template/metadata/labels")).cloned();
    if let Some(spec) = object(job, "spec") {
        let has = |spec: &Map<String, Value>, name: &str| spec.get(name).is_some_and(|v| !v.is_null());
        if !has(spec, "completions") && !has(spec, "parallelism") {
            spec.insert("completions".to_owned(), 1.into());
        }
        absent(spec, "parallelism", 1);
        let limit = if has(spec, "backoffLimitPerIndex") { i32::MAX } else { 6 };
        absent(spec, "backoffLimit", limit);
        absent(spec, "completionMode", "NonIndexed");
        absent(spec, "suspend", false);
        let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        absent(spec, "podReplacementPolicy", replacement);
        absent(spec, "manualSelector", false);
    }
    if let Some(labels) = template_labels
        && let Some(metadata) = object(job, "metadata")
    {
        let is_bare = metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty);
        if is_bare {
            metadata.insert("labels".to_owned(), labels);
        }
    }
}

fn cron_job(spec: &mut Map<String, Value>) {
    unset(spec, "concurrencyPolicy", "Allow");
    absent(spec, "suspend", false);
    absent(spec, "successfulJobsHistoryLimit", 3);
    absent(spec, "failedJobsHistoryLimit", 1);
}

fn autoscaler(spec: &mut Map<String, Value>) {
    absent(spec, "minReplicas", 1);
    let has_metrics = spec.get("metrics").and_then(Value::as_array).is_some_and(|m| !m.is_empty());
    if !has_metrics {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.insert(
            "metrics".to_owned(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
        );
    }
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    if let Some(rules) = object(behavior, "scaleUp") {
        absent(rules, "stabilizationWindowSeconds", 0);
        absent(rules, "selectPolicy", "Max");
        absent(rules, "policies", up);
    }
    if let Some(rules) = object(behavior, "scaleDown") {
        absent(rules, "selectPolicy", "Max");
        absent(rules, "policies", down);
    }
}
