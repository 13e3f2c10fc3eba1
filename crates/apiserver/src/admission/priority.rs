//! The number behind `priorityClassName`, and at most one default class.
//!
//! Source: `plugin/pkg/admission/priority`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, child, text};
use crate::kinds::GroupVersionResource;
use crate::status::{Error, Result};

const GROUP: &str = "scheduling.k8s.io";
const PREEMPT: &str = "PreemptLowerPriority";
/// What of a class counts.
const WANTED: [&str; 4] = ["/metadata/name", "/globalDefault", "/value", "/preemptionPolicy"];
/// The classes that critical Pods of the cluster have, and their values.
const SYSTEM: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Resolves the class, or takes the cluster's default one; an update keeps what the Pod has.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if !context.is_core("pods") {
        return Ok(());
    }
    match (context.operation, context.old) {
        (Operation::Create, _) => resolve(context, pod),
        (Operation::Update(_), Some(old)) => {
            for field in ["priority", "preemptionPolicy"] {
                let kept = old.pointer(&format!("/spec/{field}")).cloned();
                if let (Some(kept), Some(spec)) = (kept, child(pod, "spec")) {
                    spec.entry(field).or_insert(kept);
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What a class gives to a Pod.
struct Class {
    name: String,
    value: i64,
    policy: String,
}

fn resolve(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    let name = text(pod, "/spec/priorityClassName").to_owned();
    let class = if name.is_empty() { default_class(context) } else { lookup(context, &name) };
    if !name.is_empty() && class.is_none() {
        let why = format!("no PriorityClass with name {name} was found");
        return Err(context.forbidden(Metadata::of(pod).name(), &why));
    }
    let class = class.unwrap_or_else(|| Class { name, value: 0, policy: PREEMPT.to_owned() });
    let refuse = |why: &str| Err(context.forbidden(Metadata::of(pod).name(), why));
    if let Some(given) = pod.pointer("/spec/priority").and_then(Value::as_i64)
        && given != class.value
    {
        return refuse(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.value
        ));
    }
    if let Some(given) = pod.pointer("/spec/preemptionPolicy").and_then(Value::as_str)
        && given != class.policy
    {
        return refuse(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.policy
        ));
    }
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    if !class.name.is_empty() {
        spec.insert("priorityClassName".to_owned(), class.name.into());
    }
    spec.insert("priority".to_owned(), class.value.into());
    spec.insert("preemptionPolicy".to_owned(), class.policy.into());
    Ok(())
}

fn read(class: &Value) -> Class {
    Class {
        name: Metadata::of(class).name().to_owned(),
        value: class.get("value").and_then(Value::as_i64).unwrap_or(0),
        policy: class.get("preemptionPolicy").and_then(Value::as_str).unwrap_or(PREEMPT).to_owned(),
    }
}

/// The system's classes resolve before they are stored: Pods of the cluster need not wait for them.
fn lookup(context: &Context<'_>, name: &str) -> Option<Class> {
    if let Some((name, value)) = SYSTEM.iter().find(|(system, _)| *system == name) {
        return Some(Class { name: (*name).to_owned(), value: *value, policy: PREEMPT.to_owned() });
    }
    let classes = GroupVersionResource::new(GROUP, "v1", "priorityclasses");
    let class = context.lookup_part(classes, "", name, &WANTED);
    class.map(|class| read(&class))
}

fn defaults(context: &Context<'_>) -> Vec<Value> {
    let Some(kind) = context.cluster.kind(GROUP, "v1", "priorityclasses") else { return Vec::new() };
    let listing = kind.cache().list(kind.prefix(), 0);
    let classes = listing.objects.iter().map(|object| object.part(&WANTED));
    classes.filter(is_default).collect()
}

fn is_default(class: &Value) -> bool {
    class.get("globalDefault").and_then(Value::as_bool) == Some(true)
}

/// Of several, the lowest: two can exist for a moment after a change of the default.
fn default_class(context: &Context<'_>) -> Option<Class> {
    defaults(context).iter().map(read).min_by_key(|class| class.value)
}

/// At most one class may be the default.
pub(super) fn validate(context: &Context<'_>, class: &Value) -> Result<()> {
    let kind = &context.request.kind;
    let is_class = kind.group() == GROUP && kind.resource() == "priorityclasses";
    if !is_class || context.operation == Operation::Delete || !is_default(class) {
        return Ok(());
    }
    let name = Metadata::of(class).name();
    let other = defaults(context).into_iter().find(|other| Metadata::of(other).name() != name);
    match other {
        None => Ok(()),
        Some(other) => Err(Error::forbidden(
            context.request.subject(),
            name,
            &format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                Metadata::of(&other).name()
            ),
        )),
    }
}
