//! Volumes without a driver: of the node itself, and NFS where the host has the tool for it.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{HostPathVolumeSource, NFSVolumeSource, Pod};
use sys::mount::BindOptions;

use super::Prepared;
use super::ownership;
use super::resolve::Resolved;
use crate::volumes::{describe, host_path};

/// Where `mount` looks for the tools of file systems.
const TOOLS: [&str; 3] = ["/sbin", "/usr/sbin", "/usr/local/sbin"];

fn folder(pod_dir: &Path, plugin: &str, name: &str) -> Result<PathBuf, String> {
    let path = pod_dir.join("volumes").join(plugin).join(name);
    std::fs::create_dir_all(&path).map_err(|e| describe("mkdir", &path, &e))?;
    path.canonicalize().map_err(|e| describe("find", &path, &e))
}

/// A folder or device of the node, bound to the Pod's own place.
pub(super) async fn local(
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &str,
) -> Result<Prepared, String> {
    let source = PathBuf::from(source);
    if !source.exists() {
        return Err(format!("path {:?} does not exist", source.display().to_string()));
    }
    let is_block = std::fs::metadata(&source).is_ok_and(|meta| meta.file_type().is_block_device());
    match (resolved.is_device(), is_block) {
        (true, true) => return Ok(Prepared::plain(source, resolved)),
        (true, false) => {
            return Err(format!(
                "path {:?} is not a block device, which volumeMode Block needs",
                source.display()
            ));
        }
        (false, true) => {
            return Err(format!(
                "path {:?} is a block device: have the host mount its file system and name that folder, or use \
                 volumeMode Block",
                source.display()
            ));
        }
        (false, false) => {}
    }
    let path = folder(pod_dir, "kubernetes.io~local-volume", &resolved.name)?;
    if !sys::mount::is_mounted(&path).map_err(|e| e.to_string())? {
        let options = BindOptions { read_only: resolved.read_only, ..BindOptions::default() };
        sys::mount::bind(&source, &path, options).map_err(|e| e.to_string())?;
    }
    if !resolved.read_only {
        ownership::apply_for(pod, &path).await?;
    }
    Ok(Prepared::plain(path, resolved))
}

/// A path of the node as it is.
pub(super) fn host_path(resolved: &Resolved, source: &HostPathVolumeSource) -> Result<Prepared, String> {
    host_path::check(source)?;
    let path = PathBuf::from(&source.path);
    Ok(Prepared::plain(path, resolved))
}

/// A server's folder, mounted by the host's own tool.
pub(super) async fn nfs(
    pod_dir: &Path,
    resolved: &Resolved,
    source: &NFSVolumeSource,
) -> Result<Prepared, String> {
    let path = folder(pod_dir, "kubernetes.io~nfs", &resolved.name)?;
    if sys::mount::is_mounted(&path).map_err(|e| e.to_string())? {
        return Ok(Prepared::plain(path, resolved));
    }
    let mut options = resolved.mount_options();
    if resolved.read_only {
        options.push("ro".to_owned());
    }
    let mut arguments = vec!["-t".to_owned(), "nfs".to_owned()];
    if !options.is_empty() {
        arguments.extend(["-o".to_owned(), options.join(",")]);
    }
    arguments.extend([format!("{}:{}", source.server, source.path), path.display().to_string()]);
    let failed = |status: &str, output: &str| {
        let arguments = arguments.join(" ");
        format!(
            "mount failed: {status}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"
        )
    };
    if !has_tool("mount.nfs") {
        // What mount says then, and what it leaves out.
        let output = format!(
            "mount: {}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> \
             helper program: this host has no /sbin/mount.nfs. Install the package that has it: nfs-common (Debian), \
             nfs-utils (others).",
            path.display()
        );
        return Err(failed("exit status 32", &output));
    }
    let mut command = tokio::process::Command::new("mount");
    command.args(&arguments).kill_on_drop(true);
    let output = command.output().await.map_err(|e| failed(&e.to_string(), ""))?;
    if output.status.success() {
        return Ok(Prepared::plain(path, resolved));
    }
    let status = match output.status.code() {
        Some(code) => format!("exit status {code}"),
        None => output.status.to_string(),
    };
    Err(failed(&status, String::from_utf8_lossy(&output.stderr).trim()))
}

fn has_tool(name: &str) -> bool {
    TOOLS.iter().any(|folder| Path::new(folder).join(name).exists())
}

/// Why there is no iSCSI here.
pub(super) fn no_iscsi() -> String {
    match has_tool("iscsiadm") {
        true => "this kubelet mounts iSCSI volumes through CSI drivers only".to_owned(),
        false => "executable file not found in $PATH: iscsiadm (it is in the package open-iscsi); iSCSI volumes are \
                  mounted through CSI drivers only"
            .to_owned(),
    }
}
