//! Which devices there are and who has them. Pure but for its checkpoint.
//!
//! Source: `pkg/kubelet/cm/devicemanager` of upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::{Deserialize, Serialize};

use super::api::{Device, HEALTHY};
use crate::quantity;

/// The checkpoint's name, as upstream's.
const CHECKPOINT: &str = "kubelet_internal_checkpoint";

/// Device ids by Pod uid, container and resource.
type Assignments = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<String>>>>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    entries: Assignments,
}

/// See the module.
pub(super) struct Pool {
    path: PathBuf,
    /// By resource: id, and whether it can be given.
    devices: BTreeMap<String, BTreeMap<String, bool>>,
    entries: Assignments,
}

impl Pool {
    /// Takes up what the checkpoint in `folder` says. Blocking.
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(CHECKPOINT);
        let read =
            std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Checkpoint>(&bytes).ok());
        Self { path, devices: BTreeMap::new(), entries: read.unwrap_or_default().entries }
    }

    /// What a plugin says it has. Whether that is new.
    pub(super) fn set(&mut self, resource: &str, devices: &[Device]) -> bool {
        let now: BTreeMap<_, _> = devices.iter().map(|d| (d.id.clone(), d.health == HEALTHY)).collect();
        let before = self.devices.insert(resource.to_owned(), now);
        before.as_ref() != self.devices.get(resource)
    }

    /// The plugin is gone: nobody can say that its devices are well.
    pub(super) fn lose(&mut self, resource: &str) {
        for health in self.devices.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut) {
            *health = false;
        }
    }

    /// All devices, and those that can be given, by resource.
    pub(super) fn counts(&self) -> BTreeMap<String, (i64, i64)> {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let count = |devices: &BTreeMap<String, bool>| {
            (number(devices.len()), number(devices.values().filter(|healthy| **healthy).count()))
        };
        self.devices.iter().map(|(resource, devices)| (resource.clone(), count(devices))).collect()
    }

    /// Whether a plugin has ever said that it has such devices.
    pub(super) fn knows(&self, resource: &str) -> bool {
        self.devices.contains_key(resource)
    }

    /// Healthy ones that nobody has.
    pub(super) fn free(&self, resource: &str) -> Vec<String> {
        let taken: BTreeSet<&String> = self
            .entries
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|resources| resources.get(resource))
            .flatten()
            .collect();
        let devices = self.devices.get(resource).into_iter().flatten();
        devices.filter(|(id, healthy)| **healthy && !taken.contains(id)).map(|(id, _)| id.clone()).collect()
    }

    /// Gives each container of the Pod what it asks for.
    ///
    /// # Errors
    /// In upstream's words: there are not so many.
    pub(super) fn allocate(&mut self, uid: &str, spec: &PodSpec) -> Result<(), String> {
        let before = self.entries.get(uid).cloned();
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            for (resource, count) in asked(container) {
                if !self.knows(&resource)
                    || self.assigned(uid, &container.name).is_some_and(|all| all.contains_key(&resource))
                {
                    continue;
                }
                let mut free = self.free(&resource);
                if free.len() < count {
                    self.restore(uid, before);
                    return Err(format!(
                        "requested number of devices unavailable for {resource}. Requested: {count}, Available: {}",
                        free.len()
                    ));
                }
                free.truncate(count);
                self.assign(uid, &container.name, &resource, free);
            }
        }
        if self.entries.get(uid) != before.as_ref() {
            self.save();
        }
        Ok(())
    }

    fn restore(&mut self, uid: &str, before: Option<BTreeMap<String, BTreeMap<String, Vec<String>>>>) {
        match before {
            Some(before) => self.entries.insert(uid.to_owned(), before),
            None => self.entries.remove(uid),
        };
    }

    fn assign(&mut self, uid: &str, container: &str, resource: &str, ids: Vec<String>) {
        let of_pod = self.entries.entry(uid.to_owned()).or_default();
        of_pod.entry(container.to_owned()).or_default().insert(resource.to_owned(), ids);
    }

    /// Takes others of those that are free in place of what was given, as the plugin prefers.
    pub(super) fn prefer(&mut self, (uid, container): (&str, &str), resource: &str, ids: Vec<String>) {
        let own =
            self.assigned(uid, container).and_then(|all| all.get(resource)).cloned().unwrap_or_default();
        let mut allowed = self.free(resource);
        allowed.extend(own.iter().cloned());
        if ids.len() == own.len() && ids.iter().all(|id| allowed.contains(id)) {
            self.assign(uid, container, resource, ids);
            self.save();
        }
    }

    /// What the container has, by resource.
    pub(super) fn assigned(&self, uid: &str, container: &str) -> Option<&BTreeMap<String, Vec<String>>> {
        self.entries.get(uid)?.get(container)
    }

    /// Takes back what a Pod has.
    pub(super) fn release(&mut self, uid: &str) {
        if self.entries.remove(uid).is_some() {
            self.save();
        }
    }

    /// Takes back what Pods have that are not among `uids`.
    pub(super) fn keep_only(&mut self, uids: &BTreeSet<String>) {
        let before = self.entries.len();
        self.entries.retain(|uid, _| uids.contains(uid));
        if self.entries.len() != before {
            self.save();
        }
    }

    fn save(&self) {
        let bytes = serde_json::to_vec(&Checkpoint { entries: self.entries.clone() }).unwrap_or_default();
        let new = self.path.with_extension("new");
        let saved = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &self.path));
        if let Err(error) = saved {
            tracing::warn!(%error, path = %self.path.display(), "who has which devices was not written down");
        }
    }
}

/// Extended resources that a container asks for.
fn asked(container: &Container) -> impl Iterator<Item = (String, usize)> {
    let limits = container.resources.as_ref().and_then(|r| r.limits.clone()).unwrap_or_default();
    limits.into_iter().filter(|(name, _)| name.contains('/')).filter_map(|(name, count)| {
        let count = usize::try_from(quantity::whole(&count)).ok().filter(|count| *count > 0)?;
        Some((name, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "example.com/gpu";

    fn spec(count: usize) -> PodSpec {
        let text =
            format!("{{containers: [{{name: a, resources: {{limits: {{example.com/gpu: {count}}}}}}}]}}");
        serde_saphyr::from_str(&text).unwrap()
    }

    fn devices(ids: &[(&str, &str)]) -> Vec<Device> {
        ids.iter().map(|(id, health)| Device { id: (*id).into(), health: (*health).into() }).collect()
    }

    #[test]
    fn devices_are_given_once_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let mut pool = Pool::open(folder.path());
        assert!(pool.allocate("early", &spec(1)).is_ok(), "no plugin has them: not ours to judge");
        let three = devices(&[("0", HEALTHY), ("1", "Unhealthy"), ("2", HEALTHY)]);
        assert!(pool.set(GPU, &three) && !pool.set(GPU, &three));
        assert_eq!(pool.counts()[GPU], (3, 2));
        pool.allocate("one", &spec(1)).unwrap();
        assert_eq!(
            pool.allocate("two", &spec(2)).unwrap_err(),
            "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"
        );
        pool.prefer(("one", "a"), GPU, vec!["2".into()]);
        pool.prefer(("one", "a"), GPU, vec!["1".into()]);
        let mut pool = Pool::open(folder.path());
        pool.set(GPU, &three);
        assert_eq!(pool.assigned("one", "a").unwrap()[GPU], ["2"]);
        assert_eq!(pool.free(GPU), ["0"]);
        pool.lose(GPU);
        assert_eq!((pool.counts()[GPU], pool.free(GPU).len()), ((3, 0), 0));
        pool.keep_only(&BTreeSet::new());
        assert!(pool.assigned("one", "a").is_none());
    }
}
