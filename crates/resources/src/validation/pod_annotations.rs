//! Annotations that mean something for a Pod, old security profiles among them.

use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::{Value, json};

use super::pod_view::{MIRROR, containers};
use super::{At, scheduling};

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const PROFILE_BYTES_MAX: usize = 4095;
/// AppArmor profiles of containers, before there was a field.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The Pod's seccomp profile, before there was a field.
pub(crate) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Seccomp profiles of containers, before there was a field.
pub(crate) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The annotations of a Pod or template.
pub(super) fn check(annotations: &At<'_>, spec: &At<'_>, errors: &mut FieldErrors) {
    if let Some(mirror) = annotations.some(MIRROR)
        && spec.get("nodeName").text().is_empty()
    {
        let path = annotations.path.key(MIRROR);
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(&path, mirror.text(), detail));
    }
    let tolerations = annotations.get(TOLERATIONS).text();
    if !tolerations.is_empty() {
        match serde_json::from_str(tolerations) {
            Ok(value) => {
                let at = At { value: &value, path: annotations.path.child(TOLERATIONS) };
                scheduling::tolerations(&at, errors);
            }
            Err(error) => {
                errors.push(FieldError::invalid(&annotations.path, TOLERATIONS, &error.to_string()));
            }
        }
    }
    if let Some(cost) = annotations.some(DELETION_COST)
        && !is_cost(cost.text())
    {
        let path = annotations.path.key(DELETION_COST);
        errors.push(FieldError::invalid(&path, cost.text(), "must be a 32bit integer"));
    }
    for (key, value) in annotations.entries() {
        let value = value.text();
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(&annotations.path.child(key), value, errors);
        }
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            app_armor(&annotations.path.key(key), container, value, spec, errors);
        }
    }
}

/// A whole number without a plus or leading zeros.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    text.parse::<i32>().is_ok() && !text.starts_with('+') && (digits == "0" || !digits.starts_with('0'))
}

fn seccomp(path: &Path, profile: &str, errors: &mut FieldErrors) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    let Some(file) = profile.strip_prefix("localhost/") else {
        errors.push(FieldError::invalid(path, profile, "must be a valid seccomp profile"));
        return;
    };
    let file = Value::from(file);
    At { value: &file, path: path.clone() }.inner_path(errors);
}

fn app_armor(path: &Path, container: &str, profile: &str, spec: &At<'_>, errors: &mut FieldErrors) {
    if !containers(spec).any(|c| c.get("name").text() == container) {
        errors.push(FieldError::invalid(path, container, "container not found"));
    }
    let is_good =
        ["", "runtime/default", "unconfined"].contains(&profile) || profile.starts_with("localhost/");
    if !is_good {
        let detail = format!("invalid AppArmor profile name: \"{profile}\"");
        errors.push(FieldError::invalid(path, profile, &detail));
    }
}

/// The profile that an annotation names; what names none is left for validation.
pub(crate) fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        local => {
            let name = local.strip_prefix("localhost/")?;
            let is_name = !name.is_empty() && name.trim() == name && name.len() <= PROFILE_BYTES_MAX;
            is_name.then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}

/// What may not change in the annotations of a Pod.
pub(super) fn update(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let is_of_interest = |key: &str| key.starts_with(APP_ARMOR) || key == MIRROR;
    let noun = |key: &str| if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
    for (key, was) in old.entries().filter(|(key, _)| is_of_interest(key)) {
        if new.value.get(key) != Some(was.value) {
            let detail = format!("may not remove or update {}", noun(key));
            errors.push(FieldError::forbidden(&new.path.key(key), &detail));
        }
    }
    for (key, _) in new.entries().filter(|(key, _)| is_of_interest(key)) {
        if old.value.get(key).is_none() {
            let detail = format!("may not add {}", noun(key));
            errors.push(FieldError::forbidden(&new.path.key(key), &detail));
        }
    }
}

/// Old annotation and new field say the same, where both are there.
pub(super) fn match_fields(annotations: &At<'_>, spec: &At<'_>, errors: &mut FieldErrors) {
    let of_pod = spec.get("securityContext");
    if let Some(annotation) = annotations.some(SECCOMP_POD) {
        agree(&of_pod.get("seccompProfile"), annotation.text(), "seccomp", errors);
    }
    for container in containers(spec) {
        let name = container.get("name").text();
        if let Some(annotation) = annotations.some(&format!("{SECCOMP_CONTAINER}{name}")) {
            let profile = container.get("securityContext").get("seccompProfile");
            agree(&profile, annotation.text(), "seccomp", errors);
        }
    }
    if spec.get("os").get("name").text() == "windows" {
        return;
    }
    for container in containers(spec) {
        let key = format!("{APP_ARMOR}{}", container.get("name").text());
        let Some(annotation) = annotations.some(&key) else { continue };
        let own = container.get("securityContext").get("appArmorProfile");
        let value = if own.is_set() { own.value } else { of_pod.get("appArmorProfile").value };
        agree(&At { value, path: own.path }, annotation.text(), "apparmor", errors);
    }
}

fn agree(profile: &At<'_>, annotation: &str, noun: &str, errors: &mut FieldErrors) {
    let kind = profile.get("type");
    let is_same = match kind.text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (noun == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) => {
                let localhost = profile.get("localhostProfile");
                if localhost.text() != file {
                    let detail = format!("{noun} profile in annotation and field must match");
                    errors.push(localhost.forbidden(&detail));
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !is_same {
        errors.push(kind.forbidden(&format!("{noun} type in annotation and field must match")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_cost_is_a_plain_whole_number() {
        for good in ["0", "-5", "2147483647"] {
            assert!(is_cost(good), "{good}");
        }
        for bad in ["", "+1", "01", "-0x", "2147483648", "1.5"] {
            assert!(!is_cost(bad), "{bad}");
        }
    }
}
