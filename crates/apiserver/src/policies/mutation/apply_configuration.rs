//! Mutations that merge an object: as server-side apply does, without anybody owning what they set.
//!
//! Source: `plugin/policy/mutating/patch/smd.go`.

use expressions::{JsonBudget, Object, Value as Cel};
use serde_json::Value;

use super::{Failure, names};
use crate::codec;
use crate::webhooks::attributes::{Attributes, Form};

/// The object with what was made merged in.
///
/// # Errors
/// If what was made is no configuration of such an object, or names something atomic.
pub(super) fn patched(
    made: &Cel<'_>,
    attributes: &Attributes<'_>,
    form: &Form,
    object: &Value,
) -> Result<Value, Failure> {
    let config = configuration(made, object)?;
    let sent_as = attributes.sent_as.map(|name| (name.api_version(), name.kind));
    let sent_as = sent_as.as_ref().map(|(version, kind)| (version.as_str(), *kind));
    codec::merge_unowned(&form.0, sent_as, object, &config)?
        .map_err(|why| Failure::Policy(format!("error applying patch: {why}")))
}

/// What an expression has made, as a configuration of this object.
fn configuration(made: &Cel<'_>, object: &Value) -> Result<Value, Failure> {
    if !matches!(made, Cel::Object(Object::Shared(_))) {
        let name = made.type_name();
        return Err(Failure::Policy(format!(
            "unsupported return type from ApplyConfiguration expression: {name}"
        )));
    }
    // The size first: parts that are the same are looked at as often as they are there.
    let mut config = made.to_json(&mut JsonBudget::default())?;
    names::check(made).map_err(|why| Failure::Policy(why.to_string()))?;
    for name in ["apiVersion", "kind"] {
        if let (Some(config), Some(own)) = (config.as_object_mut(), object.get(name)) {
            config.insert(name.to_owned(), own.clone());
        }
    }
    Ok(config)
}
