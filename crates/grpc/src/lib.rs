//! gRPC over unix sockets, as the plugins of a node speak it: container runtimes, CSI drivers, device plugins.
//!
//! Who serves names calls by their paths and gets messages, one function per call; nothing is generated. A socket is for
//! its owner alone: whoever reaches a runtime or a driver is root on its host. This crate knows no protocol.

mod client;
mod server;
mod socket;

pub use client::{call, channel, ready};
pub use server::{Answer, Asked, Router, serve, unary, unknown};
pub use socket::bind;

/// The largest message either way, in bytes. Source: the kubelet's `maxMsgSize`.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
