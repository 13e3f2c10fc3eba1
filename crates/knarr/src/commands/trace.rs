//! `knarr trace KIND/NAME`: the chain of events of an object, as the API server remembers it.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result, bail};
use cli::args::{CommonArgs, Output, TraceArgs, object};
use cli::trace::Detail;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery::trace::Chain;

use crate::async_runtime::AsyncRuntime;
use crate::commands::cluster::{self, Asked};

/// Prints the chain.
pub(crate) fn run(args: &TraceArgs, common: &CommonArgs) -> Result<()> {
    let (kind, name) = object(&args.object)?.unwrap_or_default();
    let runtime = AsyncRuntime::on_this_thread()?;
    let chain = runtime.block_on(async {
        let cluster = cluster::find(&args.cluster).await?;
        let namespace = args.namespace.as_ref().unwrap_or(&cluster.namespace);
        let chain = fetch(&cluster, &kind.to_lowercase(), namespace, name).await?;
        if chain.commits.is_empty() {
            bail!("nothing is remembered of {kind}/{name} in namespace {namespace}; see that it is there with kubectl");
        }
        anyhow::Ok(chain)
    })?;
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&chain)?,
        Output::Text => {
            let detail = if common.verbose > 0 { Detail::All } else { Detail::Steps };
            cli::trace::tree(&chain, detail).join("\n")
        }
    };
    match writeln!(std::io::stdout(), "{text}") {
        // Whoever reads may stop reading.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Asks the API server for the chain of one object.
pub(crate) async fn fetch(cluster: &Asked, kind: &str, namespace: &str, name: &str) -> Result<Chain> {
    let uri = format!("/debug/knarr/trace?resource={kind}&namespace={namespace}&name={name}");
    let request = Request::get(uri).body(kube::client::Body::empty())?;
    let response = cluster.client.send(request).await.map_err(|error| cluster.explained(error))?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        let refusal: Status = serde_json::from_slice(&body).unwrap_or_default();
        let why = refusal.message.unwrap_or_else(|| status.to_string());
        bail!("the API server answered: {why}; `kubectl api-resources` lists what there is");
    }
    serde_json::from_slice(&body).context("read the chain")
}
