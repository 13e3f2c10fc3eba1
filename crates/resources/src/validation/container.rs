//! Containers: what they run, open, mount and may use.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::quantity::Quantity;

use super::{At, NOT_NEGATIVE, PROTOCOLS, env, pod_spec, probe};

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

/// Containers, init containers and ephemeral containers of a `PodSpec`.
pub(super) fn check_all(spec: &At<'_>, volumes: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let containers = spec.get("containers");
    if containers.is_empty() {
        errors.push(containers.required(""));
    }
    let mut seen = BTreeSet::new();
    let host_network = spec.get("hostNetwork").flag();
    for container in containers.items() {
        check(&container, volumes, &mut seen, errors);
        ports(&container.get("ports"), host_network, errors);
        lifecycle(&container, errors);
        probe::all(&container, errors);
    }
    host_port_conflicts(&containers, errors);
    for container in spec.get("initContainers").items() {
        check(&container, volumes, &mut seen, errors);
        ports(&container.get("ports"), host_network, errors);
        container.get("restartPolicy").if_one_of(&["Always"], errors);
        if container.get("restartPolicy").text() == "Always" {
            lifecycle(&container, errors);
            probe::all(&container, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.get(field).is_set() {
                let at = container.get(field);
                errors.push(at.forbidden("may not be set for init containers without restartPolicy=Always"));
            }
        }
    }
    for container in spec.get("ephemeralContainers").items() {
        check(&container, volumes, &mut seen, errors);
        for field in ["ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.get(field).is_set() {
                errors.push(container.get(field).forbidden("cannot be set for an Ephemeral Container"));
            }
        }
    }
}

fn check<'a>(
    container: &At<'a>,
    volumes: &BTreeSet<&str>,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut FieldErrors,
) {
    let (name, image) = (container.get("name"), container.get("image"));
    name.named(names::dns1123_label, errors);
    if !name.text().is_empty() && !seen.insert(name.text()) {
        errors.push(name.duplicate());
    }
    if image.text().is_empty() {
        errors.push(image.required(""));
    } else if image.text().trim() != image.text() {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
    container.get("terminationMessagePolicy").one_of(&["FallbackToLogsOnError", "File"], errors);
    container.get("imagePullPolicy").one_of(PULL_POLICIES, errors);
    env::all(container, errors);
    mounts(container, volumes, errors);
    resources(&container.get("resources"), errors);
    security_context(&container.get("securityContext"), errors);
}

fn ports(ports: &At<'_>, host_network: bool, errors: &mut FieldErrors) {
    let mut names_seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            let rules = names::port_name(name.text());
            if rules.is_empty() && !names_seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
            errors.extend(name.all(rules));
        }
        let (container_port, host_port) = (port.get("containerPort"), port.get("hostPort"));
        match container_port.number().unwrap_or_default() {
            0 => errors.push(container_port.required("")),
            number => errors.extend(container_port.all(names::port_number(number))),
        }
        let host = host_port.number().unwrap_or_default();
        if host != 0 {
            errors.extend(host_port.all(names::port_number(host)));
        }
        // A template may leave it out: it is filled in when the Pod is made.
        if host_network && host != 0 && host_port.number() != container_port.number() {
            errors.push(host_port.invalid("must match `containerPort` when `hostNetwork` is true"));
        }
        port.get("protocol").one_of(PROTOCOLS, errors);
        if !port.get("hostIP").text().is_empty() {
            port.get("hostIP").ip(errors);
        }
    }
}

fn host_port_conflicts(containers: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for container in containers.items() {
        for port in container.get("ports").items() {
            let Some(number) = port.get("hostPort").number().filter(|n| *n != 0) else { continue };
            let key = format!("{}/{}/{number}", port.get("protocol").text(), port.get("hostIP").text());
            if !seen.insert(key.clone()) {
                errors.push(FieldError::duplicate(&port.get("hostPort").path, key));
            }
        }
    }
}

fn lifecycle(container: &At<'_>, errors: &mut FieldErrors) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = container.get("lifecycle").some(hook) {
            probe::handler(&handler, &["exec", "httpGet", "tcpSocket", "sleep"], errors);
        }
    }
}

fn mounts(container: &At<'_>, volumes: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let mut paths = BTreeSet::new();
    for mount in container.get("volumeMounts").items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else if !volumes.contains(name.text()) {
            errors.push(FieldError::not_found(&name.path, name.text()));
        }
        if path.text().is_empty() {
            errors.push(path.required(""));
        }
        if !paths.insert(path.text()) {
            errors.push(path.invalid("must be unique"));
        }
        let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
        inner_path(&sub, errors);
        inner_path(&expression, errors);
        if !sub.text().is_empty() && !expression.text().is_empty() {
            errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
        }
        mount.get("mountPropagation").if_one_of(&["Bidirectional", "HostToContainer", "None"], errors);
    }
}

/// A path below another one: relative, and without a step back.
pub(super) fn inner_path(at: &At<'_>, errors: &mut FieldErrors) {
    if at.text().starts_with('/') {
        errors.push(at.invalid("must be a relative path"));
    }
    if at.text().split('/').any(|step| step == "..") {
        errors.push(at.invalid("must not contain '..'"));
    }
}

/// `ResourceRequirements`.
pub(super) fn resources(resources: &At<'_>, errors: &mut FieldErrors) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    for list in [&limits, &requests] {
        for (name, amount) in list.entries() {
            resource_name(list, name, errors);
            quantity(&amount, name, errors);
        }
    }
    for (name, request) in requests.entries() {
        let limit = limits.get(name);
        let (Ok(asked), Ok(most)) = (request.text().parse::<Quantity>(), limit.text().parse::<Quantity>())
        else {
            if !is_overcommittable(name) && !limit.is_set() {
                let at = &limits.path;
                errors.push(FieldError::required(at, "Limit must be set for non overcommitable resources"));
            }
            continue;
        };
        if asked > most {
            errors.push(FieldError::invalid(
                &requests.path,
                asked.to_string(),
                &format!("must be less than or equal to {name} limit of {most}"),
            ));
        } else if asked != most && !is_overcommittable(name) {
            errors.push(FieldError::invalid(
                &requests.path,
                asked.to_string(),
                &format!("must be equal to {name} limit of {most}"),
            ));
        }
    }
}

/// Whether a limit may be above the request.
fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn resource_name(list: &At<'_>, name: &str, errors: &mut FieldErrors) {
    let rules = names::qualified_name(name);
    if !rules.is_empty() {
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&list.path, name, rule)));
        return;
    }
    let is_standard =
        matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-");
    if !name.contains('/') && !is_standard {
        let at = list.path.key(name);
        errors.push(FieldError::invalid(&at, name, "must be a standard resource type or fully qualified"));
        errors.push(FieldError::invalid(&at, name, "must be a standard resource for containers"));
    }
}

/// An amount of the resource `name`.
pub(super) fn quantity(at: &At<'_>, name: &str, errors: &mut FieldErrors) {
    match at.text().parse::<Quantity>() {
        Err(error) => errors.push(at.invalid(&error.to_string())),
        Ok(amount) if amount.signum() < 0 => errors.push(at.invalid(NOT_NEGATIVE)),
        Ok(amount) if !amount.is_whole() && !is_native(name) => errors.push(at.invalid("must be an integer")),
        Ok(_) => {}
    }
}

fn security_context(context: &At<'_>, errors: &mut FieldErrors) {
    for field in ["runAsUser", "runAsGroup"] {
        pod_spec::user_id(&context.get(field), errors);
    }
    pod_spec::seccomp(&context.get("seccompProfile"), errors);
    context.get("procMount").if_one_of(&["Default", "Unmasked"], errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if !escalation.is_set() || escalation.flag() {
        return;
    }
    if context.get("privileged").flag() {
        errors
            .push(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
    }
    if context
        .get("capabilities")
        .get("add")
        .items()
        .any(|c| matches!(c.text(), "SYS_ADMIN" | "CAP_SYS_ADMIN"))
    {
        errors.push(
            context.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            ),
        );
    }
}
