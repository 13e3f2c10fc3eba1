//! Learns of plugins by the sockets in `plugins_registry/`: what comes is asked who it is, what goes is forgotten.
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
use csi::registration::{InfoRequest, RegistrationStatus};
use csi::v1::NodeGetInfoRequest;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

use crate::context::Context;
use crate::csi::{Driver, registration};
use crate::dra;

/// Before a plugin that does not answer is asked again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// What tells one socket from another that has come in its place.
type Identity = (u64, i64, i64);

/// Watches until the tasks end.
pub(crate) async fn run(context: Arc<Context>) {
    let folder = context.config.root_dir.join("plugins_registry");
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.1);
    loop {
        if let Err(error) = watch(&context, &folder).await {
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
fn changes_of(folder: &Path) -> std::io::Result<AsyncFd<Watch>> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVE;
    inotify.add_watch(folder, flags)?;
    AsyncFd::new(Watch(inotify))
}

async fn watch(context: &Arc<Context>, folder: &Path) -> std::io::Result<()> {
    let changes = changes_of(folder)?;
    let mut known: BTreeMap<PathBuf, (Identity, Tasks)> = BTreeMap::new();
    loop {
        let found = sockets(folder)?;
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
        let mut ready = changes.readable().await?;
        while changes.get_ref().0.read_events().is_ok() {}
        ready.clear_ready();
    }
}

fn sockets(folder: &Path) -> std::io::Result<BTreeMap<PathBuf, Identity>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        if meta.file_type().is_socket() && !is_hidden {
            found.insert(path, (meta.ino(), meta.ctime(), meta.ctime_nsec()));
        }
    }
    Ok(found)
}

/// Registers the plugin behind a socket, and forgets it when the socket goes.
async fn keep(context: Arc<Context>, socket: PathBuf, tasks: Tasks) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.1);
    let registered = loop {
        let attempt = tokio::select! {
            () = tasks.stopping() => return,
            attempt = register(&context, &socket) => attempt,
        };
        match attempt {
            Ok(registered) => break registered,
            Err(error) => tracing::info!(error, socket = %socket.display(), "a plugin was not registered"),
        }
        tokio::select! {
            () = tasks.stopping() => return,
            () = tokio::time::sleep(backoff.next(&context.random)) => {}
        }
    };
    let Registered { kind, name, id } = registered;
    tracing::info!(driver = name, kind = kind.name(), "registered a driver");
    tasks.stopping().await;
    if context.tasks.is_stopping() {
        return;
    }
    match kind {
        Kind::Csi if context.csi.remove(&name, id) => {
            tracing::info!(driver = name, "a CSI driver is gone");
            if let Err(error) = registration::remove(&context, &name).await {
                tracing::warn!(%error, driver = name, "the CSINode still has a driver that is gone");
            }
        }
        Kind::Dra if context.dra.remove(&name, id) => {
            tracing::info!(driver = name, "a DRA driver is gone");
            dra::driver_gone(&context, &name);
        }
        Kind::Csi | Kind::Dra => {}
    }
}

/// What registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Csi,
    Dra,
}

impl Kind {
    /// As `PluginInfo.type` has it.
    fn name(self) -> &'static str {
        match self {
            Self::Csi => csi::CSI_PLUGIN,
            Self::Dra => dra::api::DRA_PLUGIN,
        }
    }
}

/// A driver that has been taken in, and what it is known by.
struct Registered {
    kind: Kind,
    name: String,
    id: u64,
}

/// Asks the plugin who it is and tells it what came of that.
async fn register(context: &Context, socket: &Path) -> Result<Registered, String> {
    let client = Client::new(socket);
    let info = client.get_info(InfoRequest {}).await.map_err(|error| error.to_string())?;
    let endpoint = match info.endpoint.as_str() {
        "" => socket.to_owned(),
        endpoint => PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint)),
    };
    let done = match check(&info) {
        Ok(Kind::Csi) => add(context, &info.name, &endpoint).await.map(|id| (Kind::Csi, id)),
        Ok(Kind::Dra) => {
            context.dra.wiped().await;
            let added = context.dra.insert(&info.name, &endpoint, &info.supported_versions);
            added.map(|id| (Kind::Dra, id))
        }
        Err(why) => Err(why),
    };
    let status = RegistrationStatus {
        plugin_registered: done.is_ok(),
        error: done.as_ref().err().cloned().unwrap_or_default(),
    };
    let told = client.notify_registration_status(status).await;
    if let Err(error) = told {
        tracing::info!(%error, plugin = info.name, "a plugin was not told of its registration");
    }
    done.map(|(kind, id)| Registered { kind, name: info.name, id })
}

fn check(info: &csi::registration::PluginInfo) -> Result<Kind, String> {
    if info.r#type == Kind::Dra.name() {
        return Ok(Kind::Dra);
    }
    if info.r#type != Kind::Csi.name() {
        return Err(format!("no handler registered for plugin type: {} at socket", info.r#type));
    }
    if !info.supported_versions.iter().any(|version| version.trim_start_matches('v').starts_with("1.")) {
        return Err(format!(
            "failed to get driver version: none of the driver's versions {:?} is supported",
            info.supported_versions
        ));
    }
    Ok(Kind::Csi)
}

async fn add(context: &Context, name: &str, endpoint: &Path) -> Result<u64, String> {
    let driver = Driver::new(endpoint).await.map_err(|error| error.to_string())?;
    let info = driver.client.node_get_info(NodeGetInfoRequest {}).await.map_err(|error| error.to_string())?;
    let id = context.csi.insert(name, driver);
    let told = registration::add(context, name, &info).await;
    let told =
        told.map_err(|error| format!("error updating CSINode object with CSI driver node info: {error}"));
    told.map(|()| id)
}
