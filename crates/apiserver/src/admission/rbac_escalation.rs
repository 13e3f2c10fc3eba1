//! Nobody grants what they do not have.
//!
//! Source: `pkg/registry/rbac/validation`, `escalation_check.go`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, Step, judged};

/// Checks writes of roles and bindings.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    let kind = &context.request.kind;
    if kind.group() != "rbac.authorization.k8s.io" || context.operation == Operation::Delete {
        return Step::Done(Ok(()));
    }
    if context.old.is_some_and(|old| is_for_collection(object, old)) {
        return Step::Done(Ok(()));
    }
    judged(async move {
        let security = &context.cluster.security;
        let checked = security.may_grant(context.request.user(), kind.resource(), object, context.old).await;
        checked.map_err(|why| context.forbidden(Metadata::of(object).name(), &why.to_string()))
    })
}

/// Whether nothing changes but what the garbage collector needs to let the object go. Labels are no such thing: roles
/// are aggregated by them.
///
/// Source: `IsOnlyMutatingGCFields` of `pkg/registry/rbac`.
fn is_for_collection(new: &Value, old: &Value) -> bool {
    const FREE: [&str; 4] = ["ownerReferences", "finalizers", "managedFields", "resourceVersion"];
    let fixed = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !FREE.contains(&field.as_str()));
        }
        object
    };
    fixed(new) == fixed(old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_count_and_finalizers_do_not() {
        let role = |metadata: Value| json!({"metadata": metadata, "rules": [{"verbs": ["*"]}]});
        let old = role(json!({"name": "a", "resourceVersion": "1"}));
        for (metadata, expect) in [
            (json!({"name": "a", "finalizers": ["x/y"], "resourceVersion": "2"}), true),
            (json!({"name": "a", "ownerReferences": [{"uid": "u"}]}), true),
            (json!({"name": "a", "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}), false),
        ] {
            assert_eq!(is_for_collection(&role(metadata.clone()), &old), expect, "{metadata}");
        }
    }
}
