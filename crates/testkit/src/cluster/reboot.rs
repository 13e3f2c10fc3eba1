//! A host that is rebooted: all processes end at once, what is in memory is gone (mounts, network, cgroups), and the
//! kernel gives itself another boot id. What is on disk stays.
//!
//! The boot id is a file that is bound over the kernel's in a mount namespace of the cluster's own, which goes, with all
//! that is mounted in it, when its last process ends. As long as something is bound there, the kernel lets no user
//! namespace mount `/proc`: Pods with users of their own cannot run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use sys::process::PidFd;

use super::{Cluster, host_namespace};
use crate::leftovers;

/// How long killed processes may take to end.
const DEATH_MAX: Duration = Duration::from_secs(60);
/// What runs a program with the boot id that `$BOOT_ID` names.
pub(super) const BOOTED: &str = r#"mount --bind "$BOOT_ID" /proc/sys/kernel/random/boot_id && exec "$@""#;

impl Cluster {
    /// Gives the host a boot id of its own, so that it can be rebooted. Before anything runs.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn boot(&mut self) -> Result<()> {
        let path = self.scratch().join("boot_id");
        let number = self.boots;
        fs::write(&path, format!("00000000-0000-4000-8000-{number:012}\n")).context("write a boot id")?;
        self.boots += 1;
        self.boot_id = Some(path);
        Ok(())
    }

    /// Cuts the power and boots again; nothing of the cluster runs afterwards.
    ///
    /// # Errors
    /// If something does not end.
    pub fn reboot(&mut self) -> Result<()> {
        self.inventory(&[])?;
        let started = Instant::now();
        loop {
            let pids = self.all_processes();
            if pids.is_empty() {
                break;
            }
            // What ends may not be seen by what ends after it. Each may have ended meanwhile.
            let processes: Vec<_> =
                pids.iter().filter_map(|pid| Some((pid, PidFd::open(*pid).ok()?))).collect();
            for (_, process) in &processes {
                drop(process.signal(Signal::SIGSTOP as i32));
            }
            for (pid, process) in processes {
                if process.signal(Signal::SIGKILL as i32).is_ok() && !process.wait(DEATH_MAX)? {
                    bail!("process {pid} does not end");
                }
            }
            if started.elapsed() > DEATH_MAX {
                bail!("there are ever more processes");
            }
        }
        sys::loop_device::detach_below(&self.data_dir())?;
        self.seen.cgroups.iter().try_for_each(|root| remove_cgroups(root))?;
        self.namespace = host_namespace()?;
        self.boot()
    }

    /// Processes that name the folder, and those in the cluster's cgroups.
    fn all_processes(&self) -> BTreeSet<i32> {
        let named = leftovers::processes(&self.data_dir()).map(|(pid, _)| pid);
        let mut pids: BTreeSet<String> = named.collect();
        let mut nothing = crate::Inventory::default();
        for root in &self.seen.cgroups {
            crate::inventory::kernel::cgroups(root, &mut nothing, &mut pids);
        }
        pids.iter().filter_map(|pid| pid.parse().ok()).collect()
    }
}

fn remove_cgroups(root: &Path) -> Result<()> {
    let folders: Vec<PathBuf> = match fs::read_dir(root) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect(),
        Err(_) => return Ok(()),
    };
    folders.iter().try_for_each(|folder| remove_cgroups(folder))?;
    fs::remove_dir(root).with_context(|| format!("remove {}", root.display()))
}
