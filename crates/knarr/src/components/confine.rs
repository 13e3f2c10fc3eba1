//! What the control plane gives up once it is no longer root: files that are not its own, and calls to the kernel that
//! no server makes.
//!
//! It answers clients that nobody knows yet, so whoever takes it over shall find nothing: the rest of the data
//! directory, home and other services' folders, programs to run, namespaces to make. What it must read of the host is
//! below; what flags name was read before, or lies in its folder as a copy.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sys::denied_calls;
use sys::landlock::{self, Access, Allowed, TcpPorts};

use super::Settings;

/// What it reads of the host: how names are resolved (which may be a link to a service's folder), whom TLS trusts, what
/// the time zones of CronJobs are, the C library's parts, and what it uses itself.
const READ: [&str; 15] = [
    "/etc",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/usr/share/zoneinfo",
    "/usr/share/ca-certificates",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/proc/self",
    "/proc/stat",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/dev/urandom",
];

/// What the control plane keeps; its working directory is its folder.
fn allowed(settings: &Settings) -> Allowed {
    let args = &settings.args;
    let mut paths = vec![(PathBuf::from("."), Access::Write), (PathBuf::from("/dev/null"), Access::Write)];
    paths.extend(READ.map(|path| (PathBuf::from(path), Access::Read)));
    // Full log files are renamed, and old ones removed.
    let log = args.api_server.audit_log_path.as_deref().filter(|path| *path != Path::new("-"));
    paths.extend(log.and_then(Path::parent).map(|folder| (folder.to_owned(), Access::Write)));
    Allowed { paths, tcp_ports: TcpPorts::Only(vec![args.https_listen_port]) }
}

/// Gives up the rest, for good. For a process with one thread that has given up root.
///
/// # Errors
/// If the kernel could and does not.
pub(super) fn confine(settings: &Settings) -> Result<()> {
    match landlock::restrict(&allowed(settings)).context("confine the control plane to its files")? {
        Some(version) => tracing::debug!(version, "the control plane has its own files only"),
        None => tracing::info!("this kernel has no Landlock: the control plane may read what everybody may"),
    }
    if !denied_calls::refuse().context("confine the control plane to a server's system calls")? {
        tracing::info!("system calls are not filtered on this machine");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    use nix::sched::CloneFlags;

    use super::*;

    /// In a thread, which is what these limits are of.
    #[test]
    fn what_is_not_the_control_planes_is_refused_and_what_it_needs_is_not() {
        if landlock::version().is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["server/db", "agent/tls", "log"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("agent/tls/kubelet.key"), "secret").unwrap();
        fs::write(at("log/audit.log"), "").unwrap();
        std::os::unix::fs::symlink(at("agent"), at("server/link")).unwrap();
        let plugin = UnixListener::bind(at("kms.sock")).unwrap();
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let mut allowed = Allowed { paths: Vec::new(), tcp_ports: TcpPorts::Only(vec![free.port()]) };
        allowed.paths.push((at("server"), Access::Write));
        allowed.paths.push((at("log"), Access::Write));
        allowed.paths.extend(READ.map(|path| (PathBuf::from(path), Access::Read)));
        let confined = || {
            let version = landlock::restrict(&allowed).unwrap().unwrap();
            assert!(denied_calls::refuse().unwrap());
            let kind = |tried: std::io::Result<()>| tried.map_err(|error| error.kind());
            let denied = Err(std::io::ErrorKind::PermissionDenied);
            // What it needs.
            assert_eq!(kind(fs::write(at("server/db/data"), "x")), Ok(()));
            assert_eq!(kind(fs::rename(at("server/db/data"), at("server/data"))), Ok(()));
            assert_eq!(kind(fs::rename(at("log/audit.log"), at("log/audit-1.log"))), Ok(()));
            assert_eq!(kind(fs::write(at("log/audit.log"), "x")), Ok(()));
            assert_eq!(kind(fs::remove_file(at("log/audit-1.log"))), Ok(()));
            assert_eq!(kind(fs::read("/proc/self/stat").map(drop)), Ok(()));
            assert_eq!(kind(fs::read_dir("/etc").map(drop)), Ok(()));
            assert_eq!(kind(UnixStream::connect(at("kms.sock")).map(drop)), Ok(()));
            assert_eq!(kind(TcpListener::bind(free).map(drop)), Ok(()));
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            assert!(std::net::ToSocketAddrs::to_socket_addrs("localhost:80").is_ok());
            // What it does not.
            for path in ["agent/tls/kubelet.key", "server/link/tls/kubelet.key"] {
                assert_eq!(kind(fs::read(at(path)).map(drop)), denied, "{path}");
                assert_eq!(kind(fs::write(at(path), "x")), denied, "{path}");
            }
            assert_eq!(kind(fs::read_dir(dir.path()).map(drop)), denied);
            assert_eq!(kind(fs::write("/etc/knarr-was-here", "x")), denied);
            assert_eq!(kind(fs::read_dir("/root").map(drop)), denied);
            assert_eq!(kind(fs::read("/proc/1/environ").map(drop)), denied);
            assert_eq!(kind(Command::new("/bin/true").status().map(drop)), denied);
            for namespace in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNS] {
                assert_eq!(nix::sched::unshare(namespace), Err(nix::errno::Errno::EPERM));
            }
            if version >= 4 {
                assert_eq!(kind(TcpListener::bind(("127.0.0.1", 0)).map(drop)), denied);
            }
        };
        std::thread::scope(|scope| scope.spawn(confined).join()).unwrap();
        drop(plugin);
        // The rest of this process has lost nothing.
        assert_eq!(fs::read(at("agent/tls/kubelet.key")).unwrap(), b"secret");
    }
}
