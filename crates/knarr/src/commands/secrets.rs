//! `knarr secrets reencrypt`: has the API server store again what lies under an old key.
//!
//! Every object gets a patch that changes nothing but names the object's revision: the server writes what is stale
//! under the newest key, leaves the rest as it is, and refuses what somebody else has written meanwhile, which then is
//! under the newest key too. So it may be interrupted and called again, and no value ever leaves the server: only
//! metadata is listed. Source: upstream's storage version migration.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cli::args::{ReencryptArgs, SecretsCommand};
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use machinery::metadata::Metadata;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::async_runtime::AsyncRuntime;
use crate::kube_client;
use crate::layout::Layout;

/// How many objects a page holds; a line is printed per page.
const PAGE: usize = 500;
/// How many patches are under way.
const PATCHES_MAX: usize = 8;
/// How often a list may start over because the server has forgotten where it was.
const STARTS_MAX: usize = 8;
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Runs the command.
pub(crate) fn run(command: &SecretsCommand) -> Result<()> {
    let SecretsCommand::Reencrypt(args) = command;
    let layout = Layout::new(&args.data.data_dir)?;
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| layout.admin_kubeconfig());
    let runtime = AsyncRuntime::on_this_thread()?;
    runtime.block_on(reencrypt(args, &kubeconfig))
}

async fn reencrypt(args: &ReencryptArgs, kubeconfig: &Path) -> Result<()> {
    let client = kube_client::client(kubeconfig, "knarr").await?;
    let mut failed = 0;
    for resource in &args.resource {
        let path = path_of(&client, resource).await?;
        failed += all(&client, resource, &path).await.with_context(|| format!("list {resource}"))?;
    }
    if failed > 0 {
        bail!("{failed} objects could not be stored again; call it again when they can");
    }
    Ok(())
}

/// What became of the objects of one resource.
#[derive(Default)]
struct Tally {
    rewritten: usize,
    current: usize,
    changed: usize,
    failed: usize,
}

/// Stores every object of a resource again; says how many could not be.
async fn all(client: &kube::Client, resource: &str, path: &str) -> Result<usize> {
    let mut tally = Tally::default();
    for _ in 0..STARTS_MAX {
        tally = Tally::default();
        if pages(client, resource, path, &mut tally).await? {
            break;
        }
        say(&format!("{resource}: the list took too long and starts over"))?;
    }
    say(&format!(
        "{resource}: done; {} rewritten, {} were under the newest key, {} changed meanwhile, {} failed",
        tally.rewritten, tally.current, tally.changed, tally.failed
    ))?;
    Ok(tally.failed)
}

/// Page by page; says whether it came to the end.
async fn pages(client: &kube::Client, resource: &str, path: &str, tally: &mut Tally) -> Result<bool> {
    let mut token = String::new();
    loop {
        let query = format!("{path}?limit={PAGE}&continue={token}");
        let list = match ask(client, Request::get(query).header(ACCEPT, PARTIAL_LIST), Vec::new()).await {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(false),
            other => other?,
        };
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        page(client, path, items, tally).await?;
        token = Metadata::of(&list).get("continue").and_then(Value::as_str).unwrap_or_default().to_owned();
        if token.is_empty() {
            return Ok(true);
        }
        let seen = tally.rewritten + tally.current + tally.changed + tally.failed;
        say(&format!("{resource}: {seen} seen, {} rewritten", tally.rewritten))?;
    }
}

async fn page(client: &kube::Client, path: &str, items: Vec<Value>, tally: &mut Tally) -> Result<()> {
    let mut patches = JoinSet::new();
    for item in items {
        if patches.len() >= PATCHES_MAX
            && let Some(done) = patches.join_next().await
        {
            count(done?, tally)?;
        }
        let (client, path) = (client.clone(), object_path(path, &item));
        patches.spawn(async move { (store_again(&client, &path, &item).await, path) });
    }
    while let Some(done) = patches.join_next().await {
        count(done?, tally)?;
    }
    Ok(())
}

fn count((outcome, path): (kube::Result<bool>, String), tally: &mut Tally) -> Result<()> {
    match outcome {
        Ok(true) => tally.rewritten += 1,
        Ok(false) => tally.current += 1,
        // Somebody else wrote it, or removed it.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => tally.changed += 1,
        Err(error) => {
            tally.failed += 1;
            say(&format!("{path}: {error}"))?;
        }
    }
    Ok(())
}

/// A patch that changes nothing; says whether the object was written all the same.
async fn store_again(client: &kube::Client, path: &str, item: &Value) -> kube::Result<bool> {
    let held = Metadata::of(item);
    let same = json!({"metadata": {"uid": held.uid(), "resourceVersion": held.resource_version()}});
    let request =
        Request::patch(path).header(ACCEPT, PARTIAL).header(CONTENT_TYPE, "application/merge-patch+json");
    let stored = ask(client, request, same.to_string().into_bytes()).await?;
    Ok(Metadata::of(&stored).resource_version() != held.resource_version())
}

/// `/api/v1/secrets` becomes `/api/v1/namespaces/default/secrets/name`.
fn object_path(path: &str, item: &Value) -> String {
    let (held, (version, plural)) = (Metadata::of(item), path.rsplit_once('/').unwrap_or(("", path)));
    match held.namespace() {
        "" => format!("{path}/{}", held.name()),
        namespace => format!("{version}/namespaces/{namespace}/{plural}/{}", held.name()),
    }
}

/// Where a resource, such as `deployments.apps`, is served.
async fn path_of(client: &kube::Client, resource: &str) -> Result<String> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let version = if group.is_empty() {
        "/api/v1".to_owned()
    } else {
        let found = ask(client, Request::get(format!("/apis/{group}")), Vec::new()).await;
        let found = found.with_context(|| format!("--resource {resource}: there is no group {group}"))?;
        let version = found.pointer("/preferredVersion/groupVersion").and_then(Value::as_str);
        format!("/apis/{}", version.with_context(|| format!("the group {group} has no version"))?)
    };
    let list = ask(client, Request::get(version.as_str()), Vec::new()).await?;
    let mut served = list.get("resources").and_then(Value::as_array).into_iter().flatten();
    if !served.any(|row| row.get("name").and_then(Value::as_str) == Some(plural)) {
        bail!("--resource {resource}: {version} has no resource {plural}");
    }
    Ok(format!("{version}/{plural}"))
}

async fn ask(client: &kube::Client, request: http::request::Builder, body: Vec<u8>) -> kube::Result<Value> {
    client.request(request.body(body).map_err(kube::Error::HttpError)?).await
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("print")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_lies_in_its_namespace_or_beside_others() {
        let check = |path: &str, metadata: Value, expect: &str| {
            assert_eq!(object_path(path, &json!({ "metadata": metadata })), expect);
        };
        check("/api/v1/secrets", json!({"name": "a", "namespace": "b"}), "/api/v1/namespaces/b/secrets/a");
        check(
            "/apis/apps/v1/deployments",
            json!({"name": "a", "namespace": "b"}),
            "/apis/apps/v1/namespaces/b/deployments/a",
        );
        check("/api/v1/nodes", json!({"name": "a"}), "/api/v1/nodes/a");
    }
}
