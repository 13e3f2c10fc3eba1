//! `knarr trace KIND/NAME`: the chain of events of an object, as the API server remembers it.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cli::args::{Output, TraceArgs};
use cli::trace::Printer;
use cli::validate::UsageError;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinery::trace::Chain;

use crate::layout::Layout;

/// Prints the chain.
pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    let Some((kind, name)) = args.object.split_once('/') else {
        let wrong = format!("{:?} is not KIND/NAME, such as deployment/web", args.object);
        return Err(UsageError(wrong).into());
    };
    let layout = Layout::new(&args.data.data_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let chain = runtime.block_on(async {
        let client = client(&layout.admin_kubeconfig()).await?;
        fetch(&client, kind, &args.namespace, name).await
    })?;
    if chain.commits.is_empty() {
        bail!("nothing is remembered of {} in namespace {}", args.object, args.namespace);
    }
    let mut out = std::io::stdout();
    match args.output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&chain)?)?,
        Output::Text => {
            for line in Printer::default().lines(&chain) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

/// A client with the identity in a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    Ok(kube::Client::try_from(config(kubeconfig).await?)?)
}

/// What a kubeconfig says: where, and as whom.
pub(crate) async fn config(kubeconfig: &Path) -> Result<kube::Config> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    Ok(kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}

/// Asks the API server for the chain of one object.
pub(crate) async fn fetch(client: &kube::Client, kind: &str, namespace: &str, name: &str) -> Result<Chain> {
    let uri = format!("/debug/knarr/trace?resource={kind}&namespace={namespace}&name={name}");
    let response = client
        .send(Request::get(uri).body(kube::client::Body::empty())?)
        .await
        .context("ask the API server")?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        let refusal: Status = serde_json::from_slice(&body).unwrap_or_default();
        bail!("the API server answered: {}", refusal.message.unwrap_or_else(|| status.to_string()));
    }
    serde_json::from_slice(&body).context("read the chain")
}
