//! What the node has agreed to give its Pods: all workers share it, so that two resizes never get the same room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::inbox::Inbox;
use crate::pod::admission::{self, Room};
use crate::pod::identity::priority;
use crate::pod::qos::{QosClass, class_of};
use crate::pod::resize::{Amount, Refused, decide};

/// The node's Pods and what each has, by uid.
pub(crate) struct Allocations {
    capacity: Amount,
    pods: Mutex<Entries>,
    /// See [`Allocations::burstable_cpu`].
    burstable: watch::Sender<i64>,
}

type Entries = HashMap<String, Entry>;

struct Entry {
    has: Amount,
    class: QosClass,
    /// A resize waits for room.
    waiting: Option<Waiting>,
    /// It is on its way down, and has what it has until nothing of it runs.
    is_leaving: bool,
    inbox: Arc<Inbox>,
    pod: Arc<Pod>,
}

#[derive(Clone, Copy)]
struct Waiting {
    asked: Amount,
    since: Timestamp,
}

/// Whose turn it is before others': who asks for no more than it has, then by priority, class, and time. Source:
/// `sortPendingResizes` of upstream's `pkg/kubelet/allocation`.
type Rank = (bool, Reverse<i64>, QosClass, Timestamp, String);

impl Entry {
    fn rank(&self, waiting: Waiting) -> Rank {
        let is_more = waiting.asked.cpu > self.has.cpu || waiting.asked.memory > self.has.memory;
        let uid = self.pod.metadata.uid.clone().unwrap_or_default();
        (is_more, Reverse(priority(&self.pod)), self.class, waiting.since, uid)
    }
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
        let entry = Entry { has, class, waiting: None, is_leaving: false, inbox, pod };
        let mut pods = self.pods.lock();
        pods.insert(uid, entry);
        self.weigh(&pods);
    }

    /// What all Burstable Pods together have of the node's CPU, in thousandths, and whenever that changes.
    pub(crate) fn burstable_cpu(&self) -> watch::Receiver<i64> {
        self.burstable.subscribe()
    }

    fn weigh(&self, pods: &Entries) {
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
        pods.iter()
            .map(|(uid, entry)| (uid.clone(), crate::pod::qos::cgroup_parent(root, &entry.pod)))
            .collect()
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
            (entry.is_leaving, entry.waiting) = (true, None);
        }
    }

    /// A Pod needs nothing any more, or is not counted any more.
    pub(crate) fn remove(&self, uid: &str) {
        let mut pods = self.pods.lock();
        if pods.remove(uid).is_some() {
            self.serve(&mut pods, "pods_removed");
            self.weigh(&pods);
        }
    }

    /// Lets a Pod have `asked` in place of what it has. If it cannot, it waits since `since`, if it does not already.
    pub(crate) fn change(&self, uid: &str, asked: Amount, since: Timestamp) -> Result<(), Refused> {
        let mut pods = self.pods.lock();
        let outcome = self.decide(&pods, uid, asked);
        if outcome.is_ok() {
            self.give(&mut pods, uid, asked);
        } else if let Some(entry) = pods.get_mut(uid) {
            let since = entry.waiting.map_or(since, |waiting| waiting.since);
            entry.waiting = Some(Waiting { asked, since });
        }
        outcome
    }

    /// A Pod asks for no more than it `has`: it waits no longer, and what it was given and did not take is free.
    pub(crate) fn withdraw(&self, uid: &str, has: Amount) {
        self.give(&mut self.pods.lock(), uid, has);
    }

    fn give(&self, pods: &mut Entries, uid: &str, amount: Amount) {
        let Some(entry) = pods.get_mut(uid) else { return };
        let is_less = amount.cpu < entry.has.cpu || amount.memory < entry.has.memory;
        (entry.has, entry.waiting) = (amount, None);
        if is_less {
            self.serve(pods, "pod_resized");
        }
        self.weigh(pods);
    }

    fn decide(&self, pods: &Entries, uid: &str, asked: Amount) -> Result<(), Refused> {
        let others = pods.iter().filter(|(other, _)| *other != uid).map(|(_, entry)| entry.has);
        let used = others.fold(Amount::default(), |sum, one| Amount {
            cpu: sum.cpu.saturating_add(one.cpu),
            memory: sum.memory.saturating_add(one.memory),
        });
        decide(asked, used, self.capacity)
    }

    /// Gives what has come free to those who wait, one after the other, before anybody else can ask for it. Why it has is
    /// told in the words of upstream's `TriggerReason`.
    fn serve(&self, pods: &mut Entries, why: &'static str) {
        let waiting = |pods: &Entries| -> BTreeMap<Rank, (String, Amount)> {
            let of = |(uid, entry): (&String, &Entry)| {
                let waiting = entry.waiting?;
                Some((entry.rank(waiting), (uid.clone(), waiting.asked)))
            };
            pods.iter().filter_map(of).collect()
        };
        let fits = |pods: &Entries, (uid, asked): &(String, Amount)| self.decide(pods, uid, *asked).is_ok();
        while let Some((uid, asked)) = waiting(pods).into_values().find(|one| fits(pods, one)) {
            let Some(entry) = pods.get_mut(&uid) else { return };
            (entry.has, entry.waiting) = (asked, None);
            entry.inbox.room(why);
        }
    }
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
        let change = |uid, cpu| allocations.change(uid, amount(cpu), Timestamp::UNIX_EPOCH);
        assert_eq!(change("b", 1500).unwrap_err().reason.as_str(), "Deferred");
        assert!(second.take().room.is_none());
        change("a", 500).unwrap();
        assert!(second.take().room == Some("pod_resized") && first.take().room.is_none());
        change("b", 1500).unwrap();
        allocations.remove("a");
        assert!(second.take().room.is_none());
    }

    /// Pods in words: `uid priority class`, each of which has 100 and asks for 1000 in this order; then who has got it as
    /// room came free for one after the other.
    fn check(name: &str, pods: &[&str], expect: &[&str]) {
        let amount = |cpu| Amount { cpu, memory: 0 };
        let allocations = Allocations::new((4000, 0));
        let hog: Pod = serde_saphyr::from_str("{metadata: {uid: hog}}").unwrap();
        allocations.add(&Arc::new(hog), amount(3600), &Arc::default());
        let mut waiting = Vec::new();
        for (second, text) in (0..).zip(pods) {
            let words: Vec<&str> = text.split(' ').collect();
            let resources = match words[2] {
                "guaranteed" => "{limits: {cpu: '1', memory: '1'}, requests: {cpu: '1', memory: '1'}}",
                "burstable" => "{requests: {cpu: '1'}}",
                _ => "{}",
            };
            let text = format!(
                "{{metadata: {{uid: {}}}, spec: {{priority: {}, containers: [{{name: a, resources: {resources}}}]}}}}",
                words[0], words[1]
            );
            let inbox = Arc::<Inbox>::default();
            allocations.add(&Arc::new(serde_saphyr::from_str(&text).unwrap()), amount(100), &inbox);
            let since = Timestamp::from_second(second).unwrap();
            assert_eq!(
                allocations.change(words[0], amount(1000), since).unwrap_err().reason.as_str(),
                "Deferred"
            );
            waiting.push((words[0], inbox));
        }
        let mut served = Vec::new();
        for left in (0..=3600).rev().step_by(900) {
            allocations.change("hog", amount(left), Timestamp::UNIX_EPOCH).unwrap();
            let woken = waiting.iter().filter(|(_, inbox)| inbox.take().room.is_some()).map(|(uid, _)| *uid);
            served.extend(woken);
        }
        assert_eq!(served, expect, "{name}");
    }

    #[test]
    fn room_goes_to_who_matters_most_then_to_who_has_waited_longest() {
        check("priority", &["a 0 burstable", "b 5 burstable", "c 9 burstable"], &["c", "b", "a"]);
        check("class", &["a 0 none", "b 0 burstable", "c 0 guaranteed"], &["c", "b", "a"]);
        check("time", &["c 0 burstable", "b 0 burstable", "a 0 burstable"], &["c", "b", "a"]);
        check(
            "all of it",
            &["a 0 guaranteed", "b 7 none", "c 0 burstable", "d 7 none"],
            &["b", "d", "a", "c"],
        );
    }

    #[test]
    fn what_a_resize_was_given_is_free_when_nobody_wants_it_any_more() {
        let amount = |cpu| Amount { cpu, memory: 0 };
        let allocations = Allocations::new((2000, 0));
        for (uid, has) in [("a", 1500), ("b", 100), ("c", 100)] {
            let pod: Pod = serde_saphyr::from_str(&format!("{{metadata: {{uid: {uid}}}}}")).unwrap();
            allocations.add(&Arc::new(pod), amount(has), &Arc::default());
        }
        let change = |uid, cpu| allocations.change(uid, amount(cpu), Timestamp::UNIX_EPOCH);
        change("b", 1000).unwrap_err();
        change("a", 500).unwrap();
        change("c", 1000).unwrap_err();
        allocations.withdraw("b", amount(100));
        change("c", 1000).unwrap();
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
        allocations.change("two", Amount { cpu: 1000, memory: 0 }, Timestamp::UNIX_EPOCH).unwrap();
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
