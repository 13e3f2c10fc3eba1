//! A runtime that starts: what its data directory says, and what of it still runs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use prost::Message;
use tokio::sync::watch;

use crate::client::ShimClient;
use crate::config::Config;
use crate::images::import::Hints;
use crate::images::{Image, ImageError, ImageStore, builtin, import};
use crate::sandboxes::end_shim;
use crate::shim::layout::{self, Exited, Started};
use crate::state::{
    Container, ContainerRecord, Inner, OpenError, Runtime, Sandbox, SandboxRecord, Status, blocking,
    internal, netns_prefix, sandboxes_dir,
};

/// How long processes may take to die when everything is removed.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

impl Runtime {
    /// Opens the runtime of a data directory and takes up what runs there.
    ///
    /// # Errors
    /// The directory or the host cannot be used.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let (images, cgroups) = open_stores(&config)?;
        let inner = Inner::new(config, images, cgroups, host_capabilities());
        inner.puller.check_settings()?;
        inner.show_names().await;
        inner.images.clear_downloads(inner.config.clock.now().into());
        for id in names_in(&sandboxes_dir(&inner.config.data_dir)) {
            match load_sandbox(&inner, &id) {
                Ok(Some(sandbox)) if sandbox.record.is_made => inner.take_up(sandbox).await,
                Ok(Some(sandbox)) => inner.take_back(sandbox).await,
                Ok(None) => discard(&inner, &id),
                Err(error) => tracing::warn!(sandbox = %id, %error, "cannot read a sandbox"),
            }
        }
        inner.collect_network().await;
        let this = Arc::clone(&inner);
        on_thread(move || this.images.collect(&this.layers_in_use())).await?;
        Ok(Self(inner))
    }

    /// Imports every image in a docker-archive, an OCI layout or a root file system tar.
    ///
    /// # Errors
    /// The archive is broken or too large, or the disk failed.
    pub async fn import_image(
        &self,
        reader: impl io::Read + Send + 'static,
        hints: Hints,
    ) -> Result<Vec<Image>, ImageError> {
        let inner = Arc::clone(&self.0);
        on_thread(move || import::import(&inner.images, reader, &hints, &inner.config.random)).await
    }

    /// Imports the images of an OCI layout in a directory.
    ///
    /// # Errors
    /// As [`Runtime::import_image`].
    pub async fn import_image_dir(&self, dir: &Path, hints: Hints) -> Result<Vec<Image>, ImageError> {
        let (inner, dir) = (Arc::clone(&self.0), dir.to_owned());
        on_thread(move || import::import_dir(&inner.images, &dir, &hints, &inner.config.random)).await
    }

    /// Makes the built-in image [`builtin::HELLO`] if it is not there.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn ensure_builtin_images(&self) -> Result<Image, ImageError> {
        let inner = Arc::clone(&self.0);
        on_thread(move || builtin::ensure(&inner.images, &inner.layers_in_use(), &inner.config.random)).await
    }

    /// The images.
    pub fn images(&self) -> &Arc<ImageStore> {
        &self.0.images
    }

    /// Ends every sandbox and removes all that the runtime made: processes, namespaces, mounts, cgroups, files.
    /// Says what is left if something could not be removed; may be repeated.
    ///
    /// # Errors
    /// The first thing that could not be removed.
    pub async fn remove_everything(&self) -> Result<(), OpenError> {
        let inner = &self.0;
        let sandboxes: Vec<String> = inner.tables.lock().sandboxes.keys().cloned().collect();
        for id in sandboxes {
            if let Err(error) = inner.remove_pod_sandbox(&id).await {
                tracing::warn!(sandbox = %id, %error, "cannot remove a sandbox; its remains are removed by force");
            }
        }
        let inner = Arc::clone(inner);
        let removed = tokio::task::spawn_blocking(move || {
            clean_up(&inner.config.data_dir, &inner.config.cgroup_root, &inner.cgroups)
        });
        removed
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)).map_err(directory_error(Path::new(""))))
    }
}

/// Removes all that a runtime made, also if none is running: for `knarr reset`.
///
/// # Errors
/// The first thing that could not be removed.
pub fn clean_up(data_dir: &Path, cgroup_root: &str, cgroups: &sys::cgroup::Cgroups) -> Result<(), OpenError> {
    remove_sandboxes(data_dir, cgroup_root, cgroups)?;
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    remove_folder(&data_dir.join("images"))
}

/// Removes all sandboxes and their containers, also if no runtime is running; images stay.
///
/// # Errors
/// The first thing that could not be removed.
pub fn remove_sandboxes(
    data_dir: &Path,
    cgroup_root: &str,
    cgroups: &sys::cgroup::Cgroups,
) -> Result<(), OpenError> {
    if !cgroup_root.trim_matches('/').is_empty() {
        cgroups.kill(cgroup_root, KILL_TIMEOUT)?;
        sys::netns::NetNsFolder::of_host(netns_prefix(cgroup_root)).leave()?;
    }
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    // A disk that somebody has mounted elsewhere in the folder, or for all images, is theirs.
    sys::mount::detach_inside(&sandboxes_dir(&data_dir))?;
    cgroups.remove(cgroup_root)?;
    remove_folder(&sandboxes_dir(&data_dir))
}

/// Removes a folder with all that is not mounted in it.
fn remove_folder(path: &Path) -> Result<(), OpenError> {
    let kept: Vec<_> = sys::mount::mounts()?.into_iter().map(|mount| mount.target).collect();
    if path.exists() {
        sys::tree::empty_beside(path, &kept).map_err(directory_error(path))?;
        sys::tree::remove_beside(path, &kept).map_err(directory_error(path))?;
    }
    Ok(())
}

/// Layers that the containers of a data directory are made of, whether a runtime is at work there or not.
///
/// # Errors
/// What is written down of a container cannot be read.
pub fn layers_in_use(data_dir: &Path) -> io::Result<std::collections::BTreeSet<String>> {
    let mut layers = std::collections::BTreeSet::new();
    let sandboxes = sandboxes_dir(data_dir);
    for sandbox in names_in(&sandboxes) {
        let dir = sandboxes.join(&sandbox);
        for id in names_in(&dir.join("containers")) {
            let path = layout::container_dir(&dir, &id).join("container.json");
            let record: Option<ContainerRecord> = layout::read_json(&path)?;
            layers.extend(record.into_iter().flat_map(|record| record.layers));
        }
    }
    Ok(layers)
}

fn open_stores(config: &Config) -> Result<(Arc<ImageStore>, sys::cgroup::Cgroups), OpenError> {
    use std::os::unix::fs::PermissionsExt;
    let dir = sandboxes_dir(&config.data_dir);
    // What containers write is below. Each sandbox is closed to everyone, but those with users of their own to these.
    std::fs::create_dir_all(&dir).map_err(directory_error(&dir))?;
    for dir in [&config.data_dir, &dir] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711))
            .map_err(directory_error(dir))?;
    }
    let images = ImageStore::open(&config.data_dir.join("images"))?;
    Ok((Arc::new(images), sys::cgroup::Cgroups::detect()?))
}

fn directory_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Directory { path, source }
}

async fn on_thread<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let joined = tokio::task::spawn_blocking(f).await;
    joined.unwrap_or_else(|error| Err(ImageError::io("work on an image")(io::Error::other(error))))
}

/// What this process may give to containers.
fn host_capabilities() -> Vec<String> {
    let bounding = caps::read(None, caps::CapSet::Bounding).unwrap_or_default();
    let mut names: Vec<String> = bounding.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// `None` if it was being made when the last runtime ended.
fn load_sandbox(inner: &Inner, id: &str) -> io::Result<Option<Sandbox>> {
    let dir = inner.sandbox_dir(id);
    let Some(record) = layout::read_json::<SandboxRecord>(&dir.join("sandbox.json"))? else {
        return Ok(None);
    };
    let Some(config) = read_message::<v1::PodSandboxConfig>(&dir.join("config.pb"))? else { return Ok(None) };
    Ok(Some(Sandbox { id: id.to_owned(), config, record, shim: None, is_disconnected: false }))
}

fn load_container(inner: &Inner, sandbox: &str, id: &str) -> io::Result<Option<Container>> {
    let dir = layout::container_dir(&inner.sandbox_dir(sandbox), id);
    let Some(record) = layout::read_json::<ContainerRecord>(&dir.join("container.json"))? else {
        return Ok(None);
    };
    let Some(config) = read_message::<v1::ContainerConfig>(&dir.join("config.pb"))? else { return Ok(None) };
    // Whoever wanted one is gone.
    layout::remove_beginning_with(&dir, layout::EXEC)?;
    let started: Option<Started> = layout::read_json(&dir.join(layout::STARTED))?;
    let exited: Option<Exited> = layout::read_json(&dir.join(layout::EXITED))?;
    let status = match (started, exited) {
        (started, Some(exited)) => {
            Status::Exited { started_at: started.map_or(0, |started| started.at), exited }
        }
        (Some(started), None) => Status::Running(started),
        (None, None) => Status::Created,
    };
    let status = watch::Sender::new(status);
    Ok(Some(Container { id: id.to_owned(), sandbox: sandbox.to_owned(), config, record, status }))
}

fn read_message<T: Message + Default>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => T::decode(bytes.as_slice()).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a directory that a crash left half-made.
fn discard(inner: &Inner, id: &str) {
    let dir = inner.sandbox_dir(id);
    if let Err(error) = sys::tree::remove(&dir) {
        tracing::warn!(sandbox = %id, %error, "cannot remove a half-made sandbox");
    }
}

impl Inner {
    /// Undoes a sandbox whose making a crash interrupted: nobody was told of it.
    async fn take_back(self: &Arc<Self>, sandbox: Sandbox) {
        if let Ok(shim) = self.shim_client(&sandbox.id, &self.sandbox_dir(&sandbox.id))
            && let Err(error) = end_shim(&shim).await
        {
            tracing::warn!(sandbox = %sandbox.id, %error, "cannot end the shim of a half-made sandbox");
        }
        if let Err(error) = self.take_down(&sandbox).await {
            tracing::warn!(sandbox = %sandbox.id, %error, "cannot take back a half-made sandbox");
        }
    }

    /// Connects to the sandbox's shim, or finds that it is gone.
    async fn take_up(self: &Arc<Self>, mut sandbox: Sandbox) {
        let id = sandbox.id.clone();
        let mut containers = BTreeMap::new();
        for name in names_in(&self.sandbox_dir(&id).join("containers")) {
            match load_container(self, &id, &name) {
                Ok(Some(container)) => drop(containers.insert(name, container)),
                Ok(None) => discard_container(self, &id, &name),
                Err(error) => tracing::warn!(container = %name, %error, "cannot read a container"),
            }
        }
        let is_of_this_boot = sandbox.record.boot_id == self.boot_id;
        let shim = (!sandbox.record.is_stopped && is_of_this_boot).then(ShimClient::unconnected);
        sandbox.shim.clone_from(&shim);
        {
            let mut tables = self.tables.lock();
            tables.sandboxes.insert(id.clone(), sandbox);
            tables.containers.extend(containers);
            if shim.is_some() {
                tables.recovering.insert(id.clone());
            }
        }
        if shim.is_some() {
            self.show_again(&id).await;
        }
        let Some(shim) = shim else {
            self.end_all(&id).await;
            self.take_down_stopped(&id).await;
            return;
        };
        self.recover_or_abandon(&id).await;
        for container in self.containers_of(&id) {
            let status = container.status.borrow().clone();
            if let Status::Running(started) = status {
                self.hold(&shim, &container, &started).await;
            }
        }
        self.check_network(&id).await;
    }

    /// Before any Pod mounts the folder of names.
    async fn show_names(self: &Arc<Self>) {
        if self.config.network.is_none() {
            return;
        }
        let this = Arc::clone(self);
        let shared = blocking(move || this.netns_names.share().map_err(internal)).await;
        if let Err(error) = shared {
            tracing::warn!(%error, "network namespaces cannot be shown to others");
        }
    }

    /// The name of a sandbox's network namespace, should somebody have taken it away.
    async fn show_again(self: &Arc<Self>, id: &str) {
        let Ok(sandbox) = self.sandbox(id) else { return };
        let (Some(netns), Some(name)) = (sandbox.record.netns, sandbox.record.netns_name) else { return };
        let this = Arc::clone(self);
        let shown = blocking(move || this.netns_names.show(&netns, &name).map_err(internal)).await;
        if let Err(error) = shown {
            tracing::warn!(sandbox = %id, %error, "the sandbox's network namespace cannot be shown to others");
        }
    }

    /// What the last runtime may not have come to.
    async fn take_down_stopped(self: &Arc<Self>, id: &str) {
        let Some(sandbox) = self.sandbox(id).ok().filter(|it| it.record.is_stopped) else { return };
        if let Err(error) = self.finish_stopping(&sandbox).await {
            tracing::warn!(sandbox = %id, %error, "cannot take down a stopped sandbox");
        }
    }

    /// A sandbox that is not connected as it was left is not ready: the kubelet makes another.
    async fn check_network(&self, id: &str) {
        let Ok(sandbox) = self.sandbox(id) else { return };
        if sandbox.shim.is_none() {
            return;
        }
        let (Some(network), Some(attachment)) = (&self.config.network, self.network_of(&sandbox)) else {
            return;
        };
        let Err(error) = network.check(&attachment).await else { return };
        tracing::warn!(sandbox = %id, error = base::error_chain(&*error), "the sandbox's network is broken");
        if let Some(sandbox) = self.tables.lock().sandboxes.get_mut(id) {
            sandbox.is_disconnected = true;
        }
    }

    /// Frees what the network holds for sandboxes that are not there.
    async fn collect_network(&self) {
        let Some(network) = &self.config.network else { return };
        let in_use = {
            let tables = self.tables.lock();
            let running = tables.sandboxes.values().filter(|sandbox| !sandbox.record.is_stopped);
            running.map(|sandbox| sandbox.id.clone()).collect()
        };
        if let Err(error) = network.retain(in_use).await {
            tracing::warn!(
                error = base::error_chain(&*error),
                "cannot free what the network holds for sandboxes that are gone"
            );
        }
    }
}

fn discard_container(inner: &Inner, sandbox: &str, id: &str) {
    let dir = layout::container_dir(&inner.sandbox_dir(sandbox), id);
    if let Err(error) = sys::tree::remove(&dir) {
        tracing::warn!(container = %id, %error, "cannot remove a half-made container");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(names_in(dir.path()), ["a", "b"]);
        assert!(names_in(&dir.path().join("none")).is_empty());
    }
}
