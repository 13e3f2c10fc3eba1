//! Sockets with an owner, and with paths of any length.
//!
//! A socket's path may have 107 bytes only, data directories may be long: a longer one is reached through its folder's
//! descriptor.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The longest path of a socket, less its terminating zero. Source: unix(7).
const PATH_BYTES_MAX: usize = 107;

/// Listens at `path` with mode 0600; what a dead server has left there is replaced. The folder is made if it is not
/// there, for its owner alone: there is no moment at which somebody else could connect.
///
/// # Errors
/// The folder or the socket cannot be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent()
        && !folder.exists()
    {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = with_short(path, |short| UnixListener::bind(short))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short(path, |short| {
        let stream = std::os::unix::net::UnixStream::connect(short)?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    })
}

/// Runs `work` with a path to the same place that is short enough for a socket.
fn with_short<T>(path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return work(path) };
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return work(path);
    }
    let folder = std::fs::File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    work(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_for_its_owner_alone_and_replaces_a_dead_servers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/cri.sock");
        drop(bind(&path).unwrap());
        let _listener = bind(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[tokio::test]
    async fn a_path_may_be_longer_than_a_socket_allows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(120)).join("plugin.sock");
        let _listener = bind(&path).unwrap();
        assert!(connect(&path).is_ok());
    }
}
