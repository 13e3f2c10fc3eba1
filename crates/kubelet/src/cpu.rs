//! CPUs for one container alone: the static policy. Pure but for its checkpoint.
//!
//! A Guaranteed container that asks for whole CPUs gets them for itself; all others share the rest, with the CPUs
//! that are reserved, which nobody gets alone. Source: `pkg/kubelet/cm/cpumanager/policy_static.go`.

mod set;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::qos::{QosClass, class_of};
use crate::quantity;
pub use set::{CpuSet, ParseError};

/// The checkpoint's name below the kubelet's folder, as upstream's.
const CHECKPOINT: &str = "cpu_manager_state";

/// Who has which CPUs.
pub(crate) struct CpuManager {
    all: CpuSet,
    reserved: CpuSet,
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
    pub(crate) fn open(folder: &Path, all: CpuSet, reserved: CpuSet) -> Self {
        let path = folder.join(CHECKPOINT);
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<State>(&bytes).ok());
        let state = read.filter(|state| state.policy_name == "static").unwrap_or_default();
        let manager = Self { all, reserved, path, state: Mutex::new(state) };
        manager.save(&mut manager.state.lock());
        manager
    }

    /// Gives each container of the Pod what it is due.
    ///
    /// # Errors
    /// In upstream's words: there are not so many CPUs left.
    pub(crate) fn allocate(&self, uid: &str, spec: &PodSpec) -> Result<(), String> {
        let mut state = self.state.lock();
        let mut own = state.entries.get(uid).cloned().unwrap_or_default();
        let mut free = self.free(&state);
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            let count = exclusive_cpus(spec, container);
            if count == 0 || own.contains_key(&container.name) {
                continue;
            }
            let Some(cpus) = free.take(count) else {
                return Err(format!(
                    "not enough cpus available to satisfy request: requested={count}, available={}",
                    free.len()
                ));
            };
            own.insert(container.name.clone(), cpus.to_string());
        }
        if !own.is_empty() {
            state.entries.insert(uid.to_owned(), own);
            self.save(&mut state);
        }
        Ok(())
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

    /// CPUs that nobody has alone and that are not reserved.
    fn free(&self, state: &State) -> CpuSet {
        self.shared(state).minus(&self.reserved)
    }

    fn shared(&self, state: &State) -> CpuSet {
        let taken = state.entries.values().flat_map(BTreeMap::values);
        taken
            .filter_map(|text| text.parse::<CpuSet>().ok())
            .fold(self.all.clone(), |all, set| all.minus(&set))
    }

    fn save(&self, state: &mut State) {
        state.policy_name = "static".into();
        state.default_cpu_set = self.shared(state).to_string();
        let bytes = serde_json::to_vec(&*state).unwrap_or_default();
        let new = self.path.with_extension("new");
        let saved = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &self.path));
        if let Err(error) = saved {
            tracing::warn!(%error, path = %self.path.display(), "who has which CPUs was not written down");
        }
    }
}

/// How many CPUs the container gets alone; 0 for none.
fn exclusive_cpus(spec: &PodSpec, container: &Container) -> usize {
    if class_of(spec) != QosClass::Guaranteed {
        return 0;
    }
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref().or(r.limits.as_ref()));
    let milli = requests.and_then(|r| r.get("cpu")).map_or(0, quantity::milli);
    if milli % 1000 == 0 { usize::try_from(milli / 1000).unwrap_or_default() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(cpu: &str) -> PodSpec {
        let text = format!(
            "{{containers: [{{name: a, resources: {{limits: {{cpu: '{cpu}', memory: 1Gi}}, requests: {{cpu: '{cpu}', memory: 1Gi}}}}}}]}}"
        );
        serde_saphyr::from_str(&text).unwrap()
    }

    #[test]
    fn whole_cpus_are_given_alone_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let open = || CpuManager::open(folder.path(), "0-3".parse().unwrap(), "0".parse().unwrap());
        let manager = open();
        manager.allocate("one", &spec("2")).unwrap();
        assert_eq!(manager.cpus("one", "a"), "1-2");
        assert_eq!(manager.cpus("other", "a"), "0,3", "the others share the rest and the reserved ones");
        manager.allocate("fraction", &spec("1500m")).unwrap();
        assert_eq!(manager.cpus("fraction", "a"), "0,3");
        assert_eq!(
            manager.allocate("two", &spec("2")).unwrap_err(),
            "not enough cpus available to satisfy request: requested=2, available=1"
        );
        let manager = open();
        assert_eq!(manager.cpus("one", "a"), "1-2", "the checkpoint has it");
        manager.allocate("one", &spec("2")).unwrap();
        assert_eq!(manager.cpus("one", "a"), "1-2", "asking again changes nothing");
        assert!(manager.release("one") && !manager.release("one"));
        manager.allocate("two", &spec("3")).unwrap();
        assert_eq!(manager.cpus("two", "a"), "1-3");
        let text = std::fs::read_to_string(folder.path().join(CHECKPOINT)).unwrap();
        assert_eq!(text, r#"{"policyName":"static","defaultCpuSet":"0","entries":{"two":{"a":"1-3"}}}"#);
        manager.keep_only(&std::collections::BTreeSet::new());
        assert_eq!(manager.cpus("two", "a"), "0-3");
    }
}
