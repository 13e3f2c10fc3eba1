//! The end of sockets to the packet filters: when one is closed, the kernel waits until no processor uses what transactions
//! have replaced, which takes 10 to 20 ms (a grace period of RCU). Nobody who changes rules has to wait for that: what they
//! have changed is in force before. A thread does, which is started for the first and stays.
//!
//! No more than [`WAITING_MAX`] sockets wait for it; then whoever has one more closes it, and so changes no faster than the
//! kernel cleans up.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

const WAITING_MAX: usize = 16;

static CLOSING: OnceLock<Option<SyncSender<OwnedFd>>> = OnceLock::new();

/// Closes it soon, or, if too many wait already or there is no thread, now.
pub(super) fn close(socket: OwnedFd) {
    if let Some(waiting) = CLOSING.get_or_init(start) {
        // What is refused comes back, and is closed here.
        drop(waiting.try_send(socket));
    }
}

fn start() -> Option<SyncSender<OwnedFd>> {
    let (waiting, sockets) = sync_channel::<OwnedFd>(WAITING_MAX);
    let started =
        thread::Builder::new().name("netlink closing".into()).spawn(move || sockets.iter().for_each(drop));
    match started {
        Ok(_) => Some(waiting),
        Err(error) => {
            tracing::warn!(%error, "cannot start a thread: each change of rules takes longer");
            None
        }
    }
}
