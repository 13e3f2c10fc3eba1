//! Images made from files of this machine, as root file system tars for `knarr image import`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const APPLETS: [&str; 21] = [
    "cat",
    "echo",
    "env",
    "head",
    "hostname",
    "httpd",
    "id",
    "ls",
    "mkdir",
    "nc",
    "nslookup",
    "sh",
    "sha256sum",
    "sleep",
    "stty",
    "tar",
    "test",
    "touch",
    "true",
    "wc",
    "wget",
];

/// Writes a root file system with busybox and links for its applets to `folder`; returns the tar's path.
///
/// Source of the program: Debian's `busybox-static`.
///
/// # Errors
/// If there is no busybox on this machine.
pub fn busybox(folder: &Path) -> Result<PathBuf> {
    let program = Path::new("/bin/busybox");
    let path = folder.join("busybox.tar");
    let file = std::fs::File::create(&path)?;
    let mut tar = tar::Builder::new(file);
    for directory in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        tar.append_data(&mut header, format!("{directory}/"), std::io::empty())?;
    }
    let bytes = std::fs::read(program).context("read /bin/busybox (Debian package busybox-static)")?;
    let mut file = header(tar::EntryType::Regular, 0o755, u64::try_from(bytes.len())?);
    tar.append_data(&mut file, "bin/busybox", bytes.as_slice())?;
    for applet in APPLETS {
        let mut link = header(tar::EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut link, format!("bin/{applet}"), "busybox")?;
    }
    let users = "root:x:0:0:root:/root:/bin/sh\nweb:x:1001:1001:web:/:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/:/bin/sh\n";
    for (name, text) in [("etc/passwd", users), ("etc/group", "web:x:1001:\nlogs:x:50000:web\n")] {
        let mut file = header(tar::EntryType::Regular, 0o644, u64::try_from(text.len())?);
        tar.append_data(&mut file, name, text.as_bytes())?;
    }
    tar.into_inner()?.sync_all()?;
    Ok(path)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header
}
