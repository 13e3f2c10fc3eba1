//! Where the state is: in the cluster's folder, or on an etcd cluster that the user names.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base::{Backoff, Clock, Random};
use cli::args::DatastoreArgs;
use store::Store;
use store::embedded::{self, Embedded, Options};
use store::etcd::{self, ConnectError, Etcd};
use tokio::time::Instant;

use super::hand_over::as_control_plane;
use crate::layout::Layout;

/// Where the control plane finds the files that etcd's flags name: they may be readable for root alone.
const FILES: [&str; 3] = ["tls/etcd-ca.crt", "tls/etcd-client.crt", "tls/etcd-client.key"];

/// In the server's folder: says that there is a store, so that one that has gone is not taken for a new cluster's.
const MADE: &str = "db.made";

/// How long an etcd cluster that does not answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Copies what the control plane will need of the user's files into its own folder.
///
/// # Errors
/// If one cannot be read; if the data of an older cluster is gone.
pub(super) fn prepare(args: &DatastoreArgs, layout: &Layout) -> Result<()> {
    if args.datastore_endpoint.is_none() && as_control_plane(|| Ok(layout.server().join(MADE).exists()))? {
        as_control_plane(|| Ok(embedded::expect_data(&layout.db())?))?;
    }
    for ((flag, given), copy) in args.files().into_iter().zip(FILES) {
        let Some(path) = given else { continue };
        let pem = std::fs::read(path).with_context(|| format!("read {flag} {}", path.display()))?;
        as_control_plane(|| Ok(auth::pki::write_file(&layout.server().join(copy), &pem, 0o600)?))?;
    }
    Ok(())
}

/// Opens the state. The working directory is the server's folder.
///
/// # Errors
/// If the folder is in use, or no member of the etcd cluster answers.
pub(super) async fn open(args: &DatastoreArgs, clock: &Clock, random: &Random) -> Result<Arc<dyn Store>> {
    let Some(endpoints) = &args.datastore_endpoint else {
        let dir = Path::new("db");
        if Path::new(MADE).exists() {
            embedded::expect_data(dir)?;
        }
        let options = Options { clock: clock.clone(), ..Options::default() };
        let store = Embedded::open(dir, options).context("open the store")?;
        if let Err(error) = File::create(MADE) {
            tracing::warn!(%error, "it cannot be noted that there is a store");
        }
        return Ok(Arc::new(store));
    };
    let [a, b, c] = args.files().map(|(_, given)| given);
    let copies = [(a, FILES[0]), (b, FILES[1]), (c, FILES[2])];
    let files = copies.map(|(given, copy)| given.map(|_| Path::new(copy)));
    Ok(Arc::new(connect(endpoints, files, random).await?))
}

/// Connects to the etcd cluster before there is a control plane, with the user's own files. A cluster that is just
/// starting too is waited for.
///
/// # Errors
/// If a file cannot be read, or no member answers in time.
pub(super) async fn connect_early(args: &DatastoreArgs, random: &Random) -> Result<Etcd> {
    let endpoints = args.datastore_endpoint.as_deref().unwrap_or_default();
    let files = args.files().map(|(_, given)| given);
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2), 0.5);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let failed = match connect(endpoints, files, random).await {
            Ok(etcd) => return Ok(etcd),
            Err(error) => error,
        };
        let may_come = matches!(failed.downcast_ref(), Some(ConnectError::Unreachable(_)));
        if !may_come || Instant::now() >= deadline {
            return Err(failed);
        }
        tracing::info!(error = format!("{failed:#}"), "etcd is waited for");
        tokio::time::sleep(backoff.next(random)).await;
    }
}

/// Authority, certificate and key are in `files`.
async fn connect(endpoints: &str, files: [Option<&Path>; 3], random: &Random) -> Result<Etcd> {
    let [authority_pem, certificate, key] = files.map(|path| {
        path.map(|path| std::fs::read(path).with_context(|| format!("read {}", path.display()))).transpose()
    });
    let options = etcd::Options {
        endpoints: endpoints.split(',').map(|url| url.trim().to_owned()).collect(),
        authority_pem: authority_pem?,
        identity_pem: certificate?.zip(key?),
        random: random.clone(),
    };
    Etcd::connect(options).await.context("--datastore-endpoint")
}
