//! `pods/ephemeralcontainers`: containers that look into a running Pod may come, not change or go.

use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::Value;

use super::fields::same;
use super::pod_annotations;
use super::pod_view::MIRROR;
use super::{At, internal, pod};

/// A write to `/ephemeralcontainers`; only `spec.ephemeralContainers` may differ.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new), At::root(old));
    pod::spec_and_metadata(&new, Some(&old), &mut errors);
    pod_annotations::update(&new.annotations(), &old.annotations(), &mut errors);
    if old.annotations().get(MIRROR).is_set() {
        let text = "static pods do not support ephemeral containers";
        return FieldError::forbidden(&Path::default(), text).into();
    }
    let (containers, had) =
        (new.get("spec").get("ephemeralContainers"), old.get("spec").get("ephemeralContainers"));
    for container in had.items() {
        let name = container.get("name").text();
        match containers.items().find(|c| c.get("name").text() == name) {
            None => errors.push(
                containers
                    .forbidden(&format!("existing ephemeral containers \"{name}\" may not be removed\n")),
            ),
            Some(new) if !same(new.value, container.value) => {
                let difference = internal::diff("EphemeralContainer", container.value, new.value);
                errors.push(containers.forbidden(&format!(
                    "existing ephemeral containers \"{name}\" may not be changed\n{difference}"
                )));
            }
            Some(_) => {}
        }
    }
    errors
}
