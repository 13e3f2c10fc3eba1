//! The node process's end of a shim: requests out, answers and exits in.
//!
//! One task owns the connection. When it ends, everyone who waits for an answer is told, and the runtime learns that
//! the shim is gone. While the runtime replaces it ([`crate::mending`]), new requests wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use sys::descriptors;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

use crate::shim::protocol::{Call, Done, Message, PACKET_BYTES_MAX, Request};
use crate::state::Inner;

/// Requests that may wait for the connection.
const REQUESTS_MAX: usize = 64;
/// Shims that one request may be asked of, each after the death of the one before.
const SHIMS_MAX: usize = 16;

/// Why a shim did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ShimError {
    /// What was named does not exist or runs no more.
    #[error("{0}")]
    NotFound(String),
    /// It tried and failed.
    #[error("{0}")]
    Refused(String),
    /// There is no shim any more.
    #[error("the pod's shim is gone")]
    Gone,
}

/// What came back from a request, with its descriptors.
pub(crate) type Answer = Result<(Done, Vec<OwnedFd>), ShimError>;

pub(crate) struct Outgoing {
    call: Call,
    descriptors: Vec<OwnedFd>,
    answer: oneshot::Sender<(u64, Answer)>,
    exit: Option<oneshot::Sender<i32>>,
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
    runtime: Weak<Inner>,
}

/// The shim of a sandbox, whichever process that is at the time. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct ShimClient {
    line: Arc<watch::Sender<Line>>,
}

impl ShimClient {
    /// Connects to the shim that listens at `socket`.
    pub(crate) fn connect(
        socket: &Path,
        sandbox: String,
        runtime: Weak<Inner>,
        tasks: &base::Tasks,
    ) -> io::Result<Self> {
        let client = Self::unconnected();
        let connected = client.open(socket, sandbox, runtime, tasks)?;
        client.publish(connected);
        Ok(client)
    }

    /// Connected to nothing yet; requests wait.
    pub(crate) fn unconnected() -> Self {
        Self { line: Arc::new(watch::Sender::new(Line::Broken)) }
    }

    /// Opens a connection that only its holder uses until it is published.
    pub(crate) fn open(
        &self,
        socket: &Path,
        sandbox: String,
        runtime: Weak<Inner>,
        tasks: &base::Tasks,
    ) -> io::Result<Connected> {
        let fd = descriptors::connect_to(socket).map_err(io::Error::other)?;
        descriptors::set_nonblocking(&fd).map_err(io::Error::other)?;
        let fd = crate::client::watched(fd)?;
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let connected = Connected { requests, sandbox: sandbox.clone(), runtime: runtime.clone() };
        let (answers, exits) = (HashMap::new(), HashMap::new());
        let connection = Connection { fd, next: 0, answers, exits, sandbox, runtime };
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

    /// Starts a process; `exit` gets its exit code. Returns the number by which it can be killed.
    pub(crate) async fn exec(
        &self,
        call: Call,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(u64, Vec<OwnedFd>, oneshot::Receiver<i32>), ShimError> {
        let (sender, exit) = oneshot::channel();
        let (id, answer) = self.send(call, descriptors, Some(sender)).await;
        answer.map(|(_, descriptors)| (id, descriptors, exit))
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
        if self.requests.send(outgoing).await.is_err() {
            return Err(ShimError::Gone);
        }
        receiver.await.unwrap_or((0, Err(ShimError::Gone))).1
    }
}

struct Connection {
    fd: AsyncFd<OwnedFd>,
    next: u64,
    answers: HashMap<u64, oneshot::Sender<(u64, Answer)>>,
    exits: HashMap<u64, oneshot::Sender<i32>>,
    sandbox: String,
    runtime: Weak<Inner>,
}

impl Connection {
    async fn run(mut self, mut requests: mpsc::Receiver<Outgoing>) {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            let result = tokio::select! {
                outgoing = requests.recv() => match outgoing {
                    Some(outgoing) => self.forward(outgoing).await,
                    // Nobody can ask any more; exits still matter.
                    None => self.receive(&mut buffer).await,
                },
                result = receive(&self.fd, &mut buffer) => {
                    result.and_then(|(len, descriptors)| self.take(buffer.get(..len).unwrap_or_default(), descriptors))
                }
            };
            if let Err(error) = result {
                tracing::debug!(sandbox = %self.sandbox, %error, "shim connection closed");
                break;
            }
        }
    }

    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let (len, descriptors) = receive(&self.fd, buffer).await?;
        self.take(buffer.get(..len).unwrap_or_default(), descriptors)
    }

    async fn forward(&mut self, outgoing: Outgoing) -> io::Result<()> {
        let id = self.next;
        self.next += 1;
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

    fn take(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) -> io::Result<()> {
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(bytes)? {
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
            Message::ExecExited { exec, code } => {
                if let Some(exit) = self.exits.remove(&exec) {
                    exit.send(code).unwrap_or(()); // Nobody waits any more.
                }
            }
        }
        Ok(())
    }
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
