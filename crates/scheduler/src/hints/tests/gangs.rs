//! Gangs that change at random: whoever may be bound after something happened, and was not before, was told of it.

use k8s_openapi::api::scheduling::v1alpha1::Workload;

use super::*;
use crate::gangs::GangKey;
use crate::plugins::gang_scheduling::{NAME, Permit, permit, refusal};

/// A Pod's phase: not there, seen without a Node, or on one.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Gone,
    Wanting,
    Placed,
}

const PODS: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Gang {
    random: Random,
    snapshot: Snapshot,
    workload: Option<Arc<Workload>>,
    phases: [Phase; PODS.len()],
}

fn member(name: &str) -> Arc<Pod> {
    let replica = if name == "e" { ", podGroupReplicaKey: other" } else { "" };
    Arc::new(parse(&format!(
        "{{metadata: {{name: {name}, namespace: d, uid: {name}}}, spec: {{containers: [{{name: c}}], \
         workloadRef: {{name: w, podGroup: g{replica}}}}}}}"
    )))
}

impl Gang {
    fn below(&self, count: usize) -> usize {
        usize::try_from(self.random.below(u64::try_from(count).expect("few"))).expect("few")
    }

    /// Whether the Pod `p` may be bound if it finds a Node now.
    fn may_go(&mut self) -> bool {
        let pod = member("p");
        let gang = GangKey::of(&pod).expect("it names one");
        let gangs = &mut self.snapshot.gangs;
        if refusal(&gang, gangs).is_some() {
            return false;
        }
        gangs.assume(&gang, "d/p", &pod);
        let may_go = matches!(permit(&pod, gangs, jiff::Timestamp::UNIX_EPOCH), Ok(Some(Permit::Go { .. })));
        gangs.forget(&pod);
        may_go
    }

    fn step(&mut self) -> Event {
        if self.below(3) == 0 {
            let old = self.workload.take();
            if old.is_none() {
                let count = 1 + self.below(4);
                let text = format!(
                    "{{metadata: {{name: w, namespace: d}}, spec: {{podGroups: [{{name: g, policy: {{gang: {{minCount: {count}}}}}}}]}}}}"
                );
                self.workload = Some(Arc::new(parse(&text)));
            }
            self.snapshot.gangs.set_workload("d/w", self.workload.clone());
            return Event::Workload(Turn { old, new: self.workload.clone() });
        }
        let at = self.below(PODS.len());
        let pod = member(PODS[at]);
        let gang = GangKey::of(&pod).expect("it names one");
        let (next, event) = match self.phases[at] {
            Phase::Gone if self.below(2) == 0 => {
                (Phase::Placed, Event::Pod(Turn { old: None, new: Some(pod.clone()) }))
            }
            Phase::Gone => (Phase::Wanting, Event::Newcomer(pod.clone())),
            Phase::Wanting => (Phase::Placed, Event::Pod(Turn { old: None, new: Some(pod.clone()) })),
            Phase::Placed => (Phase::Gone, Event::Pod(Turn { old: Some(pod.clone()), new: None })),
        };
        match next {
            Phase::Gone => self.snapshot.gangs.remove(&pod),
            Phase::Wanting => drop(self.snapshot.gangs.wants(&gang, "d/x", &pod)),
            Phase::Placed => self.snapshot.gangs.has(&gang, &pod),
        }
        self.phases[at] = next;
        event
    }
}

#[test]
fn whoever_of_a_gang_may_go_after_something_happened_was_told_of_it() {
    let mut gang = Gang {
        random: Random::seeded(7),
        snapshot: Snapshot::default(),
        workload: None,
        phases: [Phase::Gone; 5],
    };
    let pod = member("p");
    gang.snapshot.gangs.wants(&GangKey::of(&pod).expect("it names one"), "d/p", &pod);
    let mut helped = 0;
    for round in 0..3_000 {
        let before = gang.may_go();
        let event = gang.step();
        if !before && gang.may_go() {
            helped += 1;
            let is_told = helps(NAME, &event, &pod, &gang.snapshot);
            assert!(is_told, "round {round}: {event:?}");
        }
    }
    assert!(helped > 50, "{helped} times something helped");
}
