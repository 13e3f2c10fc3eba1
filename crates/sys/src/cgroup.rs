//! Cgroups, v2 and v1 (also hybrid) behind one set of calls.
//!
//! A cgroup is named by its path from the root, such as `/knarr-1a2b/pod-x/container-y`; on v1 the same path is made
//! in each hierarchy that has a controller used here. A controller that the host lacks is skipped: a limit that
//! cannot be set is reported by [`Cgroups::set_limits`], the group exists all the same.
//!
//! Others make the same path in more hierarchies: libcontainer in all that have controllers (blkio, perf_event, ...), runc
//! in `name=systemd` and v2's as well. What is looked for and removed is therefore looked for everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::libc;

use crate::mount::MountEntry;
use crate::process::PidFd;
use crate::{Doing, Error, Result};

/// Controllers used here, each of which may live in a v1 hierarchy of its own.
const CONTROLLERS: [&str; 8] =
    ["cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "freezer", "devices"];

/// The interface of the host's controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller (or several together).
    V1,
    /// One hierarchy for all.
    V2,
}

/// The host's cgroup hierarchies.
#[derive(Clone, Debug)]
pub struct Cgroups {
    version: Version,
    hierarchies: Vec<Hierarchy>,
    /// Those that have no controller used here: only what others make in them is looked at, and removed.
    foreign: Vec<Hierarchy>,
}

/// What a freezer can do.
#[derive(Clone, Copy, Debug)]
enum Hold {
    Frozen,
    Thawed,
}

#[derive(Clone, Debug)]
struct Hierarchy {
    mount: PathBuf,
    controllers: Vec<String>,
}

/// A cgroup in one of v1's hierarchies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Of the hierarchy's mount, such as `cpu,cpuacct`.
    pub name: String,
    /// The group's directory.
    pub dir: PathBuf,
    /// The controllers of the group.
    pub controllers: Vec<String>,
}

/// The limits of a cgroup. `None` leaves a limit as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Relative weight in v1's unit (1024 is one CPU); turned into v2's weight.
    pub cpu_shares: Option<u64>,
    /// CPU time per period in microseconds; `-1` is no limit.
    pub cpu_quota_us: Option<i64>,
    /// Length of the period in microseconds; 100,000 if `None`.
    pub cpu_period_us: Option<u64>,
    /// Memory in bytes; `-1` is no limit.
    pub memory_max_bytes: Option<i64>,
    /// Memory and swap together, in bytes; `-1` is no limit.
    pub memory_and_swap_max_bytes: Option<i64>,
    /// Number of tasks; `-1` is no limit.
    pub pids_max: Option<i64>,
    /// CPUs that may be used, such as `0-2,7`.
    pub cpuset_cpus: Option<String>,
    /// Memory nodes that may be used.
    pub cpuset_mems: Option<String>,
    /// Bytes by size of page, such as `2MB`.
    pub huge_pages: BTreeMap<String, u64>,
    /// The contents for files of v2, by name; v1 has none of them.
    pub unified: BTreeMap<String, String>,
}

impl Cgroups {
    /// Finds the hierarchies of this host, once for a process and what it forks.
    pub fn detect() -> Result<Self> {
        static FOUND: OnceLock<Cgroups> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found.clone());
        }
        let found = Self::among(crate::mount::mounts()?)?;
        Ok(FOUND.get_or_init(|| found).clone())
    }

    fn among(mut mounts: Vec<MountEntry>) -> Result<Self> {
        // What others have bound elsewhere of a hierarchy comes after its own mount.
        let mut seen = BTreeSet::new();
        mounts.retain(|mount| {
            matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2") && seen.insert(mount.super_options.clone())
        });
        let hierarchy = |mount: &MountEntry| Hierarchy {
            mount: mount.target.clone(),
            controllers: mount.super_options.split(',').map(str::to_owned).collect(),
        };
        let v1 = mounts.iter().filter(|mount| mount.fs_type == "cgroup").map(hierarchy);
        let v1: Vec<Hierarchy> = v1.filter(Hierarchy::is_used).collect();
        let foreign = |own: &[Hierarchy]| -> Vec<Hierarchy> {
            let others = mounts.iter().filter(|mount| own.iter().all(|it| it.mount != mount.target));
            others.map(hierarchy).collect()
        };
        if !v1.is_empty() {
            return Ok(Self { version: Version::V1, foreign: foreign(&v1), hierarchies: v1 });
        }
        let unified = mounts.iter().find(|mount| mount.fs_type == "cgroup2");
        let mount = unified
            .ok_or_else(|| Error::other("find the cgroup hierarchies", "no cgroup file system is mounted"))?
            .target
            .clone();
        let controllers = fs::read_to_string(mount.join("cgroup.controllers"))
            .doing(|| "read the cgroup controllers".into())?
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let hierarchies = vec![Hierarchy { mount, controllers }];
        Ok(Self { version: Version::V2, foreign: foreign(&hierarchies), hierarchies })
    }

    /// The folders of the cgroup in all hierarchies.
    fn dirs(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        self.hierarchies.iter().chain(&self.foreign).map(move |hierarchy| hierarchy.dir(path))
    }

    /// The interface that the host has.
    pub fn version(&self) -> Version {
        self.version
    }

    /// `true` if the host has this controller (`cpu`, `memory`, `pids`, ...).
    pub fn has(&self, controller: &str) -> bool {
        self.hierarchies.iter().any(|hierarchy| hierarchy.has(controller))
    }

    /// Makes the cgroup and its parents. No error if it exists.
    pub fn create(&self, path: &str) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let dir = hierarchy.dir(path);
            fs::create_dir_all(&dir).doing(|| format!("create cgroup {}", dir.display()))?;
            match self.version {
                Version::V2 => hierarchy.enable_controllers(path),
                Version::V1 => hierarchy.inherit_cpuset(path)?,
            }
        }
        Ok(())
    }

    /// The cgroup in each of v1's hierarchies that has a controller used here, by the hierarchy's name; none with v2.
    pub fn groups_of_v1(&self, path: &str) -> Vec<Group> {
        let v1 = self.hierarchies.iter().filter(|_| self.version == Version::V1);
        v1.filter_map(|hierarchy| {
            let name = hierarchy.mount.file_name()?.to_string_lossy().into_owned();
            let controllers = hierarchy.controllers.iter().filter(|it| CONTROLLERS.contains(&it.as_str()));
            Some(Group { name, dir: hierarchy.dir(path), controllers: controllers.cloned().collect() })
        })
        .collect()
    }

    /// Sets the limits that are given and returns the names of those that this host cannot set.
    pub fn set_limits(&self, path: &str, limits: &Limits) -> Result<Vec<&'static str>> {
        let mut unavailable = Vec::new();
        for (controller, file, value) in limits.settings(self.version) {
            let Some(dir) = self.dir_of(controller, path) else {
                unavailable.push(controller);
                continue;
            };
            match write(&dir.join(&file), &value) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => unavailable.push(controller),
                other => other.doing(|| format!("set {file} of cgroup {path} to {value}"))?,
            }
        }
        unavailable.dedup();
        self.set_unified(path, limits)?;
        Ok(unavailable)
    }

    fn set_unified(&self, path: &str, limits: &Limits) -> Result<()> {
        let hierarchies = self.hierarchies.iter().filter(|_| self.version == Version::V2);
        for (dir, (file, value)) in
            hierarchies.flat_map(|it| limits.unified.iter().map(|setting| (it.dir(path), setting)))
        {
            let doing = || format!("set {file} of cgroup {path} to {value}");
            if file.contains('/') {
                return Err(Error::other(doing(), "it is no file of a cgroup"));
            }
            write(&dir.join(file), value).doing(doing)?;
        }
        Ok(())
    }

    /// Moves a process into the cgroup, in every hierarchy.
    pub fn add_process(&self, path: &str, pid: i32) -> Result<()> {
        for hierarchy in &self.hierarchies {
            write(&hierarchy.dir(path).join("cgroup.procs"), &pid.to_string())
                .doing(|| format!("move process {pid} to cgroup {path}"))?;
        }
        Ok(())
    }

    /// Every process in the cgroup and below it; empty if there is no such cgroup.
    pub fn processes(&self, path: &str) -> Vec<i32> {
        let mut pids: Vec<i32> = Vec::new();
        self.dirs(path).for_each(|dir| collect_processes(&dir, &mut pids));
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Names of the cgroups directly below this one.
    pub fn children(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = self.dirs(path).flat_map(|dir| child_names(&dir)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// `true` if the cgroup exists in any hierarchy.
    pub fn exists(&self, path: &str) -> bool {
        self.dirs(path).any(|dir| dir.exists())
    }

    /// Kills every process in the cgroup and below, and blocks until they ended or `timeout` passed.
    ///
    /// However fast they make others: the kernel kills them all together (v2), or they are held first (v1).
    pub fn kill(&self, path: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let pids = self.processes(path);
            if pids.is_empty() {
                return Ok(());
            }
            let mut handles = Vec::with_capacity(pids.len());
            for pid in pids {
                match PidFd::open(pid) {
                    Ok(handle) => handles.push(handle),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
            self.hold(path, Hold::Frozen);
            let killed = self.kill_all(path, &handles);
            self.hold(path, Hold::Thawed);
            killed?;
            for handle in &handles {
                if !handle.wait(deadline.saturating_duration_since(Instant::now()))? {
                    return Err(Error::new(
                        format!("kill the processes of cgroup {path}"),
                        io::ErrorKind::TimedOut,
                    ));
                }
            }
        }
    }

    /// All that are there now, not only those that are known.
    fn kill_all(&self, path: &str, known: &[PidFd]) -> Result<()> {
        if self.version == Version::V2
            && self.hierarchies.iter().all(|it| write(&it.dir(path).join("cgroup.kill"), "1").is_ok())
        {
            return Ok(());
        }
        known.iter().try_for_each(|process| process.signal(libc::SIGKILL))?;
        for pid in self.processes(path) {
            match PidFd::open(pid) {
                Err(error) if error.is_not_found() => {}
                process => process?.signal(libc::SIGKILL)?,
            }
        }
        Ok(())
    }

    /// v1: stops what is in the cgroup from running, or lets it go on. Where that cannot be done, it is done without.
    fn hold(&self, path: &str, hold: Hold) {
        if self.version == Version::V2 {
            return;
        }
        let Some(dir) = self.dir_of("freezer", path) else { return };
        let state = match hold {
            Hold::Frozen => "FROZEN",
            Hold::Thawed => "THAWED",
        };
        match write(&dir.join("freezer.state"), state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path, state, %error, "a cgroup's freezer does not do as it is told");
            }
            _ => {}
        }
    }

    /// Removes the cgroup and those below it, which must hold no process, in every hierarchy, whoever made it there. No
    /// error if it is gone. The root is never removed.
    pub fn remove(&self, path: &str) -> Result<()> {
        if path.trim_matches('/').is_empty() {
            return Ok(());
        }
        self.dirs(path).try_for_each(|dir| remove_tree(&dir))
    }

    /// Removes the cgroup where nothing is in it, in every hierarchy.
    pub fn remove_if_empty(&self, path: &str) {
        for dir in self.dirs(path) {
            if let Err(error) = fs::remove_dir(&dir) {
                tracing::trace!(cgroup = %dir.display(), %error, "cgroup kept");
            }
        }
    }

    /// The directory of the cgroup in the hierarchy that has this controller, for settings not covered here.
    pub fn dir_of(&self, controller: &str, path: &str) -> Option<PathBuf> {
        let mut all = self.hierarchies.iter().chain(&self.foreign);
        Some(all.find(|hierarchy| hierarchy.has(controller))?.dir(path))
    }

    /// A file of the cgroup. v2 has some without their controller, such as `cpu.stat`.
    pub(crate) fn read(&self, controller: &str, path: &str, file: &str) -> Option<String> {
        let dir = match self.version {
            Version::V2 => self.hierarchies.first()?.dir(path),
            Version::V1 => self.dir_of(controller, path)?,
        };
        fs::read_to_string(dir.join(file)).ok()
    }

    /// Hierarchies that are folders, by the names of their controllers; v2's one is the folder itself.
    #[cfg(test)]
    pub(crate) fn in_folder(version: Version, folder: &Path, hierarchies: &[&str]) -> Self {
        let hierarchy = |controllers: &&str| Hierarchy {
            mount: if version == Version::V1 { folder.join(controllers) } else { folder.to_owned() },
            controllers: controllers.split(',').map(str::to_owned).collect(),
        };
        let (hierarchies, foreign) =
            hierarchies.iter().map(hierarchy).partition(|it| version == Version::V2 || it.is_used());
        Self { version, hierarchies, foreign }
    }
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    fn is_used(&self) -> bool {
        CONTROLLERS.iter().any(|name| self.has(name))
    }

    fn dir(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    /// v2: hands the controllers down to the group's parents' children. A refused one is simply not there, which
    /// `set_limits` reports.
    fn enable_controllers(&self, path: &str) {
        let mut dir = self.mount.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            for controller in self.controllers.iter().filter(|name| CONTROLLERS.contains(&name.as_str())) {
                if let Err(error) = write(&dir.join("cgroup.subtree_control"), &format!("+{controller}")) {
                    tracing::debug!(dir = %dir.display(), controller, %error, "controller not handed down");
                }
            }
            dir.push(part);
        }
    }

    /// v1: a new cpuset is empty and takes no process until it has CPUs and memory nodes.
    fn inherit_cpuset(&self, path: &str) -> Result<()> {
        if !self.has("cpuset") {
            return Ok(());
        }
        let mut dir = self.mount.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let parent = dir.clone();
            dir.push(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let doing = || format!("set {file} of {}", dir.display());
                let Ok(own) = fs::read_to_string(dir.join(file)) else { continue };
                if own.trim().is_empty() {
                    let inherited = fs::read_to_string(parent.join(file)).doing(doing)?;
                    write(&dir.join(file), inherited.trim()).doing(doing)?;
                }
            }
        }
        Ok(())
    }
}

impl Limits {
    /// Controller, file and text of every limit that is given.
    fn settings(&self, version: Version) -> Vec<(&'static str, String, String)> {
        let fixed = self.fixed_settings(version).into_iter();
        let mut settings: Vec<_> =
            fixed.map(|(controller, file, value)| (controller, file.to_owned(), value)).collect();
        let ending = match version {
            Version::V1 => "limit_in_bytes",
            Version::V2 => "max",
        };
        settings.extend(
            self.huge_pages
                .iter()
                .map(|(size, bytes)| ("hugetlb", format!("hugetlb.{size}.{ending}"), bytes.to_string())),
        );
        settings
    }

    /// Those in files that always have the same name.
    fn fixed_settings(&self, version: Version) -> Vec<(&'static str, &'static str, String)> {
        let mut settings = Vec::new();
        let or_max = |value: i64| if value < 0 { "max".to_owned() } else { value.to_string() };
        let period = self.cpu_period_us.unwrap_or(100_000);
        match version {
            Version::V2 => {
                settings
                    .extend(self.cpu_shares.map(|s| ("cpu", "cpu.weight", weight_of_shares(s).to_string())));
                settings
                    .extend(self.cpu_quota_us.map(|q| ("cpu", "cpu.max", format!("{} {period}", or_max(q)))));
                settings.extend(self.memory_max_bytes.map(|m| ("memory", "memory.max", or_max(m))));
                let swap = self.memory_and_swap_max_bytes.map(|both| match self.memory_max_bytes {
                    Some(memory @ 0..) if both >= 0 => (both - memory).max(0),
                    _ => both,
                });
                settings.extend(swap.map(|swap| ("memory", "memory.swap.max", or_max(swap))));
            }
            Version::V1 => {
                settings.extend(self.cpu_shares.map(|s| ("cpu", "cpu.shares", s.max(2).to_string())));
                settings.extend(self.cpu_period_us.map(|p| ("cpu", "cpu.cfs_period_us", p.to_string())));
                settings.extend(self.cpu_quota_us.map(|q| ("cpu", "cpu.cfs_quota_us", q.to_string())));
                settings.extend(
                    self.memory_max_bytes.map(|m| ("memory", "memory.limit_in_bytes", m.to_string())),
                );
                let both = self.memory_and_swap_max_bytes;
                settings.extend(both.map(|both| ("memory", "memory.memsw.limit_in_bytes", both.to_string())));
            }
        }
        settings.extend(self.pids_max.map(|p| ("pids", "pids.max", or_max(p))));
        settings.extend(self.cpuset_cpus.iter().map(|cpus| ("cpuset", "cpuset.cpus", cpus.clone())));
        settings.extend(self.cpuset_mems.iter().map(|mems| ("cpuset", "cpuset.mems", mems.clone())));
        settings
    }
}

/// v1's 2..262144 on v2's 1..10000. Source: KEP-2254.
fn weight_of_shares(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

fn child_names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .filter_map(std::result::Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn collect_processes(dir: &Path, pids: &mut Vec<i32>) {
    if let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) {
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    }
    for name in child_names(dir) {
        collect_processes(&dir.join(name), pids);
    }
}

fn remove_tree(dir: &Path) -> Result<()> {
    for name in child_names(dir) {
        remove_tree(&dir.join(name))?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove cgroup {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// One write call without creating the file: what the cgroup file system wants.
fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
#[path = "cgroup/tests.rs"]
mod tests;
