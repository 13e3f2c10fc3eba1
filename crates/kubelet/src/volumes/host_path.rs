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

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `TestHostPathTypeCheckerInternal` of upstream's `pkg/volume/hostpath`.
    #[test]
    fn what_is_there_is_what_is_said_or_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("folder")).unwrap();
        fs::write(path("file"), "kept").unwrap();
        std::os::unix::fs::symlink("folder", path("link")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        const DIR: &str = "a directory";
        const FILE: &str = "a file";
        for (types, name, expect) in [
            ("Directory DirectoryOrCreate", "folder", None),
            ("File FileOrCreate", "folder", Some(FILE)),
            ("Directory DirectoryOrCreate", "link", None),
            ("File FileOrCreate", "file", None),
            ("Directory DirectoryOrCreate", "file", Some(DIR)),
            ("Socket", "socket", None),
            ("File FileOrCreate", "socket", Some(FILE)),
            ("CharDevice", "/dev/null", None),
            ("BlockDevice", "/dev/null", Some("a block device")),
            ("File", "/dev/null", Some(FILE)),
            ("Socket", "folder", Some("a socket file")),
            ("CharDevice", "file", Some("a character device")),
            ("Directory", "none", Some(DIR)),
            ("File", "none", Some(FILE)),
            ("Socket", "none", Some("a socket file")),
            ("CharDevice", "none", Some("a character device")),
            ("BlockDevice", "none", Some("a block device")),
        ] {
            for type_ in types.split(' ') {
                let path = path(name).display().to_string();
                let source = HostPathVolumeSource { path: path.clone(), type_: Some(type_.into()) };
                let found = check(&source).map_err(|error| error.to_string());
                let expect = expect.map(|what| format!("hostPath type check failed: {path} is not {what}"));
                assert_eq!(found.err(), expect, "{type_} {name}");
            }
        }
        let check = |type_: Option<&str>, name: &str| {
            check(&HostPathVolumeSource {
                path: path(name).display().to_string(),
                type_: type_.map(str::to_owned),
            })
        };
        check(Some("DirectoryOrCreate"), "new/folder").unwrap();
        check(Some("FileOrCreate"), "new/file").unwrap();
        check(None, "plain").unwrap();
        check(Some(""), "file").unwrap();
        assert!(path("new/folder").is_dir() && path("new/file").is_file() && path("plain").is_dir());
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "kept");
        assert!(check(Some("FileOrCreate"), "gone/file").is_err(), "its folder is not made");
        let unknown = check(Some("Pipe"), "file").unwrap_err().to_string();
        assert_eq!(unknown, "Pipe is an invalid volume type");
    }
}
