//! What the node has agreed to give its Pods: all workers share it, so that two resizes never get the same room.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::admission::{self, Room};
use crate::inbox::Inbox;
use crate::qos::{QosClass, class_of};
use crate::resize::{Amount, Refused, decide};

/// The node's Pods and what each has, by uid.
pub(crate) struct Allocations {
    capacity: Amount,
    pods: Mutex<HashMap<String, Entry>>,
    /// See [`Allocations::burstable_cpu`].
    burstable: watch::Sender<i64>,
}

struct Entry {
    has: Amount,
    class: QosClass,
    /// A resize waits for room.
    is_waiting: bool,
    /// It is on its way down, and has what it has until nothing of it runs.
    is_leaving: bool,
    inbox: Arc<Inbox>,
    pod: Arc<Pod>,
}

impl Allocations {
    /// Nobody has anything of the node's CPU (in thousandths) and memory (in bytes).
    pub(crate) fn new((cpu, memory): (i64, i64)) -> Self {
        Self { capacity: Amount { cpu, memory }, pods: Mutex::default(), burstable: watch::Sender::new(0) }
    }

    /// A Pod has come with what it asks for: the scheduler has found room for it.
    pub(crate) fn add(&self, pod: &Arc<Pod>, has: Amount, inbox: &Arc<Inbox>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let class = pod.spec.as_ref().map_or(QosClass::BestEffort, class_of);
        let (inbox, pod) = (inbox.clone(), pod.clone());
        let entry = Entry { has, class, is_waiting: false, is_leaving: false, inbox, pod };
        let mut pods = self.pods.lock();
        pods.insert(uid, entry);
        self.weigh(&pods);
    }

    /// What all Burstable Pods together have of the node's CPU, in thousandths, and whenever that changes.
    pub(crate) fn burstable_cpu(&self) -> watch::Receiver<i64> {
        self.burstable.subscribe()
    }

    fn weigh(&self, pods: &HashMap<String, Entry>) {
        let burstable = pods.values().filter(|entry| entry.class == QosClass::Burstable);
        let now = burstable.fold(0_i64, |sum, entry| sum.saturating_add(entry.has.cpu));
        self.burstable.send_if_modified(|sum| std::mem::replace(sum, now) != now);
    }

    /// The Pods that are neither over nor on their way down.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        let pods = self.pods.lock();
        let staying = pods.values().filter(|entry| !entry.is_leaving);
        let mut pods: Vec<_> = staying.map(|entry| entry.pod.clone()).collect();
        pods.sort_by(|a, b| a.metadata.uid.cmp(&b.metadata.uid));
        pods
    }

    /// All that have something, also those on their way down.
    pub(crate) fn holders(&self) -> Vec<Arc<Pod>> {
        self.pods.lock().values().map(|entry| entry.pod.clone()).collect()
    }

    /// Their cgroups by uid.
    pub(crate) fn cgroups(&self, root: &str) -> HashMap<String, String> {
        let pods = self.pods.lock();
        pods.iter().map(|(uid, entry)| (uid.clone(), crate::qos::cgroup_parent(root, &entry.pod))).collect()
    }

    /// What is given away, beside what there is: also to Pods that have not ended yet. One that is no wish of anybody's
    /// any more has been removed, although it may still run. Source: `filterOutInactivePods` of upstream's `pkg/kubelet`.
    pub(crate) fn room(&self, allocatable: std::collections::BTreeMap<String, i64>) -> Room {
        let mut room = Room { allocatable, ..Room::default() };
        for entry in self.pods.lock().values() {
            let Some(spec) = &entry.pod.spec else { continue };
            let mut asked = admission::requests(spec);
            asked.insert("cpu".into(), entry.has.cpu);
            asked.insert("memory".into(), entry.has.memory);
            asked.insert("pods".into(), 1);
            for (name, amount) in asked {
                *room.used.entry(name).or_default() += amount;
            }
            room.ports.extend(admission::host_ports(spec));
        }
        room
    }

    /// A Pod is on its way down: it wants no more, and is nobody's victim.
    pub(crate) fn set_leaving(&self, uid: &str) {
        if let Some(entry) = self.pods.lock().get_mut(uid) {
            (entry.is_leaving, entry.is_waiting) = (true, false);
        }
    }

    /// A Pod needs nothing any more, or is not counted any more.
    pub(crate) fn remove(&self, uid: &str) {
        let mut pods = self.pods.lock();
        if pods.remove(uid).is_some() {
            wake(&pods);
            self.weigh(&pods);
        }
    }

    /// Lets a Pod have `asked` in place of what it has.
    pub(crate) fn change(&self, uid: &str, asked: Amount) -> Result<(), Refused> {
        let mut pods = self.pods.lock();
        let others = pods.iter().filter(|(other, _)| *other != uid).map(|(_, entry)| entry.has);
        let used = others.fold(Amount::default(), |sum, one| Amount {
            cpu: sum.cpu.saturating_add(one.cpu),
            memory: sum.memory.saturating_add(one.memory),
        });
        let outcome = decide(asked, used, self.capacity);
        let Some(entry) = pods.get_mut(uid) else { return outcome };
        entry.is_waiting = outcome.is_err();
        if outcome.is_ok() {
            let is_less = asked.cpu < entry.has.cpu || asked.memory < entry.has.memory;
            entry.has = asked;
            if is_less {
                wake(&pods);
            }
            self.weigh(&pods);
        }
        outcome
    }
}

/// There may be room now for those who wait.
fn wake(pods: &HashMap<String, Entry>) {
    pods.values().filter(|entry| entry.is_waiting).for_each(|entry| entry.inbox.room());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_comes_free_wakes_who_waits_for_it() {
        let amount = |cpu| Amount { cpu, memory: 0 };
        let allocations = Allocations::new((2000, 0));
        let (first, second) = (Arc::new(Inbox::default()), Arc::new(Inbox::default()));
        let pod = |uid: &str| -> Arc<Pod> {
            Arc::new(serde_saphyr::from_str(&format!("{{metadata: {{uid: {uid}}}}}")).unwrap())
        };
        allocations.add(&pod("a"), amount(1000), &first);
        allocations.add(&pod("b"), amount(500), &second);
        assert_eq!(allocations.change("b", amount(1500)).unwrap_err().reason, "Deferred");
        assert!(!second.take().has_room);
        allocations.change("a", amount(500)).unwrap();
        assert!(second.take().has_room && !first.take().has_room);
        allocations.change("b", amount(1500)).unwrap();
        allocations.remove("a");
        assert!(!second.take().has_room);
    }

    #[test]
    fn the_weight_of_burstable_pods_is_what_they_ask_for_together() {
        let allocations = Allocations::new((8000, 0));
        let weight = allocations.burstable_cpu();
        let add = |uid: &str, resources: &str, cpu: i64| {
            let text = format!(
                "{{metadata: {{uid: {uid}}}, spec: {{containers: [{{name: a, resources: {resources}}}]}}}}"
            );
            let pod: Pod = serde_saphyr::from_str(&text).unwrap();
            allocations.add(&Arc::new(pod), Amount { cpu, memory: 0 }, &Arc::default());
        };
        add("guaranteed", "{limits: {cpu: '1', memory: 1Gi}}", 1000);
        add("best", "{}", 0);
        assert_eq!(*weight.borrow(), 0);
        add("one", "{requests: {cpu: 500m}}", 500);
        add("two", "{requests: {cpu: 250m}}", 250);
        assert_eq!(*weight.borrow(), 750);
        allocations.change("two", Amount { cpu: 1000, memory: 0 }).unwrap();
        assert_eq!(*weight.borrow(), 1500);
        allocations.set_leaving("one");
        assert_eq!(*weight.borrow(), 1500, "it still runs");
        allocations.remove("one");
        assert_eq!(*weight.borrow(), 1000);
    }

    #[test]
    fn a_pod_has_its_ports_until_it_has_ended_or_is_gone_from_the_api() {
        let allocations = Allocations::new((2000, 0));
        let pod: Pod = serde_saphyr::from_str(
            "{metadata: {uid: a}, spec: {containers: [{name: a, ports: [{containerPort: 1, hostPort: 80}]}]}}",
        )
        .unwrap();
        allocations.add(&Arc::new(pod), Amount { cpu: 500, memory: 0 }, &Arc::default());
        let check = |pods: usize, used: Option<i64>, ports: usize| {
            let room = allocations.room([("cpu".to_owned(), 2000)].into());
            let found = (allocations.pods().len(), room.used.get("cpu").copied(), room.ports.len());
            assert_eq!(found, (pods, used, ports));
        };
        check(1, Some(500), 1);
        allocations.set_leaving("a");
        check(0, Some(500), 1);
        allocations.remove("a");
        check(0, None, 0);
    }
}
