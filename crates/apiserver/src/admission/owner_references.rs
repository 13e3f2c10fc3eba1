//! OwnerReferencesPermissionEnforcement: who makes an object depend on another, or blocks its owner's deletion, must
//! be allowed to delete the one and to finalize the other. Off by default.
//!
//! Source: `plugin/pkg/admission/gc`.

use auth::{Attributes, Decision};
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, Step, judged, text};
use crate::security::attributes;
use crate::status::Result;

/// Checks changed owner references.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    let is_pod_binding = context.is_core_kind("pods") && context.request.resource.subresource == "binding";
    if context.operation == Operation::Delete || is_pod_binding {
        return Step::Done(Ok(()));
    }
    let list = |object: &'_ Value| -> Vec<Value> {
        object.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let (new, old) = (list(object), context.old.map(list).unwrap_or_default());
    if new == old {
        return Step::Done(Ok(()));
    }
    judged(async move { check(context, object, &new, &old).await })
}

async fn check(context: &Context<'_>, object: &Value, new: &[Value], old: &[Value]) -> Result<()> {
    let name = Metadata::of(object).name();
    let deletes =
        Attributes { verb: "delete".to_owned(), name: name.to_owned(), ..attributes(&context.request.info) };
    if context.operation != Operation::Create && !is_allowed(context, &deletes).await {
        // The authorizer's reason and error follow, of which there are none.
        let why = "cannot set an ownerRef on a resource you can't delete: , <nil>";
        return Err(context.forbidden(name, why));
    }
    for owner in new.iter().filter(|owner| blocks(owner) && !old.iter().any(|o| blocks(o) && same(o, owner)))
    {
        let (group, version) =
            text(owner, "/apiVersion").split_once('/').unwrap_or(("", text(owner, "/apiVersion")));
        let kind = text(owner, "/kind");
        let Some(owner_kind) = context.request.catalogue.of_name(group, version, kind) else {
            let why =
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion ";
            let api_version = text(owner, "/apiVersion");
            let shown = format!(
                "{why}{api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
            );
            return Err(context.forbidden(name, &shown));
        };
        let finalizes = Attributes {
            verb: "update".to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            resource: owner_kind.resource().to_owned(),
            subresource: "finalizers".to_owned(),
            namespace: if owner_kind.is_namespaced() {
                context.request.resource.namespace.clone()
            } else {
                String::new()
            },
            name: text(owner, "/name").to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        if !is_allowed(context, &finalizes).await {
            let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
            return Err(context.forbidden(name, why));
        }
    }
    Ok(())
}

fn blocks(owner: &Value) -> bool {
    owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
}

fn same(one: &Value, other: &Value) -> bool {
    one.get("uid") == other.get("uid")
}

async fn is_allowed(context: &Context<'_>, attributes: &Attributes) -> bool {
    let verdict = context.cluster.security.decide(context.request.user(), attributes).await;
    matches!(verdict.decision, Decision::Allow(_))
}
