//! What the machine is: read once at start.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use cri::v1;
use jiff::Timestamp;

use super::pages::huge_pages;
use crate::config::Config;
use crate::machine::layout::{Layout, Place};

/// The machine and its runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    /// Whole CPUs.
    pub(crate) cpus: u64,
    pub(crate) physical_cores: u64,
    pub(crate) sockets: u64,
    /// Bytes.
    pub(crate) memory: u64,
    /// Bytes of all swap.
    pub(crate) swap: u64,
    /// Bytes of the file system with the Pods' directories.
    pub(crate) storage: u64,
    /// Processes and threads that the kernel has numbers for.
    pub(crate) pids_max: i64,
    /// Huge pages: the size of one in bytes, and how many there are.
    pub(crate) huge_pages: Vec<(u64, u64)>,
    /// GOARCH's word.
    pub(crate) architecture: &'static str,
    pub(crate) machine_id: String,
    pub(crate) system_uuid: String,
    pub(crate) boot_id: String,
    pub(crate) kernel: String,
    pub(crate) os_image: String,
    /// Such as `knarr://0.1.0`.
    pub(crate) runtime: String,
}

/// Reads the machine's facts. What cannot be read stays empty. Blocking.
pub(crate) fn read_machine(config: &Config, runtime: &v1::VersionResponse) -> Machine {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let machine_id = text("/etc/machine-id");
    let uuid = text("/sys/class/dmi/id/product_uuid");
    let layout = Layout::read(Path::new("/sys"), 0);
    let different =
        |of: fn(&Place) -> (usize, usize)| layout.cpus.values().map(of).collect::<BTreeSet<_>>().len() as u64;
    Machine {
        physical_cores: different(|place| (place.socket, place.core)),
        sockets: different(|place| (place.socket, 0)),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory: meminfo(&text("/proc/meminfo"), "MemTotal:"),
        swap: meminfo(&text("/proc/meminfo"), "SwapTotal:"),
        storage: storage(&config.root_dir),
        pids_max: pids_max(),
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
        architecture: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        },
        system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
        machine_id,
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        kernel: text("/proc/sys/kernel/osrelease"),
        os_image: os_image(&text("/etc/os-release")),
        runtime: format!("{}://{}", runtime.runtime_name, runtime.runtime_version),
    }
}

/// Where the kernel tells how hot each CPU has been: containers must not know. Blocking, and read once.
pub(crate) fn thermal_folders() -> &'static [String] {
    static FOLDERS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let cpus = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        let folders = cpus.map(|cpu| cpu.path().join("thermal_throttle")).filter(|folder| folder.is_dir());
        let mut folders: Vec<_> = folders.map(|folder| folder.display().to_string()).collect();
        folders.sort();
        folders
    });
    &FOLDERS
}

fn meminfo(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The most processes and threads that there can be. Source: `pkg/kubelet/stats/pidlimit`.
pub(crate) fn pids_max() -> i64 {
    let read =
        |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i64>().ok());
    let limits = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map(read);
    limits.into_iter().flatten().min().unwrap_or(32768)
}

/// When the machine was booted.
pub(crate) fn boot_time() -> Option<Timestamp> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Timestamp::from_second(line.trim().parse().ok()?).ok()
}

fn storage(path: &Path) -> u64 {
    nix::sys::statvfs::statvfs(path).map_or(0, |stat| stat.blocks() * stat.fragment_size())
}

fn os_image(os_release: &str) -> String {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.map_or_else(|| "Linux".into(), |name| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests;
