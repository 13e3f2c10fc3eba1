//! Every Pod has a service account, and a volume with its token.
//!
//! Source: `plugin/pkg/admission/serviceaccount`.

mod secrets;

use std::time::Duration;

use machinery::metadata::Metadata;
use serde_json::{Value, json};

use super::{Context, Operation, Step, child, text};
use crate::cache::IndexKey;
use crate::filter::Filter;
use crate::kinds::GroupVersionResource;
use crate::status::Result;

const ACCOUNTS: GroupVersionResource<'_> = GroupVersionResource::core("serviceaccounts");
const DEFAULT_NAME: &str = "default";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// How long the token lasts that a Pod is given: nobody else asks for just so long.
pub(crate) const TOKEN_SECONDS: i64 = 3607;
/// How long a create waits for the controller to make a new namespace's service account.
const WAIT: Duration = Duration::from_secs(2);

fn applies(context: &Context<'_>) -> bool {
    context.operation == Operation::Create && context.is_core("pods")
}

fn is_mirror(pod: &Value) -> bool {
    Metadata::of(pod).annotation(MIRROR_ANNOTATION).is_some()
}

/// Gives a Pod its service account, which a controller makes just after the namespace: waits a moment for it.
pub(super) fn mutate<'a>(context: &'a Context<'a>, pod: &'a mut Value) -> Step<'a> {
    if !applies(context) || is_mirror(pod) {
        return Step::Done(Ok(()));
    }
    if is_known(context, pod) {
        return Step::Done(complete(context, pod));
    }
    Step::Later(Box::pin(async {
        wait(context, pod).await?;
        complete(context, pod)
    }))
}

/// Names the service account, and mounts its token into every container that has nothing at that path.
fn complete(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if text(pod, "/spec/serviceAccountName").is_empty()
        && let Some(spec) = child(pod, "spec")
    {
        let old_name = spec.get("serviceAccount").and_then(Value::as_str).unwrap_or(DEFAULT_NAME).to_owned();
        spec.insert("serviceAccountName".to_owned(), old_name.into());
    }
    let name = text(pod, "/spec/serviceAccountName").to_owned();
    if let Some(spec) = child(pod, "spec") {
        spec.insert("serviceAccount".to_owned(), name.clone().into());
    }
    let namespace = Metadata::of(pod).namespace().to_owned();
    let wanted = ["/automountServiceAccountToken", "/imagePullSecrets"];
    let Some(account) = context.lookup_part(ACCOUNTS, &namespace, &name, &wanted) else {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(context.forbidden(Metadata::of(pod).name(), &why));
    };
    if wants_token(pod, &account) {
        mount_token(context, pod);
    }
    let has_pull_secrets =
        pod.pointer("/spec/imagePullSecrets").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !has_pull_secrets
        && let Some(secrets) =
            account.get("imagePullSecrets").filter(|s| s.as_array().is_some_and(|s| !s.is_empty()))
        && let Some(spec) = child(pod, "spec")
    {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    Ok(())
}

/// Mirror Pods refer to nothing, and the Secrets of others may be bound to their service account.
pub(super) fn validate(context: &Context<'_>, pod: &Value) -> Result<()> {
    let is_debugging =
        context.is_core_kind("pods") && context.request.resource.subresource == "ephemeralcontainers";
    let is_debug_update = is_debugging && matches!(context.operation, Operation::Update(_));
    if !applies(context) && !is_debug_update {
        return Ok(());
    }
    let refuse = |why: &str| Err(context.forbidden(Metadata::of(pod).name(), why));
    if is_mirror(pod) {
        return match secrets::mirror_reference(pod) {
            Some(what) => refuse(&format!("a mirror pod may not {what}")),
            None => Ok(()),
        };
    }
    let name = text(pod, "/spec/serviceAccountName");
    let wanted = ["/metadata/name", "/metadata/annotations", "/secrets", "/imagePullSecrets"];
    let account = context.lookup_part(ACCOUNTS, Metadata::of(pod).namespace(), name, &wanted);
    match account.and_then(|account| secrets::foreign(pod, &account, is_debugging)) {
        Some(why) => refuse(&why),
        None => Ok(()),
    }
}

/// The Pod's word counts before the account's; yes if neither says.
fn wants_token(pod: &Value, account: &Value) -> bool {
    let of_pod = pod.pointer("/spec/automountServiceAccountToken").and_then(Value::as_bool);
    of_pod.or_else(|| account.get("automountServiceAccountToken").and_then(Value::as_bool)).unwrap_or(true)
}

fn mount_token(context: &Context<'_>, pod: &mut Value) {
    let existing = pod.pointer("/spec/volumes").and_then(Value::as_array).and_then(|volumes| {
        volumes
            .iter()
            .filter_map(|v| v.get("name")?.as_str())
            .find(|n| n.starts_with("kube-api-access-"))
            .map(str::to_owned)
    });
    let is_new = existing.is_none();
    let name =
        existing.unwrap_or_else(|| format!("kube-api-access-{}", context.cluster.random.name_suffix(5)));
    let mut is_used = false;
    let Some(spec) = child(pod, "spec") else { return };
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers {
            is_used |= mount(container, &name);
        }
    }
    if is_new
        && is_used
        && let Some(volumes) = spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut()
    {
        volumes.push(token_volume(&name));
    }
}

fn mount(container: &mut Value, volume: &str) -> bool {
    let Some(container) = container.as_object_mut() else { return false };
    let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
    let Some(mounts) = mounts.as_array_mut() else { return false };
    if mounts.iter().any(|m| m.get("mountPath").is_some_and(|path| path == MOUNT_PATH)) {
        return false;
    }
    mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
    true
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}

/// The account that a Pod names, or gets if it names none.
fn wanted(pod: &Value) -> &str {
    let name = text(pod, "/spec/serviceAccountName");
    if name.is_empty() { DEFAULT_NAME } else { name }
}

fn is_known(context: &Context<'_>, pod: &Value) -> bool {
    context.cluster.kind("", "v1", "serviceaccounts").is_none_or(|kind| {
        kind.cache().get(&kind.key(&context.request.resource.namespace, wanted(pod))).is_some()
    })
}

/// Waits a moment for the service account of a Pod.
async fn wait(context: &Context<'_>, pod: &Value) -> Result<()> {
    let cluster = context.cluster;
    let Some(kind) = cluster.kind("", "v1", "serviceaccounts") else { return Ok(()) };
    let (name, namespace) = (wanted(pod), &context.request.resource.namespace);
    let (key, cache) = (kind.key(namespace, name), kind.cache());
    let revision = cluster.cache.fresh().await?;
    if name != DEFAULT_NAME {
        return Ok(());
    }
    let mut watcher = cache.watch(revision, IndexKey::Key(key.clone()));
    let filter = Filter::collection(kind, namespace);
    let arrival = async {
        while cache.get(&key).is_none() {
            let events = watcher.next().await?;
            if events.iter().any(|event| filter.matches(&event.object) && *event.object.key == *key) {
                break;
            }
        }
        Ok(())
    };
    tokio::time::timeout(WAIT, arrival).await.unwrap_or(Ok(()))
}
