//! CSIDrivers, CSINodes and CSIStorageCapacities.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::volume::driver_name;
use super::{At, NOT_NEGATIVE, internal, selector};

const NODE_ID_BYTES_MAX: usize = 256;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const UPDATE_PERIOD_SECONDS_MIN: i64 = 10;

/// A CSIDriver.
pub(crate) fn driver(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    // Upstream calls the first one so.
    for (field, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.get(field).is_set() {
            errors.push(spec.get(shown).required(""));
        }
    }
    spec.get("fsGroupPolicy").if_one_of(&["File", "None", "ReadWriteOnceWithFSType"], &mut errors);
    token_requests(&spec.get("tokenRequests"), &mut errors);
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items().filter(|mode| !matches!(mode.text(), "Persistent" | "Ephemeral")) {
        errors.push(FieldError::not_supported(&modes.path, mode.value, &["Persistent", "Ephemeral"]));
    }
    if !spec.get("seLinuxMount").is_set() {
        errors.push(spec.get("seLinuxMount").required(""));
    }
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && spec.get("tokenRequests").is_empty() {
        errors.push(
            in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified"),
        );
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.number().is_some_and(|seconds| seconds < UPDATE_PERIOD_SECONDS_MIN) {
        errors.push(period.invalid("must be greater than or equal to 10 seconds"));
    }
    errors
}

fn token_requests(requests: &At<'_>, errors: &mut FieldErrors) {
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let (audience, seconds) = (request.get("audience"), request.get("expirationSeconds"));
        if !audiences.insert(audience.text()) {
            errors.push(FieldError::duplicate(&audience.path, audience.text()));
            continue;
        }
        match seconds.number() {
            Some(number) if number < TOKEN_SECONDS_MIN => {
                errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
            }
            Some(number) if number > TOKEN_SECONDS_MAX => {
                errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
            }
            _ => {}
        }
    }
}

/// An update of a CSIDriver: how volumes are attached, and which lives they have, stays.
pub(crate) fn driver_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = driver(new);
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    At { path: new.get("attachedRequired").path, ..new.get("attachRequired") }
        .immutable(&old.get("attachRequired"), &mut errors);
    new.get("volumeLifecycleModes").immutable(&old.get("volumeLifecycleModes"), &mut errors);
    errors
}

/// A CSINode.
pub(crate) fn node(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for driver in At::root(object).get("spec").get("drivers").items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        driver_name(&name, &mut errors);
        if id.text().is_empty() {
            errors.push(id.required(""));
        }
        if id.text().len() > NODE_ID_BYTES_MAX {
            errors.push(id.invalid(&format!("must be {NODE_ID_BYTES_MAX} characters or less")));
        }
        driver.get("allocatable").get("count").not_negative(&mut errors);
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        topology_keys(&driver, &mut errors);
    }
    errors
}

fn topology_keys(driver: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for key in driver.get("topologyKeys").items() {
        // Upstream reports these at the driver.
        let key = At { path: driver.path.clone(), ..key };
        if key.text().is_empty() {
            errors.push(key.required(""));
        }
        if !seen.insert(key.text()) {
            errors.push(key.duplicate());
        }
        errors.extend(key.all(names::qualified_name(key.text())));
    }
}

/// An update of a CSINode: a driver that is there may only change how many volumes it can take.
pub(crate) fn node_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = node(new);
    let (new, old) = (At::root(new).get("spec").get("drivers"), At::root(old).get("spec").get("drivers"));
    let fixed = |driver: &At<'_>| {
        let mut value = driver.value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("allocatable");
        }
        value
    };
    for before in old.items() {
        for now in new.items().filter(|now| now.get("name").text() == before.get("name").text()) {
            if fixed(&now) != fixed(&before) {
                let shown = fixed(&now);
                let at = At { value: &shown, path: new.path.clone() };
                errors.push(internal::invalid(&at, "CSINodeDriver", "field is immutable"));
            }
        }
    }
    errors
}

/// A CSIStorageCapacity.
pub(crate) fn capacity(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let capacity = At::root(object);
    selector::check(&capacity.get("nodeTopology"), &mut errors);
    let class = capacity.get("storageClassName");
    errors.extend(class.all(names::dns1123_subdomain(class.text())));
    let amount = capacity.get("capacity");
    if amount.is_set() && amount.text().parse::<Quantity>().is_ok_and(|quantity| quantity.signum() < 0) {
        errors.push(amount.invalid(NOT_NEGATIVE));
    }
    errors
}

/// An update of a CSIStorageCapacity: what it is about stays.
pub(crate) fn capacity_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for field in ["nodeTopology", "storageClassName"] {
        At::root(new).get(field).immutable(&At::root(old).get(field), &mut errors);
    }
    errors
}
