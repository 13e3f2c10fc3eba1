//! Taints of devices, and the tolerations of those who ask for devices.
//!
//! Source: `validateDeviceTaint`, `validateDeviceToleration` of `pkg/apis/resource/validation`, KEP-5055.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::At;

const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const OPERATORS: &[&str] = &["Equal", "Exists"];

/// A taint, in the place of `old`: an effect that it had already may stay, whoever knew it.
pub(super) fn taint(taint: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let (key, effect) = (taint.get("key"), taint.get("effect"));
    // It must be there: what is missing is shown as empty.
    let rules = names::qualified_name(key.text());
    errors.extend(rules.iter().map(|rule| FieldError::invalid(&key.path, key.text(), rule)));
    taint.get("value").optional(names::label_value, errors);
    if !old.is_set() || old.get("effect").text() != effect.text() {
        effect.one_of(EFFECTS, errors);
    }
}

/// A toleration.
pub(super) fn toleration(toleration: &At<'_>, errors: &mut FieldErrors) {
    let (key, value, operator) = (toleration.get("key"), toleration.get("value"), toleration.get("operator"));
    key.optional(names::qualified_name, errors);
    match operator.text() {
        "Exists" if !value.text().is_empty() => {
            errors.push(value.invalid("must be empty for operator `Exists`"));
        }
        "Equal" => errors.extend(value.all(names::label_value(value.text()))),
        "Exists" => {}
        "" => errors.push(operator.required("")),
        text => errors.push(FieldError::not_supported(&operator.path, text, OPERATORS)),
    }
    let effect = toleration.get("effect");
    if !effect.text().is_empty() {
        effect.if_one_of(EFFECTS, errors);
    }
}
