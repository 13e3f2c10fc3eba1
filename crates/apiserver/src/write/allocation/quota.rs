//! ResourceQuota: what a namespace's objects cost together stays within what its quotas allow.
//!
//! What is used is counted from the watch cache, and what was admitted but has not come back through it yet is held
//! against the quota, so that no number of concurrent requests can get past it. What passes here is then written into
//! `status.used` ([`record`]), so that no number of API servers on one store can either.
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota`.

mod record;
mod refusal;
mod usage_cache;

use std::collections::{BTreeMap, BTreeSet};

use machinery::metadata::Metadata;
use resources::quota::{self, Quota};
use serde_json::Value;

use super::Writer;
use crate::admission::{Context, Effect, Operation, resource_quota};
use crate::status::Result;
pub use usage_cache::UsageCache;

/// The share that a write holds of its namespace's quotas, until it is seen in the watch cache.
#[derive(Debug)]
pub struct Charged {
    namespace: String,
    key: String,
}

impl Charged {
    /// Gives it back: the object was not stored after all.
    pub(super) fn undo(&self, writer: &Writer) {
        writer.quota.release(&self.namespace, &self.key);
    }
}

/// Charges what a request adds to the quotas that count it, and writes it into their statuses.
///
/// # Errors
/// 403 when there is no room, here or because other servers have given it away. Then nothing is held.
pub(super) async fn charge(
    writer: &Writer,
    context: &Context<'_>,
    object: &Value,
) -> Result<Option<Charged>> {
    if !context.request.kind.is_namespaced() || !resource_quota::is_charged(context) {
        return Ok(None);
    }
    hold(writer, context, object)?;
    record(writer, context, object).await
}

/// Holds what a request adds against the quotas that count it.
fn hold(writer: &Writer, context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = &context.request.kind;
    let Some(quotas) = writer.kind("", "v1", "resourcequotas") else { return Ok(()) };
    let namespace = context.request.resource.namespace.as_str();
    let usage_cache = &writer.quota;
    let stored = quotas.cache().list(&quotas.collection(namespace), 0).objects;
    if stored.is_empty() {
        usage_cache.forget(namespace);
        return Ok(());
    }
    let now = writer.clock.now();
    let usage = |object: &Value| quota::usage(kind.group(), kind.resource(), object, now);
    let costs = usage(object);
    let before = match (context.operation, context.old) {
        (Operation::Update(_), Some(old)) => Some((old, quota::increase(&costs, &usage(old)))),
        _ => None,
    };
    let name = Metadata::of(object).name();
    let charge = usage_cache::Charge {
        resource: (kind.group(), kind.resource()),
        key: kind.key(namespace, name),
        object,
        usage: costs,
        before,
        is_dry_run: context.effect == Effect::DryRun,
    };
    let charged = usage_cache.charge(writer, namespace, &stored, &charge);
    charged.map_err(|why| context.forbidden(name, &why.to_string()))
}

/// Writes what [`hold`] charged for an object into the quotas' statuses.
///
/// # Errors
/// 403 when other servers have given the room away.
async fn record(writer: &Writer, context: &Context<'_>, object: &Value) -> Result<Option<Charged>> {
    let kind = &context.request.kind;
    if context.effect == Effect::DryRun {
        return Ok(None);
    }
    let namespace = context.request.resource.namespace.as_str();
    let name = Metadata::of(object).name();
    let (usage_cache, key) = (&writer.quota, kind.key(namespace, name));
    let Some(turn) = usage_cache.turn(namespace, &key) else { return Ok(None) };
    let turn = turn.lock().await;
    let unwritten = usage_cache.unwritten(namespace);
    let is_mine = unwritten.values().flatten().any(|entry| entry.key == key);
    // Otherwise somebody who came earlier has written it already.
    if is_mine {
        let keys: BTreeSet<String> = unwritten.values().flatten().map(|entry| entry.key.clone()).collect();
        let mut refused = BTreeMap::new();
        for (quota, mut entries) in unwritten {
            entries.retain(|entry| !refused.contains_key(&entry.key));
            match record::write(writer, namespace, &quota, &entries).await {
                Ok(more) => refused.extend(more),
                Err(failure) => {
                    usage_cache.release(namespace, &key);
                    return Err(failure);
                }
            }
        }
        usage_cache.settle(namespace, &keys, &refused);
    }
    drop(turn);
    match usage_cache.take_refusal(namespace, &key) {
        Some(why) => Err(context.forbidden(name, &why.to_string())),
        None => Ok(Some(Charged { namespace: namespace.to_owned(), key })),
    }
}

/// The quotas of a namespace, read.
fn read(stored: &[std::sync::Arc<crate::cache::CachedObject>]) -> Vec<Quota> {
    stored.iter().map(|object| Quota::of(&object.value())).collect()
}
