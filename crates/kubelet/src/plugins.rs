//! Learns of plugins by the sockets in `plugins_registry/` and the folders below it: what comes is asked who it is, what
//! goes is forgotten. What begins with a dot is not looked at.
//!
//! Source: `pkg/kubelet/pluginmanager`; the calls are `pluginregistration.Registration`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Tasks};
use csi::client::Client;
use csi::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use csi::v1::{NodeGetInfoRequest, NodeGetInfoResponse};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

use crate::kubelet::Kubelet;
use crate::node_resources::device_plugins::DevicePluginError;
use crate::node_resources::dra::DraError;
use crate::node_resources::{device_plugins, dra};
use crate::volumes::csi::version::Version;
use crate::volumes::csi::{AlreadyRegistered, Driver, registration};

/// Before a plugin that does not answer is asked again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Folders below each other that are looked at.
const DEPTH_MAX: usize = 8;

/// Each socket with what tells it from others, and the tasks of what has registered there.
type Known = BTreeMap<PathBuf, (Identity, Tasks)>;
/// What tells one socket from another that has come in its place.
type Identity = (u64, i64, i64);

/// Watches until the tasks end.
pub(crate) async fn run(context: Arc<Kubelet>) {
    let folder = context.config.root_dir.join("plugins_registry");
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.1);
    let mut known = Known::new();
    loop {
        if let Err(error) = watch(&context, &folder, &mut known).await {
            tracing::warn!(%error, folder = %folder.display(), "plugins cannot be watched");
        }
        tokio::time::sleep(backoff.next(&context.random)).await;
    }
}

/// An inotify instance that tokio can wait for.
struct Watch(Inotify);

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[expect(deprecated, reason = "the replacement is unsafe code, and the descriptor is the inotify's own")]
fn watcher() -> std::io::Result<AsyncFd<Watch>> {
    AsyncFd::new(Watch(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?))
}

async fn watch(context: &Arc<Kubelet>, folder: &Path, known: &mut Known) -> std::io::Result<()> {
    let changes = watcher()?;
    loop {
        let mut found = BTreeMap::new();
        let walked = walk(&changes.get_ref().0, folder, DEPTH_MAX, &mut found);
        follow(context, known, found);
        walked?;
        let mut ready = changes.readable().await?;
        while changes.get_ref().0.read_events().is_ok() {}
        ready.clear_ready();
    }
}

/// Forgets sockets that have gone or been replaced, and asks new ones who they are.
fn follow(context: &Arc<Kubelet>, known: &mut Known, found: BTreeMap<PathBuf, Identity>) {
    known.retain(|path, (identity, tasks)| {
        let is_there = found.get(path) == Some(&*identity);
        if !is_there {
            tasks.stop();
        }
        is_there
    });
    for (path, identity) in found {
        if let Entry::Vacant(new) = known.entry(path) {
            let tasks = context.tasks.child();
            context.tasks.spawn("plugin", keep(context.clone(), new.key().clone(), tasks.clone()));
            new.insert((identity, tasks));
        }
    }
}

/// Finds the sockets in a folder and below it. Each folder is watched before it is read, so that what comes meanwhile is
/// found by one or the other. Source: `traversePluginDir` of `pkg/kubelet/pluginmanager/pluginwatcher`.
fn walk(
    watch: &Inotify,
    folder: &Path,
    depth_left: usize,
    found: &mut BTreeMap<PathBuf, Identity>,
) -> std::io::Result<()> {
    let flags = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR
        | AddWatchFlags::IN_DONT_FOLLOW;
    watch.add_watch(folder, flags)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        if is_hidden {
            continue;
        }
        if meta.file_type().is_socket() {
            found.insert(path, (meta.ino(), meta.ctime(), meta.ctime_nsec()));
        } else if meta.is_dir() && depth_left > 0 {
            match walk(watch, &path, depth_left - 1, found) {
                Err(error) if is_gone(&error) => {}
                walked => walked?,
            }
        }
    }
    Ok(())
}

/// Whether a folder went, or became something else, while it was looked at.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Registers the plugin behind a socket, and forgets it when the socket goes.
async fn keep(context: Arc<Kubelet>, socket: PathBuf, tasks: Tasks) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.1);
    let Registered { kind, name, id } = loop {
        let plugin = tokio::select! {
            () = tasks.stopping() => return,
            plugin = ask(&context, &socket) => plugin,
        };
        // Not given up halfway: what has been taken in is to be forgotten.
        let registered = match plugin {
            Ok(plugin) => register(&context, plugin, &tasks).await,
            Err(error) => Err(error),
        };
        match registered {
            Ok(registered) => break registered,
            Err(error) => tracing::info!(%error, socket = %socket.display(), "a plugin was not registered"),
        }
        tokio::select! {
            () = tasks.stopping() => return,
            () = tokio::time::sleep(backoff.next(&context.random)) => {}
        }
    };
    tracing::info!(driver = name, kind = kind.name(), "registered a driver");
    tasks.stopping().await;
    if context.tasks.is_stopping() {
        return;
    }
    match kind {
        Kind::Csi if context.volumes.csi.remove(&name, id) => {
            tracing::info!(driver = name, "a CSI driver is gone");
            if let Err(error) = registration::remove(&context.volumes, &name).await {
                tracing::warn!(%error, driver = name, "the CSINode still has a driver that is gone");
            }
        }
        Kind::Dra if context.resources.dra.remove(&name, id) => {
            tracing::info!(driver = name, "a DRA driver is gone");
            dra::driver_gone(&context.resources, &name);
        }
        // Its devices are followed as long as these tasks.
        Kind::Csi | Kind::Dra | Kind::Device => {}
    }
}

/// What registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Csi,
    Dra,
    Device,
}

impl Kind {
    /// As `PluginInfo.type` has it.
    fn name(self) -> &'static str {
        match self {
            Self::Csi => csi::CSI_PLUGIN,
            Self::Dra => dra::api::DRA_PLUGIN,
            Self::Device => device_plugins::api::DEVICE_PLUGIN,
        }
    }
}

/// A driver that has been taken in, and what it is known by.
struct Registered {
    kind: Kind,
    name: String,
    id: u64,
}

/// Why a plugin is not taken in; in upstream's words, which it is told.
#[derive(Debug, thiserror::Error)]
enum PluginError {
    /// Nobody takes plugins of its kind.
    #[error("no handler registered for plugin type: {0} at socket")]
    Kind(String),
    /// It speaks no version that is known.
    #[error("failed to get driver version: none of the driver's versions {0:?} is supported")]
    Versions(Vec<String>),
    /// It does not answer.
    #[error("{0}")]
    Call(#[source] Box<csi::Status>),
    /// One of its name is there.
    #[error(transparent)]
    Registered(#[from] AlreadyRegistered),
    #[error(transparent)]
    Dra(#[from] DraError),
    #[error(transparent)]
    Device(#[from] DevicePluginError),
    /// The API server does not take what the Node can do by it.
    #[error("error updating CSINode object with CSI driver node info: {0}")]
    Node(#[source] Box<kube::Error>),
}

impl From<csi::Status> for PluginError {
    fn from(status: csi::Status) -> Self {
        Self::Call(Box::new(status))
    }
}

/// What a plugin has said of itself.
struct Plugin {
    client: Client,
    info: PluginInfo,
    endpoint: PathBuf,
    /// What it is, or why it is not taken in.
    asked: Result<Asked, PluginError>,
}

enum Asked {
    Csi(Box<(Driver, NodeGetInfoResponse)>),
    Dra,
    Device,
}

/// Asks the plugin who it is.
async fn ask(context: &Kubelet, socket: &Path) -> Result<Plugin, PluginError> {
    let client = Client::new(socket);
    let info = client.get_info(InfoRequest {}).await?;
    let endpoint = match info.endpoint.as_str() {
        "" => socket.to_owned(),
        endpoint => PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint)),
    };
    let asked = match check(&info) {
        Ok(Kind::Csi) => ask_driver(&endpoint).await.map(|answers| Asked::Csi(Box::new(answers))),
        Ok(Kind::Dra) => {
            context.resources.dra.wiped().await;
            Ok(Asked::Dra)
        }
        Ok(Kind::Device) => Ok(Asked::Device),
        Err(why) => Err(why),
    };
    Ok(Plugin { client, info, endpoint, asked })
}

async fn ask_driver(endpoint: &Path) -> Result<(Driver, NodeGetInfoResponse), PluginError> {
    let driver = Driver::new(endpoint).await?;
    let info = driver.client.node_get_info(NodeGetInfoRequest {}).await?;
    Ok((driver, info))
}

/// Takes the plugin in and tells it what came of that, unless its socket goes meanwhile.
async fn register(context: &Arc<Kubelet>, plugin: Plugin, tasks: &Tasks) -> Result<Registered, PluginError> {
    let Plugin { client, info, endpoint, asked } = plugin;
    let done = match asked {
        Ok(Asked::Csi(answers)) => add(context, &info, *answers, tasks).await.map(|id| (Kind::Csi, id)),
        Ok(Asked::Dra) => {
            let added = context.resources.dra.insert(&info.name, &endpoint, &info.supported_versions);
            added.map(|id| (Kind::Dra, id)).map_err(PluginError::from)
        }
        Ok(Asked::Device) => {
            let taken =
                device_plugins::take(&context.resources, info.name.clone(), &endpoint, None, tasks.clone());
            taken.map(|()| (Kind::Device, 0)).map_err(PluginError::from)
        }
        Err(why) => Err(why),
    };
    let status = RegistrationStatus {
        plugin_registered: done.is_ok(),
        error: done.as_ref().err().map(ToString::to_string).unwrap_or_default(),
    };
    tokio::select! {
        () = tasks.stopping() => {}
        told = client.notify_registration_status(status) => if let Err(error) = told {
            tracing::info!(%error, plugin = info.name, "a plugin was not told of its registration");
        },
    }
    done.map(|(kind, id)| Registered { kind, name: info.name, id })
}

fn check(info: &PluginInfo) -> Result<Kind, PluginError> {
    if info.r#type == Kind::Dra.name() {
        return Ok(Kind::Dra);
    }
    if info.r#type == Kind::Device.name() {
        device_plugins::check(&info.name, &info.supported_versions)?;
        return Ok(Kind::Device);
    }
    if info.r#type != Kind::Csi.name() {
        return Err(PluginError::Kind(info.r#type.clone()));
    }
    version(info).map(|_| Kind::Csi)
}

/// The highest version of CSI that a driver speaks.
fn version(info: &PluginInfo) -> Result<Version, PluginError> {
    let versions = info.supported_versions.iter().map(String::as_str);
    Version::highest(versions).ok_or_else(|| PluginError::Versions(info.supported_versions.clone()))
}

/// Takes a driver in; one that the API is not told of is not there.
async fn add(
    context: &Kubelet,
    plugin: &PluginInfo,
    (driver, info): (Driver, NodeGetInfoResponse),
    tasks: &Tasks,
) -> Result<u64, PluginError> {
    let name = &plugin.name;
    let id = context.volumes.csi.insert(name, driver, version(plugin)?, tasks)?;
    registration::add(&context.volumes, name, &info).await.map(|()| id).map_err(|error| {
        context.volumes.csi.remove(name, id);
        PluginError::Node(Box::new(error))
    })
}

#[cfg(test)]
mod tests;
