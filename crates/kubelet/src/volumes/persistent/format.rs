//! File systems on devices of the node, made and mounted by the host's own tools.
//!
//! Nothing is formatted that has anything on it: what `blkid` finds is taken as it is.
//! Source: `SafeFormatAndMount`, `k8s.io/mount-utils`.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use tokio::process::Command;

use crate::volumes::error::Specific;

/// What `fsck` ends with when errors are left.
const FSCK_UNCORRECTED: i32 = 4;
/// What `blkid` ends with when it finds nothing.
const BLKID_NOTHING: i32 = 2;

/// Of a device that is empty, if its volume does not say.
const FS_TYPE: &str = "ext4";
/// Who has a tool that not every host has.
const PACKAGES: &[(&str, &str)] = &[
    ("iscsiadm", "open-iscsi (Debian), iscsi-initiator-utils (others)"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
];

/// A tool of the host's is missing or has failed, or a device has something else on it; in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("exec: {tool:?}: executable file not found in $PATH{package}")]
    Missing { tool: String, package: String },
    #[error("exec: {tool:?}: {source}")]
    NotRun { tool: String, source: io::Error },
    #[error("cannot mount unformatted disk {0} as we are manipulating it in read-only mode")]
    Unformatted(String),
    #[error("blkid of {device} failed: {status}: {output}")]
    Look { device: String, status: String, output: String },
    #[error("format of disk {device:?} failed: type:({fs_type:?}) errcode:({status}): {output}")]
    Format { device: String, fs_type: String, status: String, output: String },
    #[error("'fsck' found errors on device {device} but could not correct them: {output}")]
    Uncorrected { device: String, output: String },
    #[error(
        "mount failed: {status}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"
    )]
    Mount { status: String, arguments: String, output: String },
    #[error(
        "failed to mount the volume as {fs_type:?}, it already contains {existing}. Mount error: {source}"
    )]
    Other { fs_type: String, existing: String, source: Box<Self> },
}

impl Specific for ToolError {}

/// What a tool said.
pub(super) struct Said {
    /// None if a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) output: String,
}

/// Mounts the file system on `device` at `target`, and makes one of that type if the device is empty; without a type what
/// is there, or ext4.
///
/// # Errors
/// A tool is missing or failed, or the device has something else on it.
pub(super) async fn mount(
    device: &Path,
    target: &Path,
    fs_type: Option<&str>,
    options: &[String],
) -> Result<(), ToolError> {
    let is_read_only = options.iter().any(|option| option == "ro");
    let existing = found_on(device).await?;
    let name = device.display().to_string();
    let fs_type = fs_type.filter(|fs_type| !fs_type.is_empty()).or(existing.as_deref()).unwrap_or(FS_TYPE);
    match &existing {
        None if is_read_only => return Err(ToolError::Unformatted(name)),
        None => make(&name, fs_type).await?,
        Some(_) if is_read_only => {}
        Some(_) => check(&name).await?,
    }
    let options = options.iter().cloned().chain(["defaults".to_owned()]).collect::<Vec<_>>().join(",");
    let target = target.display().to_string();
    let arguments = ["-t", fs_type, "-o", &options, &name, &target];
    let said = run("mount", &arguments).await?;
    if said.code == Some(0) {
        return Ok(());
    }
    let (status, output) = (status(said.code), said.output);
    let failed = ToolError::Mount { status, arguments: arguments.join(" "), output };
    let fs_type = fs_type.to_owned();
    match existing.filter(|existing| *existing != fs_type) {
        Some(existing) => Err(ToolError::Other { fs_type, existing, source: Box::new(failed) }),
        None => Err(failed),
    }
}

/// What is on a device: a file system's type, or that there are partitions; none if it is empty.
async fn found_on(device: &Path) -> Result<Option<String>, ToolError> {
    let device = device.display().to_string();
    let said = run("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", &device]).await?;
    match said.code {
        Some(0) => Ok(Some(type_in(&said.output))),
        Some(BLKID_NOTHING) => Ok(None),
        code => Err(ToolError::Look { device, status: status(code), output: said.output }),
    }
}

fn type_in(output: &str) -> String {
    let value = |key: &str| output.lines().find_map(|line| line.strip_prefix(key));
    let file_system = value("TYPE=").filter(|_| value("PTTYPE=").is_none());
    file_system.unwrap_or("unknown data, probably partitions").to_owned()
}

async fn make(device: &str, fs_type: &str) -> Result<(), ToolError> {
    let tool = format!("mkfs.{fs_type}");
    let arguments: &[&str] = match fs_type {
        "ext3" | "ext4" => &["-F", "-m0", device],
        "xfs" => &["-f", device],
        _ => &[device],
    };
    let said = run(&tool, arguments).await?;
    if said.code == Some(0) {
        return Ok(());
    }
    let (device, fs_type) = (device.to_owned(), fs_type.to_owned());
    Err(ToolError::Format { device, fs_type, status: status(said.code), output: said.output })
}

async fn check(device: &str) -> Result<(), ToolError> {
    let said = run("fsck", &["-a", device]).await?;
    match said.code {
        Some(FSCK_UNCORRECTED) => {
            Err(ToolError::Uncorrected { device: device.to_owned(), output: said.output })
        }
        _ => Ok(()),
    }
}

/// Calls a tool of the host's, and waits for it.
///
/// # Errors
/// It is not there; says who has it.
pub(super) async fn run<A: AsRef<OsStr>>(tool: &str, arguments: &[A]) -> Result<Said, ToolError> {
    let output = Command::new(tool).args(arguments).kill_on_drop(true).output().await;
    let output = output.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            let package = PACKAGES.iter().find(|(name, _)| *name == tool);
            let package = package.map(|(_, package)| format!(": install the package that has it: {package}"));
            ToolError::Missing { tool: tool.to_owned(), package: package.unwrap_or_default() }
        }
        _ => ToolError::NotRun { tool: tool.to_owned(), source },
    })?;
    let text = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&text).trim().to_owned();
    Ok(Said { code: output.status.code(), output: output_text })
}

pub(super) fn status(code: Option<i32>) -> String {
    code.map_or("signal: killed".to_owned(), |code| format!("exit status {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_no_file_system() {
        let partitions = "unknown data, probably partitions";
        for (output, expect) in [
            ("DEVNAME=/dev/sdb\nTYPE=ext4\n", "ext4"),
            ("DEVNAME=/dev/sdb\nPTTYPE=dos\n", partitions),
            ("TYPE=vfat\nPTTYPE=gpt", partitions),
            ("", partitions),
        ] {
            assert_eq!(type_in(output), expect, "{output}");
        }
    }
}
