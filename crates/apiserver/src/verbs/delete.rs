//! DELETE: at once, after a grace period, or when the finalizers are done. [`decide`] is pure.
//!
//! Source: `k8s.io/apiserver/pkg/registry/generic/registry/store.go`, `rest/delete.go`.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use machinery::metadata::{self, Metadata};
use resources::{Deletion, Strategy};
use serde_json::{Value, json};

use super::options::DeleteOptions;
use super::{Answer, CONFLICT_RETRIES_MAX, Request, answer, current};
use crate::admission::{self, Operation};
use crate::api::Api;
use crate::door::{Committed, Refusal};
use crate::status::{self, Error, Result};

/// What a DELETE comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The object goes now.
    Remove,
    /// The object stays for a while, marked.
    Mark(Value),
    /// It is marked already, and nothing changes.
    Unchanged,
}

/// Deletes an object.
///
/// # Errors
/// What the client is told.
pub async fn delete(api: &Api, request: &Request) -> Result<Answer> {
    let options = DeleteOptions::of(request)?;
    let (committed, is_removed) = delete_object(api, request, &options).await?;
    if !is_removed || returns_object(request) {
        return Ok(answer(StatusCode::OK, committed, Vec::new()));
    }
    let uid = committed.object.value().pointer("/metadata/uid").cloned().unwrap_or_default();
    let mut details = json!({"name": request.resource.name, "kind": request.kind.resource(), "uid": uid});
    if !request.kind.group().is_empty() {
        details["group"] = request.kind.group().into();
    }
    Ok(Answer::value(status::success(details)))
}

/// Kinds whose DELETE answers the object, not a Status. Source: `ReturnDeletedObject` of upstream's stores.
fn returns_object(request: &Request) -> bool {
    const RETURNED: &[&str] = &[
        "pods",
        "services",
        "serviceaccounts",
        "persistentvolumes",
        "persistentvolumeclaims",
        "podtemplates",
        "resourcequotas",
    ];
    request.kind.group().is_empty() && RETURNED.contains(&request.kind.resource())
}

/// Deletes the object that the request names; says whether it is gone.
///
/// # Errors
/// What the client is told.
pub async fn delete_object(
    api: &Api,
    request: &Request,
    options: &DeleteOptions,
) -> Result<(Committed, bool)> {
    let key = request.key();
    let name = &request.resource.name;
    let mut old = current(api, request, &key).await?;
    for _ in 0..CONFLICT_RETRIES_MAX {
        let object = request.kind.value(&old);
        options.check(request, &object)?;
        let outcome = decide(&object, options, request.kind.strategy(), api.clock.now());
        let attempt = match outcome {
            Outcome::Unchanged => {
                return Ok((Committed { revision: old.revision, object: old, warnings: Vec::new() }, false));
            }
            Outcome::Mark(marked) => {
                let admitted =
                    admission::admit(api, request, Operation::Delete, marked, Some(&object)).await?;
                if options.is_dry_run {
                    return Ok((admitted.as_if_committed(old.revision)?, false));
                }
                api.door.replace(&admitted, &old, request.cause_bytes()).await.map(|c| (c, false))
            }
            Outcome::Remove => {
                let admitted = admission::admit(api, request, Operation::Delete, object, None).await?;
                if options.is_dry_run {
                    return Ok((admitted.as_if_committed(old.revision)?, true));
                }
                let removed = api.door.remove(&admitted, old.revision, request.cause_bytes()).await;
                if let Ok(committed) = &removed {
                    admission::deleted(api, &request.kind, &committed.object).await;
                }
                removed.map(|committed| (committed, true))
            }
        };
        match attempt {
            Ok(done) => return Ok(done),
            Err(Refusal::Failed(error)) => return Err(error),
            Err(Refusal::Conflict(None)) => return Err(Error::not_found(request.subject(), name)),
            Err(Refusal::Conflict(Some(newer))) => old = newer,
        }
    }
    Err(Error::modified(request.subject(), name))
}

/// What deleting `object` now comes to.
pub fn decide(object: &Value, options: &DeleteOptions, strategy: &Strategy, now: Timestamp) -> Outcome {
    let meta = Metadata::of(object);
    let finalizers = finalizers(object, options, strategy);
    let grace = match strategy.deletion {
        Deletion::PodGrace => (strategy.grace_period)(object, options.grace_period_seconds).max(0),
        Deletion::Immediate | Deletion::Namespace => 0,
    };
    let held = match strategy.deletion {
        Deletion::Namespace => {
            object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
        }
        Deletion::Immediate | Deletion::PodGrace => false,
    };
    if grace == 0 && finalizers.is_empty() && !held {
        return Outcome::Remove;
    }
    let mut marked = object.clone();
    let borrowed: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    metadata::set_finalizers(&mut marked, &borrowed);
    let pending = meta.deletion_grace_period_seconds();
    // A deletion that is under way can be hurried up, never slowed down.
    if !meta.is_terminating() || pending.is_some_and(|pending| grace < pending) {
        let start = match (meta.deletion_timestamp(), pending) {
            (Some(at), Some(pending)) => at - SignedDuration::from_secs(pending),
            _ => now,
        };
        let end = if meta.is_terminating() {
            (start + SignedDuration::from_secs(grace)).max(now)
        } else {
            now + SignedDuration::from_secs(grace)
        };
        metadata::set(&mut marked, "deletionTimestamp", metadata::time(end));
        metadata::set(&mut marked, "deletionGracePeriodSeconds", grace);
        let generation = meta.generation();
        if generation > 0 {
            metadata::set(&mut marked, "generation", generation + 1);
        }
    }
    if strategy.deletion == Deletion::Namespace
        && let Some(map) = marked.as_object_mut()
    {
        let status = map.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("phase".to_owned(), "Terminating".into());
        }
    }
    if marked == *object { Outcome::Unchanged } else { Outcome::Mark(marked) }
}

/// The finalizers that the object has during its deletion: its own, with the garbage collector's two set as the
/// propagation policy asks for.
fn finalizers(object: &Value, options: &DeleteOptions, strategy: &Strategy) -> Vec<String> {
    const COLLECTOR: [&str; 2] = ["orphan", "foregroundDeletion"];
    let held: Vec<&str> = Metadata::of(object).finalizers();
    let wanted = if options.propagation.is_none() {
        let kept = held.iter().find(|finalizer| COLLECTOR.contains(finalizer)).copied();
        kept.or_else(|| options.finalizer(strategy.default_propagation))
    } else {
        options.finalizer(strategy.default_propagation)
    };
    let own = held.iter().filter(|finalizer| !COLLECTOR.contains(finalizer)).copied();
    own.chain(wanted).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::options::Policy;
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn check(name: &str, object: Value, options: &DeleteOptions, kind: &str, expect: Option<Value>) {
        let row = resources::find("", "v1", kind).unwrap();
        let got = match decide(&object, options, row.strategy, now()) {
            Outcome::Remove => None,
            Outcome::Unchanged => Some(Value::Null),
            Outcome::Mark(marked) => Some(marked["metadata"].clone()),
        };
        assert_eq!(got, expect, "{name}");
    }

    #[test]
    fn finalizers_and_policies_hold_an_object() {
        let free = json!({"metadata": {"name": "a"}});
        check("free", free.clone(), &DeleteOptions::default(), "configmaps", None);
        let foreground = DeleteOptions { propagation: Some(Policy::Foreground), ..Default::default() };
        check(
            "foreground",
            free,
            &foreground,
            "configmaps",
            Some(json!({"name": "a", "finalizers": ["foregroundDeletion"], "deletionGracePeriodSeconds": 0,
                "deletionTimestamp": "2026-01-01T00:00:00Z"})),
        );
        let marked = json!({"metadata": {"name": "a", "finalizers": ["x"], "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "2025-01-01T00:00:00Z"}});
        check("twice", marked, &DeleteOptions::default(), "configmaps", Some(Value::Null));
    }

    #[test]
    fn a_namespace_terminates_until_it_is_finalized() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        let row = resources::find("", "v1", "namespaces").unwrap();
        let Outcome::Mark(marked) = decide(&object, &DeleteOptions::default(), row.strategy, now()) else {
            panic!("not marked")
        };
        assert_eq!(marked["status"]["phase"], "Terminating");
    }
}
