//! What is set aside, and what that leaves of each NUMA node: the checkpoint in upstream's form. Pure.
//!
//! Source: `memorymanager/state/state.go` of upstream.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ReservedMemory;
use crate::checkpoint::Impossible;
use crate::machine::layout::Layout;
use crate::machine::nodes::Nodes;

/// Some of one resource on some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Block {
    pub(crate) numa_affinity: Vec<usize>,
    #[serde(rename = "type")]
    pub(crate) resource: String,
    /// Bytes.
    pub(crate) size: i64,
}

impl Block {
    pub(super) fn nodes(&self) -> Nodes {
        self.numa_affinity.iter().copied().collect()
    }
}

/// By Pod uid and container name.
pub(super) type Blocks = BTreeMap<String, BTreeMap<String, Vec<Block>>>;

/// Bytes of one resource on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Amounts {
    total: i64,
    system_reserved: i64,
    pub(super) allocatable: i64,
    reserved: i64,
    pub(super) free: i64,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeState {
    pub(super) number_of_assignments: usize,
    pub(super) memory_map: BTreeMap<String, Amounts>,
    /// The nodes that are used together with this one.
    pub(super) cells: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Checkpoint {
    pub(super) policy_name: String,
    pub(super) machine_state: BTreeMap<usize, NodeState>,
    #[serde(default)]
    pub(super) entries: Blocks,
}

/// What the nodes have left.
pub(super) fn node_states(
    layout: &Layout,
    reserved: &ReservedMemory,
    entries: &Blocks,
) -> BTreeMap<usize, NodeState> {
    let mut states = BTreeMap::new();
    for (node, resources) in &layout.memory {
        let huge: i64 =
            resources.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, bytes)| bytes).sum();
        let amounts = |(name, total): (&String, &i64)| {
            let system_reserved = reserved.get(node).and_then(|own| own.get(name)).copied().unwrap_or(0);
            let huge = if name == "memory" { huge } else { 0 };
            let allocatable = (total - system_reserved - huge).max(0);
            let amounts =
                Amounts { total: *total, system_reserved, allocatable, reserved: 0, free: allocatable };
            (name.clone(), amounts)
        };
        let memory_map = resources.iter().map(amounts).collect();
        states.insert(*node, NodeState { number_of_assignments: 0, memory_map, cells: vec![*node] });
    }
    for block in entries.values().flat_map(BTreeMap::values).flatten() {
        set_aside(&mut states, block);
    }
    states
}

/// That the machine has what is set aside. Amounts may have changed, as they do from boot to boot, but for that.
///
/// # Errors
/// What it has not.
pub(super) fn check(layout: &Layout, reserved: &ReservedMemory, entries: &Blocks) -> Result<(), Impossible> {
    let mut states = node_states(layout, reserved, &Blocks::new());
    let containers = entries.iter().flat_map(|(pod, own)| own.iter().map(move |own| (pod, own)));
    for (pod, (container, blocks)) in containers {
        let missing =
            |what| Err(Impossible::NoMemory { pod: pod.clone(), container: container.clone(), what });
        for block in blocks {
            let nodes: Vec<_> = block.numa_affinity.iter().filter_map(|node| states.get(node)).collect();
            if nodes.len() < block.numa_affinity.len() {
                return missing("the NUMA");
            }
            if nodes.iter().any(|node| !node.memory_map.contains_key(&block.resource)) {
                return missing("memory resource");
            }
            if set_aside(&mut states, block) > 0 {
                return Err(Impossible::OtherMemory);
            }
        }
    }
    Ok(())
}

/// From the first of the block's nodes as much as it has, the rest from the next. Gives what none of them has.
fn set_aside(states: &mut BTreeMap<usize, NodeState>, block: &Block) -> i64 {
    let mut left = block.size;
    let mut group: BTreeSet<usize> = block.numa_affinity.iter().copied().collect();
    group.retain(|node| states.contains_key(node));
    for node in &group {
        let Some(state) = states.get_mut(node) else { continue };
        state.number_of_assignments += 1;
        state.cells = group.iter().copied().collect();
        let Some(amounts) = state.memory_map.get_mut(&block.resource) else { continue };
        let taken = amounts.free.min(left);
        amounts.free -= taken;
        amounts.reserved += taken;
        left -= taken;
    }
    left
}
