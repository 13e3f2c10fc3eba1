//! CPUs for one container alone: the static policy. Pure but for its checkpoint.
//!
//! A Guaranteed container that asks for whole CPUs gets them for itself; all others share the rest, with the CPUs
//! that are reserved, which nobody gets alone. What init containers had, the containers after them may have.
//! Source: `pkg/kubelet/cm/cpumanager/policy_static.go`.

mod check;
mod choice;
mod distribute;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Unusable};
use crate::config::{CpuSet, StaticPolicy};
use crate::machine::layout::Layout;
use crate::machine::nodes::Nodes;
use crate::node_resources::topology::{Asker, Hint, Hints, Provider, hints_for};
use crate::pod::admission::Rejection;
use crate::pod::qos::{QosClass, class_of};
use crate::pod::quantity;
use crate::pod::requests::{at_once, has_own_resources};
use crate::pod::roles::{Role, init_role};
use choice::Caches;

/// The checkpoint's name below the kubelet's folder, as upstream's.
const CHECKPOINT: &str = "cpu_manager_state";
const NAME: &str = "CPU";

/// Who has which CPUs.
pub(crate) struct CpuManager {
    layout: Arc<Layout>,
    policy: StaticPolicy,
    path: PathBuf,
    state: Mutex<State>,
}

/// By Pod uid and container name.
type Assignments = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    policy_name: String,
    default_cpu_set: String,
    #[serde(default)]
    entries: Assignments,
}

impl CpuManager {
    /// Takes up what the checkpoint below `folder` says. Blocking.
    ///
    /// # Errors
    /// It is no checkpoint of this policy on this machine.
    pub(crate) fn open(folder: &Path, layout: Arc<Layout>, policy: StaticPolicy) -> Result<Self, Unusable> {
        let path = folder.join(CHECKPOINT);
        let mut manager = Self { layout, policy, path, state: Mutex::default() };
        let all = manager.all();
        if manager.policy.reserved.is_empty() {
            let reserved = manager.choose_of(&all, manager.policy.reserved_count.min(all.len()));
            manager.policy.reserved = reserved.unwrap_or_default();
        }
        let check = |state: &State| check::check(state, &all, &manager.policy);
        manager.state = Mutex::new(checkpoint::restore(NAME, &manager.path, "static", check)?);
        manager.save(&mut manager.state.lock());
        Ok(manager)
    }

    /// That no checkpoint below `folder` gives CPUs away. Blocking.
    ///
    /// # Errors
    /// One does: those containers' CPUs are not everybody's yet.
    pub(crate) fn check_none(folder: &Path) -> Result<(), Unusable> {
        checkpoint::restore::<IgnoredAny>(NAME, &folder.join(CHECKPOINT), "none", |_| Ok(())).map(drop)
    }

    /// Takes back what a Pod has. Whether that changes what others share.
    pub(crate) fn release(&self, uid: &str) -> bool {
        let mut state = self.state.lock();
        let had = state.entries.remove(uid).is_some();
        if had {
            self.save(&mut state);
        }
        had
    }

    /// Takes back what Pods have that are not among `uids`.
    pub(crate) fn keep_only(&self, uids: &std::collections::BTreeSet<String>) {
        let mut state = self.state.lock();
        let before = state.entries.len();
        state.entries.retain(|uid, _| uids.contains(uid));
        if state.entries.len() != before {
            self.save(&mut state);
        }
    }

    /// Where the container may run.
    pub(crate) fn cpus(&self, uid: &str, container: &str) -> String {
        let state = self.state.lock();
        let own = state.entries.get(uid).and_then(|containers| containers.get(container));
        own.cloned().unwrap_or_else(|| self.shared(&state).to_string())
    }

    /// What the container has alone; empty for nothing.
    pub(crate) fn exclusive(&self, uid: &str, container: &str) -> CpuSet {
        exclusive_of(&self.state.lock(), uid, container).unwrap_or_default()
    }

    /// How many CPUs are shared, and how many of each NUMA node somebody has alone.
    pub(crate) fn split(&self) -> (usize, Vec<(usize, usize)>) {
        let shared = self.shared(&self.state.lock());
        let taken = self.allocatable().minus(&shared);
        let of = |node: usize| taken.and(&self.layout.cpus_of(std::iter::once(node).collect())).len();
        (shared.len(), self.layout.nodes().iter().map(|node| (node, of(node))).collect())
    }

    /// What can be given at all. Source: `GetAllocatableCPUs`.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.all().minus(&self.policy.reserved)
    }

    fn all(&self) -> CpuSet {
        self.layout.cpus.keys().copied().collect()
    }

    /// CPUs that nobody has alone and that are not reserved.
    fn free(&self, state: &State) -> CpuSet {
        self.shared(state).minus(&self.policy.reserved)
    }

    fn shared(&self, state: &State) -> CpuSet {
        let all = if self.policy.is_reservation_strict { self.allocatable() } else { self.all() };
        let taken = state.entries.values().flat_map(BTreeMap::values);
        taken.filter_map(|text| text.parse::<CpuSet>().ok()).fold(all, |all, set| all.minus(&set))
    }

    /// What init containers of the Pod had and no other container has.
    fn reusable(&self, state: &State, uid: &str, spec: &PodSpec) -> CpuSet {
        let of = |containers: &mut dyn Iterator<Item = &Container>| {
            let sets = containers.filter_map(|container| exclusive_of(state, uid, &container.name));
            sets.fold(CpuSet::default(), |all, set| all.or(&set))
        };
        let is_init = |container: &&Container| init_role(container) == Role::Init;
        let init = || spec.init_containers.iter().flatten();
        let had = of(&mut init().filter(is_init));
        had.minus(&of(&mut spec.containers.iter().chain(init().filter(|c| !is_init(c)))))
    }

    fn choose(&self, free: &CpuSet, count: usize, hint: &Hint) -> Option<CpuSet> {
        let Some(nodes) = hint.nodes else { return self.choose_of(free, count) };
        let near = free.and(&self.layout.cpus_of(nodes));
        let first = self.choose_of(&near, count.min(near.len()))?;
        let rest = self.choose_of(&free.minus(&first), count - first.len())?;
        Some(first.or(&rest))
    }

    fn choose_of(&self, free: &CpuSet, count: usize) -> Option<CpuSet> {
        let caches = if self.policy.prefers_caches { Caches::Preferred } else { Caches::Ignored };
        let packed = |free: &CpuSet, count: usize| choice::choose(&self.layout, free, count, caches);
        if self.policy.is_distributed {
            let group = if self.policy.is_full_cores_only { self.layout.threads_per_core() } else { 1 };
            let even = distribute::distribute(&self.layout, free, (count, group), packed);
            if even.is_some() {
                return even;
            }
        }
        packed(free, count)
    }

    /// `free` are those that the container may have.
    fn check_cores(&self, free: &CpuSet, count: usize) -> Result<(), Rejection> {
        let per_core = self.layout.threads_per_core();
        if !self.policy.is_full_cores_only {
            return Ok(());
        }
        let error = |what: std::fmt::Arguments<'_>| {
            Err(Rejection::new("SMTAlignmentError", format!("SMT Alignment Error: {what}")))
        };
        if !count.is_multiple_of(per_core) {
            return error(format_args!("requested {count} cpus not multiple cpus per core = {per_core}"));
        }
        // What shares a core with a reserved CPU is no whole core, however many of them are free.
        let reserved = &self.policy.reserved;
        let with_siblings: CpuSet = self.layout.siblings(reserved).collect();
        let whole = free.minus(&with_siblings).len();
        if count > whole {
            return error(format_args!(
                "not enough free physical CPUs: available physical CPUs = {whole}, requested CPUs = {count}, CPUs per core = {per_core}"
            ));
        }
        Ok(())
    }

    fn save(&self, state: &mut State) {
        state.policy_name = "static".into();
        state.default_cpu_set = self.shared(state).to_string();
        checkpoint::save(&self.path, &*state);
    }
}

impl Provider for CpuManager {
    fn hints(&self, uid: &str, spec: &PodSpec, asker: Asker<'_>) -> Hints {
        let count = match asker {
            Asker::Container(container) => exclusive_cpus(spec, container),
            Asker::Pod => exclusive_of_pod(spec),
        };
        if count == 0 {
            return Hints::new();
        }
        let state = self.state.lock();
        let (free, must_use) = match asker {
            Asker::Container(container) => match exclusive_of(&state, uid, &container.name) {
                Some(own) if own.len() != count => {
                    return Hints::from([("cpu".to_owned(), Some(Vec::new()))]);
                }
                Some(own) => (own, CpuSet::default()),
                None => {
                    let reusable = self.reusable(&state, uid, spec);
                    (self.free(&state).or(&reusable), reusable)
                }
            },
            Asker::Pod => {
                let own = state.entries.get(uid).into_iter().flat_map(BTreeMap::values);
                let own = own.filter_map(|text| text.parse::<CpuSet>().ok());
                (own.fold(self.free(&state), |free, set| free.or(&set)), CpuSet::default())
            }
        };
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let of = |nodes: Nodes| self.layout.cpus_of(nodes);
        let gives = |nodes: Nodes| {
            let near = of(nodes);
            must_use.minus(&near).is_empty().then(|| number(near.and(&free).len()))
        };
        let has = |nodes: Nodes| number(of(nodes).len());
        Hints::from([("cpu".to_owned(), Some(hints_for(self.layout.nodes(), number(count), has, gives)))])
    }

    fn pins(&self, spec: &PodSpec, container: &Container) -> bool {
        exclusive_cpus(spec, container) > 0
    }

    fn allocate(
        &self,
        uid: &str,
        spec: &PodSpec,
        container: &Container,
        hint: &Hint,
    ) -> Result<(), Rejection> {
        let count = exclusive_cpus(spec, container);
        let mut state = self.state.lock();
        if count == 0 || exclusive_of(&state, uid, &container.name).is_some() {
            return Ok(());
        }
        let reusable = self.reusable(&state, uid, spec);
        let free = self.free(&state).or(&reusable);
        self.check_cores(&free, count)?;
        // What an earlier container had comes first.
        let first = self.choose(&reusable, count.min(reusable.len()), hint).unwrap_or_default();
        let rest = self.choose(&free.minus(&first), count - first.len(), hint);
        let Some(cpus) = rest.map(|rest| first.or(&rest)) else {
            return Err(Rejection::unexpected(format_args!(
                "not enough cpus available to satisfy request: requested={count}, available={}",
                free.len()
            )));
        };
        let own = state.entries.entry(uid.to_owned()).or_default();
        own.insert(container.name.clone(), cpus.to_string());
        self.save(&mut state);
        Ok(())
    }
}

fn exclusive_of(state: &State, uid: &str, container: &str) -> Option<CpuSet> {
    state.entries.get(uid)?.get(container)?.parse().ok()
}

/// How many CPUs the container gets alone; 0 for none.
fn exclusive_cpus(spec: &PodSpec, container: &Container) -> usize {
    // Source: the static policy does not support resources of whole Pods.
    if class_of(spec) != QosClass::Guaranteed || has_own_resources(spec) {
        return 0;
    }
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref().or(r.limits.as_ref()));
    let milli = requests.and_then(|r| r.get("cpu")).map_or(0, quantity::milli);
    if milli % 1000 == 0 { usize::try_from(milli / 1000).unwrap_or_default() } else { 0 }
}

/// The most that the Pod's containers have at the same time.
fn exclusive_of_pod(spec: &PodSpec) -> usize {
    let of = |container: &Container| i64::try_from(exclusive_cpus(spec, container)).unwrap_or(i64::MAX);
    usize::try_from(at_once(spec, of)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
