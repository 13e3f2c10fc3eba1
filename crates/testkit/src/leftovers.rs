//! What of a cluster can be seen on this machine, looked at from outside: the test's own proof that `knarr reset`
//! leaves nothing. Knows no name that knarr gives; what a running cluster holds is noted and looked for afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use sys::netns::NetNs;
use sys::nftables::TableFamily;

/// The tables of iptables, where that is nftables.
const IPTABLES: [&str; 3] = ["filter", "nat", "mangle"];

/// The cgroups of a cluster's processes while it ran, and what its network namespaces were called elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    cgroups: BTreeSet<String>,
    names: BTreeSet<PathBuf>,
}

impl Noted {
    /// Notes the cgroups of the cluster's processes; the test's own are not the cluster's.
    pub(crate) fn note(&mut self, data_dir: &Path) {
        let own: BTreeSet<String> = cgroups_of("self").collect();
        for (pid, _) in processes(data_dir) {
            self.cgroups.extend(cgroups_of(&pid).filter(|path| !own.contains(path)));
        }
        self.names.extend(names_elsewhere(data_dir));
    }
}

/// Where beside the folder the network namespaces are mounted that are in it.
pub(crate) fn names_elsewhere(data_dir: &Path) -> BTreeSet<PathBuf> {
    let mounts = sys::mount::mounts().unwrap_or_default();
    let (own, others): (Vec<_>, Vec<_>) = mounts
        .into_iter()
        .filter(|mount| mount.fs_type == "nsfs")
        .partition(|mount| mount.target.starts_with(data_dir));
    let own: BTreeSet<_> = own.into_iter().map(|mount| mount.root).collect();
    others.into_iter().filter(|mount| own.contains(&mount.root)).map(|mount| mount.target).collect()
}

/// Everything of the cluster that is still there: one line each.
///
/// # Errors
/// If the machine cannot be asked.
pub(crate) fn look(
    data_dir: &Path,
    namespace: &NetNs,
    host_link: &str,
    noted: &Noted,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    found.extend(processes(data_dir).map(|(pid, command)| format!("process {pid} ({command})")));
    for mount in sys::mount::mounts()? {
        if mount.target.starts_with(data_dir) {
            found.push(format!("mount {}", mount.target.display()));
        }
    }
    for device in std::fs::read_dir("/sys/block")?.flatten() {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(backing.trim_end()).starts_with(data_dir) {
            found.push(format!("loop device of {}", backing.trim_end()));
        }
    }
    for link in namespace.run(|| sys::netlink::Route::open()?.links())? {
        if link.name != "lo" && link.name != host_link {
            found.push(format!("link {}", link.name));
        }
    }
    for family in [TableFamily::Ipv4, TableFamily::Ipv6] {
        let tables = namespace.run(|| sys::nftables::table_names_of(family))?;
        let tables = tables.into_iter().filter(|table| !IPTABLES.contains(&table.as_str()));
        found.extend(tables.map(|table| format!("nft table {table}")));
    }
    // Those of iptables are nobody's, and stay without chains of anybody.
    for family in ["iptables", "ip6tables"] {
        // A machine without it has no rules of it.
        let saved = namespace.run(|| Ok(Command::new(format!("{family}-save")).output().ok()))?;
        let saved =
            saved.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let rules = saved.lines().filter(|line| line.starts_with("-A") || line.contains(" - ["));
        found.extend(rules.map(|rule| format!("{family} {rule}")));
    }
    let still_there = noted.cgroups.iter().filter(|path| Path::new(path).exists());
    found.extend(still_there.map(|path| format!("cgroup {path}")));
    let still_there = noted.names.iter().filter(|path| path.exists());
    found.extend(still_there.map(|path| format!("name of a network namespace {}", path.display())));
    if data_dir.exists() {
        let names = std::fs::read_dir(data_dir)?.flatten().map(|entry| entry.file_name());
        found.push(format!("files in {}: {:?}", data_dir.display(), names.collect::<Vec<_>>()));
    }
    Ok(found)
}

/// Processes whose command line names the data directory, apart from ourselves.
pub(crate) fn processes(data_dir: &Path) -> impl Iterator<Item = (String, String)> + use<> {
    let wanted = data_dir.as_os_str().as_encoded_bytes().to_vec();
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid = entry.file_name().into_string().ok().filter(|name| name.parse::<u32>().is_ok())?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let names_it = command.windows(wanted.len()).any(|part| part == wanted);
        (names_it && pid != own)
            .then(|| (pid, String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned()))
    })
}

/// The cgroups of a process, as folders; the roots are nobody's. A process that ends is shown at the roots, where cgroups are of
/// version 1.
pub(crate) fn cgroups_of(pid: &str) -> impl Iterator<Item = String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let folders = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next().filter(|path| *path != "/")?);
        let hierarchy = controllers.trim_start_matches("name=");
        Some(match hierarchy {
            "" => format!("/sys/fs/cgroup{path}"),
            _ => format!("/sys/fs/cgroup/{hierarchy}{path}"),
        })
    });
    folders.collect::<Vec<_>>().into_iter()
}
