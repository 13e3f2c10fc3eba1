//! A Pod's RuntimeClass gives it its overhead, and a place where it can run.
//!
//! Source: `plugin/pkg/admission/runtimeclass`, KEP-688.

use machinery::metadata::Metadata;
use serde_json::{Map, Value, json};

use super::{Context, Operation, child, text};
use crate::status::Result;

fn class(context: &Context<'_>, pod: &Value) -> Result<Option<Value>> {
    let name = text(pod, "/spec/runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    match context.lookup("node.k8s.io", "v1", "runtimeclasses", "", name) {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            Err(context.forbidden(Metadata::of(pod).name(), &why))
        }
    }
}

fn applies(context: &Context<'_>) -> bool {
    context.operation == Operation::Create && context.is_core("pods")
}

/// Takes over overhead, node selector and tolerations.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if !applies(context) {
        return Ok(());
    }
    let Some(class) = class(context, pod)? else { return Ok(()) };
    let refused = merge(pod, &class);
    refused.map_err(|why| context.forbidden(Metadata::of(pod).name(), &why.to_string()))
}

/// A Pod that says otherwise than its class.
#[derive(Debug, thiserror::Error)]
enum Conflict {
    #[error("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
    Overhead,
    #[error(
        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {of_class}; pod.spec.nodeSelector[{key}] = {of_pod}"
    )]
    NodeSelector { key: String, of_class: String, of_pod: String },
}

fn merge(pod: &mut Value, class: &Value) -> Result<(), Conflict> {
    let overhead = class.pointer("/overhead/podFixed").filter(|fixed| fixed.is_object());
    if let Some(fixed) = overhead {
        let given = pod.pointer("/spec/overhead").filter(|given| !given.is_null());
        if given.is_some_and(|given| given != fixed) {
            return Err(Conflict::Overhead);
        }
        if let Some(spec) = child(pod, "spec") {
            spec.insert("overhead".to_owned(), fixed.clone());
        }
    }
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    for (key, value) in
        class.pointer("/scheduling/nodeSelector").and_then(Value::as_object).into_iter().flatten()
    {
        let selector = spec.entry("nodeSelector").or_insert_with(|| Value::Object(Map::new()));
        if selector.is_null() {
            *selector = Value::Object(Map::new());
        }
        let Some(selector) = selector.as_object_mut() else { continue };
        if let Some(own) = selector.get(key).filter(|own| *own != value) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (of_class, of_pod) = (text(value), text(own));
            return Err(Conflict::NodeSelector { key: key.clone(), of_class, of_pod });
        }
        selector.insert(key.clone(), value.clone());
    }
    let more =
        class.pointer("/scheduling/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(tolerations) =
        spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut().filter(|_| !more.is_empty())
    {
        for toleration in more {
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
    }
    Ok(())
}

/// Nobody sets an overhead that no class has.
pub(super) fn validate(context: &Context<'_>, pod: &Value) -> Result<()> {
    if !applies(context) {
        return Ok(());
    }
    let Some(given) = pod.pointer("/spec/overhead").and_then(Value::as_object) else {
        return Ok(());
    };
    let class = class(context, pod)?;
    let fixed = class.as_ref().and_then(|class| class.pointer("/overhead/podFixed"));
    let why = match fixed.and_then(Value::as_object) {
        None if !given.is_empty() => {
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        }
        Some(fixed) if fixed != given => {
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        }
        _ => return Ok(()),
    };
    Err(context.forbidden(Metadata::of(pod).name(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: &str, expect: Result<&str, &str>) {
        let parse = |yaml: &str| -> Value { serde_saphyr::from_str(yaml).unwrap() };
        let class = parse(
            "{overhead: {podFixed: {cpu: 10m}}, scheduling: {nodeSelector: {kata: 'yes'}, tolerations: [{key: kata}]}}",
        );
        let mut pod = parse(pod);
        let merged = merge(&mut pod, &class).map(|()| pod["spec"].clone()).map_err(|why| why.to_string());
        assert_eq!(merged, expect.map(parse).map_err(str::to_owned));
    }

    #[test]
    fn a_pod_takes_what_its_class_needs() {
        check(
            "{spec: {runtimeClassName: kata}}",
            Ok(
                "{runtimeClassName: kata, overhead: {cpu: 10m}, nodeSelector: {kata: 'yes'}, tolerations: [{key: kata}]}",
            ),
        );
        check(
            "{spec: {nodeSelector: {kata: 'no'}}}",
            Err(
                "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes; pod.spec.nodeSelector[kata] = no",
            ),
        );
        check(
            "{spec: {overhead: {cpu: 20m}}}",
            Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        );
    }
}
