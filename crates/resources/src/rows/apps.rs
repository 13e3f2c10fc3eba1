//! Workloads: `apps`, `batch`, `autoscaling`.

use crate::columns as c;
use crate::conversion;
use crate::fields;
use crate::resource::{Resource, SCALE, STATUS, Scope};
use crate::strategies as s;

const APPS: (&str, &str) = ("apps", "v1");
const BATCH: (&str, &str) = ("batch", "v1");

const fn row(
    api: (&'static str, &'static str),
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::new(api, plural, singular, kind, Scope::Namespaced)
}

const fn autoscaler(version: &'static str) -> Resource {
    row(
        ("autoscaling", version),
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
        "HorizontalPodAutoscaler",
    )
    .short(&["hpa"])
    .in_all()
    .sub(&[STATUS])
    .strategy(&s::HORIZONTAL_POD_AUTOSCALER)
    .columns(c::HORIZONTAL_POD_AUTOSCALER)
}

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    row(APPS, "controllerrevisions", "controllerrevision", "ControllerRevision")
        .strategy(&s::CONTROLLER_REVISION)
        .columns(c::CONTROLLER_REVISION),
    row(APPS, "daemonsets", "daemonset", "DaemonSet")
        .short(&["ds"])
        .in_all()
        .sub(&[STATUS])
        .strategy(&s::DAEMON_SET)
        .columns(c::DAEMON_SET),
    row(APPS, "deployments", "deployment", "Deployment")
        .short(&["deploy"])
        .in_all()
        .sub(&[SCALE, STATUS])
        .strategy(&s::DEPLOYMENT)
        .columns(c::DEPLOYMENT),
    row(APPS, "replicasets", "replicaset", "ReplicaSet")
        .short(&["rs"])
        .in_all()
        .sub(&[SCALE, STATUS])
        .fields(fields::REPLICAS)
        .strategy(&s::REPLICA_SET)
        .columns(c::REPLICA_SET),
    row(APPS, "statefulsets", "statefulset", "StatefulSet")
        .short(&["sts"])
        .in_all()
        .sub(&[SCALE, STATUS])
        .strategy(&s::STATEFUL_SET)
        .columns(c::STATEFUL_SET),
    // Both versions are stored as v2, which says more.
    autoscaler("v2"),
    autoscaler("v1").stored_as("autoscaling/v2", Some(&conversion::HORIZONTAL_POD_AUTOSCALER)),
    row(BATCH, "cronjobs", "cronjob", "CronJob")
        .short(&["cj"])
        .in_all()
        .sub(&[STATUS])
        .strategy(&s::CRON_JOB)
        .columns(c::CRON_JOB),
    row(BATCH, "jobs", "job", "Job")
        .in_all()
        .sub(&[STATUS])
        .fields(fields::JOB)
        .strategy(&s::JOB)
        .columns(c::JOB),
];
