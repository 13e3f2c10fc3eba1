//! A network as the runtime sees it: load its configuration, attach and detach Pods.
//!
//! The configuration is what lies in its folder when a Pod is attached: what was put there meanwhile, or the binary that
//! was missing, is found without a restart. Results of ADD are kept on disk ([`kept`]) until DEL: DEL and CHECK get them
//! back, and use the configuration that the Pod was attached by. DEL of what was never added, or twice, is no error.

mod kept;

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::chain::Chain;
use kept::{Kept, Results};

use crate::types::{CniError, CniResult, NetworkConfigList, PortMapping, VERSION};

/// What the built-in network is made of.
#[derive(Clone, Debug)]
pub struct BuiltinConfig {
    /// The cluster's short id (at most 12 bytes of interface name are used).
    pub cluster_id: String,
    /// The addresses of this node's Pods. Source: `Node.spec.podCIDR`.
    pub pod_cidr: (Ipv4Addr, u8),
    /// The addresses of all Pods: what goes elsewhere leaves with the node's address.
    pub cluster_cidr: (Ipv4Addr, u8),
    /// Largest packet in bytes, the kernel's default if `None`.
    pub mtu: Option<u32>,
    /// Where addresses and results are kept: a directory that survives restarts.
    pub state_dir: PathBuf,
    /// Where plugin binaries are looked for, such as `/opt/cni/bin`.
    pub bin_dirs: Vec<PathBuf>,
}

impl BuiltinConfig {
    /// The configuration of the built-in network: Pods are joined by a bridge but reach each other through the
    /// host (`routed`), so that Service addresses work between them without `br_netfilter`.
    pub fn conflist(&self) -> NetworkConfigList {
        let cidr = |(ip, prefix): (Ipv4Addr, u8)| format!("{ip}/{prefix}");
        NetworkConfigList {
            cni_version: VERSION.to_owned(),
            name: "knarr".to_owned(),
            disable_check: false,
            plugins: vec![
                json!({
                    "type": "bridge",
                    "bridge": crate::bridge_name(&self.cluster_id),
                    "isGateway": true,
                    "ipMasq": true,
                    "hairpinMode": true,
                    "routed": true,
                    "clusterCIDR": cidr(self.cluster_cidr),
                    "mtu": self.mtu.unwrap_or(0),
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{ "subnet": cidr(self.pod_cidr) }]],
                        "routes": [{ "dst": "0.0.0.0/0" }],
                    },
                }),
                json!({ "type": "portmap", "capabilities": { "portMappings": true } }),
            ],
        }
    }
}

/// A Pod to attach, detach or check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The sandbox's id.
    pub container_id: String,
    /// Path of its network namespace. May be gone at DEL.
    pub netns_path: PathBuf,
    /// Name of the interface inside, `eth0`.
    pub ifname: String,
    /// The Pod's namespace.
    pub pod_namespace: String,
    /// The Pod's name.
    pub pod_name: String,
    /// The Pod's UID.
    pub pod_uid: String,
    /// Ports of the host that lead into the Pod.
    pub port_mappings: Vec<PortMapping>,
    /// What plugins with these capabilities are told beside `portMappings`: `bandwidth`, `dns`, `ips`, `mac`, ...
    #[serde(default)]
    pub capabilities: Map<String, Value>,
}

impl Attachment {
    /// Everything that plugins are told if their configuration has the capability. Source: CNI's conventions.
    pub(crate) fn capability_args(&self) -> Map<String, Value> {
        let mut all = self.capabilities.clone();
        if !self.port_mappings.is_empty() {
            all.insert("portMappings".into(), json!(self.port_mappings));
        }
        all
    }

    /// `CNI_ARGS`. Source: Kubernetes' conventions, `pkg/kubelet` and containerd.
    pub(crate) fn arguments(&self) -> Vec<[String; 2]> {
        let pair = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
        vec![
            pair("IgnoreUnknown", "1"),
            pair("K8S_POD_NAMESPACE", &self.pod_namespace),
            pair("K8S_POD_NAME", &self.pod_name),
            pair("K8S_POD_INFRA_CONTAINER_ID", &self.container_id),
            pair("K8S_POD_UID", &self.pod_uid),
        ]
    }
}

/// A network that Pods are attached to. Shared by reference; calls for different Pods may run at once.
#[derive(Debug)]
pub struct Network {
    conf_dir: PathBuf,
    builtin: BuiltinConfig,
    results: Results,
    loaded: Mutex<Loaded>,
}

/// The configuration that was last found, with what the folder was like then.
#[derive(Debug)]
struct Loaded {
    seen: Vec<Seen>,
    chain: Result<Arc<Chain>, String>,
}

/// A file of the configuration's folder, as far as one tells it from its next version.
type Seen = (PathBuf, u64, Option<SystemTime>);

impl Network {
    /// The network of the first configuration (by file name) of `conf_dir`, or the built-in one if there is none.
    ///
    /// A configuration that is there but cannot be used is not skipped in favour of another: until it can be, no Pod is
    /// attached ([`Network::status`]).
    ///
    /// # Errors
    /// The folder of results cannot be used.
    pub fn load(conf_dir: &Path, builtin: BuiltinConfig) -> Result<Self, CniError> {
        let results = Results::open(builtin.state_dir.join("results"))?;
        let loaded = Mutex::new(Loaded { seen: Vec::new(), chain: Err(String::new()) });
        let network = Self { conf_dir: conf_dir.to_owned(), builtin, results, loaded };
        if let Err(error) = network.chain() {
            tracing::warn!(%error, "the pod network is not ready");
        }
        Ok(network)
    }

    /// The network's name.
    ///
    /// # Errors
    /// There is no usable configuration.
    pub fn name(&self) -> Result<String, CniError> {
        Ok(self.chain()?.name().to_owned())
    }

    /// Whether Pods can be attached now. Source: CNI's STATUS, CRI's `NetworkReady`.
    ///
    /// # Errors
    /// Says why not.
    pub fn status(&self) -> Result<(), CniError> {
        self.chain()?.status()
    }

    /// The plugins of the configuration as it is now. One that was in order stays as long as its file does.
    fn chain(&self) -> Result<Arc<Chain>, CniError> {
        let seen = seen(&self.conf_dir);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.seen != seen || loaded.chain.is_err() {
            let found = self.find_chain();
            if let Ok(chain) = &found {
                tracing::info!(network = chain.name(), "the pod network is loaded");
            }
            *loaded = Loaded { seen, chain: found.map(Arc::new).map_err(|error| error.to_string()) };
        }
        loaded.chain.clone().map_err(CniError::NotReady)
    }

    fn find_chain(&self) -> Result<Chain, CniError> {
        let conflist = find_conflist(&self.conf_dir)?.unwrap_or_else(|| self.builtin.conflist());
        let chain = Chain::new(conflist, &self.builtin)?;
        let kept = self.results.all()?;
        let own = kept.iter().filter(|kept| kept.network == chain.name());
        chain.restore(own.map(|kept| (&kept.attachment, &kept.result)))?;
        Ok(chain)
    }

    /// The plugins that a Pod was attached by.
    fn chain_of(&self, kept: &Kept) -> Result<Arc<Chain>, CniError> {
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
            return self.chain().map_or(Ok(()), |chain| chain.del(attachment, None));
        };
        // What it was told is needed to take it back, whoever asks.
        let attachment = Attachment { netns_path: attachment.netns_path.clone(), ..kept.attachment.clone() };
        self.chain_of(&kept)?.del(&attachment, Some(&kept.result))?;
        self.results.forget(&kept)
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

    /// What ADD returned for a sandbox, if it is attached.
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
        let mut detached = Vec::new();
        let mut attached = Vec::new();
        for kept in self.results.all()? {
            if container_ids.contains(&kept.attachment.container_id) {
                let Attachment { container_id, ifname, .. } = &kept.attachment;
                attached.push(json!({ "containerID": container_id, "ifname": ifname }));
            } else {
                self.del(&kept.attachment)?;
                detached.push(kept.attachment.container_id);
            }
        }
        if let Ok(chain) = self.chain() {
            chain.retain(container_ids, &Value::Array(attached))?;
        }
        Ok(detached)
    }
}

fn seen(conf_dir: &Path) -> Vec<Seen> {
    let entries = fs::read_dir(conf_dir).into_iter().flatten().flatten();
    let mut seen: Vec<Seen> = entries
        .map(|entry| {
            let metadata = entry.metadata().ok();
            let size = metadata.as_ref().map_or(0, fs::Metadata::len);
            (entry.path(), size, metadata.and_then(|metadata| metadata.modified().ok()))
        })
        .collect();
    seen.sort();
    seen
}

fn find_conflist(conf_dir: &Path) -> Result<Option<NetworkConfigList>, CniError> {
    let Ok(entries) = fs::read_dir(conf_dir) else { return Ok(None) };
    let mut files: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension().is_some_and(|ext| ext == "conflist" || ext == "conf" || ext == "json")
        })
        .collect();
    files.sort();
    let Some(path) = files.into_iter().next() else { return Ok(None) };
    let invalid = |reason: String| CniError::Config { path: path.clone(), reason };
    let text = fs::read(&path).map_err(CniError::state(&path))?;
    if path.extension().is_some_and(|ext| ext == "conflist") {
        let conflist: NetworkConfigList =
            serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        if conflist.plugins.is_empty() {
            return Err(invalid("no plugins in list".into()));
        }
        return Ok(Some(conflist));
    }
    let plugin: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
    let field = |name: &str| plugin.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let name = field("name").ok_or_else(|| invalid("missing field `name`".into()))?;
    let cni_version = field("cniVersion").unwrap_or_else(|| "0.2.0".into());
    Ok(Some(NetworkConfigList { cni_version, name, disable_check: false, plugins: vec![plugin] }))
}

/// A file that is there is whole: written beside and renamed.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> Result<(), CniError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(kept::UNFINISHED);
    let beside = PathBuf::from(beside);
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(CniError::state(path))
}

pub(crate) fn remove_if_there(path: &Path) -> Result<(), CniError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(CniError::state(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
