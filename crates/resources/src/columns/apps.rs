//! Workloads: `apps`, `batch`, `autoscaling`.

use jiff::Timestamp;
use machinery::duration;
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{
    AGE, CONTAINERS, Column, IMAGES, NAME, SELECTOR, column, condition, flag, integer, labels, len, list,
    map, number, since, text, text_or,
};

fn ready(object: &Value, _: Timestamp) -> Value {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
}

/// Deployments.
pub const DEPLOYMENT: &[Column] = &[
    NAME,
    column("Ready", ready).says("Number of the pod with ready state"),
    column("Up-to-date", |o, _| number(o, "/status/updatedReplicas").into())
        .of("io.k8s.api.apps.v1.DeploymentStatus", "updatedReplicas"),
    column("Available", |o, _| number(o, "/status/availableReplicas").into())
        .of("io.k8s.api.apps.v1.DeploymentStatus", "availableReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR.of("io.k8s.api.apps.v1.DeploymentSpec", "selector"),
];

/// The Scale of anything.
pub const SCALE: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/spec/replicas").into())
        .of("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas"),
    integer("Available", |o, _| number(o, "/status/replicas").into())
        .of("io.k8s.api.autoscaling.v1.ScaleStatus", "replicas"),
    AGE,
];

/// ReplicaSets.
pub const REPLICA_SET: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/spec/replicas").into())
        .of("io.k8s.api.apps.v1.ReplicaSetSpec", "replicas"),
    integer("Current", |o, _| number(o, "/status/replicas").into())
        .of("io.k8s.api.apps.v1.ReplicaSetStatus", "replicas"),
    integer("Ready", |o, _| number(o, "/status/readyReplicas").into())
        .of("io.k8s.api.apps.v1.ReplicaSetStatus", "readyReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR.of("io.k8s.api.apps.v1.ReplicaSetSpec", "selector"),
];

/// StatefulSets.
pub const STATEFUL_SET: &[Column] =
    &[NAME, column("Ready", ready).says("Number of the pod with ready state"), AGE, CONTAINERS, IMAGES];

/// DaemonSets.
pub const DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/status/desiredNumberScheduled").into())
        .of("io.k8s.api.apps.v1.DaemonSetStatus", "desiredNumberScheduled"),
    integer("Current", |o, _| number(o, "/status/currentNumberScheduled").into())
        .of("io.k8s.api.apps.v1.DaemonSetStatus", "currentNumberScheduled"),
    integer("Ready", |o, _| number(o, "/status/numberReady").into())
        .of("io.k8s.api.apps.v1.DaemonSetStatus", "numberReady"),
    integer("Up-to-date", |o, _| number(o, "/status/updatedNumberScheduled").into())
        .of("io.k8s.api.apps.v1.DaemonSetStatus", "updatedNumberScheduled"),
    integer("Available", |o, _| number(o, "/status/numberAvailable").into())
        .of("io.k8s.api.apps.v1.DaemonSetStatus", "numberAvailable"),
    column("Node Selector", |o, _| labels(map(o, "/spec/template/spec/nodeSelector")).into())
        .of("io.k8s.api.core.v1.PodSpec", "nodeSelector"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR.of("io.k8s.api.apps.v1.DaemonSetSpec", "selector"),
];

/// ControllerRevisions.
pub const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    column("Controller", |o, _| controller(o).into()).says("Controller of the object"),
    column("Revision", |o, _| number(o, "/revision").into())
        .of("io.k8s.api.apps.v1.ControllerRevision", "revision"),
    AGE,
];

fn controller(object: &Value) -> String {
    let Some(owner) = Metadata::of(object).controller() else { return "<none>".to_owned() };
    let kind = owner.kind.to_lowercase();
    match owner.api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.name),
        None => format!("{kind}/{}", owner.name),
    }
}

/// Jobs.
pub const JOB: &[Column] = &[
    NAME,
    column("Status", |o, _| job_status(o).into()).says("Status of the job."),
    column("Completions", |o, _| completions(o).into()).of("io.k8s.api.batch.v1.JobStatus", "succeeded"),
    column("Duration", |o, now| job_duration(o, now).into()).says("Time required to complete the job."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR.of("io.k8s.api.batch.v1.JobSpec", "selector"),
];

fn job_status(job: &Value) -> &'static str {
    let is = |kind: &str| condition(job, kind) == "True";
    if is("Complete") {
        return "Complete";
    }
    if is("Failed") {
        return "Failed";
    }
    if Metadata::of(job).is_terminating() {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|kind| is(kind))
        .unwrap_or("Running")
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    let wanted = job.pointer("/spec/completions").and_then(Value::as_i64);
    match (wanted, number(job, "/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let at = |pointer: &str| text(job, pointer).parse::<Timestamp>().ok();
    match (at("/status/startTime"), at("/status/completionTime")) {
        (None, _) => String::new(),
        (start, end) => duration::age(start, end.unwrap_or(now)),
    }
}

/// CronJobs.
pub const CRON_JOB: &[Column] = &[
    NAME,
    column("Schedule", |o, _| text(o, "/spec/schedule").into())
        .of("io.k8s.api.batch.v1.CronJobSpec", "schedule"),
    column("Timezone", |o, _| text_or(o, "/spec/timeZone", "<none>").into())
        .of("io.k8s.api.batch.v1.CronJobSpec", "timeZone"),
    super::boolean("Suspend", |o, _| if flag(o, "/spec/suspend") { "True" } else { "False" }.into())
        .of("io.k8s.api.batch.v1.CronJobSpec", "suspend"),
    integer("Active", |o, _| len(o, "/status/active").into())
        .of("io.k8s.api.batch.v1.CronJobStatus", "active"),
    column("Last Schedule", |o, now| match text(o, "/status/lastScheduleTime") {
        "" => "<none>".into(),
        _ => since(o, "/status/lastScheduleTime", now).into(),
    })
    .of("io.k8s.api.batch.v1.CronJobStatus", "lastScheduleTime"),
    AGE,
    super::wide("Containers", |o, _| cron_texts(o, "/name")).says("Names of each container in the template."),
    super::wide("Images", |o, _| cron_texts(o, "/image"))
        .says("Images referenced by each container in the template."),
    super::wide("Selector", |o, _| super::selector(o, "/spec/jobTemplate/spec/selector").into())
        .of("io.k8s.api.batch.v1.JobSpec", "selector"),
];

fn cron_texts(job: &Value, field: &str) -> Value {
    let containers = list(job, "/spec/jobTemplate/spec/template/spec/containers");
    super::joined(containers.iter().map(|c| text(c, field)), "").into()
}

/// HorizontalPodAutoscalers of both versions.
pub const HORIZONTAL_POD_AUTOSCALER: &[Column] = &[
    NAME,
    column("Reference", |o, _| {
        format!("{}/{}", text(o, "/spec/scaleTargetRef/kind"), text(o, "/spec/scaleTargetRef/name")).into()
    })
    .of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef"),
    column("Targets", |o, _| targets(o).into())
        .of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics"),
    column("MinPods", |o, _| match o.pointer("/spec/minReplicas").and_then(Value::as_i64) {
        Some(min) => min.to_string().into(),
        None => "<unset>".into(),
    })
    .of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "minReplicas"),
    column("MaxPods", |o, _| number(o, "/spec/maxReplicas").into())
        .of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "maxReplicas"),
    column("Replicas", |o, _| number(o, "/status/currentReplicas").into())
        .of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", "currentReplicas"),
    AGE,
];

fn targets(autoscaler: &Value) -> String {
    let percent = |n: Option<&Value>, otherwise: &str| {
        n.and_then(Value::as_i64).map_or_else(|| otherwise.to_owned(), |n| format!("{n}%"))
    };
    if let Some(target) = autoscaler.pointer("/spec/targetCPUUtilizationPercentage") {
        let current = autoscaler.pointer("/status/currentCPUUtilizationPercentage");
        return format!("cpu: {}/{}", percent(current, "<unknown>"), percent(Some(target), "<auto>"));
    }
    let statuses = list(autoscaler, "/status/currentMetrics");
    let metric = |(index, metric): (usize, &Value)| {
        let source = match text(metric, "/type") {
            "Resource" => "resource",
            "ContainerResource" => "containerResource",
            "Pods" => "pods",
            "Object" => "object",
            "External" => "external",
            _ => return "<unknown type>".to_owned(),
        };
        let now = |field: &str| statuses.get(index)?.pointer(&format!("/{source}/current/{field}"));
        let goal = |field: &str| metric.pointer(&format!("/{source}/target/{field}"));
        let amount = |n: Option<&Value>| n.and_then(Value::as_str).unwrap_or("<unknown>").to_owned();
        let name = match source {
            "resource" | "containerResource" => format!("{}: ", text(metric, &format!("/{source}/name"))),
            _ => String::new(),
        };
        if goal("averageValue").is_some() {
            let average = if matches!(source, "object" | "external") { " (avg)" } else { "" };
            return format!(
                "{name}{}/{}{average}",
                amount(now("averageValue")),
                amount(goal("averageValue"))
            );
        }
        if name.is_empty() {
            return format!("{}/{}", amount(now("value")), amount(goal("value")));
        }
        let current = percent(now("averageUtilization"), "<unknown>");
        format!("{name}{current}/{}", percent(goal("averageUtilization"), "<auto>"))
    };
    let shown: Vec<_> = list(autoscaler, "/spec/metrics").iter().enumerate().map(metric).collect();
    match shown.len() {
        0 => "<none>".to_owned(),
        1 | 2 => shown.join(", "),
        n => format!("{} + {} more...", shown.get(..2).unwrap_or_default().join(", "), n - 2),
    }
}
