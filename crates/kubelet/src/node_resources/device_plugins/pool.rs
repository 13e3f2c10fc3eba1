//! Which devices there are and who has them. Pure but for its checkpoint.
//!
//! Source: `pkg/kubelet/cm/devicemanager` of upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::{Deserialize, Serialize};

use super::api::{Device, HEALTHY};
use crate::machine::nodes::Nodes;
use crate::node_resources::topology::{Asker, Hint, Hints, hints_for};
use crate::pod::admission::Rejection;
use crate::pod::quantity;
use crate::pod::requests::at_once;
use crate::pod::roles::{Role, init_role};

/// The checkpoint's name, as upstream's.
const CHECKPOINT: &str = "kubelet_internal_checkpoint";

/// Device ids by Pod uid, container and resource.
type Assignments = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<String>>>>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    entries: Assignments,
    /// What plugins have registered, also those that have not come back yet.
    #[serde(default)]
    registered: BTreeSet<String>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) is_healthy: bool,
    /// The NUMA nodes that it is near; empty for no matter.
    pub(super) nodes: Vec<i64>,
}

impl Known {
    fn is_near(&self, nodes: Nodes) -> bool {
        self.nodes.iter().any(|node| usize::try_from(*node).is_ok_and(|node| nodes.contains(node)))
    }
}

/// Why a container gets no devices; in upstream's words.
#[derive(Debug, thiserror::Error)]
enum CannotGive {
    /// It asks for another number than it was given.
    #[error(
        "pod {uid:?} container {container:?} changed request for resource {resource:?} from {had} to {wants}"
    )]
    Changed { uid: String, container: String, resource: String, had: usize, wants: usize },
    /// They are given, and nobody has registered them since.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// There is none, or none is well.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// Those that it was given are not well any more.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    GoneBad(String),
}

/// What a container's devices were chosen by.
#[derive(Clone, Debug, Default)]
struct Wish {
    /// Near these nodes, as far as can be.
    nodes: Option<Nodes>,
    /// What an earlier init container had: it stays.
    reused: Vec<String>,
}

/// What a plugin may choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) available: Vec<String>,
    /// Those of them that are given in any case.
    pub(super) must_include: Vec<String>,
    /// How many are given, with those.
    pub(super) size: usize,
}

/// See the module.
pub(super) struct Pool {
    path: PathBuf,
    /// By resource and id.
    devices: BTreeMap<String, BTreeMap<String, Known>>,
    entries: Assignments,
    /// What was on hand when something was given, by Pod uid, container and resource. The plugin is asked once, soon after.
    wishes: BTreeMap<(String, String, String), Wish>,
    /// Whose plugin is gone, and the how manieth loss that was.
    lost: BTreeMap<String, u64>,
    losses: u64,
}

impl Pool {
    /// Takes up what the checkpoint in `folder` says. Blocking.
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(CHECKPOINT);
        let read = crate::checkpoint::load::<Checkpoint>(&path);
        let Checkpoint { entries, registered } = read.unwrap_or_default();
        // There are none until their plugins are back, and nobody is run without them meanwhile.
        let devices = registered.into_iter().map(|resource| (resource, BTreeMap::new())).collect();
        let (wishes, lost) = (BTreeMap::new(), BTreeMap::new());
        Self { path, devices, entries, wishes, lost, losses: 0 }
    }

    /// What a plugin says it has. Whether that is new.
    pub(super) fn set(&mut self, resource: &str, devices: &[Device]) -> bool {
        let known = |device: &Device| Known {
            is_healthy: device.health == HEALTHY,
            nodes: device.topology.iter().flat_map(|info| &info.nodes).map(|node| node.id).collect(),
        };
        let now: BTreeMap<_, _> = devices.iter().map(|d| (d.id.clone(), known(d))).collect();
        self.lost.remove(resource);
        let before = self.devices.insert(resource.to_owned(), now);
        if before.is_none() {
            self.save();
        }
        before.as_ref() != self.devices.get(resource)
    }

    /// The plugin is gone: nobody can say that its devices are well. Gives what [`Pool::forget`] knows this loss by.
    pub(super) fn lose(&mut self, resource: &str) -> u64 {
        for device in self.devices.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut) {
            device.is_healthy = false;
        }
        self.losses += 1;
        self.lost.insert(resource.to_owned(), self.losses);
        self.losses
    }

    /// The plugin has not come back since: there are no such devices any more. Whether that is so.
    pub(super) fn forget(&mut self, resource: &str, loss: u64) -> bool {
        let is_lost = self.lost.get(resource) == Some(&loss);
        if is_lost && let Some(devices) = self.devices.get_mut(resource) {
            devices.clear();
        }
        is_lost
    }

    /// All devices, and those that can be given, by resource.
    pub(super) fn counts(&self) -> BTreeMap<String, (i64, i64)> {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let count = |devices: &BTreeMap<String, Known>| {
            (number(devices.len()), number(devices.values().filter(|device| device.is_healthy).count()))
        };
        self.devices.iter().map(|(resource, devices)| (resource.clone(), count(devices))).collect()
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
        let is_free = |(id, device): &(&String, &Known)| device.is_healthy && !taken.contains(id);
        devices.filter(is_free).map(|(id, _)| id.clone()).collect()
    }

    /// What is known of the devices that can be given, by resource and id.
    pub(super) fn healthy(&self) -> impl Iterator<Item = (&String, &String, &Known)> {
        let all = self.devices.iter();
        all.flat_map(|(resource, devices)| devices.iter().map(move |(id, device)| (resource, id, device)))
            .filter(|(_, _, device)| device.is_healthy)
    }

    /// The NUMA nodes that a device is near.
    pub(super) fn nodes_of(&self, resource: &str, id: &str) -> &[i64] {
        let device = self.devices.get(resource).and_then(|devices| devices.get(id));
        device.map_or(&[], |device| &device.nodes)
    }

    /// Those that earlier init containers of the Pod have and no other container.
    fn reusable(&self, uid: &str, spec: &PodSpec, resource: &str) -> Vec<String> {
        let of = |container: &Container| -> Vec<String> {
            let all = self.assigned(uid, &container.name);
            all.and_then(|resources| resources.get(resource)).cloned().unwrap_or_default()
        };
        let init = || spec.init_containers.iter().flatten();
        let kept = init().filter(|c| init_role(c) != Role::Init).chain(&spec.containers);
        let kept: BTreeSet<String> = kept.flat_map(of).collect();
        let mut had: Vec<String> = init().filter(|c| init_role(c) == Role::Init).flat_map(of).collect();
        had.retain(|id| !kept.contains(id));
        had.sort();
        had.dedup();
        had
    }

    /// From which NUMA nodes what is asked for can be had, where that matters.
    pub(super) fn hints(&self, all: Nodes, uid: &str, spec: &PodSpec, asker: Asker<'_>) -> Hints {
        let asked: BTreeMap<String, usize> = match asker {
            Asker::Container(container) => asked(container).collect(),
            Asker::Pod => asked_by_pod(spec),
        };
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut hints = Hints::new();
        for (resource, count) in asked {
            let Some(devices) = self.devices.get(&resource) else { continue };
            if devices.values().all(|device| device.nodes.is_empty()) {
                hints.insert(resource, None);
                continue;
            }
            let own: Option<Vec<String>> = match asker {
                Asker::Container(c) => {
                    self.assigned(uid, &c.name).and_then(|own| own.get(&resource)).cloned()
                }
                Asker::Pod => None,
            };
            let is_other_count = own.as_ref().is_some_and(|own| own.len() != count);
            let (must_use, mut usable) = match own {
                Some(own) => (Vec::new(), own),
                None => (self.reusable(uid, spec, &resource), self.free(&resource)),
            };
            usable.extend(must_use.iter().cloned());
            if usable.len() < count || is_other_count {
                hints.insert(resource, Some(Vec::new()));
                continue;
            }
            let near = |id: &String, nodes| devices.get(id).is_some_and(|device| device.is_near(nodes));
            let has = |nodes| number(devices.values().filter(|device| device.is_near(nodes)).count());
            let gives = |nodes| {
                let is_whole = must_use.iter().all(|id| near(id, nodes));
                is_whole.then(|| number(usable.iter().filter(|id| near(id, nodes)).count()))
            };
            let found = hints_for(all, number(count), has, gives);
            hints.insert(resource, Some(found));
        }
        hints
    }

    /// Those that are near first, then those that are near other nodes, then those of which nobody says where they are.
    /// Source: `filterByAffinity`.
    fn order(&self, resource: &str, mut ids: Vec<String>, hint: &Hint) -> Vec<String> {
        let Some(nodes) = hint.nodes else { return ids };
        let rank = |id: &String| match self.devices.get(resource).and_then(|devices| devices.get(id)) {
            Some(device) if device.is_near(nodes) => 0,
            Some(device) if !device.nodes.is_empty() => 1,
            _ => 2,
        };
        ids.sort_by_key(rank);
        ids
    }

    /// Gives the container what it asks for, near `hint` if that is possible.
    ///
    /// # Errors
    /// In upstream's words: there are not so many.
    pub(super) fn allocate(
        &mut self,
        uid: &str,
        spec: &PodSpec,
        container: &Container,
        hint: &Hint,
    ) -> Result<(), Rejection> {
        let mut is_changed = false;
        for (resource, count) in asked(container) {
            let place = (uid, container.name.as_str());
            if self.is_settled(place, &resource, count).map_err(Rejection::unexpected)? {
                continue;
            }
            let reusable = self.reusable(uid, spec, &resource);
            let mut ids = self.order(&resource, reusable, hint);
            ids.truncate(count);
            let wish = Wish { nodes: hint.nodes, reused: ids.clone() };
            let free = self.free(&resource);
            if ids.len() + free.len() < count {
                return Err(Rejection::unexpected(format_args!(
                    "requested number of devices unavailable for {resource}. Requested: {count}, Available: {}",
                    ids.len() + free.len()
                )));
            }
            ids.extend(self.order(&resource, free, hint));
            ids.truncate(count);
            let key = (uid.to_owned(), container.name.clone(), resource.clone());
            self.wishes.insert(key, wish);
            self.assign(uid, &container.name, &resource, ids);
            is_changed = true;
        }
        if is_changed {
            self.save();
        }
        Ok(())
    }

    /// Whether a container that does not run has what it asks for already, or asks for what is given by nobody here.
    ///
    /// It may have been given its devices before the host or the kubelet was started anew, and they may have gone bad since.
    /// Source: `devicesToAllocate`.
    fn is_settled(
        &self,
        (uid, container): (&str, &str),
        resource: &str,
        count: usize,
    ) -> Result<bool, CannotGive> {
        let own = self.assigned(uid, container).and_then(|all| all.get(resource));
        let resource = resource.to_owned();
        if let Some(own) = own.filter(|own| own.len() != count) {
            let (uid, container) = (uid.to_owned(), container.to_owned());
            return Err(CannotGive::Changed { uid, container, resource, had: own.len(), wants: count });
        }
        let Some(devices) = self.devices.get(&resource) else {
            let mut all = self.entries.values().flat_map(BTreeMap::values);
            let is_given = all.any(|resources| resources.contains_key(&resource));
            // What nobody has ever registered is for others to judge.
            return if is_given { Err(CannotGive::Unregistered(resource)) } else { Ok(true) };
        };
        if devices.values().all(|device| !device.is_healthy) {
            return Err(CannotGive::NoneHealthy(resource));
        }
        let is_healthy = |id: &String| devices.get(id).is_some_and(|device| device.is_healthy);
        match own {
            None => Ok(false),
            Some(own) if own.iter().all(is_healthy) => Ok(true),
            Some(_) => Err(CannotGive::GoneBad(resource)),
        }
    }

    fn assign(&mut self, uid: &str, container: &str, resource: &str, ids: Vec<String>) {
        let of_pod = self.entries.entry(uid.to_owned()).or_default();
        of_pod.entry(container.to_owned()).or_default().insert(resource.to_owned(), ids);
    }

    /// What the plugin may choose from for a container; `None` if there is no choice.
    ///
    /// It chooses among those that are near, and among all only for what these are too few for.
    /// Source: `devicesToAllocate`.
    pub(super) fn offer(&self, (uid, container): (&str, &str), resource: &str) -> Option<Offer> {
        let own = self.assigned(uid, container)?.get(resource)?;
        let wish = self.wishes.get(&(uid.to_owned(), container.to_owned(), resource.to_owned()))?;
        let Wish { nodes, reused } = wish;
        let needed = own.len() - reused.len();
        let mut free = self.free(resource);
        free.extend(own.iter().filter(|id| !reused.contains(id)).cloned());
        free.sort();
        let is_near = |id: &&String| {
            let device = self.devices.get(resource).and_then(|devices| devices.get(*id));
            nodes.is_some_and(|nodes| device.is_some_and(|device| device.is_near(nodes)))
        };
        let near: Vec<String> = free.iter().filter(is_near).cloned().collect();
        let mut offer = Offer { available: reused.clone(), must_include: reused.clone(), size: own.len() };
        if needed == 0 || needed == near.len() {
            return None;
        }
        if needed < near.len() {
            offer.available.extend(near);
        } else {
            offer.available.extend(free);
            offer.must_include.extend(near);
        }
        Some(offer)
    }

    /// Takes others of those that are free in place of what was given, as far as the plugin prefers any that can be.
    pub(super) fn prefer(&mut self, place: (&str, &str), resource: &str, preferred: &[String]) {
        let Some(Offer { available, must_include, size }) = self.offer(place, resource) else { return };
        let own = self.assigned(place.0, place.1).and_then(|all| all.get(resource));
        let own = own.cloned().unwrap_or_default();
        let mut ids = must_include;
        let preferred = preferred.iter().filter(|id| available.contains(id));
        for id in preferred.chain(&own) {
            if ids.len() < size && !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        self.assign(place.0, place.1, resource, ids);
        self.save();
    }

    /// What the container has, by resource.
    pub(super) fn assigned(&self, uid: &str, container: &str) -> Option<&BTreeMap<String, Vec<String>>> {
        self.entries.get(uid)?.get(container)
    }

    /// The Pod's containers that have devices.
    pub(super) fn containers(&self, uid: &str) -> Vec<String> {
        self.entries.get(uid).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// Takes back what a Pod has.
    pub(super) fn release(&mut self, uid: &str) {
        self.wishes.retain(|(other, ..), _| other != uid);
        if self.entries.remove(uid).is_some() {
            self.save();
        }
    }

    /// Takes back what Pods have that are not among `uids`.
    pub(super) fn keep_only(&mut self, uids: &BTreeSet<String>) {
        let before = self.entries.len();
        self.entries.retain(|uid, _| uids.contains(uid));
        self.wishes.retain(|(uid, ..), _| uids.contains(uid));
        if self.entries.len() != before {
            self.save();
        }
    }

    fn save(&self) {
        let registered = self.devices.keys().cloned().collect();
        crate::checkpoint::save(&self.path, &Checkpoint { entries: self.entries.clone(), registered });
    }
}

/// The most that the Pod's containers have at the same time.
fn asked_by_pod(spec: &PodSpec) -> BTreeMap<String, usize> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let names: BTreeSet<String> = containers.flat_map(asked).map(|(name, _)| name).collect();
    let of = |container: &Container, name: &str| {
        let count = asked(container).find(|(other, _)| other == name).map_or(0, |(_, count)| count);
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let most =
        |name: &str| usize::try_from(at_once(spec, |container| of(container, name))).unwrap_or_default();
    names.into_iter().map(|name| (name.clone(), most(&name))).collect()
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
mod tests;
