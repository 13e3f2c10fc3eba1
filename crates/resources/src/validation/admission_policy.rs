//! ValidatingAdmissionPolicies and their bindings, and what MutatingAdmissionPolicies have in common with them.

use std::collections::BTreeSet;

use expressions::Type;
use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::admission_rules::{FAILURE_POLICIES, match_conditions, match_resources};
use super::{At, selector};
use crate::policy_expressions::{self, Compiler, Sees};

const ANNOTATIONS_MAX: usize = 20;
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

/// A ValidatingAdmissionPolicy.
pub(crate) fn validating(object: &Value) -> FieldErrors {
    validating_after(object, None)
}

fn validating_after(object: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let compiler = common(object, old, &mut errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        const ONE: &str = "validations or auditAnnotations must contain at least one item";
        errors.push(validations.required(ONE));
        errors.push(annotations.required(ONE));
        return errors;
    }
    validations.items().for_each(|item| validation(&item, &compiler, &mut errors));
    if annotations.len() > ANNOTATIONS_MAX {
        let rule = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(annotations.invalid(&rule));
    }
    let name = At::root(object).get("metadata").get("name");
    let mut seen = BTreeSet::new();
    for item in annotations.items() {
        annotation(name.text(), &item, &compiler, &mut errors);
        let key = item.get("key");
        if !seen.insert(key.text()) {
            errors.push(key.duplicate());
        }
    }
    errors
}

/// An update of a ValidatingAdmissionPolicy.
pub(crate) fn validating_update(new: &Value, old: &Value) -> FieldErrors {
    validating_after(new, Some(old))
}

/// An update of a ValidatingAdmissionPolicy's status.
pub(crate) fn validating_status(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new).get("status");
    for warning in status.get("typeChecking").get("expressionWarnings").items() {
        for name in ["warning", "fieldRef"] {
            let field = warning.get(name);
            if field.text().trim().is_empty() {
                errors.push(field.required(""));
            }
        }
    }
    errors
}

/// What policies of both sorts have; answers what compiles the rest.
pub(super) fn common(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) -> Compiler {
    let spec = &At::root(object).get("spec");
    let has_params = spec.some("paramKind").is_some();
    spec.get("failurePolicy").one_of(FAILURE_POLICIES, errors);
    if let Some(kind) = spec.some("paramKind") {
        param_kind(&kind, errors);
    }
    match spec.some("matchConstraints") {
        Some(constraints) => {
            match_resources(&constraints, errors);
            if constraints.get("resourceRules").is_empty() {
                errors.push(constraints.get("resourceRules").required(""));
            }
        }
        None => errors.push(spec.get("matchConstraints").required("")),
    }
    // What was accepted once may stay as long as nothing changes that it depends on.
    let is_as_before = old.is_some_and(|old| {
        ["/spec/paramKind", "/spec/matchConditions"]
            .iter()
            .all(|pointer| old.pointer(pointer) == object.pointer(pointer))
    });
    if !is_as_before {
        // When they are written, conditions see no variables; those that are stored do, as upstream.
        let compile = |expression: &str| policy_expressions::condition(expression, has_params).map(drop);
        match_conditions(&spec.get("matchConditions"), compile, errors);
    }
    variables(spec, errors)
}

/// `variables`; answers what compiles the expressions that see them.
pub(super) fn variables(spec: &At<'_>, errors: &mut FieldErrors) -> Compiler {
    let mut compiler = Compiler::new(spec.some("paramKind").is_some());
    for variable in spec.get("variables").items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            errors.push(name.required("name is not specified"));
        } else if !is_identifier(name.text()) {
            errors.push(name.invalid("name is not a valid CEL identifier"));
        }
        if expression.text().trim().is_empty() {
            errors.push(expression.required("expression is not specified"));
        } else if let Err(why) = compiler.variable(name.text(), expression.text()) {
            errors.push(expression.invalid(&why.to_string()));
        }
    }
    compiler
}

/// Whether an expression compiles.
fn compiles(expression: &At<'_>, compiler: &Compiler, sees: Sees, types: &[Type], errors: &mut FieldErrors) {
    if let Err(why) = compiler.compile(expression.text(), sees, types) {
        errors.push(expression.invalid(&why.to_string()));
    }
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !expressions::RESERVED.contains(&text)
}

fn param_kind(kind: &At<'_>, errors: &mut FieldErrors) {
    let (api_version, name) = (kind.get("apiVersion"), kind.get("kind"));
    let text = api_version.text();
    if text.is_empty() {
        errors.push(api_version.required(""));
    } else if text.matches('/').count() > 1 {
        errors.push(api_version.invalid(&format!("unexpected GroupVersion string: {text}")));
    } else {
        let (group, version) = text.split_once('/').unwrap_or(("", text));
        let mut told = |shown: &str, rules: Vec<String>| {
            if !rules.is_empty() {
                errors.push(FieldError::invalid(&api_version.path, shown, &rules.join(",")));
            }
        };
        if !group.is_empty() {
            told(group, names::dns1123_subdomain(group));
        }
        if version.is_empty() {
            told(text, vec!["version must be specified".to_owned()]);
        } else {
            told(version, names::dns1035_label(version));
        }
    }
    mixed_case_label(&name, errors);
}

/// A kind: a label, but for its case.
pub(super) fn mixed_case_label(name: &At<'_>, errors: &mut FieldErrors) {
    if name.text().is_empty() {
        errors.push(name.required(""));
        return;
    }
    let rules = names::dns1035_label(&name.text().to_lowercase());
    if !rules.is_empty() {
        let rule = format!("may have mixed case, but should otherwise match: {}", rules.join(","));
        errors.push(name.invalid(&rule));
    }
}

fn validation(validation: &At<'_>, compiler: &Compiler, errors: &mut FieldErrors) {
    let (expression, message, computed) =
        (validation.get("expression"), validation.get("message"), validation.get("messageExpression"));
    if expression.text().trim().is_empty() {
        errors.push(expression.required("expression is not specified"));
    } else {
        compiles(&expression, compiler, Sees::Authorizer, &[Type::Bool], errors);
    }
    let is_blank = |at: &At<'_>| !at.text().is_empty() && at.text().trim().is_empty();
    if is_blank(&computed) {
        errors.push(computed.invalid("must be non-empty if specified"));
    } else if !computed.text().is_empty() {
        compiles(&computed, compiler, Sees::Nothing, &[Type::String], errors);
    }
    if is_blank(&message) {
        errors.push(message.invalid("message must be non-empty if specified"));
    } else if message.text().trim().contains(['\n', '\r']) {
        errors.push(message.invalid("message must not contain line breaks"));
    }
    validation.get("reason").if_one_of(REASONS, errors);
}

fn annotation(policy: &str, annotation: &At<'_>, compiler: &Compiler, errors: &mut FieldErrors) {
    let (key, expression) = (annotation.get("key"), annotation.get("valueExpression"));
    if policy.is_empty() {
        errors.push(key.invalid("requires metadata.name be non-empty"));
    } else {
        let full = format!("{policy}/{}", key.text());
        let rules = names::qualified_name(&full);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&key.path, full.as_str(), rule)));
    }
    let text = expression.text().trim();
    if text.is_empty() {
        errors.push(expression.required("valueExpression is not specified"));
    } else if text.len() > ANNOTATION_BYTES_MAX {
        errors.push(expression.required(&format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length")));
    } else {
        compiles(&expression, compiler, Sees::Authorizer, &[Type::String, Type::Null], errors);
    }
}

/// A ValidatingAdmissionPolicyBinding.
pub(crate) fn validating_binding(object: &Value) -> FieldErrors {
    let mut errors = binding(object);
    let actions = At::root(object).get("spec").get("validationActions");
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        action.if_one_of(ACTIONS, &mut errors);
        if !seen.insert(action.text()) {
            errors.push(action.duplicate());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        errors.push(actions.invalid(
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ));
    }
    if seen.is_empty() {
        errors.push(actions.required("at least one validation action is required"));
    }
    errors
}

/// An update of a ValidatingAdmissionPolicyBinding.
pub(crate) fn validating_binding_update(new: &Value, _: &Value) -> FieldErrors {
    validating_binding(new)
}

/// What bindings of both sorts have.
pub(super) fn binding(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    spec.get("policyName").named(names::dns1123_subdomain, &mut errors);
    if let Some(reference) = spec.some("paramRef") {
        param_ref(&reference, &mut errors);
    }
    if let Some(resources) = spec.some("matchResources") {
        match_resources(&resources, &mut errors);
    }
    errors
}

fn param_ref(reference: &At<'_>, errors: &mut FieldErrors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, labels) = (reference.get("name"), reference.get("selector"));
    let has_both = !name.text().is_empty() && labels.is_set();
    errors.extend(name.all(names::path_segment(name.text())));
    if has_both {
        errors.push(name.forbidden(EXCLUSIVE));
    }
    selector::check(&labels, errors);
    if has_both {
        errors.push(labels.forbidden(EXCLUSIVE));
    }
    if name.text().is_empty() && !labels.is_set() {
        errors.push(reference.required("one of name or selector must be specified"));
    }
    reference.get("parameterNotFoundAction").one_of(&["Deny", "Allow"], errors);
}
