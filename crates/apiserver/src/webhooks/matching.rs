//! The webhooks that a request concerns, and the form in which they get its object.
//!
//! Source: `ShouldCallHook` of `plugin/webhook/generic`, `predicates/{namespace,object}`.

use machinery::labels::{ParseError, Selector};
use serde_json::{Map, Value};

use super::attributes::{Attributes, Form};
use super::hooks::Hook;
use crate::status::{Error, Result};

/// The form in which the webhook is to be asked; `None` if it is not.
///
/// # Errors
/// 404 for a namespace that is not there, 500 for selectors that cannot be read: both only where the rules match.
pub fn form(hook: &Hook, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<Option<Form>> {
    let Some(form) = by_rules(hook, attributes) else { return Ok(None) };
    let labels = || attributes.namespace_labels(object);
    let in_namespace = is_in_namespaces(&hook.namespace_selector, attributes, labels);
    if matches!(in_namespace, Ok(false)) {
        return Ok(None);
    }
    let is_selected = is_selected(&hook.object_selector, attributes, object);
    if matches!(is_selected, Ok(false)) {
        return Ok(None);
    }
    in_namespace?;
    is_selected?;
    Ok(Some(form))
}

/// The first rule that names the resource itself wins; else, if the webhook wants that, the first that names another
/// version of it.
fn by_rules(hook: &Hook, attributes: &Attributes<'_>) -> Option<Form> {
    let target = attributes.target(attributes.kind);
    if hook.rules.iter().any(|rule| rule.matches(&target)) {
        return Some(Form(attributes.kind.clone()));
    }
    if !hook.is_equivalent {
        return None;
    }
    let found = hook
        .rules
        .iter()
        .find_map(|rule| attributes.equivalents().find(|kind| rule.matches(&attributes.target(kind))));
    found.cloned().map(Form)
}

/// What is in no namespace is never left out, but for Namespaces. `labels` are the namespace's.
pub(crate) fn is_in_namespaces(
    selector: &Result<Selector, ParseError>,
    attributes: &Attributes<'_>,
    labels: impl FnOnce() -> Result<Option<Map<String, Value>>>,
) -> Result<bool> {
    if attributes.namespace.is_empty() && attributes.kind.resource() != "namespaces" {
        return Ok(true);
    }
    let selector = selector.as_ref().map_err(Error::internal)?;
    if selector.is_everything() {
        return Ok(true);
    }
    Ok(selector.matches(labels()?.as_ref()))
}

/// Either what is to be or what was.
pub(crate) fn is_selected(
    selector: &Result<Selector, ParseError>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<bool> {
    let selector = selector.as_ref().map_err(Error::internal)?;
    if selector.is_everything() {
        return Ok(true);
    }
    let matches = |object: Option<&Value>| {
        // What has no metadata, such as the options of a stream, has no labels to be asked for.
        object
            .and_then(|object| object.get("metadata"))
            .is_some_and(|metadata| selector.matches(metadata.get("labels").and_then(Value::as_object)))
    };
    Ok(matches(object) || matches(attributes.old))
}

#[cfg(test)]
mod tests;
