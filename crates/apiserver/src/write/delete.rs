//! A deletion: at once, after a grace period, or when the finalizers are done. [`decide`] is pure.
//!
//! Source: `k8s.io/apiserver/pkg/registry/generic/registry/store.go`, `rest/delete.go`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use machinery::metadata::{self, Metadata};
use resources::{Deletion, Strategy};
use serde_json::{Value, json};

use super::admit::admit;
use super::change::current;
use super::commit::{Step, commit};
use super::door::{Committed, Refusal};
use super::options::DeleteOptions;
use super::validation::Fate;
use super::{CONFLICT_RETRIES_MAX, Writer, validation};
use crate::admission::{Context, Effect, Operation, unstored};
use crate::request::Authorized;
use crate::status::{Error, Result};

/// The outcome of a DELETE.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The object goes now.
    Remove,
    /// The object stays for a while, marked.
    Mark(Value),
    /// It is marked already, and nothing changes.
    Unchanged,
}

/// Deletes the object that the request names; says whether it is gone.
///
/// # Errors
/// What the client is told.
pub async fn delete(
    writer: &Writer,
    request: &Authorized,
    options: &DeleteOptions,
) -> Result<(Committed, bool)> {
    let name = &request.resource.name;
    let effect = if options.is_dry_run { Effect::DryRun } else { Effect::of(request) };
    let mut old = current(writer, request, &request.key()).await?;
    for _ in 0..CONFLICT_RETRIES_MAX {
        let served = request.kind.served(Arc::clone(&old)).await?;
        let object = request.kind.value(&served);
        let context = Context { effect, ..Context::new(writer, request, Operation::Delete, None) };
        // Who may not delete it is told so and nothing else, also where a precondition fails or nothing would change.
        validation::validate(&context, &object).await?;
        options.check(request, &object)?;
        unstored::delete(&context, &object, || options.shown()).await?;
        let outcome = decide(&object, options, request.kind.strategy(), writer.clock.now());
        let attempt = match outcome {
            Outcome::Unchanged => {
                return Ok((Committed { revision: old.revision, object: served }, false));
            }
            Outcome::Mark(marked) => {
                let context = Context { old: Some(&object), ..context };
                let ready = admit(writer, &context, marked, Fate::Stays).await?;
                commit(writer, request, ready, Step::Replace(&old)).await.map(|marked| (marked, false))
            }
            Outcome::Remove => {
                let object = match (options.is_dry_run, request.kind.strategy().deletion) {
                    (true, Deletion::PodGrace) => removed_at(object, writer.clock.now()),
                    _ => object,
                };
                let ready = admit(writer, &context, object, Fate::Goes).await?;
                commit(writer, request, ready, Step::Remove(&old)).await.map(|removed| (removed, true))
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

/// An object that goes without grace, as a dry run shows it.
fn removed_at(mut object: Value, now: Timestamp) -> Value {
    let meta = Metadata::of(&object);
    if !meta.is_terminating() {
        let generation = meta.generation();
        metadata::set(&mut object, "deletionTimestamp", metadata::time(now));
        if generation > 0 {
            metadata::set(&mut object, "generation", generation + 1);
        }
    }
    metadata::set(&mut object, "deletionGracePeriodSeconds", 0);
    object
}

/// The outcome of deleting `object` now.
pub fn decide(object: &Value, options: &DeleteOptions, strategy: &Strategy, now: Timestamp) -> Outcome {
    let meta = Metadata::of(object);
    if strategy.deletion == Deletion::Definition && !meta.is_terminating() {
        let mut begun = object.clone();
        extensions::conditions::begin_deletion(&mut begun, now);
        return Outcome::Mark(begun);
    }
    let finalizers = finalizers(object, options, strategy);
    let pending = meta.deletion_grace_period_seconds();
    let grace = match (strategy.deletion, options.grace_period_seconds) {
        (Deletion::Immediate | Deletion::Namespace | Deletion::Definition, _) => 0,
        // A deletion that is under way can be hurried up, never slowed down.
        (Deletion::PodGrace, asked) if meta.is_terminating() => {
            let pending = pending.unwrap_or(0);
            asked.map_or(pending, |asked| asked.min(pending))
        }
        (Deletion::PodGrace, asked) => (strategy.grace_period)(object, asked).max(0),
    };
    let held = match strategy.deletion {
        Deletion::Namespace => {
            object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
        }
        Deletion::Immediate | Deletion::PodGrace | Deletion::Definition => false,
    };
    if grace == 0 && finalizers.is_empty() && !held {
        return Outcome::Remove;
    }
    let mut marked = object.clone();
    let borrowed: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    metadata::set_finalizers(&mut marked, &borrowed);
    if !meta.is_terminating() {
        let end = now + SignedDuration::from_secs(grace);
        metadata::set(&mut marked, "deletionTimestamp", metadata::time(end));
        metadata::set(&mut marked, "deletionGracePeriodSeconds", grace);
        let generation = meta.generation();
        if generation > 0 {
            metadata::set(&mut marked, "generation", generation + 1);
        }
    } else if let (Some(at), Some(pending)) = (meta.deletion_timestamp(), pending)
        && grace < pending
    {
        let end = at - SignedDuration::from_secs(pending) + SignedDuration::from_secs(grace);
        // Somebody else still has to see that it was hurried up, unless it is by force.
        let grace = if end < now && grace > 0 { 1 } else { grace };
        metadata::set(&mut marked, "deletionTimestamp", metadata::time(end.max(now)));
        metadata::set(&mut marked, "deletionGracePeriodSeconds", grace);
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
        let got = match decide(&object, options, &row.strategy, now()) {
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
    fn a_pods_deletion_can_be_hurried_up_but_not_slowed_down() {
        let pod = |grace: i64, at: &str| {
            json!({"metadata": {"name": "a", "generation": 2, "deletionGracePeriodSeconds": grace,
                "deletionTimestamp": at}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}})
        };
        let marked = |grace: i64, at: &str| Some(pod(grace, at)["metadata"].clone());
        let asked = |seconds| DeleteOptions { grace_period_seconds: Some(seconds), ..Default::default() };
        let soon = pod(60, "2026-01-01T00:00:50Z");
        check("nothing is said", soon.clone(), &DeleteOptions::default(), "pods", Some(Value::Null));
        check("longer", soon.clone(), &asked(90), "pods", Some(Value::Null));
        check("shorter", soon.clone(), &asked(20), "pods", marked(20, "2026-01-01T00:00:10Z"));
        check(
            "shorter than what has passed",
            soon.clone(),
            &asked(5),
            "pods",
            marked(1, "2026-01-01T00:00:00Z"),
        );
        check("by force", soon, &asked(0), "pods", None);
        let ended = pod(0, "2026-01-01T00:00:00Z");
        check("it had no grace", ended, &DeleteOptions::default(), "pods", None);
    }

    #[test]
    fn a_namespace_terminates_until_it_is_finalized() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        let row = resources::find("", "v1", "namespaces").unwrap();
        let Outcome::Mark(marked) = decide(&object, &DeleteOptions::default(), &row.strategy, now()) else {
            panic!("not marked")
        };
        assert_eq!(marked["status"]["phase"], "Terminating");
    }
}
