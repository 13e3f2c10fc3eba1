//! Where the state is: in the cluster's folder, or on an etcd cluster that the user names.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use base::{Clock, Random};
use cli::args::DatastoreArgs;
use store::Store;
use store::embedded::{Embedded, Options};
use store::etcd::{self, Etcd};

use crate::layout::Layout;

/// Where the control plane finds the files that etcd's flags name: they may be readable for root alone.
const FILES: [&str; 3] = ["tls/etcd-ca.crt", "tls/etcd-client.crt", "tls/etcd-client.key"];

/// Copies what the control plane will need of the user's files into its own folder.
///
/// # Errors
/// If one cannot be read.
pub(super) fn prepare(args: &DatastoreArgs, layout: &Layout) -> Result<()> {
    for ((flag, given), copy) in args.files().into_iter().zip(FILES) {
        let Some(path) = given else { continue };
        let pem = std::fs::read(path).with_context(|| format!("read {flag} {}", path.display()))?;
        auth::pki::write_file(&layout.server().join(copy), &pem, 0o600)?;
    }
    Ok(())
}

/// Opens the state. The working directory is the server's folder.
///
/// # Errors
/// If the folder is in use, or no member of the etcd cluster answers.
pub(super) async fn open(args: &DatastoreArgs, clock: &Clock, random: &Random) -> Result<Arc<dyn Store>> {
    let Some(endpoints) = &args.datastore_endpoint else {
        let options = Options { clock: clock.clone(), ..Options::default() };
        return Ok(Arc::new(Embedded::open(Path::new("db"), options).context("open the store")?));
    };
    let [authority_pem, certificate, key] = {
        let read = |(given, copy): (Option<_>, _)| given.map(|_| std::fs::read(copy)).transpose();
        let [a, b, c] = args.files().map(|(_, given)| given);
        [read((a, FILES[0])), read((b, FILES[1])), read((c, FILES[2]))]
    };
    let options = etcd::Options {
        endpoints: endpoints.split(',').map(|url| url.trim().to_owned()).collect(),
        authority_pem: authority_pem?,
        identity_pem: certificate?.zip(key?),
        random: random.clone(),
    };
    Ok(Arc::new(Etcd::connect(options).await.context("--datastore-endpoint")?))
}
