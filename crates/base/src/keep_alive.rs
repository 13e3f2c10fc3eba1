//! How a connection notices that the other host is gone without a word. Source: tcp(7).

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

/// The times after which the kernel gives a connection up.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// The silence after which the other host is probed, in seconds.
    pub idle_seconds: u32,
    /// The time between two probes, in seconds.
    pub every_seconds: u32,
    /// The number of probes in a row that may be lost.
    pub probes_max: u32,
    /// The time for which what was sent may go unconfirmed, in milliseconds; `None` leaves it to the kernel.
    pub unconfirmed_max_ms: Option<u32>,
}

impl KeepAlive {
    /// Tells the kernel, for one connection.
    ///
    /// # Errors
    /// That `connection` is not TCP.
    pub fn set(&self, connection: &impl AsFd) -> io::Result<()> {
        setsockopt(connection, sockopt::KeepAlive, &true)?;
        setsockopt(connection, sockopt::TcpKeepIdle, &self.idle_seconds)?;
        setsockopt(connection, sockopt::TcpKeepInterval, &self.every_seconds)?;
        setsockopt(connection, sockopt::TcpKeepCount, &self.probes_max)?;
        if let Some(limit) = &self.unconfirmed_max_ms {
            setsockopt(connection, sockopt::TcpUserTimeout, limit)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn the_kernel_knows_when_to_give_a_connection_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let told = || {
            assert!(getsockopt(&connection, sockopt::KeepAlive).unwrap());
            let idle = getsockopt(&connection, sockopt::TcpKeepIdle).unwrap();
            let every = getsockopt(&connection, sockopt::TcpKeepInterval).unwrap();
            let probes = getsockopt(&connection, sockopt::TcpKeepCount).unwrap();
            [idle, every, probes, getsockopt(&connection, sockopt::TcpUserTimeout).unwrap()]
        };
        let times = KeepAlive { idle_seconds: 7, every_seconds: 3, probes_max: 4, unconfirmed_max_ms: None };
        times.set(&connection).unwrap();
        assert_eq!(told(), [7, 3, 4, 0]);
        KeepAlive { unconfirmed_max_ms: Some(12_000), ..times }.set(&connection).unwrap();
        assert_eq!(told(), [7, 3, 4, 12_000]);
        assert!(KeepAlive { idle_seconds: 0, ..times }.set(&connection).is_err(), "at once is never");
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(times.set(&near).is_err(), "a socket of this host has no probes");
    }
}
