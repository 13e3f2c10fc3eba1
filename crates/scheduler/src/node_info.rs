//! A Node with what runs on it, summed up; and the snapshot of all of them that decisions are made on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use crate::devices::Devices;
use crate::resource::{Resources, pod_requests, pod_requests_non_zero};
use crate::storage::Storage;

/// A host port in use: address, protocol, port.
pub type HostPort = (String, String, i32);

/// A Node and the sum of its Pods.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The Node object.
    pub node: Arc<Node>,
    /// What Pods may use.
    pub allocatable: Resources,
    /// What Pods have asked for; `pods` counts them.
    pub requested: Resources,
    /// The same with a floor per container, for scores.
    pub requested_non_zero: Resources,
    /// Host ports in use.
    pub ports: BTreeSet<HostPort>,
    /// Bytes per image name.
    pub images: HashMap<String, i64>,
    /// The Pods, by uid.
    pub pods: BTreeMap<String, Arc<Pod>>,
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
            images,
            pods: BTreeMap::new(),
        }
    }

    /// The Node's name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Counts a Pod in.
    fn add(&mut self, uid: &str, Placed { need, pod, .. }: &Placed) {
        self.pods.insert(uid.to_owned(), pod.clone());
        self.requested.add(&need.requests);
        self.requested.pods += 1;
        self.requested_non_zero.add(&need.requests_non_zero);
        self.ports.extend(need.ports.iter().cloned());
    }

    /// Counts a Pod out.
    fn remove(&mut self, uid: &str, need: &PodNeed) {
        self.pods.remove(uid);
        self.requested.subtract(&need.requests);
        self.requested.pods -= 1;
        self.requested_non_zero.subtract(&need.requests_non_zero);
        for port in &need.ports {
            self.ports.remove(port);
        }
    }
}

/// What a Pod takes up on a Node.
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
            requests: pod_requests(spec),
            requests_non_zero: pod_requests_non_zero(spec),
            ports: host_ports(spec),
        }
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
    nodes: BTreeMap<String, NodeInfo>,
    placed: HashMap<String, Placed>,
    /// Of the placed Pods those that want others near or far.
    choosy: BTreeSet<String>,
    /// The labels of each namespace.
    namespaces: HashMap<String, BTreeMap<String, String>>,
    /// How many Nodes have an image, by its name.
    images: HashMap<String, usize>,
    /// Claims, volumes and what they are made by.
    pub storage: Storage,
    /// Claims, classes and slices of devices.
    pub devices: Devices,
}

/// A Pod that is on a Node, or soon will be.
#[derive(Clone, Debug)]
struct Placed {
    node: String,
    need: PodNeed,
    pod: Arc<Pod>,
}

impl Snapshot {
    /// The Nodes in name order.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    /// All Nodes once, in name order, from the one on which `chance` (any number) falls.
    pub fn nodes_from(&self, chance: u64) -> impl Iterator<Item = &NodeInfo> {
        let count = u64::try_from(self.nodes.len()).unwrap_or(u64::MAX).max(1);
        let start = usize::try_from(chance % count).unwrap_or(0);
        self.nodes.values().skip(start).chain(self.nodes.values().take(start))
    }

    /// The Node of that name.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name)
    }

    /// How many Nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How many Pods are placed.
    pub fn placed(&self) -> usize {
        self.placed.len()
    }

    /// Whether there is no Node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds or replaces a Node; Pods that were placed on it are counted in again.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let mut info = NodeInfo::new(node);
        let name = info.name().to_owned();
        for (uid, placed) in &self.placed {
            if placed.node == name {
                info.add(uid, placed);
            }
        }
        for image in info.images.keys() {
            *self.images.entry(image.clone()).or_default() += 1;
        }
        if let Some(old) = self.nodes.insert(name, info) {
            self.forget_images(&old);
        }
    }

    /// Removes a Node.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(old) = self.nodes.remove(name) {
            self.forget_images(&old);
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

    /// How many Nodes have the image of that name.
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

    /// The placed Pods that want others near or far, with their Nodes.
    pub fn choosy(&self) -> impl Iterator<Item = (&Pod, &NodeInfo)> {
        let placed = self.choosy.iter().filter_map(|uid| self.placed.get(uid));
        placed.filter_map(|placed| Some((&*placed.pod, self.nodes.get(&placed.node)?)))
    }

    /// Places a Pod on a Node: bound already, or assumed to be soon. Returns whether that is news to others.
    pub fn place(&mut self, pod: &Arc<Pod>, node: &str) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let need = PodNeed::of(pod);
        let same = |known: &Placed| {
            known.node == node && known.need == need && known.pod.metadata.labels == pod.metadata.labels
        };
        if let Some(known) = self.placed.get_mut(uid).filter(|known| same(known)) {
            // Whether it is on its way out, and why, is news to preemption.
            known.pod = pod.clone();
            if let Some(here) = self.nodes.get_mut(node).and_then(|info| info.pods.get_mut(uid)) {
                *here = pod.clone();
            }
            return false;
        }
        self.remove(uid);
        let placed = Placed { node: node.to_owned(), need, pod: pod.clone() };
        if let Some(info) = self.nodes.get_mut(node) {
            info.add(uid, &placed);
        }
        if is_choosy(pod) {
            self.choosy.insert(uid.to_owned());
        }
        self.placed.insert(uid.to_owned(), placed);
        true
    }

    /// Takes the Pod `uid` away; returns whether it was placed.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some(Placed { node, need, .. }) = self.placed.remove(uid) else { return false };
        self.choosy.remove(uid);
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove(uid, &need);
        }
        true
    }
}

/// Whether it matters to the Pod where other Pods are, as far as affinity says so.
fn is_choosy(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    affinity.is_some_and(|affinity| affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some())
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
        let mut pods = snapshot.nodes().flat_map(|node| node.pods.values());
        assert!(pods.all(|pod| pod.metadata.deletion_timestamp.is_some()));
    }
}
