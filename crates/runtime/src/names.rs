//! The owners of names: no two sandboxes have the same, nor two containers of a Pod.
//!
//! What is there holds its name by being there, also after a restart and until it is removed; what is being made holds
//! it by a [`Reservation`]. Who asks again because the answer was long in coming makes nothing twice: the name is
//! refused until what was asked for first is listed or has failed. Source: `makeSandboxName`, `makeContainerName` and
//! `Registrar` of containerd.

use std::sync::Arc;

use cri::{CriError, CriResult, v1};

use crate::state::{Inner, Name, Sandbox, Tables};

/// A name is kept for what is being made, until this is dropped. Not to be dropped by who holds the tables.
pub(crate) struct Reservation {
    runtime: Arc<Inner>,
    name: Name,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.runtime.tables.lock().being_made.remove(&self.name);
    }
}

impl Inner {
    /// Keeps the name of a sandbox that is to be made.
    pub(crate) fn reserve_sandbox(
        self: &Arc<Self>,
        id: &str,
        pod: &v1::PodSandboxMetadata,
    ) -> CriResult<Reservation> {
        let name = format!("{}_{}_{}_{}", pod.name, pod.namespace, pod.uid, pod.attempt);
        self.reserve(("sandbox", name), id, |tables| {
            let mut all = tables.sandboxes.values();
            all.find(|it| it.config.metadata.as_ref() == Some(pod)).map(|it| it.id.clone())
        })
    }

    /// Keeps the name of a container that is to be made: all sandboxes of a Pod share them.
    pub(crate) fn reserve_container(
        self: &Arc<Self>,
        id: &str,
        sandbox: &Sandbox,
        container: &v1::ContainerMetadata,
    ) -> CriResult<Reservation> {
        let pod = sandbox.metadata();
        let name =
            format!("{}_{}_{}_{}_{}", container.name, pod.name, pod.namespace, pod.uid, container.attempt);
        let is_of_pod = |other: &v1::PodSandboxMetadata| {
            (&other.name, &other.namespace, &other.uid) == (&pod.name, &pod.namespace, &pod.uid)
        };
        self.reserve(("container", name), id, |tables| {
            let mut all = tables.containers.values();
            let same = all.find(|it| {
                let of = tables.sandboxes.get(&it.sandbox).and_then(|of| of.config.metadata.as_ref());
                it.config.metadata.as_ref() == Some(container) && of.is_some_and(is_of_pod)
            });
            same.map(|it| it.id.clone())
        })
    }

    fn reserve(
        self: &Arc<Self>,
        name: Name,
        id: &str,
        holder: impl FnOnce(&Tables) -> Option<String>,
    ) -> CriResult<Reservation> {
        let mut tables = self.tables.lock();
        if let Some(holder) = tables.being_made.get(&name).cloned().or_else(|| holder(&tables)) {
            let (what, name) = name;
            return Err(CriError::Internal(format!(
                "failed to reserve {what} name {name:?}: name {name:?} is reserved for {holder:?}"
            )));
        }
        tables.being_made.insert(name.clone(), id.to_owned());
        Ok(Reservation { runtime: Arc::clone(self), name })
    }
}
