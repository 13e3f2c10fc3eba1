//! What users ask for: workloads of every kind, and changes of them.

use std::time::Duration;

use serde_json::{Value, json};
use torture::workloads::Judge;

use super::Shared;
use crate::server::TestServer;

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
/// How many Nodes there are; each has room for three Pods.
pub(super) const NODES: u32 = 5;
pub(super) const HAS_CPU: &str = "1600m";
/// Between two changes.
const PAUSE_MILLIS_MAX: u64 = 6000;
/// Finished Jobs that a CronJob keeps, of each outcome.
const KEPT: usize = 1;

/// Makes what is not there yet; after a crash most of it is.
pub(super) async fn prepare(server: &TestServer) {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    make(server, accounts, json!({"metadata": {"name": "default"}})).await;
    for number in 0..NODES {
        let name = format!("node-{number}");
        make(server, "/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        let has = json!({"cpu": HAS_CPU, "memory": "8Gi", "pods": "110"});
        let status = json!({"status": {"capacity": has, "allocatable": has}});
        let patched =
            server.call("PATCH", &format!("/api/v1/nodes/{name}/status"), &status.to_string()).await;
        assert_eq!(patched.code, 200, "{}", patched.body);
        // Whose first word is still out is tainted as not ready.
        let ready = json!({"spec": {"taints": null}}).to_string();
        assert_eq!(server.call("PATCH", &format!("/api/v1/nodes/{name}"), &ready).await.code, 200);
    }
    let replicated = |name: &str, replicas: u32| {
        json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "serviceName": name,
            "selector": {"matchLabels": {"app": name}}, "template": template(name, json!({}), "Always")}})
    };
    let deployment = |name: &str, replicas: u32| {
        let mut deployment = replicated(name, replicas);
        deployment["spec"].as_object_mut().unwrap().remove("serviceName");
        deployment
    };
    make(server, DEPLOYMENTS, deployment("web", 2)).await;
    make(server, DEPLOYMENTS, deployment("scaled", 1)).await;
    let group = json!({"name": "pair", "policy": {"gang": {"minCount": 2}}});
    make(server, WORKLOADS, json!({"metadata": {"name": "pair"}, "spec": {"podGroups": [group]}})).await;
    let mut pair = deployment("pair", 2);
    pair["spec"]["template"]["spec"]["workloadRef"] = json!({"name": "pair", "podGroup": "pair"});
    make(server, DEPLOYMENTS, pair).await;
    make(server, AUTOSCALERS, autoscaler(15)).await;
    make(server, STATEFUL_SETS, replicated("db", 2)).await;
    for (name, ends, spec) in jobs() {
        make(server, JOBS, job(name, ends, spec)).await;
    }
    let often = json!({"metadata": {"name": "often"}, "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": KEPT, "failedJobsHistoryLimit": KEPT,
        "jobTemplate": {"spec": job("often", "mixed", json!({"backoffLimit": 1}))["spec"]}}});
    make(server, CRON_JOBS, often).await;
}

/// Jobs by name, with what becomes of their Pods.
fn jobs() -> [(&'static str, &'static str, Value); 5] {
    let ignores = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [43]}}]});
    [
        ("plain", "well", json!({"completions": 4, "parallelism": 2, "backoffLimit": 100})),
        ("mixed", "mixed", json!({"completions": 3, "parallelism": 2, "backoffLimit": 100})),
        (
            "indexed",
            "mixed",
            json!({"completionMode": "Indexed", "completions": 4, "parallelism": 2, "backoffLimit": 100}),
        ),
        ("failing", "badly", json!({"completions": 2, "parallelism": 2, "backoffLimit": 2})),
        (
            "policy",
            "mixed",
            json!({"completions": 3, "parallelism": 2, "backoffLimit": 100, "podFailurePolicy": ignores}),
        ),
    ]
}

fn job(name: &str, ends: &str, spec: Value) -> Value {
    let mut job = json!({"metadata": {"name": name}, "spec": spec});
    job["spec"]["template"] = template(name, json!(ends), "Never");
    // Jobs select their Pods themselves.
    job["spec"]["template"]["metadata"]["labels"].as_object_mut().unwrap().remove("app");
    job
}

fn template(app: &str, ends: Value, restart: &str) -> Value {
    let mut labels = json!({"app": app});
    if ends.is_string() {
        labels["ends"] = ends;
    }
    let container = json!({"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "500m"}}});
    json!({"metadata": {"labels": labels},
        "spec": {"restartPolicy": restart, "terminationGracePeriodSeconds": 1, "containers": [container]}})
}

/// As many Pods as a tenth of the load, which the metric's name says.
fn autoscaler(load: u64) -> Value {
    let metric = json!({"metric": {"name": format!("load-{load}")}, "target": {"type": "AverageValue", "averageValue": "10"}});
    json!({"metadata": {"name": "scaled"}, "spec": {"minReplicas": 1, "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"},
        "metrics": [{"type": "External", "external": metric}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}})
}

async fn make(server: &TestServer, path: &str, object: Value) {
    let made = server.call("POST", path, &object.to_string()).await;
    assert!(matches!(made.code.as_u16(), 201 | 409), "{}", made.body);
}

/// One change after the other, for ever.
pub(super) async fn work(shared: &Shared, server: &TestServer) {
    let random = &shared.random;
    loop {
        tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MILLIS_MAX))).await;
        let (number, path) = (random.below(4), |all: &str, name: &str| format!("{all}/{name}"));
        let (method, path, body) = match random.below(6) {
            0 => ("PATCH", path(DEPLOYMENTS, "web"), json!({"spec": {"replicas": number}})),
            1 => ("PATCH", path(DEPLOYMENTS, "web"), image(number)),
            2 => ("PATCH", path(STATEFUL_SETS, "db"), json!({"spec": {"replicas": number}})),
            3 => ("PATCH", path(AUTOSCALERS, "scaled"), json!({"spec": autoscaler(number * 10)["spec"]})),
            4 => match pick(shared) {
                Some(pod) => ("DELETE", path(PODS, &pod), json!({})),
                None => continue,
            },
            _ => again(shared, server).await,
        };
        server.call(method, &path, &body.to_string()).await;
    }
}

fn image(number: u64) -> Value {
    let container =
        json!({"name": "c", "image": format!("i:{number}"), "resources": {"requests": {"cpu": "500m"}}});
    json!({"spec": {"template": {"spec": {"containers": [container]}}}})
}

/// Deletes a Job, one way or the other; it may be made again at once.
async fn again(shared: &Shared, server: &TestServer) -> (&'static str, String, Value) {
    let all = jobs();
    let chosen = usize::try_from(shared.random.below(all.len() as u64)).unwrap();
    let (name, ends, spec) = all[chosen].clone();
    let policy = if shared.random.below(2) == 0 { "Background" } else { "Foreground" };
    let options = json!({"propagationPolicy": policy}).to_string();
    server.call("DELETE", &format!("{JOBS}/{name}"), &options).await;
    ("POST", JOBS.to_owned(), job(name, ends, spec))
}

/// Any Pod.
fn pick(shared: &Shared) -> Option<String> {
    let judge = shared.judge.lock();
    let names: Vec<&str> = judge.all("pods").filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    let chosen = usize::try_from(shared.random.below(names.len().max(1) as u64)).unwrap();
    names.get(chosen).map(|name| (*name).to_owned())
}

/// Asks for what there is to be in the end.
pub(super) async fn settle(server: &TestServer) {
    let changes = [
        (format!("{DEPLOYMENTS}/web"), json!({"spec": {"replicas": 2}})),
        (format!("{STATEFUL_SETS}/db"), json!({"spec": {"replicas": 2}})),
        (format!("{AUTOSCALERS}/scaled"), json!({"spec": autoscaler(20)["spec"]})),
        (format!("{CRON_JOBS}/often"), json!({"spec": {"suspend": true}})),
    ];
    for (path, change) in changes {
        let changed = server.call("PATCH", &path, &change.to_string()).await;
        assert_eq!(changed.code, 200, "{}", changed.body);
    }
}

/// What is not as it was asked for.
pub(super) fn unsettled(judge: &Judge) -> Vec<String> {
    let mut wrong: Vec<String> = judge.held().into_iter().map(|pod| format!("Pod {pod} is held")).collect();
    for (kind, ready) in [("deployments", "availableReplicas"), ("statefulsets", "readyReplicas")] {
        for object in judge.all(kind) {
            let (status, generation) = (&object["status"], &object["metadata"]["generation"]);
            let is_there = ["replicas", "updatedReplicas", ready].iter().all(|count| status[count] == 2);
            if object["spec"]["replicas"] != 2 || !is_there || status["observedGeneration"] != *generation {
                wrong.push(format!("{kind}/{}: {status}", object["metadata"]["name"]));
            }
        }
    }
    let condition = |job: &Value, kind: &str| {
        let all = job["status"]["conditions"].as_array().into_iter().flatten();
        all.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let mut kept = [0, 0];
    for job in judge.all("jobs") {
        let (name, is_failed) =
            (job["metadata"]["name"].as_str().unwrap_or_default(), condition(job, "Failed"));
        if name.starts_with("often-") {
            kept[usize::from(is_failed)] += 1;
        }
        let should_fail = name == "failing";
        let is_right = name.starts_with("often-") || is_failed == should_fail;
        if !(is_failed || condition(job, "Complete")) || !is_right {
            wrong.push(format!("Job {name}: {}", job["status"]));
        }
    }
    if kept.iter().any(|count| *count > KEPT) {
        wrong.push(format!("{kept:?} finished Jobs of a CronJob are kept"));
    }
    wrong
}

/// Deletes all that was asked for.
pub(super) async fn delete_all(shared: &Shared, server: &TestServer) {
    for all in [AUTOSCALERS, CRON_JOBS, DEPLOYMENTS, STATEFUL_SETS, JOBS] {
        let policy = if shared.random.below(2) == 0 { "Background" } else { "Foreground" };
        let deleted = server.call("DELETE", all, &json!({"propagationPolicy": policy}).to_string()).await;
        assert_eq!(deleted.code, 200, "{}", deleted.body);
    }
}
