//! A network as the runtime sees it: load its configuration, attach and detach Pods.
//!
//! The configuration is what lies in its folder when a Pod is attached: what was put there meanwhile, or the binary that
//! was missing, is found without a restart. Whether Pods can be attached is found out when a folder changes or a plugin
//! has failed ([`follow`]). Results of ADD are kept on disk ([`result_cache`]) until DEL: DEL and CHECK get them
//! back, and use the configuration that the Pod was attached by. DEL of what was never added, or twice, is no error.

mod conflist;
mod follow;
mod result_cache;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use machinery::net::{Cidr, Cidrs, Family};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::attachment::{Attachment, BuiltinConfig};
use crate::chain::Chain;
use crate::files::{Stamp, remove_if_there, stamp, write_whole};
use crate::plugins::{Attached, Kind};
use conflist::find_conflist;
use follow::Judgement;
use result_cache::{CachedResult, ResultCache};

use crate::types::{CniError, CniResult, NetworkConfigList, VERSION, is_same};
use crate::versions::Answers;

impl BuiltinConfig {
    /// The configuration of the built-in network: Pods are joined by a bridge but reach each other through the
    /// host (`routed`), so that Service addresses work between them without `br_netfilter`.
    pub fn conflist(&self) -> NetworkConfigList {
        let bridge = crate::bridge_name(&self.cluster_id);
        NetworkConfigList {
            cni_version: VERSION.to_owned(),
            name: "knarr".to_owned(),
            plugins: plugins_of_network(&bridge, self.pod_cidrs, self.cluster_cidrs, self.mtu).into(),
            ..NetworkConfigList::default()
        }
    }
}

/// The plugins of the built-in network, in this process or as programs. The first is the bridge, whose `ipam` gives
/// addresses of each of `pod_cidrs`.
pub(crate) fn plugins_of_network(
    bridge: &str,
    pod_cidrs: Cidrs,
    cluster_cidrs: Cidrs,
    mtu: Option<u32>,
) -> [Value; 3] {
    let default_route = |cidr: Cidr| match cidr.family() {
        Family::V4 => json!({ "dst": "0.0.0.0/0" }),
        Family::V6 => json!({ "dst": "::/0" }),
    };
    let range_set = |cidr: Cidr| json!([{ "subnet": cidr.to_string() }]);
    let bridge = json!({
        "type": Kind::Bridge.name(),
        "bridge": bridge,
        "isGateway": true,
        "ipMasq": true,
        "hairpinMode": true,
        "routed": true,
        "clusterCIDR": cluster_cidrs.to_string(),
        "mtu": mtu.unwrap_or(0),
        "ipam": {
            "type": Kind::HostLocal.name(),
            "ranges": pod_cidrs.iter().map(range_set).collect::<Vec<_>>(),
            "routes": pod_cidrs.iter().map(default_route).collect::<Vec<_>>(),
        },
    });
    [
        bridge,
        json!({ "type": Kind::Portmap.name(), "capabilities": { "portMappings": true } }),
        json!({ "type": Kind::Bandwidth.name(), "capabilities": { "bandwidth": true } }),
    ]
}

/// A network that Pods are attached to. Shared by reference; calls for different Pods may run at once.
#[derive(Debug)]
pub struct Network {
    conf_dir: PathBuf,
    builtin: BuiltinConfig,
    results: ResultCache,
    loaded: Mutex<Loaded>,
    answers: Answers,
    readiness: watch::Sender<Option<String>>,
    /// A plugin has failed: it may say why.
    doubt: Notify,
}

/// The configuration that was last found, with what the folder was like then.
#[derive(Debug)]
struct Loaded {
    seen: Vec<Seen>,
    chain: Result<Arc<Chain>, Arc<CniError>>,
}

/// A file of the configuration's folder.
type Seen = (PathBuf, Stamp);

impl Network {
    /// The network of the first configuration (by file name) of `conf_dir`, or the built-in one if there is none.
    ///
    /// A configuration that is there but cannot be used is not skipped in favour of another: until it can be, no Pod is
    /// attached ([`Network::status`]).
    ///
    /// # Errors
    /// The folder of results cannot be used.
    pub fn load(conf_dir: &Path, builtin: BuiltinConfig) -> Result<Self, CniError> {
        let results = ResultCache::open(builtin.state_dir.join("results"))?;
        let loaded =
            Mutex::new(Loaded { seen: Vec::new(), chain: Err(Arc::new(CniError::NotReady(String::new()))) });
        let (conf_dir, readiness) = (conf_dir.to_owned(), watch::Sender::new(None));
        let (answers, doubt) = (Answers::default(), Notify::new());
        let network = Self { conf_dir, builtin, results, loaded, answers, readiness, doubt };
        network.look(Judgement::Any);
        Ok(network)
    }

    /// The network's name.
    ///
    /// # Errors
    /// There is no usable configuration.
    pub fn name(&self) -> Result<String, CniError> {
        Ok(self.chain()?.name().to_owned())
    }

    /// The readiness of the network: `Ok` if Pods can be attached. Source: CNI's STATUS, CRI's `NetworkReady`.
    ///
    /// # Errors
    /// Says why not.
    pub fn status(&self) -> Result<(), CniError> {
        self.chain()?.status()
    }

    /// `true` if Pods are attached by the built-in network, and not by one whose configuration was put there.
    pub fn is_builtin(&self) -> bool {
        self.chain().is_ok_and(|chain| is_same(chain.conflist(), &self.builtin.conflist()))
    }

    /// The plugins of the configuration as it is now. One that was in order stays as long as its file does.
    fn chain(&self) -> Result<Arc<Chain>, CniError> {
        let seen = seen(&self.conf_dir);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = loaded.chain.as_ref().is_ok_and(|chain| chain.is_there());
        if loaded.seen != seen || !is_there {
            let found = self.find_chain();
            if let Ok(chain) = &found {
                tracing::info!(network = chain.name(), "the pod network is loaded");
            }
            *loaded = Loaded { seen, chain: found.map(Arc::new).map_err(Arc::new) };
        }
        loaded.chain.clone().map_err(CniError::Before)
    }

    fn find_chain(&self) -> Result<Chain, CniError> {
        let conflist = match find_conflist(&self.conf_dir)? {
            Some(conflist) => conflist,
            None if self.builtin.is_fallback => self.builtin.conflist(),
            None => return Err(CniError::NotReady("cni plugin not initialized".into())),
        };
        let mut chain = Chain::new(conflist, &self.builtin)?;
        chain.agree(&self.answers)?;
        let kept = self.results.all()?;
        let own = kept.iter().filter(|kept| kept.network == chain.name());
        chain.restore(own.map(|kept| (&kept.attachment, &kept.result)))?;
        Ok(chain)
    }

    /// The plugins that a Pod was attached by.
    fn chain_of(&self, kept: &CachedResult) -> Result<Arc<Chain>, CniError> {
        let now = self.chain();
        match (&kept.conflist, now) {
            (Some(conflist), Ok(chain)) if chain.conflist() == conflist => Ok(chain),
            (Some(conflist), _) => {
                // What the built-in plugins of the other one have in memory of a network of this name is void then.
                self.loaded.lock().unwrap_or_else(PoisonError::into_inner).seen.clear();
                Chain::new(conflist.clone(), &self.builtin).map(Arc::new)
            }
            (None, now) => now,
        }
    }

    /// Attaches a Pod. If a plugin fails, what the others did is taken back.
    ///
    /// # Errors
    /// There is no usable configuration, or a plugin failed.
    pub fn add(&self, attachment: &Attachment) -> Result<CniResult, CniError> {
        let chain = self.chain()?;
        let added = chain.add(attachment).and_then(|result| {
            self.results.keep(attachment, chain.conflist(), &result)?;
            Ok(result)
        });
        added.inspect_err(|_| {
            self.doubt.notify_one();
            if let Err(also) = chain.del(attachment, None) {
                tracing::warn!(container = attachment.container_id, error = %also, "cannot take back a failed ADD");
            }
        })
    }

    /// Detaches a Pod: frees its address and takes away its interface and port mappings.
    ///
    /// # Errors
    /// A plugin failed, or is not there any more.
    pub fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        let Some(kept) = self.results.find(&attachment.container_id, &attachment.ifname)? else {
            // What an ADD that was cut off may have done. Without a configuration there was none.
            self.chain().map_or(Ok(()), |chain| chain.del(attachment, None))?;
            return self.results.forget(&attachment.container_id, &attachment.ifname);
        };
        // What it was told is needed to take it back, whoever asks.
        let attachment = Attachment { netns_path: attachment.netns_path.clone(), ..kept.attachment.clone() };
        self.chain_of(&kept)?.del(&attachment, Some(&kept.result))?;
        self.results.forget(&attachment.container_id, &attachment.ifname)
    }

    /// Checks that a Pod is still attached as ADD left it.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        let kept = self.results.find(&attachment.container_id, &attachment.ifname)?;
        let kept = kept.ok_or_else(|| {
            CniError::Check(format!("container {} was never attached", attachment.container_id))
        })?;
        let told = Attachment { netns_path: attachment.netns_path.clone(), ..kept.attachment.clone() };
        self.chain_of(&kept)?.check(&told, &kept.result)
    }

    /// The nftables table of the built-in network, of each family that has one.
    pub fn table(&self) -> String {
        crate::table_name(&self.builtin.cluster_id)
    }

    /// Makes the rules of the built-in network again, since somebody has taken some of them from the kernel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn rules_again(&self) -> Result<(), CniError> {
        let chain = self.chain()?;
        let kept = self.results.all()?;
        let own = kept.iter().filter(|kept| kept.network == chain.name());
        chain.rules_again(own.map(|kept| (&kept.attachment, &kept.result)))
    }

    /// The result of ADD for a sandbox, if it is attached.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn result(&self, container_id: &str, ifname: &str) -> Result<Option<CniResult>, CniError> {
        Ok(self.results.find(container_id, ifname)?.map(|kept| kept.result))
    }

    /// Detaches everything but these sandboxes: what a crash between ADD and the runtime's own record leaves.
    ///
    /// Source: CNI's GC verb. Returns the ids that were detached.
    ///
    /// # Errors
    /// A plugin failed.
    pub fn retain(&self, container_ids: &BTreeSet<String>) -> Result<Vec<String>, CniError> {
        self.results.remove_unfinished()?;
        let mut detached = Vec::new();
        let mut attached = Attached { containers: container_ids.clone(), ..Attached::default() };
        let mut outcome = Ok(());
        for kept in self.results.all()? {
            let Attachment { container_id, ifname, .. } = &kept.attachment;
            if container_ids.contains(container_id) {
                attached.interfaces.insert((container_id.clone(), ifname.clone()));
                continue;
            }
            // One that cannot be detached keeps nobody else.
            match self.del(&kept.attachment) {
                Ok(()) => detached.push(kept.attachment.container_id),
                failed => outcome = outcome.and(failed),
            }
        }
        if let Ok(chain) = self.chain() {
            outcome = outcome.and(chain.retain(&attached));
        }
        outcome = outcome.and(self.results.remove_broken(container_ids));
        outcome.map(|()| detached)
    }
}

/// Detaches Pods from networks that are not the built-in one, for a reset: what their plugins keep elsewhere goes no other
/// way. Makes nothing. Returns how many there were.
///
/// # Errors
/// A plugin failed, or is not there any more; the others are done.
pub fn detach_foreign(builtin: &BuiltinConfig) -> Result<usize, CniError> {
    let folder = builtin.state_dir.join("results");
    if !folder.exists() {
        return Ok(0);
    }
    let results = ResultCache::open(folder)?;
    let own = builtin.conflist();
    let (mut count, mut outcome) = (0, Ok(()));
    for kept in results.all()? {
        let Some(conflist) = kept.conflist.as_ref().filter(|conflist| !is_same(conflist, &own)) else {
            continue;
        };
        let detached = Chain::new(conflist.clone(), builtin)
            .and_then(|chain| chain.del(&kept.attachment, Some(&kept.result)))
            .and_then(|()| results.forget(&kept.attachment.container_id, &kept.attachment.ifname));
        match detached {
            Ok(()) => count += 1,
            failed => outcome = outcome.and(failed),
        }
    }
    outcome.map(|()| count)
}

/// The files of the folder, and those of the folders in it, where lists may have more plugins.
fn seen(conf_dir: &Path) -> Vec<Seen> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries(conf_dir).map(|entry| entry.path()).collect();
    let below: Vec<PathBuf> = paths.iter().flat_map(|path| entries(path)).map(|entry| entry.path()).collect();
    paths.extend(below);
    paths.sort();
    let stamped = |path: PathBuf| {
        let stamp = stamp(&path);
        (path, stamp)
    };
    paths.into_iter().map(stamped).collect()
}

#[cfg(test)]
mod tests;
