//! The recovery of shims: one that died is replaced; its containers run on, and the next shim adopts them.
//!
//! The runtime learns of the death by the end of the connection. For this it holds a handle on each container's
//! first process, by which the exit code is known later, and the container's input, which would close otherwise.
//! If no shim can be had, the containers are killed, since nobody would see their end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use cri::{CriError, CriResult, v1};
use nix::libc::SIGKILL;

use crate::client::{Answer, Connected, ShimClient, ShimError, ShimEvents};
use crate::shim::layout::{self, Exited, Started};
use crate::shim::protocol::{Call, Done};
use crate::state::{Container, Held, Inner, Status, blocking, internal};

/// Shims that may be killed one after another while they come up, before the sandbox is given up.
const SHIMS_MAX: usize = 16;
/// Before a shim comes in the place of one that was killed while it came up: all tries together last ten seconds.
const REPLACE_FIRST: Duration = Duration::from_millis(10);
const REPLACE_MAX: Duration = Duration::from_secs(1);
/// How long a killed shim may take to end: longer means that the kernel does not let it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

impl ShimEvents for Inner {
    fn container_exited(&self, container: &str, exited: Exited) {
        Self::container_exited(self, container, exited);
    }

    /// No other one comes in its place if the sandbox has been stopped, is not made yet, or everything ends.
    fn shim_lost(&self, id: &str) -> bool {
        let Some(this) = self.weak.upgrade() else { return false };
        if self.config.tasks.is_stopping() {
            return false;
        }
        {
            let mut tables = self.tables.lock();
            if tables.sandboxes.get(id).is_none_or(|sandbox| sandbox.shim.is_none()) {
                return false;
            }
            if !tables.recovering.insert(id.to_owned()) {
                return true;
            }
        }
        let id = id.to_owned();
        self.config.tasks.spawn("lost shim", async move { this.recover_or_abandon(&id).await });
        true
    }
}

impl Inner {
    /// Takes hold of a container that has just been started, or was found running.
    pub(crate) async fn hold(&self, shim: &ShimClient, container: &Container, started: &Started) {
        let mut held = Held { process: started.process(), input: None };
        if container.config.stdin || container.config.tty {
            let call = Call::Attach { container: container.id.clone(), streams: [false, false] };
            match shim.ask(call, Vec::new()).await {
                Ok((_, mut descriptors)) => held.input = descriptors.pop(),
                Err(error) => tracing::debug!(container = %container.id, %error, "input not held"),
            }
        }
        self.tables.lock().held.insert(container.id.clone(), held);
    }

    /// Lets go of a container's input: it is closed for good.
    pub(crate) fn release_input(&self, container: &str) {
        if let Some(held) = self.tables.lock().held.get_mut(container) {
            held.input = None;
        }
    }

    /// Sees to it that a shim looks after the sandbox, or that none of its containers runs. A runtime that stops
    /// does neither: the next one finds everything as it is.
    pub(crate) async fn recover_or_abandon(self: &Arc<Self>, id: &str) {
        let Err(error) = self.recover(id).await else { return };
        if self.config.tasks.is_stopping() {
            return;
        }
        tracing::warn!(sandbox = %id, %error, "no shim for the sandbox; killing what it left");
        self.abandon(id).await;
    }

    /// Connects to the shim if it lives, else to a new one, and has it adopt the containers that run.
    ///
    /// A shim that is killed on the way is replaced in its turn; one that ends by itself would do so again.
    async fn recover(self: &Arc<Self>, id: &str) -> CriResult<()> {
        let sandbox = self.sandbox(id)?;
        let Some(client) = sandbox.shim.clone() else {
            return Err(CriError::NotFound(format!("pod sandbox {id} is stopped")));
        };
        if self.reach(&client, id).await.is_ok() {
            return Ok(());
        }
        tracing::warn!(sandbox = %id, "the pod's shim ended; starting another");
        let mut replaced = self.replace(&client, id).await?;
        let mut backoff = Backoff::new(REPLACE_FIRST, REPLACE_MAX, 0.5);
        for _ in 1..SHIMS_MAX {
            let Err(ShimError::Gone) = &replaced else { break };
            tracing::warn!(sandbox = %id, "the pod's next shim was killed; starting another");
            // Whoever kills them goes on for a while; the containers run on meanwhile.
            tokio::time::sleep(backoff.next(&self.config.random)).await;
            replaced = self.replace(&client, id).await?;
        }
        let Err(error) = replaced else { return Ok(()) };
        let dir = self.sandbox_dir(id);
        blocking(move || end_former(&dir)).await?;
        Err(self.shim_failure(id, &error))
    }

    /// Starts a shim in the place of one that died.
    async fn replace(self: &Arc<Self>, client: &ShimClient, id: &str) -> CriResult<Result<(), ShimError>> {
        let connected = self.next_shim(client, id).await?;
        Ok(self.hand_over(client, connected, id).await)
    }

    /// A shim in the place of one that is gone or not to be reached.
    ///
    /// Two never look after the same containers: the former is killed, if it has said who it is. If it has not, it has not
    /// answered, and is known to be gone by the end of its connection.
    async fn next_shim(self: &Arc<Self>, client: &ShimClient, id: &str) -> CriResult<Connected> {
        let (this, sandbox) = (Arc::clone(self), id.to_owned());
        let first = blocking(move || {
            end_former(&this.sandbox_dir(&sandbox))?;
            this.start_shim(&sandbox).map_err(internal)
        });
        self.speak(client, id, first.await?).map_err(internal)
    }

    /// Speaks with a shim over its first connection.
    pub(crate) fn speak(&self, client: &ShimClient, id: &str, first: OwnedFd) -> io::Result<Connected> {
        client.over(first, id.to_owned(), self.weak.clone(), &self.config.tasks)
    }

    /// The first answer of a sandbox's first shim, which is replaced if it is killed before that.
    pub(crate) async fn first_answer(
        self: &Arc<Self>,
        client: &ShimClient,
        id: &str,
        mut shim: Connected,
    ) -> CriResult<(Connected, Answer)> {
        let mut answer = shim.ask(Call::State, Vec::new()).await;
        for _ in 1..SHIMS_MAX {
            let Err(ShimError::Gone) = &answer else { break };
            shim = self.next_shim(client, id).await?;
            answer = shim.ask(Call::State, Vec::new()).await;
        }
        Ok((shim, answer))
    }

    /// Takes up the connection to a shim that may live.
    async fn reach(self: &Arc<Self>, client: &ShimClient, id: &str) -> Result<(), ShimError> {
        let socket = self.sandbox_dir(id).join(layout::SOCKET);
        let opened = client.open(&socket, id.to_owned(), self.weak.clone(), &self.config.tasks);
        self.hand_over(client, opened.map_err(|_| ShimError::Gone)?, id).await
    }

    /// Has the shim adopt what it does not know to run, and lets everyone use it.
    ///
    /// Also one that lives may know of nothing: the runtime that started it may have died before it said a word.
    async fn hand_over(
        self: &Arc<Self>,
        client: &ShimClient,
        connected: Connected,
        id: &str,
    ) -> Result<(), ShimError> {
        let known = running(&connected).await?;
        let started = self.started_of(id);
        for (container, started) in &started {
            if known.contains(&container.id) {
                continue;
            }
            match self.have_adopted(&connected, container, started).await {
                Err(gone @ (ShimError::Gone | ShimError::Failed(_))) => return Err(gone),
                // It is killed below, since nobody would see its end.
                Err(error) => tracing::warn!(container = %container.id, %error, "cannot adopt a container"),
                Ok(()) => {}
            }
        }
        let running = running(&connected).await?;
        for (container, started) in &started {
            if running.contains(&container.id) {
                note_start(container, started);
            } else {
                self.kill_orphan(container).await;
            }
        }
        self.tables.lock().recovering.remove(id);
        client.publish(connected);
        Ok(())
    }

    /// The containers of a sandbox that were started and of whose end nobody knows. What is on disk counts: whoever
    /// started one may have died before it could say so.
    fn started_of(&self, sandbox: &str) -> Vec<(Container, Started)> {
        let started = |container: Container| {
            let status = container.status.borrow().clone();
            let started = match status {
                Status::Running(started) => started,
                Status::Created => {
                    let path = self.container_dir(&container).join(layout::STARTED);
                    layout::read_json(&path).ok().flatten()?
                }
                Status::Exited { .. } => return None,
            };
            Some((container, started))
        };
        self.containers_of(sandbox).into_iter().filter_map(started).collect()
    }

    async fn have_adopted(
        &self,
        connected: &Connected,
        container: &Container,
        started: &Started,
    ) -> Result<(), ShimError> {
        let (process, input) = {
            let tables = self.tables.lock();
            let held = tables.held.get(&container.id);
            let copy = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned();
            let process = held.and_then(|held| held.process.as_ref()).map(|process| copy(process));
            let input = held.and_then(|held| held.input.as_ref()).map(|input| copy(input));
            (process.transpose().map_err(not_handed)?, input.transpose().map_err(not_handed)?)
        };
        // After a restart of the runtime nothing is held, but the process may still run.
        let process = match process {
            Some(process) => Some(process),
            None => {
                let found = started.process();
                found.map(|process| process.as_fd().try_clone_to_owned()).transpose().map_err(not_handed)?
            }
        };
        let call = Call::Adopt { container: container.id.clone(), process: process.is_some() };
        connected.ask(call, process.into_iter().chain(input).collect()).await?;
        Ok(())
    }

    /// There is no shim and will be none: the sandbox is not ready, and its containers end.
    pub(crate) async fn abandon(self: &Arc<Self>, id: &str) {
        let shim = {
            let mut tables = self.tables.lock();
            tables.recovering.remove(id);
            tables.sandboxes.get_mut(id).and_then(|sandbox| sandbox.shim.take())
        };
        if let Some(shim) = shim {
            shim.give_up();
        }
        self.end_all(id).await;
        self.emit(id, id, v1::ContainerEventType::ContainerStoppedEvent);
    }

    /// Ends the containers of a sandbox that has no shim.
    pub(crate) async fn end_all(self: &Arc<Self>, sandbox: &str) {
        for (container, _) in self.started_of(sandbox) {
            self.kill_orphan(&container).await;
        }
    }
}

/// Kills the sandbox's last shim if it lives and could not be reached all the same.
fn end_former(sandbox: &Path) -> CriResult<()> {
    let former: Option<Started> = layout::read_json(&sandbox.join(layout::SHIM)).map_err(internal)?;
    let Some(process) = former.and_then(|former| former.process()) else { return Ok(()) };
    process.signal(SIGKILL).map_err(internal)?;
    match process.wait(KILL_TIMEOUT).map_err(internal)? {
        true => Ok(()),
        false => Err(CriError::Internal("the pod's former shim does not die".into())),
    }
}

/// Which containers run, as the shim says.
async fn running(connected: &Connected) -> Result<Vec<String>, ShimError> {
    match connected.ask(Call::State, Vec::new()).await? {
        (Done::Running(ids), _) => Ok(ids),
        _ => Err(ShimError::Refused("the shim gave an answer to another question".into())),
    }
}

/// A container that runs although nobody has said that it was started.
fn note_start(container: &Container, started: &Started) {
    container.status.send_if_modified(|status| {
        let is_new = *status == Status::Created;
        if is_new {
            *status = Status::Running(started.clone());
        }
        is_new
    });
}

fn not_handed(error: io::Error) -> ShimError {
    ShimError::Refused(format!("cannot hand a descriptor to the shim: {error}"))
}
