//! Pods that wait for a certain Node, because others leave it for them or because somebody has said so.
//!
//! Each is placed in the snapshot as if it were there, so that nobody of less priority takes its room. Whoever has more
//! priority does not see it: it steps aside while that Pod's Node is chosen.
//! Source: `backend/queue/nominator.go`, `RunFilterPluginsWithNominatedPods` of kube-scheduler.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use controller::pod::Pod;

use crate::node_info::Snapshot;
use crate::pod::uid;
use crate::preemption::priority;

/// The Pods that wait for a certain Node.
#[derive(Debug, Default)]
pub struct Nominations {
    pods: HashMap<String, Nomination>,
    by_priority: BTreeSet<(i32, String)>,
    by_node: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct Nomination {
    pod: Arc<Pod>,
    node: String,
}

impl Nominations {
    /// The Pod waits for this Node from now on.
    pub fn add(&mut self, key: &str, pod: &Arc<Pod>, node: &str, snapshot: &mut Snapshot) {
        if self.pods.get(key).is_some_and(|known| known.node != node || uid(&known.pod) != uid(pod)) {
            self.remove(key, snapshot);
        }
        snapshot.place(pod, node);
        self.by_priority.insert((priority(pod), key.to_owned()));
        self.by_node.entry(node.to_owned()).or_default().insert(key.to_owned());
        self.pods.insert(key.to_owned(), Nomination { pod: pod.clone(), node: node.to_owned() });
    }

    /// The Pod waits for no Node any more; answers it if it did, and takes it from the snapshot.
    pub fn remove(&mut self, key: &str, snapshot: &mut Snapshot) -> Option<Arc<Pod>> {
        let pod = self.settle(key)?;
        snapshot.remove(uid(&pod));
        Some(pod)
    }

    /// The same for a Pod that stays in the snapshot: it is where it is to be bound.
    pub fn settle(&mut self, key: &str) -> Option<Arc<Pod>> {
        let Nomination { pod, node } = self.pods.remove(key)?;
        self.by_priority.remove(&(priority(&pod), key.to_owned()));
        if let Some(keys) = self.by_node.get_mut(&node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(pod)
    }

    /// The Node that the Pod waits for.
    pub fn node(&self, key: &str) -> Option<&str> {
        self.pods.get(key).map(|known| known.node.as_str())
    }

    /// The number of Pods that wait so.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// `true` if none does.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Those of less priority than `pod` that wait for the Node.
    pub fn lesser_on(&self, node: &str, pod: &Pod) -> Vec<String> {
        let here = self.by_node.get(node).into_iter().flatten();
        let is_less =
            |key: &&String| self.pods.get(*key).is_some_and(|known| priority(&known.pod) < priority(pod));
        here.filter(is_less).cloned().collect()
    }

    /// Makes way for `pod`: itself and those of less priority step aside, until [`Nominations::come_back`].
    pub fn step_aside(&self, key: &str, pod: &Pod, snapshot: &mut Snapshot) -> Vec<String> {
        let below = self.by_priority.range(..(priority(pod), String::new())).map(|(_, key)| key);
        let own = self.pods.get_key_value(key).map(|(key, _)| key);
        let aside: Vec<String> = own.into_iter().chain(below).cloned().collect();
        for known in aside.iter().filter_map(|key| self.pods.get(key)) {
            snapshot.remove(uid(&known.pod));
        }
        aside
    }

    /// Those that stepped aside are where they were.
    pub fn come_back(&self, aside: &[String], snapshot: &mut Snapshot) {
        for known in aside.iter().filter_map(|key| self.pods.get(key)) {
            snapshot.place(&known.pod, &known.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32) -> Arc<Pod> {
        let text = format!(
            "{{metadata: {{name: {name}, uid: {name}}}, spec: {{priority: {priority}, containers: []}}}}"
        );
        Arc::new(serde_saphyr::from_str(&text).expect("a pod"))
    }

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        for name in ["a", "b"] {
            let node = format!("{{metadata: {{name: {name}}}}}");
            snapshot.set_node(Arc::new(serde_saphyr::from_str(&node).expect("a node")));
        }
        snapshot
    }

    fn seen(snapshot: &Snapshot) -> String {
        let pods =
            |node: &crate::NodeInfo| node.pods().map(|pod| uid(pod).to_owned()).collect::<Vec<_>>().join(",");
        snapshot.nodes().map(|node| format!("{}:{} ", node.name(), pods(node))).collect()
    }

    #[test]
    fn only_those_of_no_less_priority_see_who_waits_for_a_node() {
        let (mut snapshot, mut all) = (snapshot(), Nominations::default());
        for (name, priority, node) in [("low", 0, "a"), ("mid", 5, "a"), ("high", 9, "b")] {
            all.add(name, &pod(name, priority), node, &mut snapshot);
        }
        for (new, expect) in [
            (pod("x", -1), "a:low,mid b:high "),
            (pod("x", 0), "a:low,mid b:high "),
            (pod("x", 5), "a:mid b:high "),
            (pod("x", 10), "a: b: "),
            (pod("mid", 5), "a: b:high "),
        ] {
            let aside = all.step_aside(new.metadata.name.as_deref().unwrap_or_default(), &new, &mut snapshot);
            assert_eq!(seen(&snapshot), expect);
            all.come_back(&aside, &mut snapshot);
            assert_eq!(seen(&snapshot), "a:low,mid b:high ");
        }
        assert_eq!(all.lesser_on("a", &pod("x", 5)), ["low"]);
    }

    #[test]
    fn a_nomination_moves_and_ends_without_a_trace() {
        let (mut snapshot, mut all) = (snapshot(), Nominations::default());
        all.add("p", &pod("p", 0), "a", &mut snapshot);
        all.add("p", &pod("p", 0), "b", &mut snapshot);
        assert_eq!((seen(&snapshot).as_str(), all.node("p")), ("a: b:p ", Some("b")));
        all.add("p", &pod("p", 3), "unknown", &mut snapshot);
        assert_eq!(seen(&snapshot), "a: b: ", "whoever names a Node that is not there takes no room");
        all.add("p", &pod("p", 0), "b", &mut snapshot);
        assert!(all.remove("p", &mut snapshot).is_some() && all.remove("p", &mut snapshot).is_none());
        assert_eq!(seen(&snapshot), "a: b: ");
        assert!(all.is_empty() && all.by_priority.is_empty() && all.by_node.is_empty());
        all.add("p", &pod("p", 0), "b", &mut snapshot);
        assert!(all.settle("p").is_some());
        assert_eq!((seen(&snapshot).as_str(), all.len()), ("a: b:p ", 0));
    }
}
