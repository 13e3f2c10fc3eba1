//! File systems on devices of the node, made and mounted by the host's own tools.
//!
//! Nothing is formatted that has anything on it: what `blkid` finds is taken as it is.
//! Source: `SafeFormatAndMount`, `k8s.io/mount-utils`.

use std::ffi::OsStr;
use std::path::Path;

use tokio::process::Command;

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
/// In upstream's words: a tool is missing or failed, or the device has something else on it.
pub(super) async fn mount(
    device: &Path,
    target: &Path,
    fs_type: Option<&str>,
    options: &[String],
) -> Result<(), String> {
    let is_read_only = options.iter().any(|option| option == "ro");
    let existing = found_on(device).await?;
    let name = device.display().to_string();
    let fs_type = fs_type.filter(|fs_type| !fs_type.is_empty()).or(existing.as_deref()).unwrap_or(FS_TYPE);
    match &existing {
        None if is_read_only => {
            return Err(format!(
                "cannot mount unformatted disk {name} as we are manipulating it in read-only mode"
            ));
        }
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
    let arguments = arguments.join(" ");
    let failed = format!(
        "mount failed: {}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {}",
        status(said.code),
        said.output
    );
    match existing.as_deref().filter(|&existing| existing != fs_type) {
        Some(existing) => Err(format!(
            "failed to mount the volume as {fs_type:?}, it already contains {existing}. Mount error: {failed}"
        )),
        None => Err(failed),
    }
}

/// What is on a device: a file system's type, or that there are partitions; none if it is empty.
async fn found_on(device: &Path) -> Result<Option<String>, String> {
    let device = device.display().to_string();
    let said = run("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", &device]).await?;
    match said.code {
        Some(0) => Ok(Some(type_in(&said.output))),
        Some(BLKID_NOTHING) => Ok(None),
        code => Err(format!("blkid of {device} failed: {}: {}", status(code), said.output)),
    }
}

fn type_in(output: &str) -> String {
    let value = |key: &str| output.lines().find_map(|line| line.strip_prefix(key));
    let file_system = value("TYPE=").filter(|_| value("PTTYPE=").is_none());
    file_system.unwrap_or("unknown data, probably partitions").to_owned()
}

async fn make(device: &str, fs_type: &str) -> Result<(), String> {
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
    let said = format!("({}): {}", status(said.code), said.output);
    Err(format!("format of disk {device:?} failed: type:({fs_type:?}) errcode:{said}"))
}

async fn check(device: &str) -> Result<(), String> {
    let said = run("fsck", &["-a", device]).await?;
    match said.code {
        Some(FSCK_UNCORRECTED) => {
            Err(format!("'fsck' found errors on device {device} but could not correct them: {}", said.output))
        }
        _ => Ok(()),
    }
}

/// Calls a tool of the host's, and waits for it.
///
/// # Errors
/// It is not there, in upstream's words and with who has it.
pub(super) async fn run<A: AsRef<OsStr>>(tool: &str, arguments: &[A]) -> Result<Said, String> {
    let output = Command::new(tool).args(arguments).kill_on_drop(true).output().await;
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let package = PACKAGES.iter().find(|(name, _)| *name == tool);
            let package = package.map(|(_, package)| format!(": install the package that has it: {package}"));
            format!("exec: {tool:?}: executable file not found in $PATH{}", package.unwrap_or_default())
        }
        _ => format!("exec: {tool:?}: {error}"),
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
