//! The node process's end of the zygote ([`crate::shim`]): a sandbox in, a shim's first connection out.
//!
//! The zygote answers nothing, and nobody need know whether it lives: whoever holds a shim's connection is told when
//! nobody is at the other end any more, be it that the zygote died before it made the shim, or the shim itself. A zygote
//! that died is replaced when the next shim is wanted; its shims live on. When everything is told to stop, the zygote has
//! ended before that is done.
//!
//! What it executes, and so do its shims and what becomes a container, can be written to by nobody ([`sys::program`]).

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sys::descriptors;
use sys::program::ReadOnlyProgram;
use tokio::process::{Child, Command};

use crate::config::Config;
use crate::shim::NAME;
use crate::shim::protocol::Birth;

/// Zygotes that may be found dead one after another over one shim.
const ZYGOTES_MAX: usize = 16;
/// Room in the zygote's arguments for what a shim's have more: the sandbox's directory in that of the data.
const NAME_BYTES_MAX: usize = 128;

/// The zygote, whichever process that is at the time.
#[derive(Default)]
pub(crate) struct Zygote {
    socket: Arc<Mutex<Option<OwnedFd>>>,
}

impl Zygote {
    /// Has a shim made for the sandbox at `sandbox`, which serves whoever connects to `listener` and writes its complaints
    /// to `log`. Blocks for a moment.
    ///
    /// Returns its first connection, which ends when there is no such shim and will be none.
    pub(crate) fn shim(
        &self,
        config: &Config,
        sandbox: &Path,
        listener: OwnedFd,
        log: OwnedFd,
    ) -> io::Result<OwnedFd> {
        let (ours, theirs) = descriptors::pair().map_err(io::Error::other)?;
        for end in [&ours, &theirs] {
            descriptors::set_nonblocking(end).map_err(io::Error::other)?;
        }
        let request = serde_json::to_vec(&Birth { sandbox: sandbox.to_owned() })?;
        self.ask(config, &request, [theirs, listener, log])?;
        Ok(ours)
    }

    /// No copy of the files is left here when this returns.
    fn ask(&self, config: &Config, request: &[u8], files: [OwnedFd; 3]) -> io::Result<()> {
        let files = files.each_ref().map(AsFd::as_fd);
        let mut socket = self.socket.lock();
        for _ in 0..ZYGOTES_MAX {
            let open = match socket.take() {
                Some(open) => open,
                None => self.start(config)?,
            };
            match descriptors::send(open.as_fd(), request, &files) {
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
                sent => {
                    *socket = Some(open);
                    return sent;
                }
            }
        }
        Err(io::Error::other("the process that shims are made of is killed again and again"))
    }

    fn start(&self, config: &Config) -> io::Result<OwnedFd> {
        let (program, arguments) = config
            .shim_command
            .split_first()
            .ok_or_else(|| io::Error::other("no shim command is configured"))?;
        let program = ReadOnlyProgram::of(Path::new(program)).map_err(io::Error::other)?;
        let (ours, theirs) = descriptors::pair().map_err(io::Error::other)?;
        let child = Command::new(program.path())
            .arg0(NAME)
            .args(arguments)
            .arg("zygote")
            .arg(&config.data_dir)
            .arg(" ".repeat(NAME_BYTES_MAX))
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let (socket, tasks) = (Arc::downgrade(&self.socket), config.tasks.clone());
        config.tasks.spawn_to_end("zygote", look_after(child, socket, tasks));
        Ok(ours)
    }
}

/// Until it has ended, which it does when nobody can ask any more.
async fn look_after(mut zygote: Child, socket: Weak<Mutex<Option<OwnedFd>>>, tasks: base::Tasks) {
    let ended = tokio::select! {
        ended = zygote.wait() => ended,
        () = tasks.stopping() => {
            drop(socket.upgrade().and_then(|socket| socket.lock().take()));
            zygote.wait().await
        }
    };
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::warn!(%status, "the zygote ended; the next shim starts another"),
        Err(error) => tracing::warn!(%error, "cannot wait for the zygote"),
    }
}
