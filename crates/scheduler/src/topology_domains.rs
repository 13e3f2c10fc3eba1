//! The number of Pods of each kind in each topology domain, kept up to date as Pods and Nodes come and go.
//!
//! Pods are of one kind if other Pods cannot tell them apart: namespace, labels, what they ask of others, and whether they
//! are on their way out. A domain is a value of a Node's label, the topology key. What is kept are the topologies that
//! placed Pods have asked about, a bounded number; others are counted when they are asked for.
//! So a decision costs as much as there are kinds, not as there are Pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use controller::pod::Pod;
use controller::selector::Labels;
use k8s_openapi::api::core::v1::{Affinity, Node};

/// Topologies that are kept.
const TOPOLOGIES_MAX: usize = 32;
/// Those that every Pod of a Service or a workload is spread over. Source: the default constraints of
/// `PodTopologySpread`.
const ALWAYS: [&str; 2] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];

/// Numbers by name.
type Numbers = HashMap<String, usize>;

/// What tells one kind from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    namespace: String,
    labels: Labels,
    /// Affinity to Pods, written out; empty for most.
    asks: String,
    is_going: bool,
}

impl Identity {
    fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            asks: if is_choosy(pod) { asks(pod) } else { String::new() },
            is_going: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Pods that are alike, and where they are.
#[derive(Clone, Debug)]
pub struct Kind {
    /// One of them.
    pub pod: Arc<Pod>,
    identity: Identity,
    nodes: Numbers,
    /// By topology key and domain.
    domains: HashMap<String, Numbers>,
}

/// The name of a kind.
pub type KindId = u64;

/// All kinds, and the Nodes that they are on.
#[derive(Clone, Debug)]
pub struct TopologyDomains {
    kinds: BTreeMap<KindId, Kind>,
    ids: HashMap<Identity, KindId>,
    next: KindId,
    by_namespace: HashMap<String, BTreeSet<KindId>>,
    choosy: BTreeSet<KindId>,
    nodes: HashMap<String, Arc<Node>>,
    /// How many Nodes each domain has, by topology key.
    topologies: BTreeMap<String, Numbers>,
}

impl Default for TopologyDomains {
    fn default() -> Self {
        Self {
            kinds: BTreeMap::new(),
            ids: HashMap::new(),
            next: 0,
            by_namespace: HashMap::new(),
            choosy: BTreeSet::new(),
            nodes: HashMap::new(),
            topologies: ALWAYS.iter().map(|key| ((*key).to_owned(), Numbers::new())).collect(),
        }
    }
}

impl TopologyDomains {
    /// The kinds of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (KindId, &Kind)> {
        let ids = self.by_namespace.get(namespace).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.kinds.get(id)?)))
    }

    /// All kinds.
    pub fn all(&self) -> impl Iterator<Item = (KindId, &Kind)> {
        self.kinds.iter().map(|(id, kind)| (*id, kind))
    }

    /// The kinds that want others near or far.
    pub fn choosy(&self) -> impl Iterator<Item = (KindId, &Kind)> {
        self.choosy.iter().filter_map(|id| Some((*id, self.kinds.get(id)?)))
    }

    /// The number of Pods of these kinds in each domain.
    pub fn counts<'a>(&'a self, kinds: &[KindId], key: &str) -> Counts<'a> {
        let found = kinds.iter().filter_map(|id| self.kinds.get(id));
        if !self.topologies.contains_key(key) {
            return Counts::Sum(sum(found.flat_map(|kind| &kind.nodes).filter_map(|(node, count)| {
                let labels = self.nodes.get(node)?.metadata.labels.as_ref()?;
                Some((labels.get(key)?.as_str(), *count))
            })));
        }
        let mut kept = found.filter_map(|kind| kind.domains.get(key));
        match (kept.next(), kept.next()) {
            (None, _) => Counts::Sum(HashMap::new()),
            (Some(only), None) => Counts::One(only),
            (Some(one), Some(two)) => {
                let all = [one, two].into_iter().chain(kept).flatten();
                Counts::Sum(sum(all.map(|(domain, count)| (domain.as_str(), *count))))
            }
        }
    }

    /// The number of Pods of these kinds on each Node.
    pub fn per_node<'a>(&'a self, kinds: &[KindId]) -> HashMap<&'a str, usize> {
        let found = kinds.iter().filter_map(|id| self.kinds.get(id));
        sum(found.flat_map(|kind| &kind.nodes).map(|(node, count)| (node.as_str(), *count)))
    }

    /// The number of domains in a topology, and of Nodes in one; nothing if it is not kept.
    pub fn extent(&self, key: &str) -> Option<(usize, usize)> {
        self.topologies.get(key).map(|domains| (domains.len(), domains.values().sum()))
    }

    /// Counts a Pod in; answers its kind.
    pub fn add(&mut self, pod: &Arc<Pod>, node: &str) -> KindId {
        let identity = Identity::of(pod);
        let id = self.ids.get(&identity).copied().unwrap_or_else(|| self.found(pod, identity));
        if let Some(kind) = self.kinds.get_mut(&id) {
            *kind.nodes.entry(node.to_owned()).or_default() += 1;
            let labels = self.nodes.get(node).and_then(|node| node.metadata.labels.as_ref());
            if let Some(labels) = labels {
                kind.count_in(self.topologies.keys(), labels, 1);
            }
        }
        id
    }

    /// A kind that was not there before.
    fn found(&mut self, pod: &Arc<Pod>, identity: Identity) -> KindId {
        for key in keys(pod) {
            self.keep(key);
        }
        let id = self.next;
        self.next += 1;
        self.by_namespace.entry(identity.namespace.clone()).or_default().insert(id);
        if !identity.asks.is_empty() {
            self.choosy.insert(id);
        }
        self.ids.insert(identity.clone(), id);
        let (nodes, domains) = (HashMap::new(), HashMap::new());
        self.kinds.insert(id, Kind { pod: pod.clone(), identity, nodes, domains });
        id
    }

    /// Keeps a topology from now on, while there are few.
    fn keep(&mut self, key: &str) {
        if self.topologies.contains_key(key) || self.topologies.len() >= TOPOLOGIES_MAX {
            return;
        }
        let mut domains = Numbers::new();
        for node in self.nodes.values() {
            if let Some(value) = node.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
                change(&mut domains, value, 1, 0);
            }
        }
        for kind in self.kinds.values_mut() {
            for (node, count) in &kind.nodes {
                let labels = self.nodes.get(node).and_then(|node| node.metadata.labels.as_ref());
                if let Some(value) = labels.and_then(|labels| labels.get(key)) {
                    change(kind.domains.entry(key.to_owned()).or_default(), value, *count, 0);
                }
            }
        }
        self.topologies.insert(key.to_owned(), domains);
    }

    /// Counts a Pod of this kind out.
    pub fn remove(&mut self, id: KindId, node: &str) {
        let Some(kind) = self.kinds.get_mut(&id) else { return };
        change(&mut kind.nodes, node, 0, 1);
        if let Some(labels) = self.nodes.get(node).and_then(|node| node.metadata.labels.as_ref()) {
            kind.count_out(self.topologies.keys(), labels, 1);
        }
        if !kind.nodes.is_empty() {
            return;
        }
        if let Some(gone) = self.kinds.remove(&id) {
            self.ids.remove(&gone.identity);
            self.choosy.remove(&id);
            if let Some(ids) = self.by_namespace.get_mut(&gone.identity.namespace) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_namespace.remove(&gone.identity.namespace);
                }
            }
        }
    }

    /// Takes a Node in, or its new labels.
    pub fn set_node(&mut self, node: &Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let old = self.nodes.insert(name.clone(), node.clone());
        if old.as_ref().is_some_and(|old| old.metadata.labels == node.metadata.labels) {
            return;
        }
        self.relabel(&name, old.as_deref(), Some(node));
    }

    /// The Node is gone; Pods that were on it are nowhere.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(old) = self.nodes.remove(name) {
            self.relabel(name, Some(&old), None);
        }
    }

    fn relabel(&mut self, name: &str, old: Option<&Node>, new: Option<&Node>) {
        let labels = |node: Option<&Node>| node.and_then(|node| node.metadata.labels.clone());
        let (old, new) = (labels(old), labels(new));
        for (key, domains) in &mut self.topologies {
            if let Some(value) = old.as_ref().and_then(|old| old.get(key)) {
                change(domains, value, 0, 1);
            }
            if let Some(value) = new.as_ref().and_then(|new| new.get(key)) {
                change(domains, value, 1, 0);
            }
        }
        for kind in self.kinds.values_mut() {
            let Some(count) = kind.nodes.get(name).copied() else { continue };
            if let Some(old) = &old {
                kind.count_out(self.topologies.keys(), old, count);
            }
            if let Some(new) = &new {
                kind.count_in(self.topologies.keys(), new, count);
            }
        }
    }
}

impl Kind {
    fn count_in<'a>(&mut self, keys: impl Iterator<Item = &'a String>, labels: &Labels, count: usize) {
        for (key, value) in keys.filter_map(|key| Some((key, labels.get(key)?))) {
            match self.domains.get_mut(key) {
                Some(domains) => change(domains, value, count, 0),
                None => drop(self.domains.insert(key.clone(), HashMap::from([(value.clone(), count)]))),
            }
        }
    }

    fn count_out<'a>(&mut self, keys: impl Iterator<Item = &'a String>, labels: &Labels, count: usize) {
        for (key, value) in keys.filter_map(|key| Some((key, labels.get(key)?))) {
            if let Some(domains) = self.domains.get_mut(key) {
                change(domains, value, 0, count);
            }
        }
    }
}

/// What is 0 is not kept.
fn change(numbers: &mut Numbers, name: &str, more: usize, less: usize) {
    match numbers.get_mut(name) {
        Some(number) => {
            *number = (*number + more).saturating_sub(less);
            if *number == 0 {
                numbers.remove(name);
            }
        }
        None if more > less => drop(numbers.insert(name.to_owned(), more - less)),
        None => {}
    }
}

fn sum<'a>(all: impl Iterator<Item = (&'a str, usize)>) -> HashMap<&'a str, usize> {
    let mut sums = HashMap::new();
    for (name, count) in all {
        *sums.entry(name).or_default() += count;
    }
    sums
}

/// The number of Pods in each domain; domains without any are left out.
#[derive(Clone, Debug)]
pub enum Counts<'a> {
    /// Of one kind, as kept.
    One(&'a Numbers),
    /// Of several kinds.
    Sum(HashMap<&'a str, usize>),
}

impl Counts<'_> {
    /// The number of Pods in a domain.
    pub fn get(&self, domain: &str) -> usize {
        let found = match self {
            Self::One(counts) => counts.get(domain),
            Self::Sum(counts) => counts.get(domain),
        };
        found.copied().unwrap_or(0)
    }

    /// The number of domains that have any.
    pub fn domains(&self) -> usize {
        match self {
            Self::One(counts) => counts.len(),
            Self::Sum(counts) => counts.len(),
        }
    }

    /// The fewest that a domain has that has any.
    pub fn fewest(&self) -> usize {
        let fewest = match self {
            Self::One(counts) => counts.values().min(),
            Self::Sum(counts) => counts.values().min(),
        };
        fewest.copied().unwrap_or(0)
    }
}

/// Whether it matters to the Pod where other Pods are, as far as affinity says so.
fn is_choosy(pod: &Pod) -> bool {
    affinity(pod)
        .is_some_and(|affinity| affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some())
}

fn affinity(pod: &Pod) -> Option<&Affinity> {
    pod.spec.as_ref()?.affinity.as_deref()
}

fn asks(pod: &Pod) -> String {
    let asked = affinity(pod).map(|affinity| (&affinity.pod_affinity, &affinity.pod_anti_affinity));
    serde_json::to_string(&asked).unwrap_or_default()
}

/// The topologies that a Pod asks about.
fn keys(pod: &Pod) -> BTreeSet<&str> {
    let near = affinity(pod).and_then(|affinity| affinity.pod_affinity.as_ref());
    let far = affinity(pod).and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let required = near
        .iter()
        .flat_map(|near| near.required_during_scheduling_ignored_during_execution.iter().flatten())
        .chain(
            far.iter()
                .flat_map(|far| far.required_during_scheduling_ignored_during_execution.iter().flatten()),
        );
    let preferred = near
        .iter()
        .flat_map(|near| near.preferred_during_scheduling_ignored_during_execution.iter().flatten())
        .chain(
            far.iter()
                .flat_map(|far| far.preferred_during_scheduling_ignored_during_execution.iter().flatten()),
        );
    let spread = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    required
        .chain(preferred.map(|term| &term.pod_affinity_term))
        .map(|term| term.topology_key.as_str())
        .chain(spread.map(|constraint| constraint.topology_key.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: &str, more: &str) -> Arc<Pod> {
        let text =
            format!("{{metadata: {{namespace: d, labels: {{{labels}}}}}, spec: {{containers: []{more}}}}}");
        Arc::new(serde_saphyr::from_str(&text).expect("a pod"))
    }

    fn node(name: &str, labels: &str) -> Arc<Node> {
        let text = format!("{{metadata: {{name: {name}, labels: {{{labels}}}}}}}");
        Arc::new(serde_saphyr::from_str(&text).expect("a node"))
    }

    fn ids(domains: &TopologyDomains) -> Vec<KindId> {
        domains.all().map(|(id, _)| id).collect()
    }

    /// Whether `key` is kept or not, the same is answered.
    fn check(domains: &TopologyDomains, key: &str, expect: &[(&str, usize)]) {
        let counts = domains.counts(&ids(domains), key);
        for (domain, count) in expect {
            assert_eq!(counts.get(domain), *count, "{key}={domain}");
        }
        assert_eq!(counts.domains(), expect.iter().filter(|(_, count)| *count > 0).count(), "{key}");
    }

    #[test]
    fn pods_are_counted_by_kind_and_domain_however_often_they_move() {
        let spread = ", topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]";
        for key in ["rack", "row"] {
            let mut domains = TopologyDomains::default();
            let first = domains.add(&pod("app: a", spread), "one");
            check(&domains, key, &[]);
            domains.set_node(&node("one", &format!("{key}: x")));
            domains.set_node(&node("two", &format!("{key}: y")));
            check(&domains, key, &[("x", 1), ("y", 0)]);
            assert_eq!(domains.add(&pod("app: a", spread), "two"), first, "they are alike");
            let other = domains.add(&pod("app: b", ""), "two");
            assert_ne!(other, first);
            check(&domains, key, &[("x", 1), ("y", 2)]);
            domains.set_node(&node("two", &format!("{key}: x")));
            check(&domains, key, &[("x", 3), ("y", 0)]);
            assert_eq!(domains.extent(key), (key == "rack").then_some((1, 2)));
            domains.remove_node("one");
            check(&domains, key, &[("x", 2)]);
            domains.remove(first, "two");
            domains.remove(first, "one");
            domains.remove(other, "two");
            check(&domains, key, &[]);
            assert!(domains.kinds.is_empty() && domains.ids.is_empty() && domains.by_namespace.is_empty());
        }
    }

    #[test]
    fn a_hostile_number_of_topologies_is_not_kept() {
        let mut domains = TopologyDomains::default();
        domains.set_node(&node("one", "key-99: x"));
        for number in 0..100 {
            let spread = format!(
                ", topologySpreadConstraints: [{{topologyKey: key-{number}, maxSkew: 1, whenUnsatisfiable: x}}]"
            );
            domains.add(&pod(&format!("app: a-{number}"), &spread), "one");
        }
        assert_eq!(domains.topologies.len(), TOPOLOGIES_MAX);
        assert_eq!(domains.extent("key-99"), None);
        check(&domains, "key-99", &[("x", 100)]);
    }

    #[test]
    fn who_goes_and_who_asks_is_of_another_kind() {
        let mut domains = TopologyDomains::default();
        let far = ", affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: k}]}}";
        domains.add(&pod("app: a", ""), "one");
        domains.add(&pod("app: a", far), "one");
        let mut going = (*pod("app: a", "")).clone();
        going.metadata.deletion_timestamp =
            Some(serde_saphyr::from_str("'2026-01-01T00:00:00Z'").expect("a time"));
        domains.add(&Arc::new(going), "one");
        assert_eq!(ids(&domains).len(), 3);
        assert_eq!(domains.choosy().count(), 1);
        assert_eq!(domains.per_node(&ids(&domains)), HashMap::from([("one", 3)]));
    }
}
