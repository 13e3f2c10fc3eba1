//! Others go, or give devices back, so that a Pod finds room: who waits for which Node, and how victims are sent away.

use std::sync::Arc;

use controller::{Action, EventType, Patch, Propagation, cause};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::binding::{Outcome, Progress};
use super::{Scheduler, names, uid};
use crate::claims;
use crate::plugins::AboutClaims;
use crate::preemption::{Preemption, REASON, Room, nominated, priority};

impl Scheduler {
    /// Takes the devices from a claim that keeps its Pod from the Nodes that would take it.
    pub(super) fn give_back(&self, about: &AboutClaims, revision: u64) {
        let AboutClaims::GiveBack(claim) = about else { return };
        let (hands, action) = (self.hands.clone(), claims::give_back(claim));
        self.tasks.spawn("give devices back", async move {
            if let Err(error) = cause::with(revision, hands.carry_out(action)).await {
                tracing::info!(error, "a claim kept its devices");
            }
        });
    }

    /// Others have gone for Pods that are at least as important as `pod`: their room is not free. Gives the uids of
    /// whoever is counted in for the decision's time.
    pub(super) fn keep_promises(&mut self, key: &str, pod: &Pod) -> Vec<String> {
        let mut promised = Vec::new();
        for (other, node) in self.nominated.iter().filter(|(other, _)| *other != key) {
            let Some((waiting, _)) = self.pods.get(other) else { continue };
            let is_waiting = !self.binding.contains_key(other);
            if is_waiting && priority(waiting) >= priority(pod) && self.snapshot.place(waiting, node) {
                promised.push(uid(waiting).to_owned());
            }
        }
        promised
    }

    /// Notes which Node the Pod waits for from now on; says what its status is to say, if that is news.
    pub(super) fn nominate(
        &mut self,
        key: &str,
        pod: &Pod,
        preemption: Option<&Preemption>,
    ) -> Option<Option<String>> {
        let node = match preemption {
            Some(Preemption::Possible(room)) => Some(room.node.clone()),
            Some(Preemption::Useless(_)) => None,
            Some(Preemption::NotEligible(_)) | None => return None,
        };
        match &node {
            Some(node) => self.nominated.insert(key.to_owned(), node.clone()),
            None => self.nominated.remove(key),
        };
        (node.as_deref() != nominated(pod)).then_some(node)
    }

    /// Sends the victims away; whoever waited for the same Node and is less important waits no longer.
    pub(super) fn make_room(
        &mut self,
        key: &str,
        pod: &Arc<Pod>,
        revision: u64,
        (room, start): (Room, Timestamp),
    ) {
        let lesser: Vec<String> = self
            .nominated
            .iter()
            .filter(|(other, node)| *other != key && **node == room.node)
            .filter(|(other, _)| {
                self.pods.get(*other).is_some_and(|(other, _)| priority(other) < priority(pod))
            })
            .map(|(other, _)| other.clone())
            .collect();
        let mut actions = Vec::new();
        for other in lesser {
            self.nominated.remove(&other);
            if let Some((waiting, _)) = self.pods.get(&other) {
                actions.push(nominating(waiting, None));
            }
        }
        let leaving = |victim: &&Arc<Pod>| victim.metadata.deletion_timestamp.is_none();
        for victim in room.victims.iter().filter(leaving) {
            actions.extend(eviction(victim, pod, &room.node, self.clock.now()));
        }
        let (hands, finished) = (self.hands.clone(), self.finished.clone());
        let history = self.queue.history(key);
        let (key, uid) = (key.to_owned(), uid(pod).to_owned());
        self.tasks.spawn("preempt", async move {
            for action in actions {
                let Err(failure) = cause::with(revision, hands.carry_out(action)).await else { continue };
                // Then the Pod is tried again soon, with whatever room there is.
                let failure = Some(failure);
                let outcome = Outcome { key, uid, start, history, failure, claims: Vec::new() };
                if finished.send(Progress::Failed(outcome)).await.is_err() {
                    tracing::debug!("the scheduler stopped during a preemption");
                }
                return;
            }
        });
    }
}

/// Says which Node the Pod waits for, or that it waits for none.
pub(super) fn nominating(pod: &Pod, node: Option<&str>) -> Action {
    let (namespace, name) = names(pod);
    let patch = Patch::Strategic(json!({ "status": { "nominatedNodeName": node } }));
    Action::patch_status::<Pod>(namespace, name, patch)
}

/// What happens to a victim: its status says why, it is deleted, and an event tells who came.
fn eviction(victim: &Pod, pod: &Pod, node: &str, now: Timestamp) -> [Action; 3] {
    let (namespace, name) = names(victim);
    let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": REASON,
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let patch = Patch::Strategic(json!({
        "metadata": { "uid": uid(victim) },
        "status": { "conditions": [condition] },
    }));
    let message = format!("Preempted by pod {} on node {node}", uid(pod));
    let background = Propagation::Background;
    [
        Action::patch_status::<Pod>(namespace, name, patch),
        Action::delete::<Pod>(namespace, name, Some(uid(victim)), background, None),
        Action::event(victim, EventType::Normal, "Preempted", message),
    ]
}
