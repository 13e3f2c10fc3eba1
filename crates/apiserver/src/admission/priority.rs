//! The number behind `priorityClassName`.
//!
//! Source: `plugin/pkg/admission/priority`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, child, served, text};
use crate::kinds::Kind;
use crate::status::Result;

const NEVER_OR_LOWER: &str = "PreemptLowerPriority";

/// Resolves the class, or takes the cluster's default one.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if context.operation != Operation::Create || !context.is_core("pods") {
        return Ok(());
    }
    let name = text(pod, "/spec/priorityClassName").to_owned();
    let class = if name.is_empty() { default_class(context) } else { lookup(context, &name) };
    if !name.is_empty() && class.is_none() {
        let why = format!("no PriorityClass with name {name} was found");
        return Err(context.forbidden(Metadata::of(pod).name(), &why));
    }
    let value = class.as_ref().and_then(|c| c.get("value")).and_then(Value::as_i64).unwrap_or(0);
    let policy = class.as_ref().and_then(|c| c.get("preemptionPolicy")).and_then(Value::as_str);
    let policy = policy.unwrap_or(NEVER_OR_LOWER).to_owned();
    if let Some(given) = pod.pointer("/spec/priority").and_then(Value::as_i64)
        && given != value
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(context.forbidden(Metadata::of(pod).name(), &why));
    }
    let class_name = class.as_ref().map(|c| Metadata::of(c).name().to_owned());
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    if let Some(class_name) = class_name {
        spec.insert("priorityClassName".to_owned(), class_name.into());
    }
    spec.insert("priority".to_owned(), value.into());
    spec.entry("preemptionPolicy").or_insert_with(|| policy.into());
    Ok(())
}

fn lookup(context: &Context<'_>, name: &str) -> Option<Value> {
    context.lookup("scheduling.k8s.io", "v1", "priorityclasses", "", name)
}

fn default_class(context: &Context<'_>) -> Option<Value> {
    let kind = Kind::find("scheduling.k8s.io", "v1", "priorityclasses")?;
    let listing = kind.cache(context.api).list(kind.row().storage_prefix, 0);
    let classes = listing.objects.iter().map(|object| served(kind, object));
    classes
        .filter(|class| class.get("globalDefault").and_then(Value::as_bool) == Some(true))
        .min_by_key(|class| class.get("value").and_then(Value::as_i64))
}
