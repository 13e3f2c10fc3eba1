//! Netlink: messages, attributes and a socket that sends requests and collects answers.
//!
//! A socket belongs to the network namespace of the thread that opened it, for good. Requests are answered in order;
//! one socket is used by one thread at a time.

mod closing;
mod conntrack;
mod generic;
pub mod ipset;
pub mod ipvs;
mod listener;
mod overlay;
mod route;
mod traffic;
mod watch;
pub mod wireguard;

pub(crate) use listener::{Listener, News};

pub use conntrack::{Flow, flush_flows};
pub use overlay::{Neighbour, Vxlan};
pub use route::{Address, Link, NewRoute, Route, RouteEntry, RouteKind, VethPeer};
pub use traffic::{TICK_NANOS, TokenBucket};
pub use watch::RouteWatch;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use nix::libc;

use crate::{Doing, Error, Result};

const HEADER_BYTES: usize = 16;
/// Large enough for every datagram the kernel sends (at most 32 KiB for dumps).
const RECEIVE_BYTES: usize = 64 * 1024;
/// The port numbers of sockets that change nftables: above those that the kernel makes of process ids, and below the
/// negative ones that it gives otherwise. The last 16 bits are each socket's own.
pub(crate) const OWN_PORTS: u32 = 0x6b6e_0000;

pub(crate) const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
pub(crate) const ACK: u16 = libc::NLM_F_ACK as u16;
pub(crate) const CREATE: u16 = libc::NLM_F_CREATE as u16;
pub(crate) const EXCL: u16 = libc::NLM_F_EXCL as u16;
pub(crate) const DUMP: u16 = libc::NLM_F_DUMP as u16;

/// A message, or several in a row, being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    message_start: usize,
}

impl Encoder {
    /// Starts a message; the sequence number is filled in by the socket that sends it.
    pub(crate) fn message(kind: u16, flags: u16) -> Self {
        let mut encoder = Self::default();
        encoder.begin(kind, flags, 0);
        encoder
    }

    pub(crate) fn begin(&mut self, kind: u16, flags: u16, sequence: u32) {
        self.message_start = self.bytes.len();
        self.bytes.extend(0u32.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(sequence.to_ne_bytes());
        self.bytes.extend(0u32.to_ne_bytes());
    }

    /// Writes the length of the message that was begun last.
    pub(crate) fn end(&mut self) {
        let start = self.message_start;
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self.pad();
        self
    }

    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.bytes.extend((4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.raw(value)
    }

    pub(crate) fn str(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend(value.as_bytes());
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    pub(crate) fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.bytes(kind, &[value])
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub(crate) fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// An attribute that holds the attributes that `fill` writes.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend((kind | libc::NLA_F_NESTED as u16).to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// The attributes in `bytes`: kind without flags, and value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(crate) fn find_attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

pub(crate) fn u32_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(crate) fn str_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// A netlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Socket {
    /// There until it is dropped.
    fd: ManuallyDrop<OwnedFd>,
    /// The caller does not wait until the kernel has cleaned up after it.
    is_closed_apart: bool,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    pub(crate) fn open(protocol: i32) -> Result<Self> {
        let doing = || "open a netlink socket".to_owned();
        // SAFETY: plain system call with integers.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).doing(doing);
        }
        // SAFETY: the descriptor is new and ours.
        let fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let is_closed_apart = protocol == libc::NETLINK_NETFILTER;
        let socket = Self { fd, is_closed_apart, sequence: 0, buffer: vec![0; RECEIVE_BYTES] };
        // The kernel's reason in words, and no copy of the request in its answer.
        socket.set_option(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1).doing(doing)?;
        socket.set_option(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1).doing(doing)?;
        Ok(socket)
    }

    /// The same, for what the kernel tells the groups in this mask. A socket of its own: what is told may have the number of
    /// anybody's request.
    pub(crate) fn listen(protocol: i32, groups: u32) -> Result<Self> {
        let socket = Self::open(protocol)?;
        socket.bind(0, groups).doing(|| "listen on a netlink socket".into())?;
        Ok(socket)
    }

    /// The same as [`Self::open`], with one of [`OWN_PORTS`]: what it changes is known for this program's.
    pub(crate) fn open_own(protocol: i32) -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let socket = Self::open(protocol)?;
        // Processes begin at different numbers.
        let first = std::process::id() as u16;
        loop {
            let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            match socket.bind(OWN_PORTS | u32::from(number), 0) {
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                bound => return bound.map(|()| socket).doing(|| "bind a netlink socket".into()),
            }
        }
    }

    fn bind(&self, port: u32, groups: u32) -> io::Result<()> {
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: all zeroes are a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        (address.nl_pid, address.nl_groups) = (port, groups);
        // SAFETY: the address is a netlink socket's, and its length is given.
        let bound = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// From now on nothing is told that this program's own sockets ([`OWN_PORTS`]) have done: what one of them does at once
    /// is in datagrams of its own.
    pub(crate) fn leave_out_own(&self) -> io::Result<()> {
        // The half of the sender's port that is the same for all, where it is in a message's header, in the network's order.
        let half = (OWN_PORTS >> 16) as u16;
        let (offset, half) =
            if cfg!(target_endian = "little") { (14, half.swap_bytes()) } else { (12, half) };
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut steps = [
            step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, offset),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(half)),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        // SAFETY: the option's value is a program of as many steps as it says, which the kernel copies.
        let set = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const program).cast(), length)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Its end is to be known when it is dropped: something ends with it.
    pub(crate) fn close_at_once(&mut self) {
        self.is_closed_apart = false;
    }

    pub(crate) fn set_option(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        let length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the option's value is an int, and its length is given.
        let set = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const value).cast(), length)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn set_receive_timeout(&self, seconds: libc::time_t) -> io::Result<()> {
        let value = libc::timeval { tv_sec: seconds, tv_usec: 0 };
        let length = size_of::<libc::timeval>() as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        // SAFETY: the option's value is a timeval, and its length is given.
        let set = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const value).cast(), length)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends one request and waits for its acknowledgement.
    pub(crate) fn call(&mut self, request: Encoder, doing: impl Fn() -> String) -> Result<()> {
        self.request(request, ACK, doing).map(drop)
    }

    /// Sends one request and returns the payloads of its answers. `flags` are `ACK` or `DUMP`.
    pub(crate) fn request(
        &mut self,
        mut request: Encoder,
        flags: u16,
        doing: impl Fn() -> String,
    ) -> Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        request.end();
        let mut bytes = request.into_bytes();
        let flags = u16::from_ne_bytes([bytes[6], bytes[7]]) | REQUEST | flags;
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        self.send(&bytes).doing(&doing)?;
        let mut answers = Vec::new();
        loop {
            let sequence = self.sequence;
            let mut done = false;
            for message in messages(self.receive().doing(&doing)?) {
                if message.sequence != sequence {
                    continue;
                }
                match message.verdict() {
                    Verdict::Answer => answers.push(message.payload.to_vec()),
                    Verdict::Done => done = true,
                    Verdict::Failed(error) => return Err(Error::new(doing(), error)),
                }
            }
            if done {
                return Ok(answers);
            }
        }
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length describe `bytes`.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// One datagram from the kernel.
    pub(crate) fn receive(&mut self) -> io::Result<&[u8]> {
        self.receive_with(0)
    }

    /// The same, if one is there.
    ///
    /// # Errors
    /// `EAGAIN` if none is; `ENOBUFS` if some did not fit into the queue, and are lost.
    pub(crate) fn receive_now(&mut self) -> io::Result<&[u8]> {
        self.receive_with(libc::MSG_DONTWAIT)
    }

    fn receive_with(&mut self, flags: i32) -> io::Result<&[u8]> {
        loop {
            let (buffer, room) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
            // SAFETY: pointer and length describe the buffer.
            let got = unsafe { libc::recv(self.fd.as_raw_fd(), buffer, room, flags) };
            match usize::try_from(got) {
                Ok(length) => return Ok(&self.buffer[..length]),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and nobody uses it after.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if self.is_closed_apart {
            closing::close(fd);
        }
    }
}

/// What a received message says about a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Part of the answer.
    Answer,
    /// Acknowledged, or the end of a dump.
    Done,
    /// Refused.
    Failed(io::Error),
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    flags: u16,
    pub(crate) sequence: u32,
    /// The port number of who has caused it; 0 for the kernel itself.
    pub(crate) port: u32,
    pub(crate) payload: &'a [u8],
}

impl Received<'_> {
    pub(crate) fn verdict(&self) -> Verdict {
        const ACK_TLVS: u16 = 0x200;
        const EXT_MESSAGE: u16 = 1;
        match i32::from(self.kind) {
            libc::NLMSG_ERROR => {}
            libc::NLMSG_DONE => return Verdict::Done,
            _ => return Verdict::Answer,
        }
        let code = self.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        if code == 0 {
            return Verdict::Done;
        }
        // Code and the header of the request come first, then the kernel's words if it has any.
        let words = self.payload.get(4 + HEADER_BYTES..).filter(|_| self.flags & ACK_TLVS != 0);
        if let Some(words) = words.and_then(|tail| find_attribute(tail, EXT_MESSAGE)) {
            tracing::debug!(code = -code, reason = str_of(words), "netlink request refused");
        }
        Verdict::Failed(io::Error::from_raw_os_error(code.wrapping_neg()))
    }
}

/// The messages of one datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = u32_of(bytes)? as usize;
        let message = Received {
            kind: u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?),
            flags: u16::from_ne_bytes(*bytes.get(6..)?.first_chunk()?),
            sequence: u32_of(bytes.get(8..)?)?,
            port: u32_of(bytes.get(12..)?)?,
            payload: bytes.get(HEADER_BYTES..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests;
