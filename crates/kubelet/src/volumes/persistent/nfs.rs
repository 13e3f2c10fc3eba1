//! A server's folder, mounted where the host has the tool for it.

use std::path::Path;

use k8s_openapi::api::core::v1::NFSVolumeSource;

use super::bound;
use super::format::ToolError;
use super::prepared::Prepared;
use super::resolve::Resolved;
use crate::volumes::error::VolumeError;

/// Where `mount` looks for the tools of file systems.
const TOOLS: [&str; 3] = ["/sbin", "/usr/sbin", "/usr/local/sbin"];

/// A server's folder, mounted by the host's own tool.
pub(super) async fn bring(
    pod_dir: &Path,
    resolved: &Resolved,
    source: &NFSVolumeSource,
) -> Result<Prepared, VolumeError> {
    let path = bound::folder(pod_dir, "kubernetes.io~nfs", &resolved.name)?;
    if sys::mount::is_mounted(&path)? {
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
    let failed =
        |status: String, output: String| ToolError::Mount { status, arguments: arguments.join(" "), output };
    if !has_tool("mount.nfs") {
        // What mount says then, and what it leaves out.
        let output = format!(
            "mount: {}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> \
             helper program: this host has no /sbin/mount.nfs. Install the package that has it: nfs-common (Debian), \
             nfs-utils (others).",
            path.display()
        );
        return Err(failed("exit status 32".to_owned(), output).into());
    }
    let mut command = tokio::process::Command::new("mount");
    command.args(&arguments).kill_on_drop(true);
    let output = command.output().await.map_err(|error| failed(error.to_string(), String::new()))?;
    if output.status.success() {
        return Ok(Prepared::plain(path, resolved));
    }
    let status = match output.status.code() {
        Some(code) => format!("exit status {code}"),
        None => output.status.to_string(),
    };
    Err(failed(status, String::from_utf8_lossy(&output.stderr).trim().to_owned()).into())
}

fn has_tool(name: &str) -> bool {
    TOOLS.iter().any(|folder| Path::new(folder).join(name).exists())
}
