//! PodSecurity: namespaces ask by labels how much their Pods may do.
//!
//! What violates `enforce` is refused; `warn` and `audit` also look at the templates of controllers. A namespace
//! that starts to enforce is told which of its Pods would be refused.
//! Source: `k8s.io/pod-security-admission/admission`.

pub mod checks;
pub mod policy;

use std::collections::{BTreeMap, BTreeSet};

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation};
use crate::kinds::Part;
use crate::status::{Error, Result};
use checks::{Pod, Violation, evaluate};
use policy::{Level, LevelVersion, Policy};

/// How many existing Pods are looked at when a namespace starts to enforce.
const EXISTING_PODS_MAX: usize = 3000;

/// Checks namespaces, Pods, and what has a template of Pods.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    if context.operation == Operation::Delete {
        return Ok(());
    }
    let (kind, subresource) = (&context.request.kind, context.request.resource.subresource.as_str());
    match (kind.group(), kind.resource()) {
        ("", "namespaces") if subresource.is_empty() => namespace(context, object),
        ("", "pods") if !matches!(subresource, "status" | "binding") => pod(context, object),
        (group, resource) if subresource.is_empty() => match template_of(group, resource) {
            Some(pointer) => template(context, object, pointer),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Where a kind has its Pod template.
fn template_of(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        ("", "podtemplates") => Some("/template"),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

fn namespace(context: &Context<'_>, object: &Value) -> Result<()> {
    let (new, errors) = Policy::of_labels(Metadata::of(object).labels());
    let name = Metadata::of(object).name();
    let refused = || Err(Error::invalid(context.request.kind.kind_subject(), name, &errors));
    let Some(old) = context.old.filter(|_| matches!(context.operation, Operation::Update(_))) else {
        return if errors.is_empty() { Ok(()) } else { refused() };
    };
    let (old, old_errors) = Policy::of_labels(Metadata::of(old).labels());
    if !errors.is_empty() && errors != old_errors {
        return refused();
    }
    let (new, old) = (new.enforce, old.enforce);
    let is_relaxed = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || is_relaxed {
        return Ok(());
    }
    for warning in existing(context, name, new) {
        context.warn(warning);
    }
    Ok(())
}

/// What to say about the Pods that are there already.
fn existing(context: &Context<'_>, namespace: &str, level: LevelVersion) -> Vec<String> {
    let Some(kind) = context.cluster.kind("", "v1", "pods") else { return Vec::new() };
    let listing = kind.cache().list(&kind.collection(namespace), 0);
    let pods: Vec<Value> = listing.objects.iter().map(|object| kind.value(object)).collect();
    let total = pods.len();
    let mut by_warning: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for pod in ranked(&pods).into_iter().take(EXISTING_PODS_MAX) {
        let violations = evaluate(level, &seen(pod));
        if !violations.is_empty() {
            let name = Metadata::of(pod).name().to_owned();
            let entry = by_warning.entry(checks::reason(&violations)).or_insert((0, name.clone()));
            entry.0 += 1;
            entry.1 = entry.1.clone().min(name);
        }
    }
    let mut warnings = Vec::new();
    if total > EXISTING_PODS_MAX {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {EXISTING_PODS_MAX} of {total} existing pods"
        ));
    }
    if !by_warning.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let mut of_pods: Vec<String> = by_warning
        .into_iter()
        .map(|(warning, (count, name))| match count {
            1 => format!("{name}: {warning}"),
            2 => format!("{name} (and 1 other pod): {warning}"),
            _ => format!("{name} (and {} other pods): {warning}", count - 1),
        })
        .collect();
    of_pods.sort();
    warnings.append(&mut of_pods);
    warnings
}

/// Pods, one of each controller first.
fn ranked(pods: &[Value]) -> Vec<&Value> {
    let mut seen = BTreeSet::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for pod in pods {
        match Metadata::of(pod).controller() {
            Some(owner) if !seen.insert(owner.uid.to_owned()) => rest.push(pod),
            _ => first.push(pod),
        }
    }
    first.append(&mut rest);
    first
}

fn seen(object: &Value) -> Pod<'_> {
    Pod { annotations: Metadata::of(object).annotations(), spec: object.get("spec").unwrap_or(&Value::Null) }
}

fn pod(context: &Context<'_>, object: &Value) -> Result<()> {
    let is_changed = match (context.operation, context.old) {
        (Operation::Update(Part::Status), _) => false,
        (Operation::Update(_), Some(old)) => is_significant(object, old),
        _ => true,
    };
    let Some((policy, problem)) = policy_of(context) else { return Ok(()) };
    if !is_changed || (problem.is_none() && policy.is_fully_privileged()) {
        return Ok(());
    }
    let violations = evaluate(policy.enforce, &seen(object));
    context.annotate("pod-security.kubernetes.io/enforce-policy", &policy.enforce.to_string());
    let text = format!("violates PodSecurity \"{}\": {}", policy.enforce, checks::detail(&violations));
    note(context, policy, problem, &seen(object), violations.is_empty());
    if violations.is_empty() { Ok(()) } else { Err(context.forbidden(Metadata::of(object).name(), &text)) }
}

fn template(context: &Context<'_>, object: &Value, pointer: &str) -> Result<()> {
    let Some(template) = object.pointer(pointer) else { return Ok(()) };
    let Some((policy, problem)) = policy_of(context) else { return Ok(()) };
    let is_silent = policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged;
    if problem.is_none() && is_silent {
        return Ok(());
    }
    note(context, policy, problem, &seen(template), true);
    Ok(())
}

/// The policy of the request's namespace, and what is wrong with its labels.
fn policy_of(context: &Context<'_>) -> Option<(Policy, Option<String>)> {
    let namespace = context.cached("", "v1", "namespaces", "", &context.request.resource.namespace)?;
    if !namespace.labels().keys().any(|label| label.starts_with("pod-security.kubernetes.io/")) {
        return None;
    }
    let namespace = namespace.value();
    let (policy, errors) = Policy::of_labels(Metadata::of(&namespace).labels());
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let problem = match texts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    Some((policy, problem))
}

/// Notes for the audit log, and a warning unless the request is refused anyway.
fn note(context: &Context<'_>, policy: Policy, problem: Option<String>, pod: &Pod<'_>, is_allowed: bool) {
    let violates = |level: LevelVersion, violations: &[Violation]| {
        format!("would violate PodSecurity \"{level}\": {}", checks::detail(violations))
    };
    if let Some(problem) = problem {
        context.annotate("pod-security.kubernetes.io/error", &format!("Failed to parse policy: {problem}"));
    }
    let audit = evaluate(policy.audit, pod);
    if !audit.is_empty() {
        context.annotate("pod-security.kubernetes.io/audit-violations", &violates(policy.audit, &audit));
    }
    if is_allowed {
        let warn = evaluate(policy.warn, pod);
        if !warn.is_empty() {
            context.warn(violates(policy.warn, &warn));
        }
    }
}

/// Whether anything changed that rules look at: a container came, or an image changed.
fn is_significant(new: &Value, old: &Value) -> bool {
    let list = |pod: &'_ Value, name: &str| -> Vec<(String, String)> {
        let containers =
            pod.pointer(&format!("/spec/{name}")).and_then(Value::as_array).into_iter().flatten();
        containers
            .map(|c| (super::text(c, "/name").to_owned(), super::text(c, "/image").to_owned()))
            .collect()
    };
    let is_changed = ["containers", "initContainers"].iter().any(|name| {
        let images = |pod: &Value| list(pod, name).into_iter().map(|(_, image)| image).collect::<Vec<_>>();
        images(new) != images(old)
    });
    let before = list(old, "ephemeralContainers");
    is_changed || list(new, "ephemeralContainers").iter().any(|one| !before.contains(one))
}
