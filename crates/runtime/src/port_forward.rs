//! Connections to a port inside a Pod's network namespace.
//!
//! A socket belongs to the namespace of the thread that makes it: it is made inside, and used like any other.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cri::{CriError, CriResult, Streams, v1};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use tokio::net::{TcpSocket, TcpStream};

use crate::state::{Inner, Sandbox, blocking, internal};

impl Inner {
    /// Connects to the port on the sandbox's loopback address, over IPv4 or else IPv6.
    pub(crate) async fn port_forward(
        self: &Arc<Self>,
        request: v1::PortForwardRequest,
    ) -> CriResult<Streams> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let [port] = request.port.as_slice() else {
            return Err(CriError::InvalidArgument("exactly one port must be set".into()));
        };
        let port = u16::try_from(*port).ok().filter(|port| *port > 0);
        let port =
            port.ok_or_else(|| CriError::InvalidArgument("port must be between 1 and 65535".into()))?;
        if sandbox.record.is_stopped {
            let id = &sandbox.id;
            return Err(CriError::FailedPrecondition(format!("sandbox container {id:?} is not running")));
        }
        let stream = match connect(&sandbox, (Ipv4Addr::LOCALHOST, port).into()).await {
            Ok(stream) => stream,
            Err(first) => connect(&sandbox, (Ipv6Addr::LOCALHOST, port).into())
                .await
                .map_err(|second| refused(&sandbox, port, &first, &second))?,
        };
        stream.set_nodelay(true).map_err(internal)?;
        let (reader, writer) = stream.into_split();
        Ok(Streams {
            stdin: Some(Box::new(writer)),
            stdout: Some(Box::new(reader)),
            stderr: None,
            resize: None,
            exit: Box::pin(std::future::pending()),
        })
    }
}

/// As containerd words it, for people who search for it.
fn refused(sandbox: &Sandbox, port: u16, first: &io::Error, second: &io::Error) -> CriError {
    CriError::Internal(format!(
        "failed to connect to localhost:{port} inside namespace {:?}, IPv4: dial tcp4 127.0.0.1:{port}: connect: {} \
         IPv6: dial tcp6 [::1]:{port}: connect: {}",
        sandbox.id,
        reason(first),
        reason(second)
    ))
}

/// The system's word for an error, as Go prints it: without number and capital.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    }
}

async fn connect(sandbox: &Sandbox, address: SocketAddr) -> io::Result<TcpStream> {
    let netns = sandbox.record.netns.clone();
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let made = blocking(move || match netns {
        None => make(family).map_err(internal),
        Some(netns) => {
            let namespace = sys::netns::NetNs::open(&netns).map_err(internal)?;
            namespace.run(|| Ok(make(family))).map_err(internal)?.map_err(internal)
        }
    });
    let socket = made.await.map_err(io::Error::other)?;
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

fn make(family: AddressFamily) -> nix::Result<OwnedFd> {
    socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)
}
