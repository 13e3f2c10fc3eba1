//! The process that shims are forks of.
//!
//! A program of this size writes more than a megabyte of addresses into itself when it starts, and each shim would
//! hold those pages for itself; a fork shares them with the process that it comes from. The node process starts one
//! zygote, which loads nothing else, and asks it for shims over the socket that is its standard input. The zygote
//! ends with the node process; its shims live on.
//!
//! A shim begins only when the node process has been told of it. If the zygote dies before that, there is none.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sys::descriptors;
use sys::process::{Fork, PidFd};

use super::protocol::{Birth, Life, PACKET_BYTES_MAX};
use super::server::{self, Error, system};

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
    listener: OwnedFd,
    log: OwnedFd,
}

impl Zygote {
    fn open() -> Result<Self, Error> {
        let node = io::stdin().as_fd().try_clone_to_owned().map_err(system("take the node's socket"))?;
        let null = File::open("/dev/null").map_err(system("open /dev/null"))?;
        nix::unistd::dup2_stdin(&null).map_err(system("release stdin"))?;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block().map_err(system("block SIGCHLD"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).map_err(system("watch children"))?;
        Ok(Self { node, signals })
    }

    /// Nothing when the node process has ended, a shim in the process that is to be it.
    fn until_shim(self) -> Result<Option<Shim>, Error> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let [ended, asked] = self.wait()?;
            if ended {
                self.tell_ends()?;
            }
            if !asked {
                continue;
            }
            let (len, files) = match descriptors::receive(self.node.as_fd(), &mut buffer) {
                Ok((0, _)) => return Ok(None),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(system("hear the node process")(error)),
            };
            let birth: Birth = serde_json::from_slice(buffer.get(..len).unwrap_or_default())
                .map_err(system("read a request"))?;
            let Ok([listener, log]) = <[OwnedFd; 2]>::try_from(files) else {
                return Err(system("take a shim's files")(io::Error::from(io::ErrorKind::InvalidInput)));
            };
            let shim = Shim { sandbox: birth.sandbox, listener, log };
            if let Some(shim) = self.bear(shim)? {
                return Ok(Some(shim));
            }
        }
    }

    /// Whether children have ended, and whether the node process asks for something.
    fn wait(&self) -> Result<[bool; 2], Error> {
        let mut fds = [self.signals.as_fd(), self.node.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => Ok(fds.map(|fd| fd.any().unwrap_or(false))),
            Err(nix::errno::Errno::EINTR) => Ok([false; 2]),
            Err(errno) => Err(system("wait")(errno)),
        }
    }

    fn tell_ends(&self) -> Result<(), Error> {
        while self.signals.read_signal().map_err(system("read signals"))?.is_some() {}
        sys::process::reap()
            .into_iter()
            .try_for_each(|(pid, status)| self.tell(&Life::Ended { pid, status }, None))
    }

    /// Forks; gives the shim back in the child.
    fn bear(&self, shim: Shim) -> Result<Option<Shim>, Error> {
        let (mut go, mut gone) = io::pipe().map_err(system("make a pipe"))?;
        match sys::process::fork() {
            Ok(Fork::Child) => {
                drop(gone);
                let mut word = [0];
                // Nothing comes if the zygote died before it could say that there is a shim.
                let is_known = go.read(&mut word).map_err(system("hear the zygote"))? == 1;
                if is_known { Ok(Some(shim)) } else { std::process::exit(0) }
            }
            Ok(Fork::Parent(pid, process)) => {
                drop(go);
                self.tell(&Life::Born(Ok(pid)), Some(&process))?;
                match gone.write_all(&[1]) {
                    // It has been killed already.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
                    told => told.map(|()| None).map_err(system("start a shim")),
                }
            }
            Err(error) => self.tell(&Life::Born(Err(crate::error_chain(&error))), None).map(|()| None),
        }
    }

    /// That the node process has ended is heard, not told.
    fn tell(&self, life: &Life, process: Option<&PidFd>) -> Result<(), Error> {
        let bytes = serde_json::to_vec(life).map_err(system("write an answer"))?;
        let handle: Vec<_> = process.map(AsFd::as_fd).into_iter().collect();
        match descriptors::send(self.node.as_fd(), &bytes, &handle) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(system("tell the node process")(error))
            }
            _ => Ok(()),
        }
    }
}

impl Shim {
    fn run(self) -> Result<(), Error> {
        nix::unistd::dup2_stderr(&self.log).map_err(system("open its log"))?;
        drop(self.log);
        let sandbox = self.sandbox.to_string_lossy();
        if let Err(error) = sys::process::set_arguments(&["/proc/self/exe", "shim", &sandbox]) {
            // It works under its parent's name, too.
            eprintln!("shim: keeps the zygote's arguments: {}", crate::error_chain(&error));
        }
        server::run(&self.sandbox, self.listener)
    }
}
