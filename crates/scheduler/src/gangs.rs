//! Gangs: Pods that go to Nodes together or not at all, as the Workloads that they name say.
//!
//! A gang is the Pods of one namespace that name the same Workload, group and replica. Kept here is which of them have a Node,
//! which are assumed to have one, and which want one; what follows from that is `plugins/gang_scheduling.rs`'s affair.
//! Source: KEP-4671 and `pkg/scheduler/backend/workloadmanager` at v1.35.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use controller::pod::Pod;
use jiff::Timestamp;
use k8s_openapi::api::scheduling::v1alpha1::{PodGroupPolicy, Workload};

use crate::pod::uid;

/// How long the first of a gang that is assumed on a Node waits for the others. Source: `DefaultSchedulingTimeoutDuration`.
const TOGETHER_MAX: Duration = Duration::from_secs(5 * 60);

/// The identity of a gang: what its Pods have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GangKey {
    namespace: String,
    workload: String,
    group: String,
    replica: String,
}

impl GangKey {
    /// The gang that a Pod says it belongs to; its Workload may have another policy for the group.
    pub fn of(pod: &Pod) -> Option<Self> {
        let named = pod.spec.as_ref()?.workload_ref.as_ref()?;
        Some(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            workload: named.name.clone(),
            group: named.pod_group.clone(),
            replica: named.pod_group_replica_key.clone().unwrap_or_default(),
        })
    }

    /// The name of its Workload.
    pub fn workload(&self) -> &str {
        &self.workload
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of its group there.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// `true` if the Workload is the one that it names.
    pub fn is_of(&self, workload: &Workload) -> bool {
        let metadata = &workload.metadata;
        metadata.name.as_deref() == Some(&self.workload)
            && metadata.namespace.as_deref() == Some(&self.namespace)
    }
}

/// All Workloads, and the Pods that name one.
#[derive(Clone, Debug, Default)]
pub struct Gangs {
    workloads: HashMap<String, Arc<Workload>>,
    pods: HashMap<GangKey, Members>,
}

/// The Pods of one gang by uid, with their keys.
#[derive(Clone, Debug, Default)]
struct Members {
    /// Those that want a Node.
    unscheduled: BTreeMap<String, String>,
    /// Those that are assumed to have one.
    assumed: BTreeMap<String, String>,
    /// Those that have one.
    assigned: BTreeSet<String>,
    /// When those that are assumed to have one have waited for too long.
    deadline: Option<Timestamp>,
}

impl Gangs {
    /// A Workload has come or changed, or is gone.
    pub fn set_workload(&mut self, key: &str, workload: Option<Arc<Workload>>) {
        match workload {
            Some(workload) => drop(self.workloads.insert(key.to_owned(), workload)),
            None => drop(self.workloads.remove(key)),
        }
    }

    /// The Workload that a gang names.
    pub fn workload(&self, gang: &GangKey) -> Option<&Workload> {
        self.workloads.get(&format!("{}/{}", gang.namespace, gang.workload)).map(|workload| &**workload)
    }

    /// The policy of the gang's group there.
    pub fn policy<'a>(workload: &'a Workload, gang: &GangKey) -> Option<&'a PodGroupPolicy> {
        let mut groups = workload.spec.pod_groups.iter();
        groups.find(|group| group.name == gang.group).map(|group| &group.policy)
    }

    /// A Pod wants a Node. Says whether it was not known before.
    pub fn wants(&mut self, gang: &GangKey, key: &str, pod: &Pod) -> bool {
        let uid = uid(pod);
        let members = self.pods.entry(gang.clone()).or_default();
        if members.assumed.contains_key(uid) || members.unscheduled.contains_key(uid) {
            return false;
        }
        // Nobody loses a Node; what is older than what was seen is no news.
        let is_new = !members.assigned.contains(uid);
        if is_new {
            members.unscheduled.insert(uid.to_owned(), key.to_owned());
        }
        is_new
    }

    /// A Pod has a Node.
    pub fn has(&mut self, gang: &GangKey, pod: &Pod) {
        let (uid, members) = (uid(pod), self.pods.entry(gang.clone()).or_default());
        members.unscheduled.remove(uid);
        members.assumed.remove(uid);
        members.assigned.insert(uid.to_owned());
    }

    /// A Pod is assumed on a Node. Source: `AssumePod`.
    pub fn assume(&mut self, gang: &GangKey, key: &str, pod: &Pod) {
        let (uid, members) = (uid(pod), self.pods.entry(gang.clone()).or_default());
        members.unscheduled.remove(uid);
        members.assumed.insert(uid.to_owned(), key.to_owned());
    }

    /// A Pod does not get the Node that it was assumed on. Source: `ForgetPod`.
    pub fn forget(&mut self, pod: &Pod) {
        let Some(members) = GangKey::of(pod).and_then(|gang| self.pods.get_mut(&gang)) else { return };
        if let Some((uid, key)) = members.assumed.remove_entry(uid(pod)) {
            members.unscheduled.insert(uid, key);
        }
    }

    /// A Pod is gone.
    pub fn remove(&mut self, pod: &Pod) {
        let Some(gang) = GangKey::of(pod) else { return };
        let Some(members) = self.pods.get_mut(&gang) else { return };
        let uid = uid(pod);
        members.unscheduled.remove(uid);
        members.assumed.remove(uid);
        members.assigned.remove(uid);
        if members.known() == 0 {
            self.pods.remove(&gang);
        }
    }

    /// The number of Pods of the gang that there are.
    pub fn known(&self, gang: &GangKey) -> usize {
        self.pods.get(gang).map_or(0, Members::known)
    }

    /// The number of Pods of the gang that have a Node or are assumed to have one.
    pub fn placed(&self, gang: &GangKey) -> usize {
        self.pods.get(gang).map_or(0, |members| members.assumed.len() + members.assigned.len())
    }

    /// The keys of those that are assumed on one.
    pub fn assumed(&self, gang: &GangKey) -> Vec<String> {
        self.pods.get(gang).map(|members| members.assumed.values().cloned().collect()).unwrap_or_default()
    }

    /// The keys of those that want a Node.
    pub fn unscheduled(&self, gang: &GangKey) -> Vec<String> {
        self.pods.get(gang).map(|members| members.unscheduled.values().cloned().collect()).unwrap_or_default()
    }

    /// Until when those that are assumed on one wait for the others: all until the same time, or, if that is over, a new one.
    /// Source: `SchedulingTimeout`.
    pub fn deadline(&mut self, gang: &GangKey, now: Timestamp) -> Timestamp {
        let members = self.pods.entry(gang.clone()).or_default();
        let known = members.deadline.filter(|deadline| *deadline > now);
        *members.deadline.insert(known.unwrap_or(now + TOGETHER_MAX))
    }
}

impl Members {
    fn known(&self) -> usize {
        self.unscheduled.len() + self.assumed.len() + self.assigned.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::parse;

    fn pod(name: &str, of: &str) -> Pod {
        parse(&format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}}}, spec: {{containers: [{{name: c}}], {of}}}}}"
        ))
    }

    const GANG: &str = "workloadRef: {name: w, podGroup: g}";

    #[test]
    fn pods_are_of_one_gang_that_name_the_same_workload_group_and_replica() {
        let key = |of: &str| GangKey::of(&pod("p", of));
        assert_eq!(key(""), None);
        assert_eq!(key(GANG), key("workloadRef: {name: w, podGroup: g, podGroupReplicaKey: ''}"));
        for other in [
            "{name: v, podGroup: g}",
            "{name: w, podGroup: h}",
            "{name: w, podGroup: g, podGroupReplicaKey: '2'}",
        ] {
            assert_ne!(key(GANG), key(&format!("workloadRef: {other}")), "{other}");
        }
        let other = Pod { metadata: Default::default(), ..pod("p", GANG) };
        assert_ne!(key(GANG), GangKey::of(&other), "of another namespace");
    }

    /// What becomes of three Pods of a gang: how many there are, and have a Node or are assumed on one.
    #[test]
    fn a_pod_is_counted_once_whatever_becomes_of_it() {
        let (a, b) = (pod("a", GANG), pod("b", GANG));
        let gang = GangKey::of(&a).unwrap();
        let mut gangs = Gangs::default();
        let counts =
            |gangs: &Gangs| (gangs.known(&gang), gangs.placed(&gang), gangs.unscheduled(&gang).len());
        assert!(gangs.wants(&gang, "d/a", &a) && !gangs.wants(&gang, "d/a", &a));
        gangs.wants(&gang, "d/b", &b);
        assert_eq!(counts(&gangs), (2, 0, 2));
        gangs.assume(&gang, "d/a", &a);
        assert_eq!((counts(&gangs), gangs.assumed(&gang)), ((2, 1, 1), vec!["d/a".to_owned()]));
        assert!(!gangs.wants(&gang, "d/a", &a), "it was changed meanwhile");
        gangs.forget(&a);
        gangs.forget(&a);
        assert_eq!(counts(&gangs), (2, 0, 2));
        gangs.assume(&gang, "d/a", &a);
        gangs.has(&gang, &a);
        gangs.has(&gang, &a);
        gangs.forget(&a);
        assert!(!gangs.wants(&gang, "d/a", &a), "what is told late is no news");
        assert_eq!(counts(&gangs), (2, 1, 1));
        gangs.remove(&a);
        gangs.remove(&a);
        gangs.remove(&pod("c", GANG));
        assert_eq!(counts(&gangs), (1, 0, 1));
        gangs.remove(&b);
        assert!(gangs.pods.is_empty());
    }

    #[test]
    fn all_of_a_gang_wait_until_the_same_time() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let gang = GangKey::of(&pod("a", GANG)).unwrap();
        let mut gangs = Gangs::default();
        assert_eq!(gangs.deadline(&gang, at(0)), at(300));
        assert_eq!(gangs.deadline(&gang, at(299)), at(300));
        assert_eq!(
            gangs.deadline(&gang, at(300)),
            at(600),
            "who comes when the time is over does not wait in vain"
        );
        assert_eq!(gangs.deadline(&gang, at(601)), at(901));
    }
}
