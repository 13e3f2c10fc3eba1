//! Memory and huge pages of certain NUMA nodes for one container: the static policy. Pure but for its checkpoint.
//!
//! Only Guaranteed Pods are given something; it is set aside for them on as few nodes as can be, and nodes that are
//! used together are used only together. Source: `pkg/kubelet/cm/memorymanager/policy_static.go` of upstream.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use parking_lot::Mutex;
use serde::de::IgnoredAny;

use crate::checkpoint::{self, Unusable};
use crate::config::ReservedMemory;
use crate::machine::layout::Layout;
use crate::machine::nodes::Nodes;
use crate::node_resources::topology::{Asker, Hint, Hints, Provider, hints_for};
use crate::pod::admission::Rejection;
use crate::pod::qos::{QosClass, class_of};
use crate::pod::quantity;
use crate::pod::requests::{at_once, has_own_resources};
use crate::pod::roles::{Role, init_role};
pub(crate) use state::Block;
use state::{Blocks, Checkpoint, NodeState, node_states};

/// The checkpoint's name below the kubelet's folder, as upstream's.
const CHECKPOINT: &str = "memory_manager_state";
const NAME: &str = "memory";

/// Who has which memory.
pub(crate) struct MemoryManager {
    layout: Arc<Layout>,
    reserved: ReservedMemory,
    path: PathBuf,
    entries: Mutex<Blocks>,
}

impl MemoryManager {
    /// Takes up what the checkpoint below `folder` says. Blocking.
    ///
    /// # Errors
    /// It is no checkpoint of this policy on this machine.
    pub(crate) fn open(
        folder: &Path,
        layout: Arc<Layout>,
        reserved: ReservedMemory,
    ) -> Result<Self, Unusable> {
        let path = folder.join(CHECKPOINT);
        let state: Checkpoint = checkpoint::restore(NAME, &path, "Static", |state: &Checkpoint| {
            state::check(&layout, &reserved, &state.entries)
        })?;
        let manager = Self { layout, reserved, path, entries: Mutex::new(state.entries) };
        manager.save(&manager.entries.lock());
        Ok(manager)
    }

    /// That no checkpoint below `folder` gives memory away. Blocking.
    ///
    /// # Errors
    /// One does: those containers are held to their nodes yet.
    pub(crate) fn check_none(folder: &Path) -> Result<(), Unusable> {
        checkpoint::restore::<IgnoredAny>(NAME, &folder.join(CHECKPOINT), "None", |_| Ok(())).map(drop)
    }

    /// Takes back what a Pod has.
    pub(crate) fn release(&self, uid: &str) {
        let mut entries = self.entries.lock();
        if entries.remove(uid).is_some() {
            self.save(&entries);
        }
    }

    /// Takes back what Pods have that are not among `uids`.
    pub(crate) fn keep_only(&self, uids: &BTreeSet<String>) {
        let mut entries = self.entries.lock();
        let before = entries.len();
        entries.retain(|uid, _| uids.contains(uid));
        if entries.len() != before {
            self.save(&entries);
        }
    }

    /// What the container has.
    pub(crate) fn blocks(&self, uid: &str, container: &str) -> Vec<Block> {
        blocks_of(&self.entries.lock(), uid, container).cloned().unwrap_or_default()
    }

    /// The NUMA nodes that the container's memory is to be on, in the kernel's list format; empty for all.
    pub(crate) fn nodes(&self, uid: &str, container: &str) -> String {
        let blocks = self.blocks(uid, container);
        blocks
            .iter()
            .flat_map(|block| block.numa_affinity.iter().copied())
            .collect::<crate::config::CpuSet>()
            .to_string()
    }

    /// What can be given at all, by node. Source: `GetAllocatableMemory`.
    pub(crate) fn allocatable(&self) -> Vec<Block> {
        let states = node_states(&self.layout, &self.reserved, &Blocks::new());
        let block = |node: usize, (name, amounts): (&String, &state::Amounts)| Block {
            numa_affinity: vec![node],
            resource: name.clone(),
            size: amounts.allocatable,
        };
        let of = |(node, state): (&usize, &NodeState)| {
            let some = state.memory_map.iter().filter(|(_, amounts)| amounts.allocatable > 0);
            some.map(|entry| block(*node, entry)).collect::<Vec<_>>()
        };
        states.iter().flat_map(of).collect()
    }

    fn all(&self) -> Nodes {
        self.layout.memory.keys().copied().collect()
    }

    fn save(&self, entries: &Blocks) {
        let checkpoint = Checkpoint {
            policy_name: "Static".into(),
            machine_state: node_states(&self.layout, &self.reserved, entries),
            entries: entries.clone(),
        };
        checkpoint::save(&self.path, &checkpoint);
    }

    /// From which nodes all of `asked` can be had, beside what `own` of the Pod may be used again.
    fn possible(&self, states: &BTreeMap<usize, NodeState>, asked: &Asked, own: &[Block]) -> Vec<Hint> {
        let share = |nodes: Nodes, name: &str, part: fn(&state::Amounts) -> i64| -> i64 {
            let states = nodes.iter().filter_map(|node| states.get(&node)?.memory_map.get(name));
            states.map(part).sum()
        };
        // Amounts in parts of what is asked for: 1 is enough of everything.
        let all = |enough: &dyn Fn(&str, i64) -> bool| {
            i64::from(asked.iter().all(|(name, amount)| enough(name, *amount)))
        };
        let has =
            |nodes: Nodes| all(&|name, amount| share(nodes, name, |amounts| amounts.allocatable) >= amount);
        let again = |nodes: Nodes, name: &str| -> i64 {
            let same = own.iter().filter(|block| block.resource == name && block.nodes() == nodes);
            same.map(|block| block.size).sum()
        };
        let gives = |nodes: Nodes| {
            may_use_together(states, nodes).then(|| {
                all(&|name, amount| share(nodes, name, |amounts| amounts.free) + again(nodes, name) >= amount)
            })
        };
        hints_for(self.all(), 1, has, gives)
    }

    fn place(
        &self,
        states: &BTreeMap<usize, NodeState>,
        asked: &Asked,
        own: &[Block],
        hint: &Hint,
    ) -> Result<Nodes, Rejection> {
        if let Some(nodes) = hint.nodes.filter(|nodes| is_free(states, *nodes, asked)) {
            match may_use_together(states, nodes) {
                true => return Ok(nodes),
                false if nodes.len() > 1 => return Err(Misplaced::Violation.into()),
                // One that is used only together with others: those come with it.
                false => {}
            }
        }
        let possible = self.possible(states, asked, own);
        let within = |found: &&Hint| {
            hint.nodes.is_none_or(|nodes| found.nodes.is_some_and(|own| own.and(nodes) == nodes))
        };
        let order = |found: &&Hint| (!found.is_preferred, found.nodes.map(|nodes| (nodes.len(), nodes)));
        let best = possible.iter().filter(within).min_by_key(order);
        match (best, hint.nodes) {
            (None, None) => Err(Misplaced::Nowhere.into()),
            (None, Some(_)) => Err(Misplaced::NotAround.into()),
            (Some(best), Some(_)) if hint.is_preferred && !best.is_preferred => {
                Err(Misplaced::NotPreferred.into())
            }
            (Some(best), _) => Ok(best.nodes.unwrap_or_else(|| self.all())),
        }
    }
}

/// Why a container's memory has no place; in upstream's words.
#[derive(Debug, thiserror::Error)]
enum Misplaced {
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    Nowhere,
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NotAround,
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NotPreferred,
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violation,
}

impl From<Misplaced> for Rejection {
    fn from(misplaced: Misplaced) -> Self {
        Self::unexpected(misplaced)
    }
}

/// Whether the nodes together have all of that left. Source: `isAffinitySatisfyRequest`.
fn is_free(states: &BTreeMap<usize, NodeState>, nodes: Nodes, asked: &Asked) -> bool {
    asked.iter().all(|(name, amount)| {
        let of = |node| Some(states.get(&node)?.memory_map.get(name)?.free);
        nodes.iter().filter_map(of).sum::<i64>() >= *amount
    })
}

/// The NUMA nodes do not keep what the node does; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "the total amount \"{total}\" of type \"memory\" is not equal to the value \"{kept}\" determined by Node Allocatable feature"
)]
pub(crate) struct UnequalReserved {
    total: machinery::quantity::Quantity,
    kept: machinery::quantity::Quantity,
}

/// Whether what is reserved on all nodes together is what Pods cannot have anyway.
///
/// # Errors
/// In upstream's words.
pub(crate) fn check_reserved(reserved: &ReservedMemory, kept: i64) -> Result<(), UnequalReserved> {
    let total: i64 = reserved.values().filter_map(|own| own.get("memory")).sum();
    if total == kept {
        return Ok(());
    }
    let text = |bytes: i64| machinery::quantity::Quantity::new(bytes, machinery::quantity::Format::BinarySi);
    Err(UnequalReserved { total: text(total), kept: text(kept) })
}

/// Nodes that are used for one container together are used for no other alone.
fn may_use_together(states: &BTreeMap<usize, NodeState>, nodes: Nodes) -> bool {
    nodes.iter().filter_map(|node| states.get(&node)).all(|state| {
        let group: Nodes = state.cells.iter().copied().collect();
        match nodes.len() {
            1 => group.len() <= 1,
            _ => state.number_of_assignments == 0 || group == nodes,
        }
    })
}

/// Bytes by resource.
type Asked = BTreeMap<String, i64>;

fn asked_by(container: &Container) -> Asked {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|r| r.requests.as_ref().or(r.limits.as_ref()));
    let is_memory = |name: &str| name == "memory" || name.starts_with("hugepages-");
    let asked = requests.into_iter().flatten().filter(|(name, _)| is_memory(name));
    asked.map(|(name, amount)| (name.clone(), quantity::whole(amount))).filter(|(_, n)| *n > 0).collect()
}

/// The most that the Pod's containers have at the same time.
fn asked_by_pod(spec: &PodSpec) -> Asked {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let names: BTreeSet<String> = containers.flat_map(|container| asked_by(container).into_keys()).collect();
    let amount = |name: &str| at_once(spec, |container| asked_by(container).get(name).copied().unwrap_or(0));
    names.into_iter().map(|name| (name.clone(), amount(&name))).collect()
}

fn blocks_of<'a>(entries: &'a Blocks, uid: &str, container: &str) -> Option<&'a Vec<Block>> {
    entries.get(uid)?.get(container)
}

/// The hints that lead to what is set aside already; none where that is not what is asked for. Source: `regenerateHints`.
fn hints_again(asked: &Asked, own: &[Block]) -> Hints {
    let is_asked_for = |block: &Block| asked.get(&block.resource) == Some(&block.size);
    if own.len() != asked.len() || !own.iter().all(is_asked_for) {
        return Hints::new();
    }
    let of = |name: &str| {
        let blocks = own.iter().filter(|block| block.resource == name);
        blocks.map(|block| Hint { nodes: Some(block.nodes()), is_preferred: true }).collect()
    };
    asked.keys().map(|name| (name.clone(), Some(of(name)))).collect()
}

/// What earlier init containers have that later containers may have too.
fn reusable(entries: &Blocks, uid: &str, spec: &PodSpec, until: &Container) -> Vec<Block> {
    let before = spec.init_containers.iter().flatten().take_while(|c| c.name != until.name);
    let init = before.filter(|c| init_role(c) == Role::Init);
    init.filter_map(|c| blocks_of(entries, uid, &c.name)).flatten().cloned().collect()
}

/// Takes `amount` of what init containers have on these nodes: it is counted only once.
fn reuse(of_pod: &mut BTreeMap<String, Vec<Block>>, spec: &PodSpec, until: &Container, block: &Block) {
    let mut left = block.size;
    let before = spec.init_containers.iter().flatten().take_while(|c| c.name != until.name);
    for init in before.filter(|c| init_role(c) == Role::Init) {
        for own in of_pod.get_mut(&init.name).into_iter().flatten() {
            if own.resource == block.resource && own.nodes() == block.nodes() {
                let taken = own.size.min(left);
                own.size -= taken;
                left -= taken;
            }
        }
    }
}

/// Source: the static policy does not support resources of whole Pods.
fn gives_alone(spec: &PodSpec) -> bool {
    class_of(spec) == QosClass::Guaranteed && !has_own_resources(spec)
}

impl Provider for MemoryManager {
    fn hints(&self, uid: &str, spec: &PodSpec, asker: Asker<'_>) -> Hints {
        let asked = match asker {
            Asker::Container(container) => asked_by(container),
            Asker::Pod => asked_by_pod(spec),
        };
        if !gives_alone(spec) || asked.is_empty() {
            return Hints::new();
        }
        let entries = self.entries.lock();
        let own = match asker {
            Asker::Container(container) => blocks_of(&entries, uid, &container.name).cloned(),
            // The first that has anything speaks for all, and is taken at its word only if it is alone.
            Asker::Pod => {
                let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
                all.find_map(|container| blocks_of(&entries, uid, &container.name)).cloned()
            }
        };
        if let Some(own) = own {
            return hints_again(&asked, &own);
        }
        let again = match asker {
            Asker::Container(container) => reusable(&entries, uid, spec, container),
            Asker::Pod => Vec::new(),
        };
        let states = node_states(&self.layout, &self.reserved, &entries);
        let found = self.possible(&states, &asked, &again);
        asked.into_keys().map(|name| (name, Some(found.clone()))).collect()
    }

    fn pins(&self, spec: &PodSpec, _: &Container) -> bool {
        gives_alone(spec)
    }

    fn allocate(
        &self,
        uid: &str,
        spec: &PodSpec,
        container: &Container,
        hint: &Hint,
    ) -> Result<(), Rejection> {
        let asked = asked_by(container);
        let mut entries = self.entries.lock();
        let is_given = blocks_of(&entries, uid, &container.name).is_some();
        if !gives_alone(spec) || asked.is_empty() || is_given {
            return Ok(());
        }
        let states = node_states(&self.layout, &self.reserved, &entries);
        let again = reusable(&entries, uid, spec, container);
        let nodes = self.place(&states, &asked, &again, hint)?;
        let block = |(resource, size)| Block { numa_affinity: nodes.iter().collect(), resource, size };
        let blocks: Vec<Block> = asked.into_iter().map(block).collect();
        let of_pod = entries.entry(uid.to_owned()).or_default();
        blocks.iter().for_each(|block| reuse(of_pod, spec, container, block));
        of_pod.insert(container.name.clone(), blocks);
        self.save(&entries);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
