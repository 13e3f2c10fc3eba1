//! CSI drivers on this node: which there are, and what of theirs is in use.
//!
//! Drivers come and go by their sockets ([`crate::plugins`]). What is staged and published is on disk, beside the
//! mounts, so that a kubelet that starts anew knows what to take back.

pub(crate) mod registration;
pub(crate) mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base::Tasks;
use controller::request::{self, ApiRequest, Patch};
use csi::client::Client;
use csi::v1;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use crate::metrics::VolumeStats;
use crate::volumes::TokenKey;
use crate::volumes::Volumes;
use crate::volumes::error::Specific;
use crate::volumes::objects::Token;
use v1::node_service_capability::{Type, rpc};
use version::Version;

/// Two that ask for one volume wait for each other.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// The drivers that have registered.
#[derive(Default)]
pub(crate) struct Drivers {
    registered: Mutex<BTreeMap<String, Registered>>,
    counter: AtomicU64,
    turns: Mutex<BTreeMap<String, Turn>>,
    /// Where this kubelet has had volumes staged.
    pub(crate) staged: Mutex<BTreeSet<PathBuf>>,
    in_use: tokio::sync::Mutex<BTreeSet<String>>,
    /// Volumes that Pods wait for, and how many Pods.
    asked: Mutex<BTreeMap<String, usize>>,
    /// CSINode and Node are changed by one at a time.
    pub(crate) publishing: tokio::sync::Mutex<()>,
    /// Has volumes looked at before their time.
    pub(crate) upkeep: tokio::sync::Notify,
    /// Tokens that drivers were given, by the Pod's uid, audience and lifetime.
    pub(crate) tokens: Mutex<BTreeMap<(String, TokenKey), Token>>,
    /// What drivers said last about their volumes, and when.
    pub(crate) stats: tokio::sync::Mutex<Option<(Instant, Arc<Vec<VolumeStats>>)>>,
}

/// While it lives, a Pod waits for a volume, which is in use all that time.
pub(crate) struct Asked<'a> {
    drivers: &'a Drivers,
    name: String,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut all = self.drivers.asked.lock();
        if let Some(count) = all.get_mut(&self.name) {
            *count -= 1;
        }
        all.retain(|_, count| *count > 0);
    }
}

/// A driver as it has registered.
struct Registered {
    id: u64,
    driver: Driver,
    version: Version,
    /// They stop when its socket goes.
    tasks: Tasks,
}

/// One driver.
#[derive(Clone)]
pub(crate) struct Driver {
    /// Reaches it.
    pub(crate) client: Client,
    capabilities: BTreeSet<i32>,
}

impl Driver {
    /// Asks the driver at `endpoint` what it can do.
    pub(crate) async fn new(endpoint: &Path) -> Result<Self, csi::Status> {
        let client = Client::new(endpoint);
        let answer = client.node_get_capabilities(v1::NodeGetCapabilitiesRequest {}).await?;
        let capabilities = answer.capabilities.into_iter();
        let capabilities = capabilities.filter_map(|one| one.r#type.map(|Type::Rpc(rpc)| rpc.r#type));
        Ok(Self { client, capabilities: capabilities.collect() })
    }

    /// Whether the node's side of the driver can do this.
    pub(crate) fn can(&self, what: rpc::Type) -> bool {
        self.capabilities.contains(&i32::from(what))
    }
}

impl Drivers {
    /// The drivers of a kubelet that finds volumes in use on disk.
    pub(crate) fn with_in_use(names: impl Iterator<Item = String>) -> Self {
        Self { in_use: tokio::sync::Mutex::new(names.collect()), ..Self::default() }
    }

    /// The driver of that name.
    ///
    /// # Errors
    /// In upstream's words: there is none, or not yet.
    pub(crate) fn get(&self, name: &str) -> Result<Driver, NotRegistered> {
        let missing = || NotRegistered(name.to_owned());
        self.registered.lock().get(name).map(|known| known.driver.clone()).ok_or_else(missing)
    }

    /// Every driver, by name.
    pub(crate) fn all(&self) -> Vec<(String, Driver)> {
        let all = self.registered.lock();
        all.iter().map(|(name, known)| (name.clone(), known.driver.clone())).collect()
    }

    /// Takes a driver in, as long as these tasks; gives what [`Drivers::remove`] knows it by.
    ///
    /// # Errors
    /// There is one of that name, and its version is not lower.
    pub(crate) fn insert(
        &self,
        name: &str,
        driver: Driver,
        version: Version,
        tasks: &Tasks,
    ) -> Result<u64, AlreadyRegistered> {
        let mut all = self.registered.lock();
        // One whose socket is gone may not have been forgotten yet.
        if let Some(known) = all.get(name).filter(|known| !known.tasks.is_stopping())
            && !known.version.is_below(&version)
        {
            return Err(AlreadyRegistered { name: name.to_owned(), version: known.version.clone() });
        }
        let id = self.counter.fetch_add(1, Ordering::Relaxed);
        all.insert(name.to_owned(), Registered { id, driver, version, tasks: tasks.clone() });
        Ok(id)
    }

    /// Forgets the driver, unless another one has come under its name.
    pub(crate) fn remove(&self, name: &str, id: u64) -> bool {
        let mut all = self.registered.lock();
        let is_same = all.get(name).is_some_and(|known| known.id == id);
        if is_same {
            all.remove(name);
        }
        is_same
    }

    /// Whoever holds it may change the volume on this node.
    pub(crate) fn turn(&self, driver: &str, handle: &str) -> Turn {
        let mut turns = self.turns.lock();
        // Those that nobody waits for are forgotten.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(format!("{driver}^{handle}")).or_default().clone()
    }

    /// Has the Node say that a volume is in use, or that it is not any more, before anything is done about it.
    ///
    /// Source: `Node.status.volumesInUse`.
    ///
    /// # Errors
    /// The API server does not take it.
    pub(crate) async fn set_in_use(
        &self,
        volumes: &Volumes,
        name: &str,
        is_used: bool,
    ) -> Result<(), InUseError> {
        let mut in_use = self.in_use.lock().await;
        let is_news = if is_used { !in_use.contains(name) } else { in_use.contains(name) };
        if !is_news {
            return Ok(());
        }
        let mut new = in_use.clone();
        if is_used {
            new.insert(name.to_owned());
        } else {
            new.remove(name);
        }
        say_in_use(volumes, &new).await?;
        *in_use = new;
        Ok(())
    }

    /// A Pod waits for the volume of that name from now on.
    pub(crate) fn ask(&self, name: &str) -> Asked<'_> {
        *self.asked.lock().entry(name.to_owned()).or_default() += 1;
        Asked { drivers: self, name: name.to_owned() }
    }

    /// Has the Node say no more of volumes that are not `here` and that nobody waits for: of Pods that went while they were
    /// being attached.
    ///
    /// # Errors
    /// The API server does not take it.
    pub(super) async fn settle_in_use<I: Iterator<Item = String>>(
        &self,
        volumes: &Volumes,
        here: impl Fn() -> I,
    ) -> Result<(), InUseError> {
        let mut in_use = self.in_use.lock().await;
        if in_use.is_empty() {
            return Ok(());
        }
        let here: BTreeSet<String> = here().collect();
        let mut new = in_use.clone();
        new.retain(|name| here.contains(name) || self.asked.lock().contains_key(name));
        if new != *in_use {
            say_in_use(volumes, &new).await?;
            *in_use = new;
        }
        Ok(())
    }

    /// Has the Node say what is in use if it says anything else: a kubelet before this one may have ended too soon.
    ///
    /// # Errors
    /// The API server does not answer or does not take it.
    pub(crate) async fn correct_in_use(&self, volumes: &Volumes) -> Result<(), InUseError> {
        let in_use = self.in_use.lock().await;
        let node = request::get::<Node>(&volumes.client, "", &volumes.config.node_name).await;
        let node = node.map_err(|source| InUseError::Read(Box::new(source)))?;
        let said = node.status.and_then(|status| status.volumes_in_use).unwrap_or_default();
        if said.into_iter().collect::<BTreeSet<_>>() == *in_use {
            return Ok(());
        }
        say_in_use(volumes, &in_use).await
    }
}

/// There is a driver of that name that is no older; in upstream's words. Source: `validateVersions`.
#[derive(Debug, thiserror::Error)]
#[error(
    "ValidatePlugin for CSI driver {name:?} failed. Another driver with the same name is already registered with a higher \
     supported version: \"{version}\""
)]
pub(crate) struct AlreadyRegistered {
    name: String,
    version: Version,
}

/// There is no driver of that name, or not yet; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("driver name {0} not found in the list of registered CSI drivers")]
pub(crate) struct NotRegistered(String);

impl Specific for NotRegistered {}

impl From<NotRegistered> for csi::Status {
    fn from(missing: NotRegistered) -> Self {
        Self::unavailable(missing.to_string())
    }
}

/// The Node does not say which volumes are in use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InUseError {
    /// What it says is not known.
    #[error("{0}")]
    Read(#[source] Box<kube::Error>),
    /// The API server does not take what it should say.
    #[error("update the node's volumes in use: {0}")]
    Write(#[source] Box<kube::Error>),
}

impl Specific for InUseError {}

async fn say_in_use(volumes: &Volumes, names: &BTreeSet<String>) -> Result<(), InUseError> {
    let patch = Patch::Strategic(json!({"status": {"volumesInUse": names}}));
    let patch = ApiRequest::patch_status::<Node>("", &volumes.config.node_name, patch);
    request::carry_out(&volumes.client, &patch).await.map_err(|source| InUseError::Write(Box::new(source)))
}

#[cfg(test)]
mod tests;
