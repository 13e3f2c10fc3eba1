//! Tells systemd what becomes of the cluster, for units of `Type=notify`. Source: sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the service manager's socket; a leading `@` stands for the abstract namespace.
pub(super) const VARIABLE: &str = "NOTIFY_SOCKET";

/// Sends `state`, such as `READY=1`; nothing if nobody asked for it.
pub(super) fn tell(state: &str) {
    let Some(socket) = std::env::var_os(VARIABLE) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, socket = ?socket, "cannot notify the service manager");
    }
}

fn send(socket: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: SocketAddr, variable: &str) {
        let listener = UnixDatagram::bind_addr(&address).expect("a socket");
        send(OsStr::new(variable), "READY=1").expect("sent");
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..length], b"READY=1");
    }

    #[test]
    fn readiness_reaches_the_service_manager() {
        let name = format!("knarr-notify-{}", std::process::id());
        check(SocketAddr::from_abstract_name(&name).expect("a name"), &format!("@{name}"));
        let path = std::env::temp_dir().join(&name);
        check(SocketAddr::from_pathname(&path).expect("a path"), &path.display().to_string());
        std::fs::remove_file(path).expect("removed");
    }
}
