//! The time for which a Job waits before it makes another Pod for one that failed: 10 s, doubled with each failure
//! since the last success, 10 min at most.
//!
//! What counts is when Pods ended, which their status says. A Pod that is gone is remembered as long as the process
//! runs, as upstream does; those that are there are known again after a restart.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use controller::Informers;
use controller::metadata::{is_deleting, uid};
use controller::pod::Pod;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::pod_end::finished;
use super::pods::{Role, has_finalizer};
use crate::pod::since_until;

/// Source: `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff` of upstream's Job controller.
const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(600);
/// More failures than these wait no longer.
const FAILURES_MAX: usize = 7;

/// The endings of a Job's Pods, as far as they matter for when to make the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    last_success: Option<Timestamp>,
    /// When Pods failed since then, by uid; the newest ones.
    failures: BTreeMap<String, Timestamp>,
}

impl Endings {
    /// Takes in how `pods`, which the Job controls, have ended.
    pub(super) fn learn<'a>(&mut self, pods: impl Iterator<Item = (&'a Pod, Role)>) {
        let mut failed = Vec::new();
        for (pod, role) in pods {
            match role {
                Role::Succeeded => self.last_success = self.last_success.max(Some(finished(pod))),
                // One that was taken away on purpose has no finalizer any more, and is no failure.
                Role::Failed if has_finalizer(pod) || !is_deleting(&pod.metadata) => failed.push(pod),
                _ => {}
            }
        }
        self.failures.extend(failed.iter().map(|pod| (uid(&pod.metadata).to_owned(), finished(pod))));
        self.failures.retain(|_, time| self.last_success.is_none_or(|success| *time > success));
        while self.failures.len() > FAILURES_MAX {
            let oldest = self.failures.iter().min_by_key(|(_, time)| **time).map(|(uid, _)| uid.clone());
            oldest.map(|uid| self.failures.remove(&uid));
        }
    }

    /// How long to wait; none if there is no need to.
    pub(super) fn remaining(&self, now: Timestamp) -> Option<Duration> {
        remaining(self.failures.len(), *self.failures.values().max()?, now)
    }
}

/// How long to wait after so many failures, the last of which was at `last`.
pub(super) fn remaining(failures: usize, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let doublings = u32::try_from(failures).unwrap_or(u32::MAX).checked_sub(1)?;
    let delay = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX);
    // Zero counts as waiting, too: who is told nothing goes on at once.
    delay.checked_sub(since_until(last, now)).filter(|left| !left.is_zero())
}

/// The endings of the Jobs that have not finished.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<String, (String, Endings)>>);

impl Memory {
    pub(super) fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }

    /// Takes in how the Pods of a Job have ended, and says what is known of it then.
    pub(super) fn learn<'a>(
        &self,
        key: &str,
        uid: &str,
        pods: impl Iterator<Item = (&'a Pod, Role)>,
    ) -> Endings {
        let mut known = self.0.lock();
        let (of, endings) = known.entry(key.to_owned()).or_default();
        if of != uid {
            (*of, *endings) = (uid.to_owned(), Endings::default());
        }
        endings.learn(pods);
        endings.clone()
    }

    /// A Job that is over, or gone.
    pub(super) fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::fixture::{noon, parse};

    fn pod(uid: &str, metadata: &str, status: &str) -> Pod {
        parse(&format!(
            "{{metadata: {{uid: {uid}, creationTimestamp: '2026-01-01T11:00:00Z', finalizers: [batch.kubernetes.io/job-tracking] \
             {metadata}}}, spec: {{containers: [], initContainers: [{{name: side, restartPolicy: Always}}, {{name: init}}]}}, \
             status: {{{status}}}}}"
        ))
    }

    fn container(name: &str, state: &str) -> String {
        format!("{{name: {name}, image: i, imageID: '', ready: false, restartCount: 0, state: {{{state}}}}}")
    }

    fn ended(minute: u32) -> String {
        format!("terminated: {{exitCode: 1, finishedAt: '2026-01-01T11:{minute:02}:00Z'}}")
    }

    #[test]
    fn a_pod_ended_when_its_containers_say_so_or_else_its_condition_or_its_deletion() {
        let ready = |status: &str| {
            format!(
                "conditions: [{{type: Ready, status: '{status}', lastTransitionTime: '2026-01-01T11:30:00Z'}}]"
            )
        };
        let containers = |one: &str, two: &str| {
            format!("containerStatuses: [{}, {}]", container("a", one), container("b", two))
        };
        let init = |name: &str, state: &str| format!("initContainerStatuses: [{}]", container(name, state));
        let deleted = ", deletionTimestamp: '2026-01-01T11:40:30Z', deletionGracePeriodSeconds: 30";
        for (what, metadata, status, expect) in [
            ("all containers ended", "", containers(&ended(10), &ended(12)), "11:12:00"),
            ("one runs", "", containers(&ended(10), "running: {}"), "11:00:00"),
            (
                "one runs, and it is not ready",
                "",
                format!("{}, {}", containers(&ended(1), "running: {}"), ready("False")),
                "11:30:00",
            ),
            ("it is ready", "", ready("True"), "11:00:00"),
            ("it is being deleted", deleted, ready("True"), "11:40:00"),
            (
                "a sidecar ended last",
                "",
                format!("{}, {}", containers(&ended(1), &ended(2)), init("side", &ended(3))),
                "11:03:00",
            ),
            (
                "a sidecar runs",
                "",
                format!("{}, {}", containers(&ended(1), &ended(2)), init("side", "running: {}")),
                "11:00:00",
            ),
            (
                "others do not count",
                "",
                format!("{}, {}", containers(&ended(1), &ended(2)), init("init", &ended(9))),
                "11:02:00",
            ),
            ("nothing is known", "", String::new(), "11:00:00"),
        ] {
            let time = finished(&pod("u", metadata, &status)).to_string();
            assert_eq!(time, format!("2026-01-01T{expect}Z"), "{what}");
        }
    }

    #[test]
    fn delays_double_up_to_ten_minutes() {
        for (failures, seconds_ago, expect) in [
            (0, 0, None),
            (1, 0, Some(10)),
            (1, 4, Some(6)),
            (1, 10, None),
            (2, 0, Some(20)),
            (6, 0, Some(320)),
            (7, 0, Some(600)),
            (70, 0, Some(600)),
            (70, 601, None),
            // A clock that runs ahead elsewhere makes nobody wait longer.
            (1, -30, Some(10)),
        ] {
            let last = noon() - SignedDuration::from_secs(seconds_ago);
            let expect = expect.map(Duration::from_secs);
            assert_eq!(remaining(failures, last, noon()), expect, "{failures} failures, {seconds_ago} s ago");
        }
    }

    #[test]
    fn failures_count_since_the_last_success_and_once_each() {
        let of = |uid: &str, minute: u32| {
            pod(uid, "", &format!("containerStatuses: [{}]", container("a", &ended(minute))))
        };
        let mut endings = Endings::default();
        let mut learn = |pods: &[(Pod, Role)]| {
            endings.learn(pods.iter().map(|(pod, role)| (pod, *role)));
            endings.remaining("2026-01-01T11:59:00Z".parse().unwrap()).map(|left| left.as_secs())
        };
        assert_eq!(learn(&[(of("a", 59), Role::Failed), (of("b", 58), Role::Failed)]), Some(20));
        assert_eq!(
            learn(&[(of("a", 59), Role::Failed), (of("x", 59), Role::Active)]),
            Some(20),
            "the same again"
        );
        assert_eq!(learn(&[(of("s", 58), Role::Succeeded)]), Some(10), "what failed after a success counts");
        assert_eq!(learn(&[(of("s", 59), Role::Succeeded)]), None);
        let many: Vec<_> = (0..50).map(|n| (of(&format!("u{n}"), 59), Role::Failed)).collect();
        assert_eq!(learn(&many), None, "not after the last success");
        let removed =
            Pod { metadata: parse("{uid: r, deletionTimestamp: '2026-01-01T11:59:00Z'}"), ..Pod::default() };
        let mut endings = Endings::default();
        endings.learn([(&removed, Role::Failed)].into_iter());
        assert_eq!(endings, Endings::default(), "one that was taken away");
    }
}
