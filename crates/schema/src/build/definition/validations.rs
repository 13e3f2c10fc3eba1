//! The rules in CEL, as far as they are not evaluated: that they are there, and that what is said of them can be shown.

use super::field_path::{self, Notation};
use crate::build::props::Props;
use crate::build::structural::supported;
use crate::rules::Validation;
use crate::walk::path::Path;
use crate::walk::validate::report::Report;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

pub(super) fn check(props: &Props, path: Path<'_>, found: &mut Report) {
    let all = Path::Field(&path, "x-kubernetes-validations");
    let has_paths = props.validations.iter().any(|rule| !rule.field_path.is_empty());
    let is_known = has_paths && supported(props).is_ok();
    for (index, rule) in props.validations.iter().enumerate() {
        one(rule, Path::Index(&all, index), found);
        if is_known
            && !rule.field_path.is_empty()
            && field_path::resolve(props, &rule.field_path, Notation::Brackets).is_err()
        {
            let at = Path::Index(&all, index);
            found.invalid(Path::Field(&at, "fieldPath"), &*rule.field_path, "must be a valid path");
        }
    }
}

fn one(rule: &Validation, path: Path<'_>, found: &mut Report) {
    let child = |name| Path::Field(&path, name);
    let is_blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    let message = &*rule.message;
    if rule.rule.trim().is_empty() {
        found.required(child("rule"), "rule is not specified");
    } else if is_blank(message) {
        found.invalid(child("message"), message, "must be non-empty if specified");
    } else if has_breaks(message.trim()) {
        found.invalid(child("message"), message, "must not contain line breaks");
    } else if has_breaks(rule.rule.trim()) && message.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        found.required(child("message"), why);
    }
    if is_blank(&rule.message_expression) {
        found.required(child("messageExpression"), "messageExpression must be non-empty if specified");
    }
    if !rule.reason.is_empty() && !REASONS.contains(&&*rule.reason) {
        found.not_supported(child("reason"), &rule.reason, &REASONS);
    }
    if is_blank(&rule.field_path) {
        found.invalid(child("fieldPath"), &*rule.field_path, "must be non-empty if specified");
    }
    if has_breaks(&rule.field_path) {
        found.invalid(child("fieldPath"), &*rule.field_path, "must not contain line breaks");
    }
}
