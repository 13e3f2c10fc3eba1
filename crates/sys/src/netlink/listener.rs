//! What the kernel tells of changes, waited for without a thread.

use std::io;

use nix::libc;
use tokio::io::unix::AsyncFd;

use super::Socket;
use crate::{Doing, Result};

/// How much may wait to be read, in bytes: what is told while nobody reads is lost beyond that.
const QUEUE_BYTES: i32 = 1 << 20;

/// A socket that listens to groups of the kernel.
#[derive(Debug)]
pub(crate) struct Listener(AsyncFd<Socket>);

/// What has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News<T> {
    /// What the datagrams say that were there.
    Told(T),
    /// More than fitted into the queue: anything may have changed.
    Lost,
}

impl Listener {
    /// Listens from now on, in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn new(socket: Socket) -> Result<Self> {
        let doing = || "listen on a netlink socket".to_owned();
        socket.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, QUEUE_BYTES).doing(doing)?;
        #[expect(deprecated, reason = "its replacement is unsafe; a Socket keeps its number for itself")]
        Ok(Self(AsyncFd::new(socket).doing(doing)?))
    }

    /// Waits until there is something, and has all of it read. Nothing is lost if this is not waited for to the end.
    ///
    /// # Errors
    /// The socket does not work any more.
    pub(crate) async fn read<T: Default>(&mut self, mut read: impl FnMut(&[u8], &mut T)) -> Result<News<T>> {
        let doing = || "read what the kernel tells".to_owned();
        let mut told = T::default();
        let mut ready = self.0.readable_mut().await.doing(doing)?;
        loop {
            match ready.get_inner_mut().receive_now() {
                Ok(datagram) => read(datagram, &mut told),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    return Ok(News::Told(told));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(News::Lost),
                Err(error) => return Err(error).doing(doing),
            }
        }
    }
}
