//! MutatingAdmissionPolicies and their bindings.

use expressions::Type;
use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::At;
use super::admission_policy::{self, common};
use crate::policy_expressions::{Compiler, Sees};

const PATCH_TYPES: &[&str] = &["ApplyConfiguration", "JSONPatch"];
const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
/// What can be changed: not what is deleted.
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];

/// A MutatingAdmissionPolicy.
pub(crate) fn policy(object: &Value) -> FieldErrors {
    policy_after(object, None)
}

/// An update of a MutatingAdmissionPolicy.
pub(crate) fn policy_update(new: &Value, old: &Value) -> FieldErrors {
    policy_after(new, Some(old))
}

fn policy_after(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let compiler = common(object, old, &mut errors);
    operations(&spec.get("matchConstraints").get("resourceRules"), &mut errors);
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        errors.push(mutations.required("mutations must contain at least one item"));
    }
    mutations.items().for_each(|item| mutation(&compiler, &item, &mut errors));
    spec.get("reinvocationPolicy").one_of(REINVOCATION_POLICIES, &mut errors);
    errors
}

/// A MutatingAdmissionPolicyBinding.
pub(crate) fn binding(object: &Value) -> FieldErrors {
    let mut errors = admission_policy::binding(object);
    let rules = At::root(object).get("spec").get("matchResources").get("resourceRules");
    operations(&rules, &mut errors);
    errors
}

/// An update of a MutatingAdmissionPolicyBinding.
pub(crate) fn binding_update(new: &Value, _: &Value) -> FieldErrors {
    binding(new)
}

/// Told without a place in the lists, as upstream.
fn operations(rules: &At<'_>, errors: &mut FieldErrors) {
    let path = rules.path.child("operations");
    for rule in rules.items() {
        for operation in rule.get("operations").items().filter(|item| !OPERATIONS.contains(&item.text())) {
            errors.push(FieldError::not_supported(&path, operation.value, OPERATIONS));
        }
    }
}

fn mutation(compiler: &Compiler, mutation: &At<'_>, errors: &mut FieldErrors) {
    let kind = mutation.get("patchType");
    let (name, other, wanted) = match kind.text() {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::named("Object")),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Type::list(Type::named("JSONPatch"))),
        _ => {
            kind.one_of(PATCH_TYPES, errors);
            return;
        }
    };
    let (change, other_change) = (mutation.get(name), mutation.get(other));
    if change.is_set() {
        let expression = change.get("expression");
        let source = expression.text().trim();
        if source.is_empty() {
            errors.push(expression.required(""));
        } else if let Err(why) = compiler.compile(source, Sees::Patches, &[wanted]) {
            errors.push(FieldError::invalid(&expression.path, source, &why.to_string()));
        }
    } else {
        errors.push(change.required(&format!("must be specified when patchType is {}", kind.text())));
    }
    if other_change.is_set() {
        let rule = format!("must not be specified when patchType is {}", kind.text());
        errors.push(FieldError::invalid(&other_change.path, format!("{{{other}}}").as_str(), &rule));
    }
}
