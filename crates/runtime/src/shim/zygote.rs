//! The process that shims are forks of.
//!
//! A program of this size writes more than a megabyte of addresses into itself when it starts, and each shim would
//! hold those pages for itself; a fork shares them with the process that it comes from. The node process starts one
//! zygote, which loads nothing else, and asks it for shims over the socket that is its standard input. The zygote
//! ends with the node process; its shims live on.
//!
//! It answers nothing. What belongs to a shim comes with the request and is let go of as soon as there is a fork, which
//! in its turn lets go of what is the zygote's: the other end of the shim's first connection hears of it whatever dies,
//! and no shim has anything of another.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sys::descriptors;
use sys::process::Fork;

use super::error::{Error, system};
use super::protocol::{BIRTH_BYTES_MAX, Birth};
use super::server;

/// Makes shims until the node process ends. Returns in each of them too, when that has ended.
pub(super) fn run() -> Result<(), Error> {
    match Zygote::open()?.until_shim()? {
        Some(shim) => shim.run(),
        None => Ok(()),
    }
}

struct Zygote {
    node: OwnedFd,
    signals: SignalFd,
}

/// What a fork becomes.
struct Shim {
    sandbox: PathBuf,
    connection: OwnedFd,
    listener: OwnedFd,
    log: OwnedFd,
}

impl Zygote {
    fn open() -> Result<Self, Error> {
        let node = io::stdin().as_fd().try_clone_to_owned().map_err(system("take the node's socket"))?;
        let null = File::open("/dev/null").map_err(system("open /dev/null"))?;
        nix::unistd::dup2_stdin(&null).map_err(system("release stdin"))?;
        // A signal from the node's terminal is not ours: we end with the node process.
        nix::unistd::setsid().map_err(system("begin a session"))?;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block().map_err(system("block SIGCHLD"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).map_err(system("watch children"))?;
        Ok(Self { node, signals })
    }

    /// Nothing when the node process has ended, a shim in the process that is to be it. What is the zygote's is closed
    /// when this returns.
    fn until_shim(self) -> Result<Option<Shim>, Error> {
        loop {
            let [ended, asked] = self.wait()?;
            if ended {
                while self.signals.read_signal().map_err(system("read signals"))?.is_some() {}
                sys::process::reap();
            }
            if !asked {
                continue;
            }
            let Some(shim) = self.receive()? else { return Ok(None) };
            match sys::process::fork() {
                Ok(Fork::Child) => return Ok(Some(shim)),
                Ok(Fork::Parent) => {}
                Err(error) => server::tell_failure(shim.connection.as_fd(), &error),
            }
        }
    }

    /// Whether children have ended, and whether the node process asks for something or has ended.
    fn wait(&self) -> Result<[bool; 2], Error> {
        let mut fds = [self.signals.as_fd(), self.node.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => Ok(fds.map(|fd| fd.any().unwrap_or(false))),
            Err(nix::errno::Errno::EINTR) => Ok([false; 2]),
            Err(errno) => Err(system("wait")(errno)),
        }
    }

    fn receive(&self) -> Result<Option<Shim>, Error> {
        let mut buffer = [0; BIRTH_BYTES_MAX];
        let (len, files) = match descriptors::receive(self.node.as_fd(), &mut buffer) {
            Ok((0, _)) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            received => received.map_err(system("hear the node process"))?,
        };
        let birth: Birth = serde_json::from_slice(buffer.get(..len).unwrap_or_default())
            .map_err(system("read a request"))?;
        let Ok([connection, listener, log]) = <[OwnedFd; 3]>::try_from(files) else {
            return Err(system("take a shim's files")(io::Error::from(io::ErrorKind::InvalidInput)));
        };
        Ok(Some(Shim { sandbox: birth.sandbox, connection, listener, log }))
    }
}

impl Shim {
    fn run(self) -> Result<(), Error> {
        nix::unistd::dup2_stderr(&self.log).map_err(system("open its log"))?;
        drop(self.log);
        let sandbox = self.sandbox.to_string_lossy();
        super::take_name("knarr-shim");
        if let Err(error) = sys::process::set_arguments(&[super::NAME, "shim", &sandbox]) {
            // It works under its parent's name, too.
            eprintln!("shim: keeps the zygote's arguments: {}", base::error_chain(&error));
        }
        server::run(&self.sandbox, self.listener, self.connection)
    }
}
