//! What the kernel says of sessions, their SCSI hosts, and the disks that came by them.
//!
//! Source: `pkg/volume/util/device_util_linux.go`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The kernel's folder, `/sys`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sysfs<'a>(pub(super) &'a str);

impl Sysfs<'_> {
    /// The number of the SCSI host by which a target's portal is reached over an interface; none if nobody is logged in.
    pub(super) fn host(self, iqn: &str, portal: &str, iface: &str) -> Option<u32> {
        let session = |folder: &Path| {
            let name = folder.file_name().unwrap_or_default();
            let told = folder.join("iscsi_session").join(name);
            let is_by = text(&told, "ifacename").is_none_or(|by| by == iface);
            let mut connections = named(folder, "connection").into_iter();
            is_by && is_of(&told, iqn) && connections.any(|connection| leads_to(&connection, portal))
        };
        let (number, _) = self.sessions().into_iter().find(|(_, folder)| session(folder))?;
        Some(number)
    }

    /// Has the kernel look for one disk of a host, and no other.
    pub(super) fn scan(self, host: u32, lun: i32) -> io::Result<()> {
        tell(&self.at(&format!("class/scsi_host/host{host}/scan")), &format!("0 0 {lun}"))
    }

    /// The kernel's names of the disks that a target's number came as.
    pub(super) fn disks(self, iqn: &str, lun: i32) -> Vec<String> {
        let mut names = Vec::new();
        for (_, session) in self.sessions() {
            let told = session.join("iscsi_session").join(session.file_name().unwrap_or_default());
            if !is_of(&told, iqn) {
                continue;
            }
            for target in named(&session, "target") {
                let ending = format!(":{lun}");
                let all = named(&target, "").into_iter();
                let disks = all.filter(|path| path.to_string_lossy().ends_with(&ending));
                names.extend(
                    disks.flat_map(|disk| named(&disk.join("block"), "")).filter_map(|path| name(&path)),
                );
            }
        }
        names
    }

    /// The device that bundles the paths to a disk.
    pub(super) fn multipath(self, disk: &str) -> Option<String> {
        let holders = named(&self.at("block").join(disk).join("holders"), "dm-").into_iter();
        let is_multipath = |holder: &PathBuf| {
            let uuid =
                holder.file_name().and_then(|name| text(&self.at("block").join(name).join("dm"), "uuid"));
            uuid.is_some_and(|uuid| uuid.starts_with("mpath-"))
        };
        holders.filter(is_multipath).find_map(|holder| name(&holder))
    }

    /// Has the kernel forget a disk.
    pub(super) fn delete(self, disk: &str) -> io::Result<()> {
        match tell(&self.at("block").join(disk).join("device/delete"), "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    fn at(self, path: &str) -> PathBuf {
        Path::new(self.0).join(path)
    }

    /// Every session's folder, with the number of its host.
    fn sessions(self) -> Vec<(u32, PathBuf)> {
        let hosts = named(&self.at("class/iscsi_host"), "host").into_iter();
        let numbered =
            hosts.filter_map(|host| Some((name(&host)?.strip_prefix("host")?.parse().ok()?, host)));
        let of_host = |(number, host): (u32, PathBuf)| {
            named(&host.join("device"), "session").into_iter().map(move |session| (number, session))
        };
        numbered.flat_map(of_host).collect()
    }
}

/// Writes to a file of the kernel's, which is there or not.
fn tell(file: &Path, text: &str) -> io::Result<()> {
    fs::File::options().write(true).open(file)?.write_all(text.as_bytes())
}

fn is_of(session: &Path, iqn: &str) -> bool {
    text(session, "targetname").is_some_and(|name| name == iqn)
}

/// A connection may have been sent on elsewhere by the portal that was asked.
fn leads_to(connection: &Path, portal: &str) -> bool {
    let told = connection.join("iscsi_connection").join(connection.file_name().unwrap_or_default());
    [("persistent_address", "persistent_port"), ("address", "port")].into_iter().any(|(address, port)| {
        let Some((address, port)) = text(&told, address).zip(text(&told, port)) else { return false };
        let is_v6 = address.contains(':') && !address.starts_with('[');
        portal == if is_v6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    })
}

fn text(folder: &Path, file: &str) -> Option<String> {
    fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned())
}

fn name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

/// What is in a folder and begins with `prefix`, in order.
fn named(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let matching = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let mut all: Vec<PathBuf> = matching.map(|entry| entry.path()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "class/iscsi_host/host7/device/session3";

    #[test]
    fn a_session_leads_from_a_portal_to_its_disks() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let connection = format!("{SESSION}/connection3:0/iscsi_connection/connection3:0");
        write(&format!("{SESSION}/iscsi_session/session3/targetname"), "iqn.a\n");
        write(&format!("{SESSION}/iscsi_session/session3/ifacename"), "default\n");
        write(&format!("{connection}/persistent_address"), "10.0.0.1\n");
        write(&format!("{connection}/persistent_port"), "3260\n");
        write(&format!("{connection}/address"), "fd00::1\n");
        write(&format!("{connection}/port"), "3261\n");
        write(&format!("{SESSION}/target7:0:0/7:0:0:1/block/sdb/size"), "1");
        write(&format!("{SESSION}/target7:0:0/7:0:0:11/block/sdc/size"), "1");
        write("class/scsi_host/host7/scan", "");
        write("block/sdb/holders/dm-3/x", "");
        write("block/sdb/holders/dm-2/x", "");
        write("block/dm-2/dm/uuid", "LVM-1\n");
        write("block/dm-3/dm/uuid", "mpath-1\n");
        write("block/sdb/device/delete", "");
        let sysfs = Sysfs(dir.path().to_str().unwrap());
        for (iqn, portal, iface, expect) in [
            ("iqn.a", "10.0.0.1:3260", "default", Some(7)),
            ("iqn.a", "[fd00::1]:3261", "default", Some(7)),
            ("iqn.a", "10.0.0.1:3261", "default", None),
            ("iqn.a", "10.0.0.1:3260", "own", None),
            ("iqn.b", "10.0.0.1:3260", "default", None),
        ] {
            assert_eq!(sysfs.host(iqn, portal, iface), expect, "{iqn} {portal} {iface}");
        }
        assert_eq!(sysfs.disks("iqn.a", 1), ["sdb"]);
        assert_eq!(sysfs.disks("iqn.b", 1), [""; 0]);
        assert_eq!(sysfs.multipath("sdb").as_deref(), Some("dm-3"));
        assert_eq!(sysfs.multipath("sdc"), None);
        sysfs.scan(7, 1).unwrap();
        assert_eq!(text(&dir.path().join("class/scsi_host/host7"), "scan").unwrap(), "0 0 1");
        sysfs.delete("sdb").unwrap();
        assert_eq!(text(&dir.path().join("block/sdb/device"), "delete").unwrap(), "1");
        sysfs.delete("sdz").unwrap();
    }
}
