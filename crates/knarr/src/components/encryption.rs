//! How values are encrypted in the store: by the user's file, or under a key that the cluster has made for itself.
//!
//! The cluster's own file is made once and changed by its administrator alone; losing it is losing the Secrets. The
//! supervisor, which is root, hands the file in use to the control plane, which is not, and does so again when it
//! changes, here or on another server of the cluster. A file that cannot be used is told at the start; later on, the one
//! before it stays in use.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use apiserver::ApiServer;
use cli::api_server::ApiServerArgs;
use encryption::Config;
use tracing::{error, warn};

use super::Settings;
use super::changes::Changes;
use super::hand_over::{SECRET_MODE, as_control_plane, take_in_new, write_secret};
use super::shared::{ENCRYPTION as OWN, Others};
use crate::layout::Layout;

const FLAG: &str = "--encryption-provider-config";
/// A copy of the user's, for the control plane.
const COPY: &str = "cred/encryption-provider-config.yaml";

/// What the control plane reads.
fn in_use(args: &ApiServerArgs) -> &'static Path {
    Path::new(if args.encryption_provider_config.is_some() { COPY } else { OWN })
}

/// Whether changes count while the server runs; those of the cluster's own file always do.
fn is_reloaded(args: &ApiServerArgs) -> bool {
    args.encryption_provider_config.is_none() || args.encryption_provider_config_automatic_reload
}

/// Makes the cluster's own configuration, or takes the user's.
///
/// # Errors
/// If the user's cannot be read or used, or nothing can be written.
pub(super) fn prepare(args: &ApiServerArgs, layout: &Layout) -> Result<()> {
    let folder = layout.server();
    as_control_plane(|| {
        std::fs::create_dir_all(folder.join("cred")).context("make the folder of credentials")
    })?;
    let Some(path) = &args.encryption_provider_config else {
        return as_control_plane(|| ensure_own(&folder));
    };
    let text = std::fs::read(path).with_context(|| format!("{FLAG}: read {}", path.display()))?;
    let reloads = args.encryption_provider_config_automatic_reload;
    Config::parse(&text, reloads).with_context(|| format!("{FLAG} {}", path.display()))?;
    write_secret(&text, &folder.join(COPY))
}

/// Makes the cluster's own configuration, unless it is there.
///
/// # Errors
/// If it cannot be written.
pub(super) fn ensure_own(server_folder: &Path) -> Result<()> {
    let path = server_folder.join(OWN);
    if path.exists() {
        return Ok(());
    }
    auth::pki::write_file(&path, encryption::keys::generate()?.as_bytes(), SECRET_MODE)?;
    Ok(())
}

/// Reads what [`prepare`] left; whether there will be others. The working directory is the server's folder.
///
/// # Errors
/// If it cannot be used.
pub(super) fn load(args: &ApiServerArgs) -> Result<(Config, bool)> {
    let (path, reloads) = (in_use(args), is_reloaded(args));
    let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let config = Config::parse(&text, reloads).with_context(|| format!("server/{}", path.display()))?;
    Ok((config, reloads))
}

/// In the control plane: takes every change of the file in use. Ends only if it cannot be followed.
pub(super) async fn follow(args: ApiServerArgs, server: &ApiServer) -> Result<()> {
    if !is_reloaded(&args) {
        return Ok(());
    }
    let path = in_use(&args);
    let mut changes = Changes::of(path)?;
    loop {
        // Also at the beginning: it may have changed since it was loaded. What is in use already is not taken again.
        match std::fs::read(path) {
            Err(failure) => warn!(%failure, "the changed encryption configuration cannot be read yet"),
            Ok(text) => {
                if let Err(failure) = server.reload_encryption(&text).await {
                    error!(%failure, "the changed encryption configuration cannot be used; the old one stays");
                }
            }
        }
        changes.next().await?;
    }
}

/// In the supervisor: hands every change on to the control plane, and to the other servers; and takes theirs. Never
/// ends.
pub(crate) async fn hand_on(settings: &Settings, layout: &Layout) {
    if is_reloaded(&settings.args.api_server)
        && let Err(failure) = hand_on_changes(settings, layout).await
    {
        let failure = format!("{failure:#}");
        error!(failure, "changes of the encryption configuration count after a restart only");
    }
    std::future::pending().await
}

async fn hand_on_changes(settings: &Settings, layout: &Layout) -> Result<()> {
    let args = &settings.args.api_server;
    let target = layout.server().join(in_use(args));
    let source = args.encryption_provider_config.as_deref().unwrap_or(&target);
    let mut changes = Changes::of(source)?;
    let mut others = match is_shared(settings) {
        true => Some(Others::of(settings, layout).await?),
        false => None,
    };
    let is_own = args.encryption_provider_config.is_none();
    let read = || if is_own { read_own(layout, source) } else { Ok(std::fs::read(source)?) };
    // What `prepare` has left: the source may have changed since.
    let mut handed_on = read_own(layout, &target)?;
    loop {
        match read() {
            Ok(text) if text == handed_on => {}
            Ok(text) => match hand_on_one(settings, &text, &target, layout).await {
                Ok(()) => handed_on = text,
                Err(failure) => error!(failure = format!("{failure:#}"), "the control plane did not get it"),
            },
            Err(failure) => {
                warn!(failure = format!("{failure:#}"), "the encryption configuration is not there");
            }
        }
        tokio::select! {
            changed = changes.next() => changed?,
            others = changed_elsewhere(others.as_mut()) => match others.newer(layout, &handed_on).await {
                // The change of the file that follows is theirs and goes nowhere.
                Ok(Some(theirs)) => handed_on = theirs,
                Ok(None) => {}
                Err(failure) => {
                    let failure = format!("{failure:#}");
                    error!(failure, "what another server has changed of the encryption is not known here");
                }
            },
        }
    }
}

/// Whether the servers of the cluster have one file.
fn is_shared(settings: &Settings) -> bool {
    let args = &settings.args;
    args.datastore.datastore_endpoint.is_some() && args.api_server.encryption_provider_config.is_none()
}

/// Waits until another server may have changed the file; for ever if there is none.
async fn changed_elsewhere(others: Option<&mut Others>) -> &mut Others {
    match others {
        Some(others) => {
            others.changed().await;
            others
        }
        None => std::future::pending().await,
    }
}

async fn hand_on_one(settings: &Settings, text: &[u8], target: &Path, layout: &Layout) -> Result<()> {
    if settings.args.api_server.encryption_provider_config.is_some() {
        return write_secret(text, target);
    }
    // The control plane tells what is wrong with a file that cannot be used.
    if is_shared(settings)
        && Config::parse(text, true).is_ok()
        && let Err(failure) = super::shared::publish_encryption(settings, layout).await
    {
        let failure = format!("{failure:#}");
        error!(
            failure,
            "the other servers do not get the changed encryption keys until this one is started again"
        );
    }
    Ok(())
}

/// What the control plane's own file says. An editor leaves a new file of its user's behind, which becomes the control
/// plane's and nobody else's.
fn read_own(layout: &Layout, path: &Path) -> Result<Vec<u8>> {
    take_in_new(layout)?;
    as_control_plane(|| {
        // Whoever follows the file's changes hears of this one too.
        if path.metadata().is_ok_and(|is| is.permissions().mode() & 0o7777 != SECRET_MODE) {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(SECRET_MODE))?;
        }
        std::fs::read(path).with_context(|| format!("read {}", path.display()))
    })
}
