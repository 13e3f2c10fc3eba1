//! A shim that died is replaced: its containers run on, and the next shim adopts them.
//!
//! The runtime learns of the death by the end of the connection. For this it holds a handle on each container's
//! first process, by which the exit code is known later, and the container's input, which would close otherwise.
//! If no shim can be had, the containers are killed, since nobody would see their end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cri::{CriError, CriResult, v1};
use sys::process::PidFd;

use crate::client::{Connected, ShimClient};
use crate::shim::layout::{self, Started};
use crate::shim::protocol::{Call, Done};
use crate::state::{Container, Inner, Sandbox, Status, internal};

/// What the runtime holds of a container that runs.
pub(crate) struct Held {
    process: Option<PidFd>,
    input: Option<OwnedFd>,
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

    /// A connection to a shim ended. Returns whether another one comes in its place: not if the sandbox has been
    /// stopped, is not made yet, or everything ends.
    pub(crate) fn shim_lost(&self, id: &str) -> bool {
        let Some(this) = self.weak.upgrade() else { return false };
        if self.config.tasks.is_stopping() {
            return false;
        }
        {
            let mut tables = self.tables.lock();
            if tables.sandboxes.get(id).is_none_or(|sandbox| sandbox.shim.is_none()) {
                return false;
            }
            if !tables.mending.insert(id.to_owned()) {
                return true;
            }
        }
        let id = id.to_owned();
        self.config.tasks.spawn("lost shim", async move {
            if let Err(error) = this.mend(&id).await {
                tracing::warn!(sandbox = %id, %error, "no shim for the sandbox; killing what it left");
                this.abandon(&id).await;
            }
        });
        true
    }

    /// Connects to the shim again if it lives, else to a new one that has adopted the containers.
    pub(crate) async fn mend(self: &Arc<Self>, id: &str) -> CriResult<()> {
        let sandbox = self.sandbox(id)?;
        let Some(client) = sandbox.shim.clone() else {
            return Err(CriError::NotFound(format!("pod sandbox {id} is stopped")));
        };
        let (connected, running) = match self.reach(&client, id).await {
            Ok(reached) => reached,
            Err(_) => {
                tracing::warn!(sandbox = %id, "the pod's shim ended; starting another");
                self.replace(&client, &sandbox).await?
            }
        };
        self.tables.lock().mending.remove(id);
        client.publish(connected);
        self.miss(id, &running).await;
        Ok(())
    }

    /// Connects and asks what runs.
    async fn reach(&self, client: &ShimClient, id: &str) -> CriResult<(Connected, Vec<String>)> {
        let socket = self.sandbox_dir(id).join(layout::SOCKET);
        let opened = client.open(&socket, id.to_owned(), self.weak.clone(), &self.config.tasks);
        let connected = opened.map_err(internal)?;
        match connected.ask(Call::State, Vec::new()).await? {
            (Done::Running(ids), _) => Ok((connected, ids)),
            _ => Err(CriError::Internal("the shim gave an answer to another question".into())),
        }
    }

    /// Starts a shim in the place of one that died and has it adopt the containers that run.
    async fn replace(
        self: &Arc<Self>,
        client: &ShimClient,
        sandbox: &Sandbox,
    ) -> CriResult<(Connected, Vec<String>)> {
        let listener = sys::descriptors::listen_at(&self.sandbox_dir(&sandbox.id).join(layout::SOCKET));
        self.start_shim(sandbox, listener.map_err(internal)?).map_err(internal)?;
        let (connected, _) = self.reach(client, &sandbox.id).await?;
        for container in self.containers_of(&sandbox.id) {
            let status = container.status.borrow().clone();
            if let Status::Running(started) = status {
                self.have_adopted(&connected, &container, &started).await?;
            }
        }
        match connected.ask(Call::State, Vec::new()).await? {
            (Done::Running(ids), _) => Ok((connected, ids)),
            _ => Err(CriError::Internal("the shim gave an answer to another question".into())),
        }
    }

    async fn have_adopted(
        &self,
        connected: &Connected,
        container: &Container,
        started: &Started,
    ) -> CriResult<()> {
        let (process, input) = {
            let tables = self.tables.lock();
            let held = tables.held.get(&container.id);
            let copy = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned();
            let process = held.and_then(|held| held.process.as_ref()).map(|process| copy(process));
            let input = held.and_then(|held| held.input.as_ref()).map(|input| copy(input));
            (process.transpose().map_err(internal)?, input.transpose().map_err(internal)?)
        };
        // After a restart of the runtime nothing is held, but the process may still run.
        let process = match process {
            Some(process) => Some(process),
            None => {
                let found = started.process();
                found.map(|process| process.as_fd().try_clone_to_owned()).transpose().map_err(internal)?
            }
        };
        let call = Call::Adopt { container: container.id.clone(), process: process.is_some() };
        connected.ask(call, process.into_iter().chain(input).collect()).await?;
        Ok(())
    }

    /// Takes note of what ended while nobody listened.
    pub(crate) async fn miss(self: &Arc<Self>, sandbox: &str, running: &[String]) {
        for container in self.containers_of(sandbox) {
            let is_lost =
                matches!(*container.status.borrow(), Status::Running(..)) && !running.contains(&container.id);
            if is_lost {
                self.kill_orphan(&container).await;
            }
        }
    }

    /// There is no shim and will be none: the sandbox is not ready, and its containers end.
    pub(crate) async fn abandon(self: &Arc<Self>, id: &str) {
        let shim = {
            let mut tables = self.tables.lock();
            tables.mending.remove(id);
            tables.sandboxes.get_mut(id).and_then(|sandbox| sandbox.shim.take())
        };
        if let Some(shim) = shim {
            shim.give_up();
        }
        self.miss(id, &[]).await;
        self.emit(id, id, v1::ContainerEventType::ContainerStoppedEvent);
    }
}
