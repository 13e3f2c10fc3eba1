//! Which claims are prepared on this node, for which Pods, and as which devices. Pure but for its checkpoint.
//!
//! A claim is written down before a driver is asked to prepare it and forgotten after the driver has taken it back, so
//! that a kubelet that starts anew knows what to undo. Source: `pkg/kubelet/cm/dra/claiminfo.go`, `state`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::{Deserialize, Serialize};

use crate::node_resources::pod_resources::api::{CdiDevice, ClaimResource, DynamicResource};

use super::DraError;
use super::api::{Claim, Device};

/// The checkpoint's name, as upstream's.
const CHECKPOINT: &str = "dra_manager_state";

/// A claim on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimInfo {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Uids of the Pods that use it.
    pub(super) pods: BTreeSet<String>,
    /// By driver: what it has prepared.
    pub(super) drivers: BTreeMap<String, Vec<Prepared>>,
    /// Whether all drivers have.
    pub(super) is_prepared: bool,
}

/// A device that a driver has prepared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prepared {
    pub(super) pool: String,
    pub(super) device: String,
    /// Of the claim; none means all.
    pub(super) requests: Vec<String>,
    pub(super) cdi_devices: Vec<String>,
}

impl From<Device> for Prepared {
    fn from(device: Device) -> Self {
        Self {
            pool: device.pool_name,
            device: device.device_name,
            requests: device.request_names,
            cdi_devices: device.cdi_device_ids,
        }
    }
}

impl ClaimInfo {
    /// What is known of an allocated claim before anything is done.
    ///
    /// # Errors
    /// It has no devices.
    pub(super) fn of(claim: &ResourceClaim) -> Result<Self, DraError> {
        let (namespace, name) = (text(&claim.metadata.namespace), text(&claim.metadata.name));
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let missing = || DraError::NotAllocated { namespace: namespace.clone(), name: name.clone() };
        let allocation = allocation.ok_or_else(missing)?;
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let drivers = results.map(|result| (result.driver.clone(), Vec::new())).collect();
        let uid = text(&claim.metadata.uid);
        Ok(Self { namespace, name, uid, drivers, ..Self::default() })
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// As drivers are told of it.
    pub(super) fn message(&self) -> Claim {
        Claim { namespace: self.namespace.clone(), uid: self.uid.clone(), name: self.name.clone() }
    }

    /// What is told of it on the Pod resources API.
    pub(super) fn shown(&self) -> DynamicResource {
        let of = |(driver, prepared): (&String, &Prepared)| ClaimResource {
            cdi_devices: prepared.cdi_devices.iter().map(|name| CdiDevice { name: name.clone() }).collect(),
            driver_name: driver.clone(),
            pool_name: prepared.pool.clone(),
            device_name: prepared.device.clone(),
        };
        let drivers = self.drivers.iter();
        let all = drivers.flat_map(|(driver, all)| all.iter().map(move |prepared| (driver, prepared)));
        DynamicResource {
            claim_name: self.name.clone(),
            claim_namespace: self.namespace.clone(),
            claim_resources: all.map(of).collect(),
        }
    }

    /// The CDI names of the devices of one request; of all requests if none is named.
    pub(super) fn cdi_devices(&self, request: Option<&str>) -> impl Iterator<Item = &String> {
        let is_meant = move |prepared: &&Prepared| match request {
            None => true,
            Some(request) => {
                // A device of an alternative is one of the request that has it.
                let parent = |name: &String| name.split('/').next() == Some(request);
                prepared.requests.is_empty() || prepared.requests.iter().any(parent)
            }
        };
        let all = self.drivers.values().flatten().filter(is_meant);
        all.flat_map(|prepared| &prepared.cdi_devices)
    }
}

/// See the module.
pub(super) struct Claims {
    path: PathBuf,
    /// By `namespace/name`.
    known: BTreeMap<String, ClaimInfo>,
}

impl Claims {
    /// Takes up what the checkpoint in `folder` says. Blocking.
    pub(super) fn open(folder: &Path) -> Self {
        let path = folder.join(CHECKPOINT);
        let read = std::fs::read(&path).ok();
        let known = match read.map(|bytes| serde_json::from_slice::<Vec<ClaimInfo>>(&bytes)) {
            Some(Ok(known)) => known,
            Some(Err(error)) => {
                tracing::warn!(%error, path = %path.display(), "what was prepared for claims cannot be read");
                Vec::new()
            }
            None => Vec::new(),
        };
        Self { path, known: known.into_iter().map(|info| (info.key(), info)).collect() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&ClaimInfo> {
        self.known.get(key)
    }

    /// Adds the Pod to the claim's users, before anything is prepared for it. Whether the claim has still to be prepared.
    ///
    /// # Errors
    /// In upstream's words: an older claim of that name is still here, or it cannot be written down.
    pub(super) fn add(&mut self, info: ClaimInfo, pod: &str) -> Result<bool, DraError> {
        let key = info.key();
        let (name, uid) = (info.name.clone(), info.uid.clone());
        let known = self.known.entry(key).or_insert(info);
        if known.uid != uid {
            return Err(DraError::Namesake { name, old: known.uid.clone() });
        }
        let is_prepared = known.is_prepared;
        if known.pods.insert(pod.to_owned()) {
            self.save()?;
        }
        Ok(!is_prepared)
    }

    /// All drivers of these claims have prepared them.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn prepared(
        &mut self,
        devices: BTreeMap<String, BTreeMap<String, Vec<Prepared>>>,
    ) -> Result<(), DraError> {
        for (key, drivers) in devices {
            if let Some(info) = self.known.get_mut(&key) {
                info.drivers.extend(drivers);
                info.is_prepared = true;
            }
        }
        self.save()
    }

    /// The claims that only this Pod uses; it uses the others no more.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn leave(&mut self, pod: &str) -> Result<Vec<ClaimInfo>, DraError> {
        let mut last = Vec::new();
        let mut is_changed = false;
        for info in self.known.values_mut().filter(|info| info.pods.contains(pod)) {
            if info.pods.len() == 1 {
                last.push(info.clone());
            } else {
                is_changed |= info.pods.remove(pod);
            }
        }
        if is_changed {
            self.save()?;
        }
        Ok(last)
    }

    /// These have been taken back.
    ///
    /// # Errors
    /// It cannot be written down.
    pub(super) fn forget(&mut self, gone: &[ClaimInfo]) -> Result<(), DraError> {
        for info in gone {
            self.known.remove(&info.key());
        }
        self.save()
    }

    /// How many claims are here, and how many each driver has.
    pub(super) fn in_use(&self) -> (usize, BTreeMap<String, usize>) {
        let mut by_driver = BTreeMap::new();
        for driver in self.known.values().flat_map(|info| info.drivers.keys()) {
            *by_driver.entry(driver.clone()).or_default() += 1;
        }
        (self.known.len(), by_driver)
    }

    /// Whether something is here for the Pod.
    pub(super) fn has(&self, pod: &str) -> bool {
        self.known.values().any(|info| info.pods.contains(pod))
    }

    /// Pods that something is here for.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.known.values().flat_map(|info| info.pods.iter().cloned()).collect()
    }

    fn save(&self) -> Result<(), DraError> {
        let all: Vec<&ClaimInfo> = self.known.values().collect();
        let bytes = serde_json::to_vec(&all).map_err(std::io::Error::other)?;
        let new = self.path.with_extension("new");
        let saved = std::fs::File::create(&new).and_then(|mut file| {
            std::io::Write::write_all(&mut file, &bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)
        });
        Ok(saved?)
    }
}

fn text(part: &Option<String>) -> String {
    part.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
