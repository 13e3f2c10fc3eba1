//! The node process's end of a shim: requests out, answers and exits in.
//!
//! One task owns the connection. When it ends, everyone who waits for an answer is told, and the runtime learns that
//! the shim is gone. While the runtime replaces it ([`crate::shim_recovery`]), new requests wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cri::CriError;
use sys::descriptors;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

use crate::shim::layout::Exited;
use crate::shim::protocol::{Call, Done, Message, PACKET_BYTES_MAX, Request};

/// Requests that may wait for the connection.
const REQUESTS_MAX: usize = 64;
/// Shims that one request may be asked of, each after the death of the one before.
const SHIMS_MAX: usize = 16;

/// What a shim's connection has to tell.
pub(crate) trait ShimEvents: Send + Sync {
    /// A container of it ended.
    fn container_exited(&self, container: &str, exited: Exited);

    /// The connection ended. Returns whether another one comes in its place.
    fn shim_lost(&self, sandbox: &str) -> bool;
}

/// Why a shim did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ShimError {
    /// What was named does not exist or runs no more.
    #[error("{0}")]
    NotFound(String),
    /// It tried and failed.
    #[error("{0}")]
    Refused(String),
    /// It could not begin, and another could not either.
    #[error("{0}")]
    Failed(String),
    /// There is no shim any more.
    #[error("the pod's shim is gone")]
    Gone,
}

impl From<ShimError> for CriError {
    fn from(error: ShimError) -> Self {
        match error {
            ShimError::NotFound(message) => Self::NotFound(message),
            other => Self::Internal(other.to_string()),
        }
    }
}

/// What came back from a request, with its descriptors.
pub(crate) type Answer = Result<(Done, Vec<OwnedFd>), ShimError>;

pub(crate) struct Outgoing {
    call: Call,
    descriptors: Vec<OwnedFd>,
    answer: oneshot::Sender<(u64, Answer)>,
    exit: Option<oneshot::Sender<i32>>,
}

/// [`Call::Exec`] to be.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    pub(crate) container: String,
    pub(crate) process: PathBuf,
    pub(crate) tty: bool,
    pub(crate) streams: [bool; 3],
}

/// Where requests go.
#[derive(Clone, Debug)]
enum Line {
    /// To a shim that is there, as far as is known.
    Up(Connected),
    /// Nowhere yet: the shim is being replaced.
    Broken,
    /// Nowhere any more.
    Ended,
}

/// A connection that is not used by everyone yet. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    requests: mpsc::Sender<Outgoing>,
    sandbox: String,
    runtime: Weak<dyn ShimEvents>,
    /// Why the shim could not begin, once it has said so.
    failure: Arc<OnceLock<String>>,
}

/// The shim of a sandbox, whichever process that is at the time. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct ShimClient {
    line: Arc<watch::Sender<Line>>,
    /// Of requests: none is used twice, so that what was asked of one shim is never taken for another's.
    numbers: Arc<AtomicU64>,
}

impl ShimClient {
    /// Connects to the shim that listens at `socket`.
    pub(crate) fn connect(
        socket: &Path,
        sandbox: String,
        runtime: Weak<dyn ShimEvents>,
        tasks: &base::Tasks,
    ) -> io::Result<Self> {
        let client = Self::unconnected();
        let connected = client.open(socket, sandbox, runtime, tasks)?;
        client.publish(connected);
        Ok(client)
    }

    /// Connected to nothing yet; requests wait.
    pub(crate) fn unconnected() -> Self {
        Self { line: Arc::new(watch::Sender::new(Line::Broken)), numbers: Arc::default() }
    }

    /// Opens a connection that only its holder uses until it is published.
    pub(crate) fn open(
        &self,
        socket: &Path,
        sandbox: String,
        runtime: Weak<dyn ShimEvents>,
        tasks: &base::Tasks,
    ) -> io::Result<Connected> {
        let fd = descriptors::connect_to(socket).map_err(io::Error::other)?;
        descriptors::set_nonblocking(&fd).map_err(io::Error::other)?;
        self.over(fd, sandbox, runtime, tasks)
    }

    /// As [`Self::open`], over a connection that is there, whose reads and writes return at once.
    pub(crate) fn over(
        &self,
        fd: OwnedFd,
        sandbox: String,
        runtime: Weak<dyn ShimEvents>,
        tasks: &base::Tasks,
    ) -> io::Result<Connected> {
        let fd = watched(fd)?;
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let failure = Arc::default();
        let connected = Connected {
            requests,
            sandbox: sandbox.clone(),
            runtime: runtime.clone(),
            failure: Arc::clone(&failure),
        };
        let (answers, exits) = (HashMap::new(), HashMap::new());
        let numbers = Arc::clone(&self.numbers);
        let connection =
            Connection { fd, numbers, answers, exits, sandbox, runtime, failure, is_deaf: false };
        let (client, own) = (self.clone(), connected.requests.downgrade());
        tasks.spawn("shim connection", async move {
            connection.run(receiver).await;
            if let Some(requests) = own.upgrade() {
                client.end_of(&requests);
            }
        });
        Ok(connected)
    }

    /// From now on requests go there, also those that wait.
    pub(crate) fn publish(&self, connected: Connected) {
        let requests = connected.requests.clone();
        self.line.send_replace(Line::Up(connected));
        if requests.is_closed() {
            self.end_of(&requests);
        }
    }

    /// A connection has ended. If it is the one that everyone uses, the runtime is told.
    fn end_of(&self, requests: &mpsc::Sender<Outgoing>) {
        let mut ended = None;
        self.line.send_if_modified(|line| match line {
            Line::Up(connected) if connected.requests.same_channel(requests) => {
                ended = Some(connected.clone());
                *line = Line::Broken;
                true
            }
            _ => false,
        });
        let Some(ended) = ended else { return };
        if !ended.runtime.upgrade().is_some_and(|runtime| runtime.shim_lost(&ended.sandbox)) {
            self.give_up();
        }
    }

    /// There is no shim and will be none.
    pub(crate) fn give_up(&self) {
        self.line.send_replace(Line::Ended);
    }

    /// Asks and waits for the answer. What a shim died over is asked of the next one: every such call may be
    /// repeated.
    pub(crate) async fn ask(&self, call: Call, descriptors: Vec<OwnedFd>) -> Answer {
        for _ in 1..SHIMS_MAX {
            let copies = descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
            let Ok(copies) = copies else { break };
            match self.send(call.clone(), copies, None).await.1 {
                Err(ShimError::Gone) if !self.has_ended() => {}
                answer => return answer,
            }
        }
        self.send(call, descriptors, None).await.1
    }

    fn has_ended(&self) -> bool {
        matches!(*self.line.borrow(), Line::Ended)
    }

    /// Starts a process; returns the number by which it can be killed, what came back, and who hears of its end.
    ///
    /// A shim that dies has begun with it or not: the process's document is still there if it has not
    /// ([`crate::shim::layout::take_exec`]), and then the next shim is asked.
    pub(crate) async fn exec(
        &self,
        exec: Exec,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(u64, Vec<OwnedFd>, oneshot::Receiver<i32>), ShimError> {
        for _ in 0..SHIMS_MAX {
            let copies = descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
            let copies =
                copies.map_err(|error| ShimError::Refused(format!("cannot copy a stream: {error}")))?;
            let (sender, exit) = oneshot::channel();
            let Exec { container, process, tty, streams } = exec.clone();
            let call = Call::Exec { container, process, tty, streams };
            let (id, answer) = self.send(call, copies, Some(sender)).await;
            match answer {
                Err(ShimError::Gone) if !self.has_ended() && exec.process.exists() => {}
                answer => return answer.map(|(_, descriptors)| (id, descriptors, exit)),
            }
        }
        Err(ShimError::Gone)
    }

    async fn send(
        &self,
        call: Call,
        descriptors: Vec<OwnedFd>,
        exit: Option<oneshot::Sender<i32>>,
    ) -> (u64, Answer) {
        let (answer, receiver) = oneshot::channel();
        let mut outgoing = Outgoing { call, descriptors, answer, exit };
        let mut line = self.line.subscribe();
        loop {
            let now = line.borrow_and_update().clone();
            match now {
                Line::Up(connected) => match connected.requests.send(outgoing).await {
                    Ok(()) => return receiver.await.unwrap_or((0, Err(ShimError::Gone))),
                    // It has just ended; what becomes of it is told next.
                    Err(unsent) => outgoing = unsent.0,
                },
                Line::Broken => {}
                Line::Ended => return (0, Err(ShimError::Gone)),
            }
            if line.changed().await.is_err() {
                return (0, Err(ShimError::Gone));
            }
        }
    }
}

impl Connected {
    /// Asks on this very connection.
    pub(crate) async fn ask(&self, call: Call, descriptors: Vec<OwnedFd>) -> Answer {
        let (answer, receiver) = oneshot::channel();
        let outgoing = Outgoing { call, descriptors, answer, exit: None };
        // Who is gone may have said why.
        let gone = || self.failure.get().map_or(ShimError::Gone, |why| ShimError::Failed(why.clone()));
        if self.requests.send(outgoing).await.is_err() {
            return Err(gone());
        }
        receiver.await.unwrap_or_else(|_| (0, Err(gone()))).1
    }
}

struct Connection {
    fd: AsyncFd<OwnedFd>,
    numbers: Arc<AtomicU64>,
    answers: HashMap<u64, oneshot::Sender<(u64, Answer)>>,
    exits: HashMap<u64, oneshot::Sender<i32>>,
    sandbox: String,
    runtime: Weak<dyn ShimEvents>,
    failure: Arc<OnceLock<String>>,
    /// It takes nothing any more. What it said before is still to be heard.
    is_deaf: bool,
}

impl Connection {
    async fn run(mut self, mut requests: mpsc::Receiver<Outgoing>) {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let result = tokio::select! {
                outgoing = requests.recv(), if !self.is_deaf => match outgoing {
                    Some(outgoing) => self.forward(outgoing).await,
                    // Nobody can ask any more; exits still matter.
                    None => receive(&self.fd, &mut buffer).await.and_then(|received| self.take(&buffer, received)),
                },
                received = receive(&self.fd, &mut buffer) => {
                    received.and_then(|received| self.take(&buffer, received))
                }
            };
            match result {
                Ok(()) => {}
                // Said once, and before what it has said itself.
                Err(error) if !self.is_deaf && has_no_reader(&error) => self.is_deaf = true,
                Err(error) => {
                    tracing::debug!(sandbox = %self.sandbox, %error, "shim connection closed");
                    break;
                }
            }
        }
    }

    async fn forward(&mut self, outgoing: Outgoing) -> io::Result<()> {
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let bytes = serde_json::to_vec(&Request { id, call: outgoing.call })?;
        self.answers.insert(id, outgoing.answer);
        if let Some(exit) = outgoing.exit {
            self.exits.insert(id, exit);
        }
        let descriptors: Vec<_> = outgoing.descriptors.iter().map(AsFd::as_fd).collect();
        loop {
            let mut ready = self.fd.writable().await?;
            match ready.try_io(|fd| descriptors::send(fd.get_ref().as_fd(), &bytes, &descriptors)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    fn take(&mut self, buffer: &[u8], (len, descriptors): (usize, Vec<OwnedFd>)) -> io::Result<()> {
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(buffer.get(..len).unwrap_or_default())? {
            Message::Answer { id, result } => {
                let answer = result.map(|done| (done, descriptors)).map_err(|refused| {
                    self.exits.remove(&id);
                    let kind = if refused.not_found { ShimError::NotFound } else { ShimError::Refused };
                    kind(refused.message)
                });
                if let Some(sender) = self.answers.remove(&id) {
                    drop(sender.send((id, answer)));
                }
            }
            Message::ContainerExited { container, exited } => {
                if let Some(runtime) = self.runtime.upgrade() {
                    runtime.container_exited(&container, exited);
                }
            }
            Message::Failed { message } => {
                self.failure.set(message).unwrap_or(()); // The first reason counts.
            }
            Message::ExecExited { exec, code } => {
                if let Some(exit) = self.exits.remove(&exec) {
                    exit.send(code).unwrap_or(()); // Nobody waits any more.
                }
            }
        }
        Ok(())
    }
}

/// Whether an error means that the other end is closed.
fn has_no_reader(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

async fn receive(fd: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    loop {
        let mut ready = fd.readable().await?;
        if let Ok(result) = ready.try_io(|fd| descriptors::receive(fd.get_ref().as_fd(), buffer)) {
            return result;
        }
    }
}

/// A descriptor whose readiness tokio watches.
#[expect(deprecated, reason = "the replacement is unsafe; an `OwnedFd` keeps the promise that it asks for")]
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}
