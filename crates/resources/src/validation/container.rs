//! Containers: what they run, open and may use.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::mount::{self, Volumes};
use super::quantities::{self, Names};
use super::{At, PROTOCOLS, PULL_POLICIES, PodView, env, probe, security_context};

const MESSAGE_POLICIES: &[&str] = &["File", "FallbackToLogsOnError"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const INIT_ONLY_WITH_RESTARTS: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
/// What a container that is only there to look at others must not have, in upstream's order.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// What containers refer to.
struct Context<'a, 'v> {
    pod: &'v PodView<'a>,
    volumes: &'v Volumes<'a>,
    claims: BTreeSet<&'a str>,
    host_users: bool,
}

/// Containers, init containers and ephemeral containers of a Pod.
pub(super) fn check_all<'a>(pod: &PodView<'a>, volumes: &Volumes<'a>, errors: &mut FieldErrors) {
    let context = Context {
        pod,
        volumes,
        claims: pod.claim_names(),
        host_users: !pod.spec.get("hostUsers").is_set() || pod.spec.get("hostUsers").flag(),
    };
    let mut names = BTreeSet::new();
    main(&context, &mut names, errors);
    init(&context, &mut names, errors);
    ephemeral(&context, names, errors);
}

fn main<'a>(context: &Context<'a, '_>, names: &mut BTreeSet<&'a str>, errors: &mut FieldErrors) {
    let containers = context.pod.spec.get("containers");
    if containers.is_empty() {
        errors.push(containers.required(""));
        return;
    }
    for container in containers.items() {
        common(&container, context, errors);
        if !names.insert(container.get("name").text()) {
            errors.push(container.get("name").duplicate());
        }
        probe::all(&container, context.pod, errors);
        restart_rules(&container, errors);
    }
    host_port_conflicts(containers.items(), errors);
}

fn init<'a>(context: &Context<'a, '_>, names: &mut BTreeSet<&'a str>, errors: &mut FieldErrors) {
    for container in context.pod.spec.get("initContainers").items() {
        common(&container, context, errors);
        init_restart_rules(&container, errors);
        let name = container.get("name");
        if names.contains(name.text()) {
            errors.push(name.duplicate());
        } else if !name.text().is_empty() {
            names.insert(name.text());
        }
        // They run one by one: only their own ports can be in each other's way.
        host_port_conflicts(std::iter::once(container.clone()), errors);
        if container.get("restartPolicy").text() == "Always" {
            probe::all(&container, context.pod, errors);
            continue;
        }
        for field in INIT_ONLY_WITH_RESTARTS {
            if let Some(at) = container.some(field) {
                errors.push(at.forbidden("may not be set for init containers without restartPolicy=Always"));
            }
        }
    }
}

fn ephemeral<'a>(context: &Context<'a, '_>, names: BTreeSet<&'a str>, errors: &mut FieldErrors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let mut all = names.clone();
    for container in context.pod.spec.get("ephemeralContainers").items() {
        common(&container, context, errors);
        image_padding(&container, errors);
        if !all.insert(container.get("name").text()) {
            errors.push(container.get("name").duplicate());
        }
        let target = container.get("targetContainerName");
        if !target.text().is_empty() && !names.contains(target.text()) {
            errors.push(FieldError::not_found(&target.path, target.text()));
        }
        for field in NOT_EPHEMERAL {
            let at = container.get(field);
            if at.is_set() && (!at.is_empty() || field == "restartPolicy") {
                errors.push(at.forbidden(DETAIL));
            }
        }
        for mount in container.get("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.get(field).text().is_empty() {
                    errors.push(mount.get(field).forbidden(DETAIL));
                }
            }
        }
    }
}

/// What holds for containers of every sort.
fn common(container: &At<'_>, context: &Context<'_, '_>, errors: &mut FieldErrors) {
    container.get("name").named(names::dns1123_label, errors);
    container.must_have("image", errors);
    container.get("terminationMessagePolicy").one_of(MESSAGE_POLICIES, errors);
    ports(&container.get("ports"), errors);
    env::all(container, errors);
    mount::all(container, context.volumes, errors);
    container.get("imagePullPolicy").one_of(PULL_POLICIES, errors);
    quantities::requirements(&container.get("resources"), Names::Container, &context.claims, errors);
    resize_policy(container, context.pod, errors);
    security_context::container(&container.get("securityContext"), context.host_users, errors);
}

/// A Pod's image has no space around it; a template's may.
pub(super) fn image_padding(container: &At<'_>, errors: &mut FieldErrors) {
    let image = container.get("image");
    if image.text().trim() != image.text() {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
}

fn ports(ports: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            let rules = names::port_name(name.text());
            if rules.is_empty() && !seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
            errors.extend(name.all(rules));
        }
        let (container_port, host_port) = (port.get("containerPort"), port.get("hostPort"));
        match container_port.number().unwrap_or_default() {
            0 => errors.push(container_port.required("")),
            _ => container_port.port_number(errors),
        }
        if host_port.number().unwrap_or_default() != 0 {
            host_port.port_number(errors);
        }
        port.get("protocol").one_of(PROTOCOLS, errors);
    }
}

fn host_port_conflicts<'a>(containers: impl Iterator<Item = At<'a>>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for container in containers {
        for port in container.get("ports").items() {
            let Some(number) = port.get("hostPort").number().filter(|n| *n != 0) else { continue };
            let key = format!("{}/{}/{number}", port.get("protocol").text(), port.get("hostIP").text());
            if !seen.insert(key.clone()) {
                errors.push(FieldError::duplicate(&port.get("hostPort").path, key));
            }
        }
    }
}

fn resize_policy(container: &At<'_>, pod: &PodView<'_>, errors: &mut FieldErrors) {
    let policies = container.get("resizePolicy");
    let is_never = pod.spec.get("restartPolicy").text() == "Never";
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.get("resourceName").text(), policy.get("restartPolicy").text());
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(&policy.path, resource));
        }
        for (text, supported) in
            [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])]
        {
            if text.is_empty() {
                errors.push(policies.required(""));
            } else if !supported.contains(&text) {
                errors.push(FieldError::not_supported(&policies.path, text, &supported));
            }
        }
        if is_never && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(&policies.path, restart, detail));
        }
    }
}

/// A sidecar is always restarted: rules say nothing more.
fn init_restart_rules(container: &At<'_>, errors: &mut FieldErrors) {
    let rules = container.get("restartPolicyRules");
    if container.get("restartPolicy").text() != "Always" {
        restart_rules(container, errors);
    } else if !rules.is_empty() {
        let detail = "restartPolicyRules are not allowed for init containers with restart policy Always";
        errors.push(rules.forbidden(detail));
    }
}

/// A container's own restart policy, and its exceptions.
fn restart_rules(container: &At<'_>, errors: &mut FieldErrors) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    policy.if_one_of(RESTART_POLICIES, errors);
    if rules.is_empty() {
        return;
    }
    if !policy.is_set() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    if rules.len() > RESTART_RULES_MAX {
        errors.push(FieldError::too_many(&rules.path, rules.len(), RESTART_RULES_MAX));
    }
    for rule in rules.items() {
        let action = rule.get("action");
        if action.text() != "Restart" {
            errors.push(FieldError::not_supported(&action.path, action.text(), &["Restart"]));
        }
        let Some(codes) = rule.some("exitCodes") else {
            errors.push(rule.get("exitCodes").required("must be specified"));
            continue;
        };
        let (operator, values) = (codes.get("operator"), codes.get("values"));
        if !["In", "NotIn"].contains(&operator.text()) {
            errors.push(FieldError::not_supported(&operator.path, operator.text(), &["In", "NotIn"]));
        }
        if values.len() > EXIT_CODES_MAX {
            errors.push(FieldError::too_many(&values.path, values.len(), EXIT_CODES_MAX));
        }
    }
}
