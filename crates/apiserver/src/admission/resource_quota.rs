//! ResourceQuota: what a namespace's objects cost together stays within what its quotas allow.
//!
//! What is used is counted from the watch cache, and what was admitted but has not come back through it yet is held
//! against the quota, so that no number of concurrent requests can get past it. What passes here is then written into
//! `status.used` ([`record`]), so that no number of API servers on one store can either.
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota`.

mod ledger;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use machinery::metadata::Metadata;
use resources::quota::{self, Quota};
use serde_json::Value;

use super::{Admitted, Context, Operation};
use crate::api::Api;
use crate::kinds::Part;
use crate::status::Result;
use crate::verbs::Request;
pub use ledger::Ledger;

/// Charges what a request adds to the quotas that count it.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = &context.request.kind;
    if !kind.is_namespaced() || !is_charged(context) {
        return Ok(());
    }
    let Some(quotas) = context.api.kind("", "v1", "resourcequotas") else { return Ok(()) };
    let namespace = context.request.resource.namespace.as_str();
    let ledger = &context.api.security.quota;
    let stored = quotas.cache().list(&quotas.collection(namespace), 0).objects;
    if stored.is_empty() {
        ledger.forget(namespace);
        return Ok(());
    }
    let now = context.api.clock.now();
    let usage = |object: &Value| quota::usage(kind.group(), kind.resource(), object, now);
    let costs = usage(object);
    let before = match (context.operation, context.old) {
        (Operation::Update(_), Some(old)) => Some((old, quota::increase(&costs, &usage(old)))),
        _ => None,
    };
    let name = Metadata::of(object).name();
    let charge = ledger::Charge {
        resource: (kind.group(), kind.resource()),
        key: kind.key(namespace, name),
        object,
        usage: costs,
        before,
        is_dry_run: context.request.is_dry_run(),
    };
    let charged = ledger.charge(context.api, namespace, &stored, &charge);
    charged.map_err(|why| context.forbidden(name, &why))
}

/// Writes what [`validate`] charged for an object into the quotas' statuses.
///
/// # Errors
/// 403 when other servers have given the room away.
pub(super) async fn record(context: &Context<'_>, object: &Value) -> Result<()> {
    let (api, kind) = (context.api, &context.request.kind);
    if !kind.is_namespaced() || context.request.is_dry_run() {
        return Ok(());
    }
    let namespace = context.request.resource.namespace.as_str();
    let name = Metadata::of(object).name();
    let (ledger, key) = (&api.security.quota, kind.key(namespace, name));
    let Some(turn) = ledger.turn(namespace, &key) else { return Ok(()) };
    let turn = turn.lock().await;
    let unwritten = ledger.unwritten(namespace);
    let is_mine = unwritten.values().flatten().any(|entry| entry.key == key);
    // Otherwise somebody who came earlier has written it already.
    if is_mine {
        let keys: BTreeSet<String> = unwritten.values().flatten().map(|entry| entry.key.clone()).collect();
        let mut refused = BTreeMap::new();
        for (quota, mut entries) in unwritten {
            entries.retain(|entry| !refused.contains_key(&entry.key));
            match record::write(api, namespace, &quota, &entries).await {
                Ok(more) => refused.extend(more),
                Err(failure) => {
                    ledger.release(namespace, &key);
                    return Err(failure);
                }
            }
        }
        ledger.settle(namespace, &keys, &refused);
    }
    drop(turn);
    match ledger.take_refusal(namespace, &key) {
        Some(why) => Err(context.forbidden(name, &why)),
        None => Ok(()),
    }
}

/// Waits until what was deleted before has left the cache, where there are quotas: it makes room.
pub(super) async fn wait(api: &Api, request: &Request) -> Result<()> {
    let Some(quotas) = api.kind("", "v1", "resourcequotas") else { return Ok(()) };
    let namespace = request.resource.namespace.as_str();
    if request.kind.is_namespaced() && !quotas.cache().is_empty_under(&quotas.collection(namespace)) {
        api.cache.fresh().await?;
    }
    Ok(())
}

/// Creates are charged; of updates only those that can make an object cost more.
fn is_charged(context: &Context<'_>) -> bool {
    match context.operation {
        Operation::Create => context.request.resource.subresource.is_empty(),
        Operation::Update(Part::Object) => {
            context.is_core("services") || context.is_core("persistentvolumeclaims")
        }
        Operation::Update(_) => {
            context.is_core_kind("pods") && context.request.resource.subresource == "resize"
        }
        Operation::Delete => false,
    }
}

/// Gives back what was held for an object that was not stored after all.
pub(super) fn undo(api: &Api, admitted: &Admitted) {
    if admitted.kind.is_namespaced() {
        api.security.quota.release(Metadata::of(&admitted.object).namespace(), &admitted.key);
    }
}

/// The quotas of a namespace, read.
fn read(stored: &[std::sync::Arc<crate::cache::CachedObject>]) -> Vec<Quota> {
    stored.iter().map(|object| Quota::of(&object.value())).collect()
}
