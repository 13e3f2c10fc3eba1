//! Nodes: they take in the Pods that they have room for and refuse the others, as kubelets do. Pods run, and end as their labels
//! say (`ends`: `well`, `badly`, `mixed`; without it they go on for ever).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use torture::workloads::{asked, milli};

use super::parts::Lie;
use super::user::{HAS_CPU, PODS};
use super::{Shared, user};
use crate::server::{Answer, TestServer};

/// Between two looks at the Pods.
const LOOK_EVERY: Duration = Duration::from_millis(400);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Of a hundred looks at a Pod, at how many it goes on.
const GOES_ON_PERCENT: u64 = 40;

/// What a Node does about a Pod.
#[derive(Debug, PartialEq)]
enum Step {
    /// It has come so far, with this exit code if it has ended.
    Say(&'static str, Option<u8>),
    /// There is no room for it.
    Refuse,
    /// It has nothing of it any more.
    LetGo,
}

/// Looks after all Pods that are bound.
pub(super) async fn run(shared: Shared, server: Arc<TestServer>) {
    loop {
        let listed = call(&server, "GET", PODS, "").await;
        let pods = listed.body["items"].as_array().map_or(&[][..], Vec::as_slice);
        let mut rooms = rooms(pods);
        for pod in pods {
            if shared.random.below(100) >= GOES_ON_PERCENT {
                continue;
            }
            let step = next(pod).map(|step| admitted(step, pod, &mut rooms));
            let step = match step {
                Some(Step::Refuse) if shared.lie == Some(Lie::TakesAllIn) => Some(Step::Say("Running", None)),
                step => step,
            };
            if let Some(step) = step {
                take(&server, pod, step).await;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn call(server: &TestServer, method: &str, path: &str, body: &str) -> Answer {
    let answer = tokio::time::timeout(ANSWER_MAX, server.call(method, path, body)).await;
    answer.unwrap_or_else(|_| panic!("{method} {path} is not answered"))
}

/// The CPU that is left on each Node beside those that it has taken in, in thousandths.
fn rooms(pods: &[Value]) -> BTreeMap<String, i64> {
    let node = |number| (format!("node-{number}"), milli(Some(&HAS_CPU.into())));
    let mut rooms: BTreeMap<_, _> = (0..user::NODES).map(node).collect();
    for pod in pods.iter().filter(|pod| pod["status"]["phase"] == "Running") {
        if let Some(room) = pod["spec"]["nodeName"].as_str().and_then(|node| rooms.get_mut(node)) {
            *room -= asked(pod);
        }
    }
    rooms
}

/// Whoever is to run needs room. Source: the admission of `pkg/kubelet/lifecycle`.
fn admitted(step: Step, pod: &Value, rooms: &mut BTreeMap<String, i64>) -> Step {
    if step != Step::Say("Running", None) {
        return step;
    }
    let Some(room) = pod["spec"]["nodeName"].as_str().and_then(|node| rooms.get_mut(node)) else {
        return step;
    };
    if *room < asked(pod) {
        return Step::Refuse;
    }
    *room -= asked(pod);
    step
}

fn next(pod: &Value) -> Option<Step> {
    pod["spec"]["nodeName"].as_str()?;
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Some(if has_ended { Step::LetGo } else { Step::Say("Failed", Some(137)) });
    }
    if has_ended {
        return None;
    }
    if phase != "Running" {
        return Some(Step::Say("Running", None));
    }
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let (ends, chance) = (pod["metadata"]["labels"]["ends"].as_str()?, hasher.finish() % 10);
    Some(match (ends, chance) {
        ("well", _) | ("mixed", 0..6) => Step::Say("Succeeded", Some(0)),
        ("mixed", 6..8) => Step::Say("Failed", Some(43)),
        _ => Step::Say("Failed", Some(1)),
    })
}

async fn take(server: &TestServer, pod: &Value, step: Step) {
    let (name, uid) = (pod["metadata"]["name"].as_str().unwrap(), &pod["metadata"]["uid"]);
    match step {
        Step::Say(phase, exit_code) => {
            let (is_ready, now) = (exit_code.is_none(), "2026-01-01T00:00:00Z");
            let state = match exit_code {
                None => json!({"running": {"startedAt": now}}),
                Some(code) => json!({"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}}),
            };
            let container = json!({"name": "c", "image": "i", "imageID": "", "ready": is_ready, "restartCount": 0, "state": state});
            let ready = if is_ready { "True" } else { "False" };
            let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": now});
            let status = json!({"phase": phase, "startTime": now, "conditions": [condition], "containerStatuses": [container]});
            let patch = json!({"metadata": {"uid": uid}, "status": status}).to_string();
            call(server, "PATCH", &format!("{PODS}/{name}/status"), &patch).await;
        }
        Step::Refuse => {
            let status = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"});
            let patch = json!({"metadata": {"uid": uid}, "status": status}).to_string();
            call(server, "PATCH", &format!("{PODS}/{name}/status"), &patch).await;
        }
        Step::LetGo => {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}).to_string();
            call(server, "DELETE", &format!("{PODS}/{name}"), &options).await;
        }
    }
}
