//! The node process's end of the zygote ([`crate::shim`]): sandboxes in, shims out.
//!
//! One task owns the connection. A zygote that died is replaced when the next shim is wanted; its shims live on.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use sys::descriptors;
use sys::process::PidFd;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::client::{receive, send, watched};
use crate::shim::protocol::{Birth, Life, PACKET_BYTES_MAX};
use crate::state::Config;

/// Shims that may be asked for before one is there.
const REQUESTS_MAX: usize = 64;
/// Zygotes that may be killed one after another over one shim.
const ZYGOTES_MAX: usize = 16;
/// Room for a shim's name in the zygote's arguments: it is the path of the sandbox's directory.
const NAME_BYTES_MAX: usize = 512;

/// A shim that this process has had started.
pub(crate) struct Spawned {
    pub(crate) process: PidFd,
    /// Sent when it has ended, if the zygote lives to see it.
    pub(crate) ended: oneshot::Receiver<ExitStatus>,
}

struct Request {
    sandbox: PathBuf,
    descriptors: Vec<OwnedFd>,
    born: oneshot::Sender<io::Result<Spawned>>,
}

/// The zygote, whichever process that is at the time.
#[derive(Default)]
pub(crate) struct Zygote {
    requests: Mutex<Option<mpsc::Sender<Request>>>,
}

impl Zygote {
    /// A shim for the sandbox at `sandbox`; `files` are its listening socket and its log.
    pub(crate) async fn shim(
        &self,
        config: &Config,
        sandbox: &Path,
        files: &[OwnedFd; 2],
    ) -> io::Result<Spawned> {
        for _ in 0..ZYGOTES_MAX {
            let descriptors = files.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
            let (born, shim) = oneshot::channel();
            let request = Request { sandbox: sandbox.to_owned(), descriptors, born };
            let requests = self.requests(config).await?;
            if requests.send(request).await.is_err() {
                continue;
            }
            if let Ok(shim) = shim.await {
                return shim;
            }
            // It died before it told us of the shim: then there is none.
        }
        Err(io::Error::other("the process that shims are made of is killed again and again"))
    }

    async fn requests(&self, config: &Config) -> io::Result<mpsc::Sender<Request>> {
        let mut requests = self.requests.lock().await;
        if let Some(open) = requests.as_ref().filter(|requests| !requests.is_closed()) {
            return Ok(open.clone());
        }
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        let (child, socket) = start(config)?;
        config.tasks.spawn("zygote", async move {
            let connection =
                Connection { socket, requests: receiver, unborn: VecDeque::new(), alive: HashMap::new() };
            if let Err(error) = connection.run().await {
                tracing::debug!(%error, "the zygote is gone");
            }
            reap(child).await;
        });
        *requests = Some(sender.clone());
        Ok(sender)
    }
}

fn start(config: &Config) -> io::Result<(Child, AsyncFd<OwnedFd>)> {
    let (program, arguments) =
        config.shim_command.split_first().ok_or_else(|| io::Error::other("no shim command is configured"))?;
    let (ours, theirs) = descriptors::pair().map_err(io::Error::other)?;
    descriptors::set_nonblocking(&ours).map_err(io::Error::other)?;
    let child = Command::new(program)
        .args(arguments)
        .arg("zygote")
        .arg(" ".repeat(NAME_BYTES_MAX))
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    Ok((child, watched(ours)?))
}

async fn reap(mut zygote: Child) {
    match zygote.wait().await {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::warn!(%status, "the zygote ended; the next shim starts another"),
        Err(error) => tracing::warn!(%error, "cannot wait for the zygote"),
    }
}

struct Connection {
    socket: AsyncFd<OwnedFd>,
    requests: mpsc::Receiver<Request>,
    /// In the order in which they were asked for.
    unborn: VecDeque<oneshot::Sender<io::Result<Spawned>>>,
    /// Who hears of a shim's end, by pid.
    alive: HashMap<i32, oneshot::Sender<ExitStatus>>,
}

impl Connection {
    /// Until the zygote ends, or nobody can ask any more.
    async fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => self.ask(request).await?,
                    None => return Ok(()),
                },
                received = receive(&self.socket, &mut buffer) => {
                    let (len, descriptors) = received?;
                    self.take(buffer.get(..len).unwrap_or_default(), descriptors)?;
                }
            }
        }
    }

    async fn ask(&mut self, request: Request) -> io::Result<()> {
        let bytes = serde_json::to_vec(&Birth { sandbox: request.sandbox })?;
        send(&self.socket, &bytes, &request.descriptors).await?;
        self.unborn.push_back(request.born);
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> io::Result<()> {
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(bytes)? {
            Life::Born(born) => {
                let (sender, ended) = oneshot::channel();
                let shim = match (born, descriptors.pop()) {
                    (Ok(pid), Some(process)) => {
                        self.alive.insert(pid, sender);
                        Ok(Spawned { process: process.into(), ended })
                    }
                    (Ok(_), None) => return Err(io::ErrorKind::InvalidData.into()),
                    (Err(why), _) => Err(io::Error::other(why)),
                };
                if let Some(born) = self.unborn.pop_front() {
                    born.send(shim)
                        .map_or_else(|_| tracing::debug!("nobody waits for a shim any more"), |()| {});
                }
            }
            Life::Ended { pid, status } => {
                if let Some(ended) = self.alive.remove(&pid) {
                    ended.send(ExitStatus::from_raw(status)).unwrap_or(()); // Nobody waits any more.
                }
            }
        }
        Ok(())
    }
}
