//! Which of the host's users a Pod with `hostUsers: false` gets: 65,536 of its own, kept in its directory.
//!
//! The range that all are taken from is what `/etc/subuid` and `/etc/subgid` give the user `kubelet`; without that, all
//! from 65,536 on. What is taken is what Pods' directories say: it is free again when the directory goes. Source:
//! upstream's `pkg/kubelet/userns`, KEP-127.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// Users of a Pod. Source: `userNsLength`.
const LENGTH: u32 = 65_536;
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
    /// It cannot be noted.
    #[error("write user namespace mappings {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The host gives other groups than users.
    #[error("mappings for the kubelet user in /etc/subuid and /etc/subgid differ")]
    Differ,
    /// What the host gives begins amid a Pod's.
    #[error("first ID {0} of the kubelet user must be a multiple of {LENGTH} and at least that")]
    First(u32),
    /// The host does not give enough.
    #[error(
        "the kubelet user must have a multiple of {LENGTH} IDs, enough for {pods_max} pods, not {length}"
    )]
    Length { length: u32, pods_max: u32 },
}

/// What the file says, in upstream's form.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The users of the Pod in `pods/<uid>`, which are the same whenever it is asked.
///
/// # Errors
/// Nobody is left, or the files cannot be used.
fn allocate(pods: &Path, uid: &str, pods_max: u32) -> Result<v1::UserNamespace, UserNamespaceError> {
    let range = range(&read("/etc/subuid")?, &read("/etc/subgid")?, pods_max)?;
    allocate_in(pods, uid, range).map(namespace)
}

/// The users of a Pod that wants some of its own.
///
/// # Errors
/// As [`allocate`].
pub(crate) fn of_pod(config: &Config, pod: &Pod) -> Result<Option<v1::UserNamespace>, UserNamespaceError> {
    let wants = pod.spec.as_ref().is_some_and(|spec| spec.host_users == Some(false));
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    wants.then(|| allocate(&config.root_dir.join("pods"), uid, config.max_pods)).transpose()
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

fn allocate_in(pods: &Path, uid: &str, (first, count): (u32, u32)) -> Result<u32, UserNamespaceError> {
    let _guard = ALLOCATING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = pods.join(uid).join(FILE);
    if let Some(known) = first_of(&path)? {
        return Ok(known);
    }
    let mut taken = BTreeSet::new();
    for entry in std::fs::read_dir(pods).into_iter().flatten().flatten() {
        taken.extend(first_of(&entry.path().join(FILE))?);
    }
    let mut all = (0..count).map(|slot| first + slot * LENGTH);
    let free = all.find(|id| !taken.contains(id)).ok_or(UserNamespaceError::NoneLeft)?;
    let mapping = Mapping { host_id: free, container_id: 0, length: LENGTH };
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

fn first_of(path: &Path) -> Result<Option<u32>, UserNamespaceError> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| UserNamespaceError::Read { path: path.to_owned(), source })?,
    };
    let mappings: Mappings = serde_json::from_slice(&text)
        .map_err(|source| UserNamespaceError::Parse { path: path.to_owned(), source })?;
    Ok(mappings.uid_mappings.first().map(|mapping| mapping.host_id))
}

/// What CRI is told.
fn namespace(host_id: u32) -> v1::UserNamespace {
    let mapping = v1::IdMapping { host_id, container_id: 0, length: LENGTH };
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] }
}

/// The first user, and for how many Pods there are some. The texts are `/etc/subuid` and `/etc/subgid`.
fn range(subuid: &str, subgid: &str, pods_max: u32) -> Result<(u32, u32), UserNamespaceError> {
    let of = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("kubelet:"))?;
        let (first, length) = line.split_once(':')?;
        Some((first.trim().parse::<u32>().ok()?, length.trim().parse::<u32>().ok()?))
    };
    let (users, groups) = (of(subuid), of(subgid));
    let Some((first, length)) = users.or(groups) else { return Ok((LENGTH, pods_max)) };
    if users != groups {
        return Err(UserNamespaceError::Differ);
    }
    if first < LENGTH || first % LENGTH != 0 {
        return Err(UserNamespaceError::First(first));
    }
    if length % LENGTH != 0 || length / LENGTH < pods_max {
        return Err(UserNamespaceError::Length { length, pods_max });
    }
    Ok((first, length / LENGTH))
}

fn read(path: &str) -> Result<String, UserNamespaceError> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|source| UserNamespaceError::Read { path: path.into(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_has_users_of_its_own_and_keeps_them() {
        let dir = tempfile::tempdir().unwrap();
        let allocate = |uid: &str| allocate_in(dir.path(), uid, (65_536, 2));
        assert_eq!(allocate("a").unwrap(), 65_536);
        assert_eq!(allocate("b").unwrap(), 131_072);
        assert_eq!(allocate("a").unwrap(), 65_536, "again");
        let none = allocate("c").unwrap_err().to_string();
        assert_eq!(none, "could not find an empty slot to allocate a user namespace");
        std::fs::remove_dir_all(dir.path().join("a")).unwrap();
        assert_eq!(allocate("c").unwrap(), 65_536);
    }

    #[test]
    fn the_range_is_the_kubelet_users_if_it_has_one() {
        let check = |subuid: &str, subgid: &str, expect: Result<(u32, u32), &str>| {
            let found = range(subuid, subgid, 110);
            match (&found, &expect) {
                (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
                _ => assert_eq!(found.map_err(|error| error.to_string()), expect.map_err(str::to_owned)),
            }
        };
        let given = "root:1:2\nkubelet:131072:7208960\n";
        check("", "", Ok((65_536, 110)));
        check("root:100000:65536", "", Ok((65_536, 110)));
        check(given, given, Ok((131_072, 110)));
        check(given, "", Err("differ"));
        check("kubelet:1000:7208960", "kubelet:1000:7208960", Err("multiple of 65536"));
        check("kubelet:65536:65536", "kubelet:65536:65536", Err("enough for 110 pods"));
    }
}
