//! Listening on all addresses of a host, whichever family they are of, and taking the connections that come.
//!
//! An unspecified address stands for all of them: `0.0.0.0` is what upstream's flags have as their default, and what it
//! means there. Source: Go's `net.Listen`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use tokio::net::TcpListener;

/// Connections that wait to be taken.
const BACKLOG: i32 = 1024;
/// How long a listener rests when it could not take a connection, the first time.
const ACCEPT_RETRY_FIRST: Duration = Duration::from_millis(5);
/// The longest that it rests. Source: Go's `net/http.Server.Serve`, as the one above.
const ACCEPT_RETRY_MAX: Duration = Duration::from_secs(1);

/// Listens on an address; on all addresses of both families if it is unspecified, as far as this host has them.
///
/// # Errors
/// If somebody else has the port, or the address is not this host's.
pub fn everywhere(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = blocking(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// The same for whoever waits for connections in a thread, or has no runtime yet.
///
/// # Errors
/// As [`everywhere`].
pub fn blocking(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    if !address.ip().is_unspecified() {
        return open(address);
    }
    let of = |ip| SocketAddr::new(ip, address.port());
    open(of(Ipv6Addr::UNSPECIFIED.into())).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        // A host without IPv6.
        _ => open(of(Ipv4Addr::UNSPECIFIED.into())),
    })
}

fn open(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        // Whatever `net.ipv6.bindv6only` says.
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(fd.into())
}

/// An address as its family writes it: who comes over IPv4 to a socket of both families is told as `::ffff:192.0.2.1`.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The next connection, as `accept` takes it; `what` names the server in the log.
///
/// Where none can be taken, mostly for want of descriptors, others must close theirs first: it is tried again after a rest,
/// which doubles each time.
pub async fn accepted<C, F>(what: &'static str, accept: impl Fn() -> F) -> C
where
    F: Future<Output = io::Result<C>>,
{
    let mut rest = ACCEPT_RETRY_FIRST;
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(error) => tracing::warn!(%error, ?rest, what, "cannot accept a connection"),
        }
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(ACCEPT_RETRY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::net::TcpStream;
    use tokio::time::Instant;

    use super::*;

    async fn peer(listener: &TcpListener, to: &str) -> String {
        let port = listener.local_addr().unwrap().port();
        let (stream, accepted) = tokio::join!(TcpStream::connect(format!("{to}:{port}")), listener.accept());
        drop(stream.unwrap());
        plain(accepted.unwrap().1).ip().to_string()
    }

    #[tokio::test]
    async fn an_unspecified_address_is_all_of_both_families() {
        for all in ["0.0.0.0:0", "[::]:0"] {
            let listener = everywhere(all.parse().unwrap()).unwrap();
            assert_eq!(peer(&listener, "127.0.0.1").await, "127.0.0.1");
            assert_eq!(peer(&listener, "[::1]").await, "::1");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_cannot_accept_rests_longer_each_time() {
        let (tries, start) = (Cell::new(0), Instant::now());
        let rested = accepted("test", async || {
            tries.set(tries.get() + 1);
            match tries.get() {
                1..=10 => Err(io::Error::other("too many open files")),
                _ => Ok(start.elapsed()),
            }
        });
        let doubled: u32 = (0..8).map(|times| 5 << times).sum();
        assert_eq!(rested.await, Duration::from_millis(doubled.into()) + 2 * ACCEPT_RETRY_MAX);
    }

    #[tokio::test]
    async fn any_other_address_is_itself() {
        let listener = everywhere("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(peer(&listener, "127.0.0.1").await, "127.0.0.1");
        assert!(TcpStream::connect(format!("[::1]:{port}")).await.is_err());
        let taken = everywhere(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).map(drop);
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
