//! Which of the host's users a Pod with `hostUsers: false` gets: as many of its own as `userNamespaces.idsPerPod` of the
//! configuration says, kept in its directory.
//!
//! The range that all are taken from is what `/etc/subuid` and `/etc/subgid` give the user `kubelet`; without that, all
//! but the first Pod's. What is taken is what Pods' directories say: it is free again when the directory goes. Source:
//! upstream's `pkg/kubelet/userns`, KEP-127.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The file, in a Pod's directory. Source: `mappingsFile`.
const FILE: &str = "userns";
/// One allocation at a time.
static ALLOCATING: Mutex<()> = Mutex::new(());

/// Why a Pod gets no users of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserNamespaceError {
    /// Other Pods have all that there are.
    #[error("could not find an empty slot to allocate a user namespace")]
    NoneLeft,
    /// What a Pod, or the host, says of users cannot be read.
    #[error("read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// What a Pod has is not said as it should be.
    #[error("parse user namespace mappings {}: {source}", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    /// What a Pod has is nothing that is written here.
    #[error("user namespace mappings {}: not {of_pod} users, root first, and the same groups", path.display())]
    Mappings { path: PathBuf, of_pod: u32 },
    /// What a Pod has is no longer given.
    #[error("user namespace mappings {}: ID {first} is out of range", path.display())]
    Range { path: PathBuf, first: u32 },
    /// It cannot be noted.
    #[error("write user namespace mappings {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The host gives other groups than users.
    #[error("mappings for the kubelet user in /etc/subuid and /etc/subgid differ")]
    Differ,
    /// What the host gives cannot be read.
    #[error("mappings for the kubelet user must be one line with two numbers, not {0:?}")]
    Given(String),
    /// What the host gives begins amid a Pod's.
    #[error("first ID {first} of the kubelet user must be a multiple of {of_pod} and at least that")]
    First { first: u32, of_pod: u32 },
    /// The host does not give enough.
    #[error(
        "the kubelet user must have a multiple of {of_pod} IDs, enough for {pods_max} pods, not {length}"
    )]
    Length { length: u32, of_pod: u32, pods_max: u32 },
}

/// The users that Pods get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    of_pod: u32,
    /// For how many Pods there are some.
    pods: u32,
}

/// What the file says, in upstream's form.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

impl Mappings {
    /// The host's first of them, if they are as they are written here. Source: `parseUserNsFileAndRecord`.
    fn first(&self, of_pod: u32) -> Option<u32> {
        let [users] = self.uid_mappings[..] else { return None };
        let is_whole = users.container_id == 0 && users.length == of_pod;
        let is_right = is_whole && users.host_id != 0 && users.host_id.is_multiple_of(of_pod);
        (is_right && self.gid_mappings == [users]).then_some(users.host_id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The users of a Pod that wants some of its own, which are the same whenever it is asked.
///
/// # Errors
/// Nobody is left, or the files cannot be used.
pub(crate) fn of_pod(config: &Config, pod: &Pod) -> Result<Option<v1::UserNamespace>, UserNamespaceError> {
    if pod.spec.as_ref().and_then(|spec| spec.host_users) != Some(false) {
        return Ok(None);
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let range = range(&read("/etc/subuid")?, &read("/etc/subgid")?, config.users_of_pod, config.max_pods)?;
    let first = allocate_in(&config.root_dir.join("pods"), uid, range)?;
    Ok(Some(namespace(first, range.of_pod)))
}

/// Tells the sandbox of the users.
pub(crate) fn apply_to_sandbox(users: Option<&v1::UserNamespace>, sandbox: &mut v1::PodSandboxConfig) {
    let linux = sandbox.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    if let Some(options) = linux.and_then(|context| context.namespace_options.as_mut()) {
        options.userns_options = users.cloned();
    }
}

/// Tells a container and its mounts of the users: what belongs to the host's root belongs to the Pod's.
pub(crate) fn apply_to_container(users: Option<&v1::UserNamespace>, container: &mut v1::ContainerConfig) {
    let Some(users) = users else { return };
    let context = container.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    if let Some(options) = context.and_then(|context| context.namespace_options.as_mut()) {
        options.userns_options = Some(users.clone());
    }
    for mount in &mut container.mounts {
        (mount.uid_mappings, mount.gid_mappings) = (users.uids.clone(), users.gids.clone());
    }
}

fn allocate_in(pods: &Path, uid: &str, range: Range) -> Result<u32, UserNamespaceError> {
    let _guard = ALLOCATING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = pods.join(uid).join(FILE);
    let Range { first, of_pod, pods: count } = range;
    if let Some(known) = first_of(&path, of_pod)? {
        let is_given = known.checked_sub(first).is_some_and(|distance| distance / of_pod < count);
        return if is_given { Ok(known) } else { Err(UserNamespaceError::Range { path, first: known }) };
    }
    let mut taken = BTreeSet::new();
    for entry in std::fs::read_dir(pods).into_iter().flatten().flatten() {
        taken.extend(first_of(&entry.path().join(FILE), of_pod)?);
    }
    let mut all = (0..count).map(|slot| first + slot * of_pod);
    let free = all.find(|id| !taken.contains(id)).ok_or(UserNamespaceError::NoneLeft)?;
    let mapping = Mapping { host_id: free, container_id: 0, length: of_pod };
    let mappings = Mappings { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(pods.join(uid))?;
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&mappings)?)?;
        std::fs::rename(new, &path)
    };
    write().map_err(|source| UserNamespaceError::Write { path: path.clone(), source })?;
    Ok(free)
}

fn first_of(path: &Path, of_pod: u32) -> Result<Option<u32>, UserNamespaceError> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| UserNamespaceError::Read { path: path.to_owned(), source })?,
    };
    if text.is_empty() {
        return Ok(None);
    }
    let mappings: Mappings = serde_json::from_slice(&text)
        .map_err(|source| UserNamespaceError::Parse { path: path.to_owned(), source })?;
    let first = mappings.first(of_pod);
    first.map(Some).ok_or_else(|| UserNamespaceError::Mappings { path: path.to_owned(), of_pod })
}

/// What CRI is told.
fn namespace(host_id: u32, length: u32) -> v1::UserNamespace {
    let mapping = v1::IdMapping { host_id, container_id: 0, length };
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] }
}

/// The users that the host gives. The texts are `/etc/subuid` and `/etc/subgid`. The first ones are the host's own.
fn range(subuid: &str, subgid: &str, of_pod: u32, pods_max: u32) -> Result<Range, UserNamespaceError> {
    let (users, groups) = (given(subuid)?, given(subgid)?);
    if users != groups {
        return Err(UserNamespaceError::Differ);
    }
    let (first, length) = users.unwrap_or((of_pod, u32::MAX - of_pod + 1));
    if first < of_pod || !first.is_multiple_of(of_pod) {
        return Err(UserNamespaceError::First { first, of_pod });
    }
    let is_beyond = u64::from(first) + u64::from(length) > 1 << 32;
    if is_beyond || !length.is_multiple_of(of_pod) || length / of_pod < pods_max {
        return Err(UserNamespaceError::Length { length, of_pod, pods_max });
    }
    Ok(Range { first, of_pod, pods: length / of_pod })
}

/// The first user that a file gives the kubelet, and how many. Source: `parseGetSubIdsOutput`.
fn given(text: &str) -> Result<Option<(u32, u32)>, UserNamespaceError> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("kubelet:"));
    let Some(line) = lines.next() else { return Ok(None) };
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let numbers = line.split_once(':').and_then(|(first, length)| Some((number(first)?, number(length)?)));
    let only = numbers.filter(|_| lines.next().is_none());
    only.map(Some).ok_or_else(|| UserNamespaceError::Given(line.to_owned()))
}

fn read(path: &str) -> Result<String, UserNamespaceError> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|source| UserNamespaceError::Read { path: path.into(), source }),
    }
}

#[cfg(test)]
mod tests;
