//! A network as the runtime sees it: load its configuration, attach and detach Pods.
//!
//! Results of ADD are kept on disk, as the specification wants, until DEL: DEL and CHECK get them back. DEL of what was
//! never added, or twice, is no error.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chain::Chain;
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
}

/// A network that Pods are attached to. Shared by reference; calls for different Pods may run at once.
#[derive(Debug)]
pub struct Network {
    chain: Chain,
    results: PathBuf,
}

/// End of the names of files that a crash left half written.
const UNFINISHED: &str = ".new";

/// What is kept of an ADD.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    attachment: Attachment,
    result: CniResult,
}

impl Network {
    /// Loads the first configuration (by file name) of `conf_dir`, or the built-in one if there is none.
    ///
    /// # Errors
    /// A configuration that is there but cannot be used is an error: it is not skipped in favour of another.
    pub fn load(conf_dir: &Path, builtin: BuiltinConfig) -> Result<Self, CniError> {
        let conflist = match find_conflist(conf_dir)? {
            Some(conflist) => conflist,
            None => builtin.conflist(),
        };
        let results = builtin.state_dir.join("results");
        fs::create_dir_all(&results).map_err(CniError::state(&results))?;
        let network = Self { chain: Chain::new(conflist, &builtin)?, results };
        network.restore()?;
        Ok(network)
    }

    /// The network's name.
    pub fn name(&self) -> &str {
        self.chain.name()
    }

    /// Attaches a Pod. If a plugin fails, what the others did is taken back.
    pub fn add(&self, attachment: &Attachment) -> Result<CniResult, CniError> {
        match self.chain.add(attachment).and_then(|result| self.keep(attachment, result)) {
            Ok(result) => Ok(result),
            Err(error) => {
                if let Err(also) = self.chain.del(attachment, None) {
                    tracing::warn!(container = attachment.container_id, error = %also, "cannot take back a failed ADD");
                }
                Err(error)
            }
        }
    }

    /// Detaches a Pod: frees its address and takes away its interface and port mappings.
    pub fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        let path = self.result_path(&attachment.container_id, &attachment.ifname);
        let kept = read_kept(&path)?;
        // Port mappings are needed to take them back, whoever asks.
        let attachment = match &kept {
            Some(kept) => Attachment {
                port_mappings: kept.attachment.port_mappings.clone(),
                netns_path: attachment.netns_path.clone(),
                ..kept.attachment.clone()
            },
            None => attachment.clone(),
        };
        self.chain.del(&attachment, kept.as_ref().map(|kept| &kept.result))?;
        remove_if_there(&path)
    }

    /// Checks that a Pod is still attached as ADD left it.
    pub fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        let path = self.result_path(&attachment.container_id, &attachment.ifname);
        let kept = read_kept(&path)?;
        let kept = kept.ok_or_else(|| {
            CniError::Check(format!(
                "container {} was never attached to {}",
                attachment.container_id,
                self.name()
            ))
        })?;
        self.chain.check(attachment, &kept.result)
    }

    /// What ADD returned for a sandbox, if it is attached.
    pub fn result(&self, container_id: &str, ifname: &str) -> Result<Option<CniResult>, CniError> {
        Ok(read_kept(&self.result_path(container_id, ifname))?.map(|kept| kept.result))
    }

    /// Detaches everything but these sandboxes: what a crash between ADD and the runtime's own record leaves.
    ///
    /// Source: CNI's GC verb. Returns the ids that were detached.
    pub fn retain(&self, container_ids: &BTreeSet<String>) -> Result<Vec<String>, CniError> {
        let mut detached = Vec::new();
        for kept in self.kept()? {
            if !container_ids.contains(&kept.attachment.container_id) {
                self.del(&kept.attachment)?;
                detached.push(kept.attachment.container_id);
            }
        }
        self.chain.retain(container_ids)?;
        Ok(detached)
    }

    fn result_path(&self, container_id: &str, ifname: &str) -> PathBuf {
        self.results.join(format!("{}-{container_id}-{ifname}", self.name()))
    }

    fn keep(&self, attachment: &Attachment, result: CniResult) -> Result<CniResult, CniError> {
        let path = self.result_path(&attachment.container_id, &attachment.ifname);
        let kept = Kept { attachment: attachment.clone(), result };
        let text = serde_json::to_vec(&kept).map_err(|error| CniError::state(&path)(error.into()))?;
        write_whole(&path, &text)?;
        Ok(kept.result)
    }

    fn kept(&self) -> Result<Vec<Kept>, CniError> {
        let prefix = format!("{}-", self.name());
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.results).map_err(CniError::state(&self.results))? {
            let path = entry.map_err(CniError::state(&self.results))?.path();
            let is_ours = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(&prefix) && !name.ends_with(UNFINISHED));
            if is_ours {
                all.extend(read_kept(&path)?);
            }
        }
        Ok(all)
    }

    fn restore(&self) -> Result<(), CniError> {
        let kept = self.kept()?;
        self.chain.restore(kept.iter().map(|kept| (&kept.attachment, &kept.result)))
    }
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

fn read_kept(path: &Path) -> Result<Option<Kept>, CniError> {
    match fs::read(path) {
        Ok(text) => {
            serde_json::from_slice(&text).map(Some).map_err(|error| CniError::state(path)(error.into()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CniError::state(path)(error)),
    }
}

/// A file that is there is whole: written beside and renamed.
pub(crate) fn write_whole(path: &Path, text: &[u8]) -> Result<(), CniError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(UNFINISHED);
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
