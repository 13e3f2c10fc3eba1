//! Others go, or give devices back, so that a Pod finds room: who waits for which Node, and how victims are sent away.

use std::sync::Arc;

use controller::pod::Pod;
use controller::{Action, EventType, Patch, Propagation, Undone, cause};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::json;

use super::Scheduler;
use super::binding::{Progress, report};
use crate::claims;
use crate::plugins::AboutClaims;
use crate::pod::{names, uid};
use crate::preemption::{Preemption, PreemptionCandidate, REASON, nominated};
use crate::profile::event;

/// Victims of one Pod that are sent away at once. Source: the default of `parallelism`, KubeSchedulerConfiguration.
const AT_ONCE_MAX: usize = 16;

impl Scheduler {
    /// Takes the devices from a claim that keeps its Pod from the Nodes that would take it.
    pub(super) fn give_back(&self, about: &AboutClaims, revision: u64) {
        let AboutClaims::GiveBack(claim) = about else { return };
        let (executor, action) = (self.executor.clone(), claims::give_back(claim));
        self.tasks.spawn("give devices back", async move {
            if let Err(error) = cause::with(revision, executor.carry_out(action)).await {
                tracing::info!(%error, "a claim kept its devices");
            }
        });
    }

    /// Notes which Node the Pod waits for from now on; says what its status is to say, if that is news.
    pub(super) fn nominate(
        &mut self,
        key: &str,
        pod: &Arc<Pod>,
        preemption: Option<&Preemption>,
    ) -> Option<Option<String>> {
        let node = match preemption {
            Some(Preemption::Possible(candidate)) => Some(candidate.node.clone()),
            Some(Preemption::Useless(_)) => None,
            Some(Preemption::NotEligible(_) | Preemption::NotAsked) | None => return None,
        };
        match &node {
            Some(node) => self.nominations.add(key, pod, node, &mut self.snapshot),
            None => drop(self.nominations.remove(key, &mut self.snapshot)),
        }
        (node.as_deref() != nominated(pod)).then_some(node)
    }

    /// Sends the victims away, in the background; meanwhile the Pod is not tried. Whoever waited for the same Node and is
    /// less important waits no longer.
    pub(super) fn evict_victims(
        &mut self,
        key: &str,
        pod: &Arc<Pod>,
        revision: u64,
        candidate: PreemptionCandidate,
        start: Timestamp,
    ) {
        self.metrics.victims(candidate.victims.len());
        let mut rows = Vec::new();
        for other in self.nominations.lesser_on(&candidate.node, pod) {
            let other = self.nominations.remove(&other, &mut self.snapshot);
            rows.extend(other.map(|pod| vec![nominating(&pod, None)]));
        }
        let staying = |victim: &&Arc<Pod>| victim.metadata.deletion_timestamp.is_none();
        let is_held = |victim: &&Arc<Pod>| self.permits.has(&key_of(victim));
        let (held, victims): (Vec<_>, Vec<_>) = candidate.victims.iter().filter(staying).partition(is_held);
        rows.extend(held.iter().map(|victim| vec![preempted_event(victim, pod, &candidate.node)]));
        rows.extend(
            victims.iter().map(|victim| eviction(victim, pod, &candidate.node, self.clock.now()).into()),
        );
        if rows.is_empty() {
            return;
        }
        self.queue.hold(key);
        self.pending_preemptions.begin(key, victims.iter().map(|victim| uid(victim).to_owned()));
        held.iter().for_each(|victim| self.reject_for_preemption(&key_of(victim)));
        self.at_work += 1;
        let (executor, finished, metrics) =
            (self.executor.clone(), self.finished.clone(), self.metrics.clone());
        let (key, uid, clock) = (key.to_owned(), uid(pod).to_owned(), self.clock.clone());
        self.tasks.spawn("preempt", async move {
            let act = |action| cause::with(revision, executor.carry_out(action));
            let done = carry_out(rows, act).await;
            metrics.preempted(done.is_ok(), start, clock.now());
            report(&finished, Progress::Preempted(key, uid, done)).await;
        });
    }

    /// The victims are told to go, or not all could be: then the Pod is tried again soon, with whatever room there is.
    pub(super) fn preempted(&mut self, key: &str, of: &str, done: Result<(), Undone>) {
        if self.pods.get(key).is_none_or(|(pod, _)| uid(pod) != of) {
            return;
        }
        let now = self.clock.now();
        match done {
            Ok(()) if !self.pending_preemptions.told(key) => {}
            Ok(()) => self.queue.let_go(key, now),
            Err(error) => {
                tracing::info!(pod = key, %error, "preemption failed");
                self.pending_preemptions.end(key);
                self.queue.let_go(key, now);
                if !self.binding.contains_key(key) {
                    self.queue.back_off(key, now);
                }
            }
        }
    }

    /// This Pod is on its way out, or gone: perhaps the last whom another waits for.
    pub(super) fn leaves(&mut self, pod: &Pod) {
        for key in self.pending_preemptions.left(uid(pod)) {
            self.queue.let_go(&key, self.clock.now());
        }
    }
}

/// Carries rows out beside each other, each in its order; the first failure ends all.
async fn carry_out<A, E, F>(rows: Vec<Vec<A>>, act: impl Fn(A) -> F) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let act = &act;
    let rows = rows.into_iter().map(|row| async move {
        for action in row {
            act(action).await?;
        }
        Ok(())
    });
    stream::iter(rows).buffer_unordered(AT_ONCE_MAX).try_for_each(|()| std::future::ready(Ok(()))).await
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
    let background = Propagation::Background;
    [
        Action::patch_status::<Pod>(namespace, name, patch),
        Action::delete::<Pod>(namespace, name, Some(uid(victim)), background, None),
        preempted_event(victim, pod, node),
    ]
}

fn preempted_event(victim: &Pod, pod: &Pod, node: &str) -> Action {
    let message = format!("Preempted by pod {} on node {node}", uid(pod));
    event(pod, victim, EventType::Normal, "Preempted", message)
}

pub(super) fn key_of(pod: &Pod) -> String {
    let (namespace, name) = names(pod);
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Rows of actions, in which `-` fails: what was done of each in the end, how many were at work at most, and the end.
    async fn check(rows: &[&str], done: &[&str], most: usize, ended: Result<(), &str>) {
        let told = RefCell::new(vec![String::new(); rows.len()]);
        let (at_work, found_most) = (Cell::new(0), Cell::new(0));
        let act = async |(row, action): (usize, char)| {
            at_work.set(at_work.get() + 1);
            found_most.set(found_most.get().max(at_work.get()));
            tokio::task::yield_now().await;
            at_work.set(at_work.get() - 1);
            told.borrow_mut()[row].push(action);
            if action == '-' { Err("no") } else { Ok(()) }
        };
        let numbered =
            rows.iter().enumerate().map(|(row, all)| all.chars().map(move |action| (row, action)).collect());
        let found = carry_out(numbered.collect(), act).await;
        assert_eq!(*told.borrow(), done, "{rows:?}");
        assert_eq!((found_most.get(), found), (most, ended), "{rows:?}");
    }

    #[tokio::test]
    async fn victims_go_beside_each_other_and_each_in_order() {
        check(&[], &[], 0, Ok(())).await;
        check(&["abc"], &["abc"], 1, Ok(())).await;
        check(&["ab", "cd"], &["ab", "cd"], 2, Ok(())).await;
        let many = ["ab"; AT_ONCE_MAX + 1];
        check(&many, &many, AT_ONCE_MAX, Ok(())).await;
    }

    #[tokio::test]
    async fn the_first_failure_ends_all() {
        check(&["a-b"], &["a-"], 1, Err("no")).await;
        check(&["-", "abc"], &["-", "a"], 2, Err("no")).await;
    }
}
