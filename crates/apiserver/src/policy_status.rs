//! Keeps the status of ValidatingAdmissionPolicies: what is probably wrong with their expressions.
//!
//! Upstream's controller manager does this, which asks for the schemas of all kinds by OpenAPI; they are here. Who writes a
//! policy is answered with its status ([`settle`]); of those that others have left in the store each server writes it
//! ([`follow`]): all come to the same, and the first to write wins.
//! Source: `pkg/controller/validatingadmissionpolicystatus`.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use machinery::metadata::Metadata;
use serde_json::{Value, json};
use tracing::warn;

use crate::answer::Answer;
use crate::api::Api;
use crate::blocking;
use crate::cache::CachedObject;
use crate::cache::watcher_index::IndexKey;
use crate::kinds::{GroupVersionResource, Kind, Part};
use crate::policies::GROUP;
use crate::policies::typechecking::{self, Warning};
use crate::request::{self, Authorized};
use crate::request_info::Verb;
use crate::status::Result;
use crate::write::Decoded;
use crate::write::change::change;

const POLICIES: GroupVersionResource<'_> =
    GroupVersionResource::new(GROUP, "v1", "validatingadmissionpolicies");

/// Whether a write is of policies, so that their status follows from it.
pub(crate) fn is_followed(request: &Authorized) -> bool {
    let (kind, resource) = (&request.kind, &request.resource);
    resource.verb.is_write()
        && resource.verb != Verb::Delete
        && resource.subresource.is_empty()
        && kind.group_version_resource() == POLICIES
        && !request.is_dry_run()
}

/// Writes the status of a policy that has been written. The answer is the policy with that status.
///
/// # Errors
/// 504 when the cache lags.
pub(crate) async fn settle(api: &Api, request: &Authorized, answer: Answer) -> Result<Answer> {
    let Answer::Object { code, object } = answer else { return Ok(answer) };
    let kind = &request.kind;
    api.cache.fresh().await?;
    if let Err(failure) = check(api, kind, object.name()).await {
        // It was written all the same; [`follow`] tries again.
        warn!(%failure, policy = object.name(), "the status of an admission policy was not written");
    }
    api.cache.fresh().await?;
    let newest = kind.cache().get(&object.key).unwrap_or_else(|| Arc::clone(&object));
    let part = |object: &CachedObject| object.part(&["/metadata/uid", "/metadata/generation"]);
    // What somebody else has made of it meanwhile is not this answer.
    let is_it = part(&newest) == part(&object);
    Ok(Answer::Object { code, object: if is_it { newest } else { object } })
}

/// Follows the policies for ever, where they are served.
pub(crate) async fn follow(api: &Arc<Api>) {
    let GroupVersionResource { group, version, resource } = POLICIES;
    let Some(kind) = api.builtin.find(group, version, resource) else { return };
    api.wait_bootstrapped().await;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30), 0.1);
    loop {
        if let Err(failure) = follow_once(api, kind, &mut backoff).await {
            warn!(%failure, "admission policies are looked at again");
            tokio::time::sleep(backoff.next(&api.random)).await;
        }
    }
}

async fn follow_once(api: &Api, kind: &Kind, backoff: &mut Backoff) -> Result<()> {
    let revision = api.cache.revision();
    let mut watcher = kind.cache().watch(revision, IndexKey::Everything);
    for object in kind.cache().read_list(kind.prefix(), revision)?.objects {
        check(api, kind, object.name()).await?;
    }
    loop {
        for event in watcher.next().await? {
            check(api, kind, event.object.name()).await?;
        }
        backoff.reset();
    }
}

/// Writes the status of a policy, if its specification is newer.
async fn check(api: &Api, kind: &Kind, name: &str) -> Result<()> {
    let Some(object) = kind.cache().get(&kind.key("", name)) else { return Ok(()) };
    let policy = kind.value(&object);
    let generation = Metadata::of(&policy).generation();
    let observed = policy.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if generation <= observed.unwrap_or(0) {
        return Ok(());
    }
    let catalogue = api.catalogue.current();
    let warnings = blocking::when(true, || typechecking::warnings(&policy, &catalogue));
    match write(api, name, &policy, generation, &warnings).await {
        // What somebody else has made of it is told by an event of its own.
        Err(error) if error.reason == "Conflict" || error.reason == "NotFound" => Ok(()),
        outcome => outcome,
    }
}

async fn write(api: &Api, name: &str, policy: &Value, generation: i64, warnings: &[Warning]) -> Result<()> {
    let body = json!({"metadata": {"name": name}});
    let Some((request, _)) = request::of_server(api, POLICIES, "", body, Verb::Update) else { return Ok(()) };
    let request = request.below("status");
    let revision = Metadata::of(policy).resource_version();
    let written = change(api, &request, Part::Status, |old| {
        let mut new = old.clone();
        machinery::metadata::set(&mut new, "resourceVersion", revision);
        if let Some(new) = new.as_object_mut() {
            let status = new.entry("status").or_insert_with(|| json!({}));
            status["observedGeneration"] = generation.into();
            status["typeChecking"] = told(warnings);
        }
        Ok(Decoded::of_server(new))
    });
    Box::pin(written).await.map(drop)
}

fn told(warnings: &[Warning]) -> Value {
    let one = |Warning { field, text }: &Warning| json!({"fieldRef": field, "warning": text});
    match warnings {
        [] => json!({}),
        some => json!({"expressionWarnings": some.iter().map(one).collect::<Vec<_>>()}),
    }
}
