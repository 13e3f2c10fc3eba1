//! Messages with file descriptors over sequenced-packet unix sockets.
//!
//! One message is one packet: no framing, and descriptors can never be attributed to the wrong message. Sockets are
//! bound and reached by a path relative to an open directory, since a socket's path may have 107 bytes only.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    accept4, bind, connect, listen, recvmsg, sendmsg, socket, socketpair,
};
use nix::sys::stat::Mode;

use crate::{Doing, Result};

/// Most descriptors that one message may carry.
pub const MESSAGE_DESCRIPTORS_MAX: usize = 8;
/// Most attempts to follow one path. Each takes microseconds.
const SCOPED_ATTEMPTS_MAX: usize = 1000;

/// Listens at `path` for connections that carry whole messages. An old socket there is replaced.
pub fn listen_at(path: &Path) -> Result<OwnedFd> {
    let doing = || format!("listen at {}", path.display());
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).doing(doing),
        _ => {}
    }
    let fd = packet_socket(SockType::SeqPacket)?;
    with_short_path(path, |address| bind(fd.as_raw_fd(), address)).doing(doing)?;
    listen(&fd, Backlog::new(64).unwrap_or(Backlog::MAXCONN)).doing(doing)?;
    Ok(fd)
}

/// Listens at `path` for a plain byte stream, such as a console socket.
pub fn listen_stream_at(path: &Path) -> Result<OwnedFd> {
    let doing = || format!("listen at {}", path.display());
    let fd = packet_socket(SockType::Stream)?;
    with_short_path(path, |address| bind(fd.as_raw_fd(), address)).doing(doing)?;
    listen(&fd, Backlog::new(4).unwrap_or(Backlog::MAXCONN)).doing(doing)?;
    Ok(fd)
}

/// Connects to a listener of [`listen_at`].
pub fn connect_to(path: &Path) -> Result<OwnedFd> {
    let fd = packet_socket(SockType::SeqPacket)?;
    with_short_path(path, |address| connect(fd.as_raw_fd(), address))
        .doing(|| format!("connect to {}", path.display()))?;
    Ok(fd)
}

/// Takes the next connection; it does not block. Blocks itself unless the listener does not.
pub fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)
        .doing(|| "accept a connection".into())?;
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends one message with its descriptors, which stay open here too.
///
/// # Errors
/// `EAGAIN` if the socket does not block and is full.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &control[..0] } else { &control[..] };
    let slices = [IoSlice::new(message)];
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &slices, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one message and its descriptors. An empty message means that the other end is closed.
///
/// # Errors
/// `EAGAIN` if the socket does not block and nothing is there; `EMSGSIZE` if the message is larger than `buffer`;
/// `EMFILE` if not all of its descriptors could be taken.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> std::io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; MESSAGE_DESCRIPTORS_MAX]);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut descriptors = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel just made these descriptors for us; nobody else owns them.
            descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    if received.flags.contains(MsgFlags::MSG_TRUNC) {
        return Err(Errno::EMSGSIZE.into());
    }
    if received.flags.contains(MsgFlags::MSG_CTRUNC) {
        return Err(Errno::EMFILE.into());
    }
    Ok((received.bytes, descriptors))
}

/// Two connected ends for whole messages.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
        .doing(|| "make a pair of sockets".into())
}

fn packet_socket(kind: SockType) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Unix, kind, flags, None).doing(|| "make a unix socket".into())
}

/// Calls `f` with an address that means `path` but is short: by way of the open directory in `/proc/self/fd`.
fn with_short_path(path: &Path, f: impl FnOnce(&UnixAddr) -> nix::Result<()>) -> std::io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EINVAL.into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let dir = open(parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok(f(&UnixAddr::new(&short)?)?)
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: impl AsFd) -> Result<()> {
    let doing = || "make a descriptor non-blocking".to_owned();
    let flags = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFL).doing(doing)?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(flags)).map(drop).doing(doing)
}

/// Opens `path` below `root` as a process inside would see it: links and `..` never leave `root`.
///
/// Source: openat2(2), `RESOLVE_IN_ROOT`.
///
/// # Errors
/// As open(2); absolute links point below `root`. `EINVAL` for what is neither a file nor a directory: to open a device
/// or a pipe that somebody has put there may do harm or wait for ever.
pub fn open_in_root(root: &Path, path: &Path) -> Result<std::fs::File> {
    let doing = || format!("open {} in {}", path.display(), root.display());
    let dir =
        open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).doing(doing)?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let fd = open_scoped(&dir, path, how).doing(doing)?;
    let found = std::fs::File::from(fd);
    let kind = found.metadata().doing(doing)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(Errno::EINVAL).doing(doing);
    }
    // The very same, by its descriptor.
    std::fs::File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).doing(doing)
}

/// Opens as openat2(2) does where it may not leave `folder` (`RESOLVE_IN_ROOT`, `RESOLVE_BENEATH`): on a way with `..`, be it
/// a link's, the kernel gives up (`EAGAIN`) if anything was mounted or renamed anywhere meanwhile, and is asked again.
///
/// # Errors
/// As openat2(2); `EAGAIN` only if the machine does nothing else.
pub fn open_scoped<P: ?Sized + NixPath>(folder: impl AsFd, path: &P, how: OpenHow) -> nix::Result<OwnedFd> {
    let attempt = || openat2(folder.as_fd(), path, how);
    std::iter::repeat_with(attempt)
        .take(SCOPED_ATTEMPTS_MAX)
        .find(|opened| !matches!(opened, Err(Errno::EAGAIN)))
        .unwrap_or(Err(Errno::EAGAIN))
}

/// Sets the size of the terminal behind `terminal` (either end). Source: ioctl_tty(2), `TIOCSWINSZ`.
pub fn set_terminal_size(terminal: impl AsFd, columns: u16, rows: u16) -> Result<()> {
    let size = nix::libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request takes a pointer to a winsize, which lives on this frame.
    let set =
        unsafe { nix::libc::ioctl(terminal.as_fd().as_raw_fd(), nix::libc::TIOCSWINSZ, &raw const size) };
    Errno::result(set).map(drop).doing(|| format!("set a terminal's size to {columns}x{rows}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_descriptor_arrives_with_its_message_over_a_long_path() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(150));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("socket");
        let listener = listen_at(&path).unwrap();
        let client = connect_to(&path).unwrap();
        let server = accept(listener.as_fd()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"carried").unwrap();
        send(client.as_fd(), b"one", &[file.as_fd()]).unwrap();
        send(client.as_fd(), b"two", &[]).unwrap();
        let mut buffer = [0; 16];
        let (len, mut descriptors) = receive(server.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..len], descriptors.len()), (&b"one"[..], 1));
        let mut received = std::fs::File::from(descriptors.remove(0));
        let mut text = String::new();
        received.rewind().unwrap();
        received.read_to_string(&mut text).unwrap();
        assert_eq!(text, "carried");
        let (len, descriptors) = receive(server.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..len], descriptors.len()), (&b"two"[..], 0));
    }

    #[test]
    fn links_in_a_root_stay_in_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("passwd"), "inside").unwrap();
        std::os::unix::fs::symlink("/../passwd", dir.path().join("link")).unwrap();
        let mut text = String::new();
        open_in_root(dir.path(), Path::new("/link")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    /// Without being asked again the kernel refuses some of these where it has two processors.
    #[test]
    fn a_way_with_parents_is_followed_while_others_rename() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("passwd"), "inside").unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("../etc/../passwd", dir.path().join("etc/passwd")).unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let names = [dir.path().join("one"), dir.path().join("two")];
                std::fs::write(&names[0], "").unwrap();
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&names[0], &names[1]).unwrap();
                    std::fs::rename(&names[1], &names[0]).unwrap();
                }
            });
            let failures: Vec<_> =
                (0..2000).filter_map(|_| open_in_root(dir.path(), Path::new("/etc/passwd")).err()).collect();
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failures.is_empty(), "{failures:?}");
        });
    }

    #[test]
    fn a_pipe_or_a_device_in_a_root_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("passwd"), Mode::from_bits_truncate(0o600)).unwrap();
        let error = open_in_root(dir.path(), Path::new("/passwd")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EINVAL));
        let error = open_in_root(Path::new("/"), Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EINVAL));
        assert!(open_in_root(Path::new("/"), Path::new("/dev")).unwrap().metadata().unwrap().is_dir());
    }
}
