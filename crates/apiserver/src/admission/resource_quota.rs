//! ResourceQuota: which writes are charged, and what is waited for before they are.
//!
//! The charge itself is `write::allocation::quota`'s, after all validation.
//! Source: `k8s.io/apiserver/pkg/admission/plugin/resourcequota`.

use serde_json::Value;

use super::{Context, Operation, Step};
use crate::kinds::Part;

/// Waits until what was deleted before a create has left the cache, where there are quotas: it makes room.
pub(super) fn validate<'a>(context: &'a Context<'a>, _: &'a Value) -> Step<'a> {
    let Some(quotas) = context.cluster.kind("", "v1", "resourcequotas") else { return Step::Done(Ok(())) };
    let request = context.request;
    let is_create = context.operation == Operation::Create && request.kind.is_namespaced();
    if !is_create || quotas.cache().is_empty_under(&quotas.collection(&request.resource.namespace)) {
        return Step::Done(Ok(()));
    }
    Step::Later(Box::pin(async { context.cluster.cache.fresh().await.map(drop) }))
}

/// Creates are charged; of updates only those that can make an object cost more.
pub(crate) fn is_charged(context: &Context<'_>) -> bool {
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
