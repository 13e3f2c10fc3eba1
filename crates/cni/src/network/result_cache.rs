//! The record of an ADD that is kept until its DEL, where libcni keeps it and in its form (`cniCacheV1`).
//!
//! A file per attachment: `<network>-<container id>-<interface>`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Attachment, remove_if_there, write_whole};
use crate::files::UNFINISHED;
use crate::types::{CniError, CniResult, NetworkConfigList};

/// An attachment, and by which network it was made.
#[derive(Debug)]
pub(super) struct CachedResult {
    pub(super) attachment: Attachment,
    pub(super) network: String,
    /// `None` if an earlier knarr kept it, which did not write that down.
    pub(super) conflist: Option<NetworkConfigList>,
    pub(super) result: CniResult,
}

/// Source: libcni's `cachedInfo`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cached {
    kind: String,
    container_id: String,
    /// The configuration list, in base64.
    config: String,
    if_name: String,
    network_name: String,
    #[serde(default)]
    netns: PathBuf,
    #[serde(default)]
    cni_args: Vec<[String; 2]>,
    #[serde(default)]
    capability_args: Map<String, Value>,
    result: CniResult,
}

/// As an earlier knarr kept it.
#[derive(Debug, Deserialize)]
struct Former {
    attachment: Attachment,
    result: CniResult,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stored {
    Cached(Box<Cached>),
    Former(Box<Former>),
}

/// The folder of results.
#[derive(Debug)]
pub(super) struct ResultCache(PathBuf);

impl ResultCache {
    pub(super) fn open(folder: PathBuf) -> Result<Self, CniError> {
        fs::create_dir_all(&folder).map_err(CniError::state(&folder))?;
        Ok(Self(folder))
    }

    pub(super) fn keep(
        &self,
        attachment: &Attachment,
        conflist: &NetworkConfigList,
        result: &CniResult,
    ) -> Result<(), CniError> {
        let name = format!("{}-{}-{}", conflist.name, attachment.container_id, attachment.ifname);
        let path = self.0.join(name);
        let broken = |error: serde_json::Error| CniError::state(&path)(error.into());
        let cached = Cached {
            kind: "cniCacheV1".into(),
            container_id: attachment.container_id.clone(),
            config: STANDARD.encode(serde_json::to_vec(conflist).map_err(broken)?),
            if_name: attachment.ifname.clone(),
            network_name: conflist.name.clone(),
            netns: attachment.netns_path.clone(),
            cni_args: attachment.arguments(),
            capability_args: attachment.capability_args(),
            result: result.clone(),
        };
        write_whole(&path, &serde_json::to_vec(&cached).map_err(broken)?)
    }

    /// By whatever network it was attached. `None` also for what a power cut has left unreadable: like libcni, a DEL then
    /// goes on without the result of the ADD.
    pub(super) fn find(&self, container_id: &str, ifname: &str) -> Result<Option<CachedResult>, CniError> {
        Ok(self.file_of(container_id, ifname)?.and_then(|path| read_or_warn(&path)))
    }

    /// All that can be read.
    pub(super) fn all(&self) -> Result<Vec<CachedResult>, CniError> {
        Ok(self.files()?.iter().filter_map(|path| read_or_warn(path)).collect())
    }

    /// Removes those of other containers that cannot be read.
    pub(super) fn remove_broken(&self, container_ids: &BTreeSet<String>) -> Result<(), CniError> {
        let is_theirs = |path: &Path| container_ids.iter().any(|id| name_of(path).contains(id.as_str()));
        let mut files = self.files()?.into_iter();
        files.try_for_each(|path| match read(&path) {
            Err(_) if !is_theirs(&path) => remove_if_there(&path),
            _ => Ok(()),
        })
    }

    /// Removes what a crash left half written, when nobody writes.
    pub(super) fn remove_unfinished(&self) -> Result<(), CniError> {
        for entry in fs::read_dir(&self.0).map_err(CniError::state(&self.0))? {
            let path = entry.map_err(CniError::state(&self.0))?.path();
            if name_of(&path).ends_with(UNFINISHED) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    pub(super) fn forget(&self, container_id: &str, ifname: &str) -> Result<(), CniError> {
        self.file_of(container_id, ifname)?.map_or(Ok(()), |path| remove_if_there(&path))
    }

    fn file_of(&self, container_id: &str, ifname: &str) -> Result<Option<PathBuf>, CniError> {
        let end = format!("-{container_id}-{ifname}");
        Ok(self.files()?.into_iter().find(|path| name_of(path).ends_with(&end)))
    }

    fn files(&self) -> Result<Vec<PathBuf>, CniError> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(CniError::state(&self.0))? {
            let path = entry.map_err(CniError::state(&self.0))?.path();
            if !name_of(&path).ends_with(UNFINISHED) {
                files.push(path);
            }
        }
        Ok(files)
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn read_or_warn(path: &Path) -> Option<CachedResult> {
    read(path).unwrap_or_else(|error| {
        tracing::warn!(error = base::error_chain(&error), "a kept network result is left out");
        None
    })
}

fn read(path: &Path) -> Result<Option<CachedResult>, CniError> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(CniError::state(path))?,
    };
    let invalid = |error: std::io::Error| CniError::state(path)(error);
    let stored = serde_json::from_slice(&text).map_err(|error| invalid(error.into()))?;
    let kept = match stored {
        Stored::Cached(cached) => {
            let config =
                STANDARD.decode(&cached.config).map_err(|error| invalid(std::io::Error::other(error)))?;
            let conflist = serde_json::from_slice(&config).map_err(|error| invalid(error.into()))?;
            let (network, result) = (cached.network_name.clone(), cached.result.clone());
            CachedResult { attachment: attachment(*cached), network, conflist: Some(conflist), result }
        }
        Stored::Former(former) => {
            let Former { attachment, result } = *former;
            let end = format!("-{}-{}", attachment.container_id, attachment.ifname);
            let network = name_of(path).strip_suffix(&end).unwrap_or_default().to_owned();
            CachedResult { attachment, network, conflist: None, result }
        }
    };
    Ok(Some(kept))
}

fn attachment(cached: Cached) -> Attachment {
    let argument = |wanted: &str| {
        let found = cached.cni_args.iter().find(|[name, _]| name == wanted);
        found.map(|[_, value]| value.clone()).unwrap_or_default()
    };
    let (pod_namespace, pod_name) = (argument("K8S_POD_NAMESPACE"), argument("K8S_POD_NAME"));
    let pod_uid = argument("K8S_POD_UID");
    let mut capabilities = cached.capability_args;
    let ports = capabilities.remove("portMappings").map(serde_json::from_value);
    Attachment {
        container_id: cached.container_id,
        netns_path: cached.netns,
        ifname: cached.if_name,
        pod_namespace,
        pod_name,
        pod_uid,
        port_mappings: ports.and_then(Result::ok).unwrap_or_default(),
        capabilities,
    }
}

#[cfg(test)]
mod tests;
