//! CSI drivers on this node: which there are, and what of theirs is in use.
//!
//! Drivers come and go by their sockets ([`crate::plugins`]). What is staged and published is on disk, beside the
//! mounts, so that a kubelet that starts anew knows what to take back.

pub(crate) mod registration;
pub(crate) mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use csi::client::Client;
use csi::v1;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::context::Context;
use crate::objects::Token;
use crate::volumes::TokenKey;
use crate::volumes::persistent::VolumeStats;
use v1::node_service_capability::{Type, rpc};

/// Two that ask for one volume wait for each other.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// The drivers that have registered.
#[derive(Default)]
pub(crate) struct Drivers {
    registered: Mutex<BTreeMap<String, (u64, Driver)>>,
    counter: AtomicU64,
    turns: Mutex<BTreeMap<String, Turn>>,
    in_use: tokio::sync::Mutex<BTreeSet<String>>,
    /// CSINode and Node are changed by one at a time.
    pub(crate) publishing: tokio::sync::Mutex<()>,
    /// Has volumes looked at before their time.
    pub(crate) upkeep: tokio::sync::Notify,
    /// Tokens that drivers were given, by the Pod's uid, audience and lifetime.
    pub(crate) tokens: Mutex<BTreeMap<(String, TokenKey), Token>>,
    /// What drivers said last about their volumes, and when.
    pub(crate) stats: tokio::sync::Mutex<Option<(Instant, Arc<Vec<VolumeStats>>)>>,
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
    pub(crate) fn get(&self, name: &str) -> Result<Driver, String> {
        let missing = || format!("driver name {name} not found in the list of registered CSI drivers");
        self.registered.lock().get(name).map(|(_, driver)| driver.clone()).ok_or_else(missing)
    }

    /// Every driver, by name.
    pub(crate) fn all(&self) -> Vec<(String, Driver)> {
        let all = self.registered.lock();
        all.iter().map(|(name, (_, driver))| (name.clone(), driver.clone())).collect()
    }

    /// Takes a driver in; gives what [`Drivers::remove`] knows it by.
    pub(crate) fn insert(&self, name: &str, driver: Driver) -> u64 {
        let id = self.counter.fetch_add(1, Ordering::Relaxed);
        self.registered.lock().insert(name.to_owned(), (id, driver));
        id
    }

    /// Forgets the driver, unless another one has come under its name.
    pub(crate) fn remove(&self, name: &str, id: u64) -> bool {
        let mut all = self.registered.lock();
        let is_same = all.get(name).is_some_and(|(known, _)| *known == id);
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
        context: &Context,
        name: &str,
        is_used: bool,
    ) -> Result<(), String> {
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
        let patch = json!({"status": {"volumesInUse": new}});
        let api: Api<Node> = Api::all(context.client.clone());
        let name = &context.config.node_name;
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
        patched.map_err(|error| format!("update the node's volumes in use: {error}"))?;
        *in_use = new;
        Ok(())
    }
}
