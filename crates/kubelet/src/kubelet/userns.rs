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
/// How many users there are beside the first ones, who are the host's.
const ALL: u32 = u32::MAX - LENGTH + 1;
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
    #[error("user namespace mappings {}: not {LENGTH} users, root first, and the same groups", path.display())]
    Mappings { path: PathBuf },
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

impl Mappings {
    /// The host's first of them, if they are as they are written here. Source: `parseUserNsFileAndRecord`.
    fn first(&self) -> Option<u32> {
        let [users] = self.uid_mappings[..] else { return None };
        let is_whole = users.container_id == 0 && users.length == LENGTH;
        let is_right = is_whole && users.host_id != 0 && users.host_id % LENGTH == 0;
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
        let is_given = known.checked_sub(first).is_some_and(|distance| distance / LENGTH < count);
        return if is_given { Ok(known) } else { Err(UserNamespaceError::Range { path, first: known }) };
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
    if text.is_empty() {
        return Ok(None);
    }
    let mappings: Mappings = serde_json::from_slice(&text)
        .map_err(|source| UserNamespaceError::Parse { path: path.to_owned(), source })?;
    let first = mappings.first().ok_or_else(|| UserNamespaceError::Mappings { path: path.to_owned() });
    first.map(Some)
}

/// What CRI is told.
fn namespace(host_id: u32) -> v1::UserNamespace {
    let mapping = v1::IdMapping { host_id, container_id: 0, length: LENGTH };
    v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] }
}

/// The first user, and for how many Pods there are some. The texts are `/etc/subuid` and `/etc/subgid`.
fn range(subuid: &str, subgid: &str, pods_max: u32) -> Result<(u32, u32), UserNamespaceError> {
    let (users, groups) = (given(subuid)?, given(subgid)?);
    if users != groups {
        return Err(UserNamespaceError::Differ);
    }
    let (first, length) = users.unwrap_or((LENGTH, ALL));
    if first < LENGTH || first % LENGTH != 0 {
        return Err(UserNamespaceError::First(first));
    }
    let is_beyond = u64::from(first) + u64::from(length) > 1 << 32;
    if is_beyond || length % LENGTH != 0 || length / LENGTH < pods_max {
        return Err(UserNamespaceError::Length { length, pods_max });
    }
    Ok((first, length / LENGTH))
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
        check("", "", Ok((65_536, 65_535)));
        check("root:100000:65536", "", Ok((65_536, 65_535)));
        check(given, given, Ok((131_072, 110)));
        check(given, "", Err("differ"));
        check("kubelet:65536:2147483648", "kubelet:65536:2147483648", Ok((65_536, 32_768)));
        check("kubelet:65536:4294901760", "kubelet:65536:4294901760", Ok((65_536, 65_535)));
        for (line, expect) in [
            ("kubelet:1000:7208960", "multiple of 65536"),
            ("kubelet:65537:7208960", "multiple of 65536"),
            ("kubelet:1:7208960", "multiple of 65536"),
            ("kubelet:0:7208960", "at least that"),
            ("kubelet:65536:65536", "enough for 110 pods"),
            ("kubelet:65536:7208961", "enough for 110 pods"),
            ("kubelet:4294901760:7208960", "enough for 110 pods"),
            ("kubelet:65536:7208960\nkubelet:131072:7208960", "one line"),
            ("kubelet:65536", "two numbers"),
            ("kubelet:Foo:7208960", "two numbers"),
            ("kubelet:65536:Bar", "two numbers"),
            ("kubelet:65536:", "two numbers"),
            ("kubelet:4294967296:2147483648", "two numbers"),
            ("kubelet:65536:4294967296", "two numbers"),
            ("kubelet:-1:2147483648", "two numbers"),
            ("kubelet:65536:-1", "two numbers"),
        ] {
            check(line, line, Err(expect));
        }
        assert!(range("", "", 65_536).is_err(), "there are not so many users at all");
    }

    /// Source: `TestUserNsManagerParseUserNsFile` of upstream's `pkg/kubelet/userns`.
    #[test]
    fn what_a_pod_has_is_a_whole_range_that_is_given() {
        const SHAPE: &str = "not 65536 users, root first, and the same groups";
        let one = |host: u32, container: u32, length: u32| {
            format!("{{\"hostId\":{host},\"containerId\":{container},\"length\":{length}}}")
        };
        let right = one(131_072, 0, 65_536);
        let both = |mapping: String| (mapping.clone(), mapping);
        for (name, (users, groups), expect) in [
            ("as it is written", both(right.clone()), Ok(131_072)),
            ("the last one that is given", both(one(196_608, 0, 65_536)), Ok(196_608)),
            ("nobody", both(one(131_072, 0, 0)), Err(SHAPE)),
            ("more", both(one(131_072, 0, 131_072)), Err(SHAPE)),
            ("other groups", (right.clone(), one(1, 0, 65_536)), Err(SHAPE)),
            ("two of groups", (right.clone(), format!("{right},{}", one(196_608, 0, 65_536))), Err(SHAPE)),
            ("two of users", (format!("{right},{}", one(196_608, 0, 65_536)), right.clone()), Err(SHAPE)),
            ("none", both(String::new()), Err(SHAPE)),
            ("no root", (one(131_072, 1, 65_536), right.clone()), Err(SHAPE)),
            ("no group of root", (right.clone(), one(131_072, 1, 65_536)), Err(SHAPE)),
            ("amid another's", both(one(131_073, 0, 65_536)), Err(SHAPE)),
            ("the host's own", both(one(0, 0, 65_536)), Err(SHAPE)),
            ("before what is given", both(one(65_536, 0, 65_536)), Err("ID 65536 is out of range")),
            ("after it", both(one(262_144, 0, 65_536)), Err("ID 262144 is out of range")),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("a")).unwrap();
            let text = format!("{{\"uidMappings\":[{users}],\"gidMappings\":[{groups}]}}");
            std::fs::write(dir.path().join("a").join(FILE), text).unwrap();
            match (allocate_in(dir.path(), "a", (131_072, 2)), expect) {
                (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{name}: {error}"),
                (found, expect) => assert_eq!(found.ok(), expect.ok(), "{name}"),
            }
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a").join(FILE), "").unwrap();
        assert_eq!(allocate_in(dir.path(), "a", (131_072, 2)).unwrap(), 131_072, "it had none");
        std::fs::write(dir.path().join("a").join(FILE), "{").unwrap();
        assert!(allocate_in(dir.path(), "b", (131_072, 2)).is_err(), "nobody knows what is taken");
    }
}
