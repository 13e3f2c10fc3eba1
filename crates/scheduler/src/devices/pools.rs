//! The pools of devices that a Node can reach, put together from slices.
//!
//! A pool has one generation: older slices are left over from an update. It is whole when there are as many slices as
//! each of them says, be they of other Nodes. Source: `GatherPools` of `k8s.io/dynamic-resource-allocation/structured`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::placement::{self, Target};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

use super::{DeviceId, Devices};

/// Slices that belong together.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) driver: String,
    pub(super) name: String,
    pub(super) slices: Vec<Arc<ResourceSlice>>,
    /// Why nothing is taken from it; `None` if it is whole and sound.
    pub(super) flaw: Option<Flaw>,
}

/// What is wrong with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Slices are missing.
    Incomplete,
    /// Two devices have one name.
    Invalid,
}

/// A device where it is offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered<'a> {
    pub(super) device: &'a Device,
    pub(super) slice: &'a Arc<ResourceSlice>,
}

impl Offered<'_> {
    pub(super) fn id(&self) -> DeviceId {
        DeviceId {
            driver: self.slice.spec.driver.clone(),
            pool: self.slice.spec.pool.name.clone(),
            device: self.device.name.clone(),
        }
    }
}

impl Pool {
    /// Its devices, in the order in which drivers list them.
    pub(super) fn devices(&self) -> impl Iterator<Item = Offered<'_>> {
        self.slices.iter().flat_map(|slice| {
            slice.spec.devices.iter().flatten().map(move |device| Offered { device, slice })
        })
    }
}

/// The pools of the slices that `node` can reach, in order of driver and name.
pub(super) fn gather(devices: &Devices, node: &Node) -> Vec<Pool> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mut pools: BTreeMap<(&str, &str), Vec<&Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in devices.slices_near(name).filter(|slice| reaches(slice, node)) {
        let found = pools.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default();
        let generation = found.first().map(|first| first.spec.pool.generation);
        if generation.is_some_and(|known| slice.spec.pool.generation < known) {
            continue;
        }
        if generation.is_some_and(|known| slice.spec.pool.generation > known) {
            found.clear();
        }
        found.push(slice);
    }
    let made = pools.into_iter().filter_map(|((driver, name), slices)| {
        let mut slices: Vec<_> = slices.into_iter().cloned().collect();
        slices.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        let flaw = flaw(&slices, devices)?;
        Some(Pool { driver: driver.to_owned(), name: name.to_owned(), slices, flaw })
    });
    made.collect()
}

fn reaches(slice: &ResourceSlice, node: &Node) -> bool {
    let spec = &slice.spec;
    if spec.per_device_node_selection.is_some() {
        // Partitionable devices, which are off by default.
        return false;
    }
    if let Some(name) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return node.metadata.name.as_deref() == Some(name);
    }
    if spec.all_nodes == Some(true) {
        return true;
    }
    spec.node_selector
        .as_ref()
        .is_some_and(|selector| placement::selects(selector, Target::from(&node.metadata)))
}

/// What is wrong with a pool of which a Node can reach these slices; `None` if another generation takes its place.
fn flaw(slices: &[Arc<ResourceSlice>], devices: &Devices) -> Option<Option<Flaw>> {
    let first = slices.first()?;
    let wanted = first.spec.pool.resource_slice_count;
    let is_all = |count: usize| i64::try_from(count) == Ok(wanted);
    if !is_all(slices.len()) {
        let generations: Vec<i64> = devices.generations(&first.spec).collect();
        let own = first.spec.pool.generation;
        if generations.iter().any(|generation| *generation > own) {
            return None;
        }
        if !is_all(generations.iter().filter(|generation| **generation == own).count()) {
            return Some(Some(Flaw::Incomplete));
        }
    }
    let mut names = BTreeSet::new();
    let mut all = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    Some(all.any(|device| !names.insert(&device.name)).then_some(Flaw::Invalid))
}
