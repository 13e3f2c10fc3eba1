//! A Node with what runs on it, summed up; and the snapshot of all of them that decisions are made on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::LocalKey;

use controller::pod::{Interned, Pod, PodSpec, Recent, Repeated};
use k8s_openapi::api::core::v1::Node;

use crate::allowed::Allowed;
use crate::devices::Devices;
use crate::gangs::Gangs;
use crate::pod::{ByUid, uid};
use crate::profile::Profiles;
use crate::resource::{Resources, pod_requests, pod_requests_non_zero};
use crate::storage::Storage;
use crate::topology_domains::{KindId, TopologyDomains};

/// A host port in use: address, protocol, port.
pub type HostPort = (String, String, i32);

/// A Node and the sum of its Pods.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The Node object.
    pub node: Arc<Node>,
    /// The resources that Pods may use.
    pub allocatable: Resources,
    /// The resources that Pods have asked for; `pods` counts them.
    pub requested: Resources,
    /// The same with a floor per container, for scores.
    pub requested_non_zero: Resources,
    /// Host ports in use.
    pub ports: BTreeSet<HostPort>,
    /// Bytes per image name.
    pub images: Arc<HashMap<String, i64>>,
    /// The Pods.
    pods: BTreeSet<ByUid>,
    /// Where it is among the Nodes of its snapshot, if it is in one.
    pub(crate) position: Option<usize>,
}

impl NodeInfo {
    /// A Node with nothing on it.
    pub fn new(node: Arc<Node>) -> Self {
        let status = node.status.as_ref();
        let allocatable = Resources::from_list(status.and_then(|status| status.allocatable.as_ref()));
        let mut images = HashMap::new();
        for image in status.and_then(|status| status.images.as_deref()).unwrap_or_default() {
            for name in image.names.iter().flatten() {
                images.insert(name.clone(), image.size_bytes.unwrap_or(0));
            }
        }
        Self {
            node,
            allocatable,
            requested: Resources::default(),
            requested_non_zero: Resources::default(),
            ports: BTreeSet::new(),
            images: Arc::new(images),
            pods: BTreeSet::new(),
            position: None,
        }
    }

    /// The Node's name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its Pods, in the order of their uids.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Arc<Pod>> {
        self.pods.iter().map(|ByUid(pod)| pod)
    }

    /// The Pod of that uid, if it is on this Node.
    pub(crate) fn pod(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.pods.get(uid).map(|ByUid(pod)| pod)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Takes over what runs on the same Node.
    fn take_pods(&mut self, old: &mut Self) {
        self.position = old.position;
        self.pods = std::mem::take(&mut old.pods);
        self.ports = std::mem::take(&mut old.ports);
        self.requested = std::mem::take(&mut old.requested);
        self.requested_non_zero = std::mem::take(&mut old.requested_non_zero);
    }

    /// Counts a Pod in.
    pub(crate) fn add(&mut self, pod: &Arc<Pod>, need: &PodNeed) {
        self.pods.replace(ByUid(pod.clone()));
        self.requested.add(&need.requests);
        self.requested.pods += 1;
        self.requested_non_zero.add(&need.requests_non_zero);
        self.ports.extend(need.ports.iter().cloned());
    }

    /// Counts a Pod out.
    pub(crate) fn remove(&mut self, uid: &str, need: &PodNeed) {
        self.pods.remove(uid);
        self.requested.subtract(&need.requests);
        self.requested.pods -= 1;
        self.requested_non_zero.subtract(&need.requests_non_zero);
        for port in &need.ports {
            self.ports.remove(port);
        }
    }
}

/// The resources that a Pod takes up on a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNeed {
    /// Requests at the Pod's peak.
    pub requests: Resources,
    /// The same with a floor per container.
    pub requests_non_zero: Resources,
    /// Host ports.
    pub ports: Vec<HostPort>,
}

impl PodNeed {
    /// Sums up a Pod.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        Self {
            requests: pod_requests(pod),
            requests_non_zero: pod_requests_non_zero(pod),
            ports: host_ports(spec),
        }
    }
}

impl Repeated for PodNeed {
    type Read = Self;

    fn recent() -> &'static LocalKey<Recent<Self>> {
        thread_local! {
            static RECENT: Recent<PodNeed> = const { RefCell::new(VecDeque::new()) };
        }
        &RECENT
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars);
    containers
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number != 0)?;
            let address =
                port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((address, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), number))
        })
        .collect()
}

/// All Nodes, with the Pods that are bound or assumed to be.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// In no order that means anything.
    nodes: Vec<NodeInfo>,
    /// Where each Node is among `nodes`, by name.
    index: HashMap<String, usize>,
    /// The same in the order of names.
    order: Vec<usize>,
    placed: HashMap<ByUid, Placed>,
    /// Pods on Nodes that are not known (yet, or any more), by Node.
    homeless: HashMap<String, BTreeSet<ByUid>>,
    /// The number of Pods of each kind in each topology domain.
    pub domains: TopologyDomains,
    /// The labels of each namespace.
    namespaces: HashMap<String, BTreeMap<String, String>>,
    /// How many Nodes have an image, by its name.
    images: HashMap<String, usize>,
    /// By what Pods are scheduled.
    pub profiles: Profiles,
    /// Claims, volumes and what they are made by.
    pub storage: Storage,
    /// Claims, classes and slices of devices.
    pub devices: Devices,
    /// Workloads, and the Pods that go to Nodes together.
    pub gangs: Gangs,
    /// Which Nodes Pods may be on, by what they have asked for last.
    pub(crate) allowed: Allowed,
}

/// A Pod that is on a Node, or soon will be.
#[derive(Clone, Debug)]
struct Placed {
    node: String,
    need: Interned<PodNeed>,
    kind: KindId,
}

impl Snapshot {
    /// Nothing yet, for Pods that are scheduled by these.
    pub fn new(profiles: Profiles) -> Self {
        Self { profiles, devices: Devices::of_features(), ..Self::default() }
    }

    /// The Nodes in name order.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.order.iter().filter_map(|at| self.nodes.get(*at))
    }

    /// All Nodes once, in name order, from the one on which `chance` (any number) falls.
    pub fn nodes_from(&self, chance: u64) -> impl Iterator<Item = &NodeInfo> {
        let count = u64::try_from(self.order.len()).unwrap_or(u64::MAX).max(1);
        let start = usize::try_from(chance % count).unwrap_or(0);
        let (before, after) = self.order.split_at_checked(start).unwrap_or_default();
        after.iter().chain(before).filter_map(|at| self.nodes.get(*at))
    }

    /// The Node of that name.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(*self.index.get(name)?)
    }

    fn node_mut(&mut self, name: &str) -> Option<&mut NodeInfo> {
        self.nodes.get_mut(*self.index.get(name)?)
    }

    /// The number of Nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The number of placed Pods.
    pub fn placed(&self) -> usize {
        self.placed.len()
    }

    /// `true` if there is no Node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds or replaces a Node; Pods that were placed on it stay.
    pub fn set_node(&mut self, node: Arc<Node>) {
        self.domains.set_node(&node);
        let mut info = NodeInfo::new(node);
        let name = info.name().to_owned();
        for image in info.images.keys() {
            *self.images.entry(image.clone()).or_default() += 1;
        }
        if let Some(known) = self.node_mut(&name) {
            info.take_pods(known);
            let (new, old) = (info.node.clone(), std::mem::replace(known, info));
            if new.metadata.labels != old.node.metadata.labels {
                self.allowed.forget();
            }
            return self.forget_images(&old);
        }
        for pod in self.homeless.remove(&name).into_iter().flatten() {
            if let Some((ByUid(pod), placed)) = self.placed.get_key_value(&pod) {
                info.add(pod, &placed.need);
            }
        }
        let after = |at: &usize| self.nodes.get(*at).is_some_and(|other| other.name() < name.as_str());
        let position = self.order.partition_point(after);
        self.order.insert(position, self.nodes.len());
        self.allowed.forget();
        info.position = Some(self.nodes.len());
        self.index.insert(name, self.nodes.len());
        self.nodes.push(info);
    }

    /// Removes a Node; Pods that are placed on it are homeless until it comes back.
    pub fn remove_node(&mut self, name: &str) {
        let Some(at) = self.index.remove(name) else { return };
        self.allowed.forget();
        self.domains.remove_node(name);
        self.order.retain(|other| *other != at);
        let old = self.nodes.swap_remove(at);
        let last = self.nodes.len();
        if let Some(moved) = self.nodes.get_mut(at) {
            moved.position = Some(at);
            self.index.insert(moved.name().to_owned(), at);
            self.order.iter_mut().filter(|other| **other == last).for_each(|other| *other = at);
        }
        self.forget_images(&old);
        if !old.pods.is_empty() {
            self.homeless.insert(name.to_owned(), old.pods);
        }
    }

    fn forget_images(&mut self, node: &NodeInfo) {
        for image in node.images.keys() {
            if let Some(count) = self.images.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(image);
                }
            }
        }
    }

    /// The number of Nodes that have the image of that name.
    pub fn having(&self, image: &str) -> usize {
        self.images.get(image).copied().unwrap_or(0)
    }

    /// Says which labels a namespace has; none if it is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(name)
    }

    /// The resources that a placed Pod takes up.
    pub fn need(&self, uid: &str) -> Option<&PodNeed> {
        self.placed.get(uid).map(|placed| &*placed.need)
    }

    /// Places a Pod on a Node: bound already, or assumed to be soon. Returns whether that is news to others.
    pub fn place(&mut self, pod: &Arc<Pod>, node: &str) -> bool {
        let uid = uid(pod);
        let need = PodNeed::of(pod);
        let same = |(ByUid(known), placed): &(ByUid, Placed)| {
            placed.node == node && *placed.need == need && known.metadata.labels == pod.metadata.labels
        };
        let mut known = self.placed.remove_entry(uid);
        if let Some((ByUid(known), mut placed)) = known.take_if(|known| same(known)) {
            // Whether it is on its way out, and why, is news to preemption.
            if is_going(&known) != is_going(pod) {
                self.domains.remove(placed.kind, node);
                placed.kind = self.domains.add(pod, node);
            }
            let on = match self.node_mut(node) {
                Some(info) => &mut info.pods,
                None => self.homeless.entry(node.to_owned()).or_default(),
            };
            on.replace(ByUid(pod.clone()));
            self.placed.insert(ByUid(pod.clone()), placed);
            return false;
        }
        if let Some((_, placed)) = known {
            self.forget(uid, placed);
        }
        match self.node_mut(node) {
            Some(info) => info.add(pod, &need),
            None => drop(self.homeless.entry(node.to_owned()).or_default().insert(ByUid(pod.clone()))),
        }
        let kind = self.domains.add(pod, node);
        let placed = Placed { node: node.to_owned(), need: Interned::of(need), kind };
        self.placed.insert(ByUid(pod.clone()), placed);
        true
    }

    /// Takes the Pod `uid` away; returns whether it was placed.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some(placed) = self.placed.remove(uid) else { return false };
        self.forget(uid, placed);
        true
    }

    /// Counts a Pod out where it was placed.
    fn forget(&mut self, uid: &str, Placed { node, need, kind }: Placed) {
        self.domains.remove(kind, &node);
        if let Some(info) = self.node_mut(&node) {
            info.remove(uid, &need);
        } else if let Some(pods) = self.homeless.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.homeless.remove(&node);
            }
        }
    }
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placing_twice_counts_once_and_removing_frees() {
        let node: Node =
            serde_saphyr::from_str("metadata: {name: a}\nstatus: {allocatable: {cpu: '4'}}").expect("a node");
        let pod: Pod =
            serde_saphyr::from_str("metadata: {name: p, uid: u}\nspec: {containers: [{name: c, resources: {requests: {cpu: '1'}}, ports: [{containerPort: 80, hostPort: 80}]}]}").expect("a pod");
        let mut snapshot = Snapshot::default();
        let pod = Arc::new(pod);
        snapshot.place(&pod, "a");
        snapshot.set_node(Arc::new(node));
        snapshot.place(&pod, "a");
        let used = |snapshot: &Snapshot| {
            snapshot
                .nodes()
                .map(|n| (n.requested.milli_cpu, n.requested.pods, n.ports.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(used(&snapshot), [(1000, 1, 1)]);
        assert!(snapshot.remove("u"));
        assert_eq!(used(&snapshot), [(0, 0, 0)]);
    }

    #[test]
    fn a_pod_on_its_way_out_is_known_as_such() {
        let parse = |text: &str| serde_saphyr::from_str::<Pod>(text).expect("a pod");
        let mut snapshot = Snapshot::default();
        snapshot.set_node(Arc::new(serde_saphyr::from_str("metadata: {name: a}").expect("a node")));
        assert!(snapshot.place(&Arc::new(parse("metadata: {name: p, uid: u}")), "a"));
        let leaving = parse("metadata: {name: p, uid: u, deletionTimestamp: '2026-01-01T00:00:00Z'}");
        assert!(!snapshot.place(&Arc::new(leaving), "a"), "it takes the room that it took");
        let mut pods = snapshot.nodes().flat_map(|node| node.pods());
        assert!(pods.all(|pod| pod.metadata.deletion_timestamp.is_some()));
    }

    #[test]
    fn nodes_come_and_go_and_pods_stay_where_they_were_put() {
        let parse = |name: &str| {
            Arc::new(serde_saphyr::from_str::<Node>(&format!("metadata: {{name: {name}}}")).expect("a node"))
        };
        let mut snapshot = Snapshot::default();
        let pod: Arc<Pod> = Arc::new(serde_saphyr::from_str("metadata: {name: p, uid: u}").expect("a pod"));
        let names = |snapshot: &Snapshot| {
            snapshot.nodes().map(|node| format!("{}{}", node.name(), node.pods().len())).collect::<String>()
        };
        for name in ["b", "d", "a", "c"] {
            snapshot.set_node(parse(name));
        }
        snapshot.place(&pod, "b");
        assert_eq!(names(&snapshot), "a0b1c0d0");
        snapshot.remove_node("b");
        assert_eq!(names(&snapshot), "a0c0d0");
        snapshot.remove_node("d");
        snapshot.set_node(parse("b"));
        assert_eq!(names(&snapshot), "a0b1c0", "it is the Node that it was");
        snapshot.set_node(parse("b"));
        assert_eq!(names(&snapshot), "a0b1c0");
        snapshot.remove_node("b");
        assert!(snapshot.remove("u"));
        assert!(snapshot.homeless.is_empty() && snapshot.node("b").is_none());
        assert_eq!(snapshot.node("c").map(NodeInfo::name), Some("c"));
    }
}
