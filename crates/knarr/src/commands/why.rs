//! `knarr why KIND/NAME`: fetches what surrounds an object, and prints why it is not running.

use std::io::Write;

use anyhow::{Context, Result, bail};
use cli::args::{Output, WhyArgs};
use cli::validate::UsageError;
use cli::why::{KINDS, Kind, Snapshot};
use http::Request;
use serde_json::Value;

use crate::commands::trace;
use crate::layout::Layout;

/// Prints the reasons; fails if the object is not there.
pub(crate) fn run(args: &WhyArgs) -> Result<()> {
    let usage = || UsageError(format!("{:?} is not KIND/NAME, such as deployment/web", args.object));
    let (kind, name) = args.object.split_once('/').ok_or_else(usage)?;
    let Some(kind) = Kind::find(kind) else {
        let known = KINDS.iter().map(|kind| kind.singular).collect::<Vec<_>>().join(", ");
        return Err(
            UsageError(format!("`knarr why` knows nothing of the kind {kind:?}, but of {known}")).into()
        );
    };
    let layout = Layout::new(&args.data.data_dir)?;
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| layout.admin_kubeconfig());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let snapshot = runtime.block_on(async {
        let client = trace::client(&kubeconfig).await?;
        fetch(&client, kind, &args.namespace, name).await
    })?;
    let answer = cli::why::explain(&snapshot);
    let mut out = std::io::stdout();
    match args.output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?,
        Output::Text => write!(out, "{answer}")?,
    }
    Ok(())
}

async fn fetch(client: &kube::Client, kind: &Kind, namespace: &str, name: &str) -> Result<Snapshot> {
    let path = format!("{}/{name}", kind.path(namespace));
    let subject = match get(client, &path).await {
        Ok(subject) => subject,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            bail!(
                "there is no {}/{name} in namespace {namespace}; `kubectl get {} -A` lists them",
                kind.singular,
                kind.plural
            )
        }
        Err(error) => return Err(error).context("ask the API server"),
    };
    let mut others = Vec::new();
    for other in KINDS {
        let list = get(client, &other.path(namespace)).await;
        let list = list.with_context(|| format!("list {}", other.plural))?;
        for mut item in list.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default() {
            item["kind"] = other.name.into();
            others.push(item);
        }
    }
    let events =
        get(client, &format!("/api/v1/namespaces/{namespace}/events")).await.context("list events")?;
    let events = events.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(Snapshot { subject, others, events })
}

async fn get(client: &kube::Client, path: &str) -> kube::Result<Value> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}
