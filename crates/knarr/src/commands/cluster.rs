//! How the commands that only look find their cluster, and what they say when it cannot be reached.
//!
//! In this order: `--kubeconfig`; the folder that was named; `KUBECONFIG`; the usual folder. Where the administrator's
//! kubeconfig in a folder is not for this user to read, the one counts that `up` has made for them.

use std::error::Error as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cli::args::ClusterArgs;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::components::own_kubeconfig;
use crate::host::data_dir;
use crate::layout::Layout;

/// Where a cluster is unless something else is said.
pub(crate) const USUAL_DATA: &str = "/var/lib/knarr";

/// A cluster that is asked.
pub(crate) struct Asked {
    /// As whom.
    pub(crate) client: kube::Client,
    /// The namespace of the kubeconfig's context.
    pub(crate) namespace: String,
    url: String,
}

/// The folder of a cluster on this host, if that is what the arguments mean.
pub(crate) fn folder(args: &ClusterArgs) -> Result<Option<Layout>> {
    match &args.data_dir {
        Some(folder) => Ok(Some(Layout::new(folder)?)),
        None if args.kubeconfig.is_some() || named_by_environment() => Ok(None),
        None => Ok(Some(Layout::new(Path::new(USUAL_DATA))?)),
    }
}

/// The same, and the folder of the cluster that a kubeconfig is for, if it is on this host and this user may know.
pub(crate) fn here(args: &ClusterArgs) -> Option<Layout> {
    let config = match (&args.data_dir, &args.kubeconfig) {
        (None, Some(file)) => Kubeconfig::read_from(file).ok()?,
        (None, None) if named_by_environment() => Kubeconfig::from_env().ok()??,
        _ => return folder(args).ok()?,
    };
    of_authority(config)
}

/// The folder on this host of the cluster whose authority a kubeconfig names.
pub(crate) fn of_authority(config: Kubeconfig) -> Option<Layout> {
    let authorities = config.clusters.into_iter().filter_map(|named| named.cluster);
    let authorities = authorities.filter_map(|cluster| cluster.certificate_authority_data);
    let authorities: Vec<Vec<u8>> = authorities.filter_map(|data| STANDARD.decode(data).ok()).collect();
    data_dir::registered().into_iter().filter_map(|folder| Layout::new(&folder).ok()).find(|layout| {
        std::fs::read(layout.server().join("tls/ca.crt"))
            .is_ok_and(|authority| authorities.contains(&authority))
    })
}

fn named_by_environment() -> bool {
    std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty())
}

/// The cluster that the arguments mean.
///
/// # Errors
/// There is none, or its kubeconfig cannot be read.
pub(crate) async fn find(args: &ClusterArgs) -> Result<Asked> {
    let read = match (&args.kubeconfig, folder(args)?) {
        (Some(file), _) => read(file)?,
        (None, Some(layout)) => read(&of_folder(&layout)?)?,
        (None, None) => {
            let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
            let read = Kubeconfig::from_env().map_err(|error| unreadable(Path::new(&named), &error))?;
            read.context("KUBECONFIG names no file")?
        }
    };
    connect(read, "knarr").await
}

/// The cluster in a folder, as its administrator.
///
/// # Errors
/// As [`find`].
pub(crate) async fn administered(layout: &Layout) -> Result<Asked> {
    connect(read(&of_folder(layout)?)?, "knarr").await
}

async fn connect(read: Kubeconfig, agent: &'static str) -> Result<Asked> {
    let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .map_err(|error| anyhow!("the kubeconfig names no cluster that can be used: {}", last(&error)))?;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(agent)));
    let (url, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
    let client = kube::Client::try_from(config)
        .map_err(|error| anyhow!("the kubeconfig cannot be used: {}", last(&error)))?;
    Ok(Asked { client, namespace, url: url.trim_end_matches('/').to_owned() })
}

/// The kubeconfig of a folder that this user may read.
fn of_folder(layout: &Layout) -> Result<PathBuf> {
    let admin = layout.admin_kubeconfig();
    match std::fs::File::open(&admin) {
        Ok(_) => Ok(admin),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            own_kubeconfig(layout).filter(|path| path.exists()).with_context(|| {
                format!(
                    "{} is for root alone; run this with sudo, or name your own with --kubeconfig or KUBECONFIG",
                    admin.display()
                )
            })
        }
        Err(error) if error.kind() == ErrorKind::NotFound && layout.config().exists() => bail!(
            "the Node in {} has joined a cluster elsewhere; name a kubeconfig of that one with --kubeconfig",
            layout.root().display()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "there is no cluster in {}; `knarr up` makes one, and --kubeconfig or KUBECONFIG names one elsewhere",
            layout.root().display()
        ),
        Err(error) => Err(error).with_context(|| format!("read {}", admin.display())),
    }
}

fn read(file: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(file).map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &kube::config::KubeconfigError) -> anyhow::Error {
    let hint = "; `knarr up` says which one to use";
    anyhow!("cannot read the kubeconfig {}: {}{hint}", file.display(), last(error))
}

/// The last cause, which says what happened, in words without numbers.
fn last(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    text.split(" (os error").next().unwrap_or_default().replace('\n', " ")
}

impl Asked {
    /// The answer to a GET; `None` if there is no such thing.
    ///
    /// # Errors
    /// One line: the API server cannot be reached, or refuses.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        self.get_as(path, "application/json").await
    }

    /// The same in a form of several.
    ///
    /// # Errors
    /// As [`Asked::get`].
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Result<Option<Value>> {
        let request = Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new())?;
        match self.client.request(request).await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.explained(error)),
        }
    }

    /// What a request failed with, in one line that says what to do.
    pub(crate) fn explained(&self, error: kube::Error) -> anyhow::Error {
        let url = &self.url;
        match error {
            kube::Error::Api(status) if status.code == 401 => {
                anyhow!("the API server at {url} does not know who asks; use a kubeconfig of this cluster")
            }
            kube::Error::Api(status) => anyhow!("the API server at {url} answered: {}", status.message),
            error if error.source().is_some() => {
                anyhow!("cannot reach the API server at {url}: {}; `knarr up` starts a cluster", last(&error))
            }
            error => anyhow!("cannot ask the API server at {url}: {error}"),
        }
    }
}
