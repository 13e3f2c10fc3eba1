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
