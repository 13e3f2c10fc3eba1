//! `hostPath`: checks that what is there is what the spec says, and makes what it allows to make.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{HostPathVolumeSource, Volume};

use super::error::{Specific, VolumeError, at};
use super::folder::make_dir;

/// Something else is there than the spec says. Source: `pkg/volume/hostpath` of upstream for types and messages.
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    #[error("hostPath type check failed: {path} is not {what}")]
    Other { path: String, what: &'static str },
    #[error("{0} is an invalid volume type")]
    UnknownType(String),
}

impl Specific for Mismatch {}

/// Where the host has it.
pub(super) fn path(_: &Path, volume: &Volume) -> Option<PathBuf> {
    volume.host_path.as_ref().map(|source| PathBuf::from(&source.path))
}

/// As [`check`], of a Pod's own volume.
pub(super) fn prepare(volume: &Volume) -> Result<(), VolumeError> {
    volume.host_path.as_ref().map_or(Ok(()), check)
}

/// Makes what may be made, and looks whether it is what it is to be.
pub(super) fn check(source: &HostPathVolumeSource) -> Result<(), VolumeError> {
    let path = Path::new(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let file_type = fs::metadata(path).ok().map(|m| m.file_type());
    match kind {
        "" => {
            // The runtime needs something to mount; container runtimes make a directory.
            return if file_type.is_none() { make_dir(path, 0o755) } else { Ok(()) };
        }
        "DirectoryOrCreate" if file_type.is_none() => return make_dir(path, 0o755),
        "FileOrCreate" if file_type.is_none() => {
            return fs::File::create(path).map(drop).map_err(at("create", path));
        }
        _ => {}
    }
    let matches = file_type.is_some_and(|t| match kind {
        "Directory" | "DirectoryOrCreate" => t.is_dir(),
        "File" | "FileOrCreate" => t.is_file(),
        "Socket" => t.is_socket(),
        "CharDevice" => t.is_char_device(),
        "BlockDevice" => t.is_block_device(),
        _ => false,
    });
    let what = match kind {
        "Directory" | "DirectoryOrCreate" => "a directory",
        "File" | "FileOrCreate" => "a file",
        "Socket" => "a socket file",
        "CharDevice" => "a character device",
        "BlockDevice" => "a block device",
        other => return Err(Mismatch::UnknownType(other.to_owned()).into()),
    };
    if matches {
        return Ok(());
    }
    Err(Mismatch::Other { path: source.path.clone(), what }.into())
}
