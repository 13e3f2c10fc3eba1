//! Jobs whose controller is killed at every request, or loses every answer: each Pod is counted once.

use std::collections::BTreeMap;

use base::Random;
use serde_json::{Value, json};

use super::*;
use crate::fixture::world::{FaultyExecutor, Life, Trouble, World};

/// A run ends long before that.
const ROUNDS_MAX: usize = 400;

/// How a Job went.
#[derive(Debug, PartialEq)]
struct End {
    condition: String,
    succeeded: i64,
    failed: i64,
    requests: usize,
}

struct Run {
    world: World,
    random: Random,
    endings: Endings,
    /// What became of each Pod that ended while it counted, by uid.
    outcomes: BTreeMap<String, &'static str>,
}

impl Run {
    fn new(spec: &str, seed: u64) -> Self {
        let mut world = World::default();
        let mut job = serde_json::to_value(job(spec, "")).unwrap();
        job["metadata"]["uid"] = json!("j1");
        world.put("jobs", job);
        Self { world, random: Random::seeded(seed), endings: Endings::default(), outcomes: BTreeMap::new() }
    }

    fn snapshot(&mut self, round: usize) -> Option<Snapshot> {
        let job = self.world.get::<Job>("jobs", "j")?;
        if finished(&job).is_some() {
            return None;
        }
        let pods = self.world.all::<Pod>("pods");
        let spec = job.spec.clone().unwrap();
        self.endings.learn(pods.iter().map(|pod| (&**pod, pods::role(&spec, pod))));
        Some(Snapshot { job, pods, endings: self.endings.clone(), revision: u64::try_from(round).unwrap() })
    }

    /// What Nodes do meanwhile: Pods run, end well or badly, and go when they are told to.
    fn live(&mut self, bad: f64) {
        for pod in self.world.all::<Pod>("pods") {
            let name = pod.metadata.name.clone().unwrap();
            let (phase, chance) = (crate::pod::phase(&pod).to_owned(), self.random.unit());
            let next = match phase.as_str() {
                "Succeeded" | "Failed" => continue,
                _ if is_deleting(&pod.metadata) && chance < 0.7 => "Failed",
                "Running" if chance < bad => "Failed",
                "Running" if chance < bad + 0.3 => "Succeeded",
                "" if chance < 0.6 => "Running",
                _ => continue,
            };
            if next != "Running" && pods::has_finalizer(&pod) {
                self.outcomes.insert(uid(&pod.metadata).to_owned(), next);
            }
            let ended = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T10:00:00Z"}}}]);
            let statuses = if next == "Running" { Value::Null } else { ended };
            self.world.patch(
                "pods",
                &name,
                &json!({"status": {"phase": next, "containerStatuses": statuses}}),
            );
        }
    }

    fn finish(mut self, bad: f64, trouble: Option<Trouble>) -> (End, Self) {
        let mut executor = trouble.map(FaultyExecutor::with).unwrap_or_default();
        let mut requests = 0;
        for round in 1..ROUNDS_MAX {
            let Some(snapshot) = self.snapshot(round) else { break };
            let planned = plan(&snapshot, noon());
            // What is decided on is older than what it is done to.
            self.live(bad);
            if executor.carry_out(&mut self.world, planned) == Life::Dead {
                requests += executor.requests();
                executor = FaultyExecutor::default();
                self.endings = Endings::default();
            }
        }
        let job = self.world.get::<Value>("jobs", "j").unwrap();
        let conditions = job["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().rfind(|one| one["status"] == "True").unwrap();
        let number = |field: &str| job["status"][field].as_i64().unwrap_or(0);
        let end = End {
            condition: condition["type"].as_str().unwrap().to_owned(),
            succeeded: number("succeeded"),
            failed: number("failed"),
            requests: requests + executor.requests(),
        };
        (end, self)
    }
}

/// Runs a Job with the controller killed at each request, and each answer lost, and looks at the counts.
fn tortured(spec: &str, bad: f64, condition: &str) {
    for seed in [1] {
        let (quiet, _) = Run::new(spec, seed).finish(bad, None);
        let troubles =
            (0..quiet.requests).flat_map(|n| [Trouble::KilledAfter(n), Trouble::AnswerLost(n + 1)]);
        for trouble in troubles.map(Some).chain([None]) {
            let (end, run) = Run::new(spec, seed).finish(bad, trouble);
            assert_eq!(end.condition, condition, "{spec}, seed {seed}, {trouble:?}");
            let left = run.world.all::<Pod>("pods");
            assert!(
                left.iter().all(|pod| !pods::has_finalizer(pod)),
                "{spec}, seed {seed}, {trouble:?}: finalizers are left"
            );
            let came = |outcome: &str| {
                i64::try_from(run.outcomes.values().filter(|one| **one == outcome).count()).unwrap()
            };
            if !spec.contains("Indexed") {
                assert_eq!(end.succeeded, came("Succeeded"), "{spec}, seed {seed}, {trouble:?}: {end:?}");
            }
            // What still worked when a Job failed has failed with it.
            let failed = if condition == "Failed" { end.failed } else { came("Failed") };
            assert_eq!(end.failed, failed, "{spec}, seed {seed}, {trouble:?}: {end:?}");
        }
    }
}

#[test]
fn every_pod_is_counted_once_whatever_is_killed() {
    tortured("parallelism: 2, completions: 3, backoffLimit: 1000", 0.2, "Complete");
    tortured(
        "parallelism: 2, completions: 3, backoffLimit: 1000, podReplacementPolicy: Failed",
        0.2,
        "Complete",
    );
    tortured("completionMode: Indexed, parallelism: 2, completions: 3, backoffLimit: 1000", 0.2, "Complete");
}

#[test]
fn an_index_has_its_own_limit_whatever_is_killed() {
    let spec = "completionMode: Indexed, parallelism: 2, completions: 3, backoffLimit: 2147483647, backoffLimitPerIndex: 1";
    tortured(spec, 0.9, "Failed");
}
