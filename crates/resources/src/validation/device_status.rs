//! The status by drivers of the devices that a ResourceClaim was given: `status.devices`.
//!
//! Source: `validateDeviceStatus` of `pkg/apis/resource/validation`, KEP-4817.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::net::Cidr;
use serde_json::{Value, json};

use super::device::{
    LIST_MAX, Requests, configuration, each, pool_name, raw_object, reference, references, requests, unique,
};
use super::scheduling::node_selector;
use super::selector::Values;
use super::volume::driver_name;
use super::{At, conditions};

const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_ADDRESS_BYTES_MAX: usize = 128;
const ADDRESSES_MAX: usize = 16;
const USERS_MAX: usize = 256;

/// Every entry is about a device of the allocation, and each device has one.
fn check_all(status: &At<'_>, errors: &mut FieldErrors) {
    let results = status.get("allocation").get("devices").get("results");
    let allocated: Vec<_> = results.items().map(|result| id(&result)).collect();
    let devices = status.get("devices");
    devices.items().for_each(|device| check(&device, &allocated, errors));
    let mut seen = Vec::new();
    for device in devices.items() {
        let id = id(&device);
        if seen.contains(&id) {
            errors.push(FieldError::duplicate(&device.path, &id));
        }
        seen.push(id);
    }
}

/// Which device it is, as upstream shows it.
fn id(device: &At<'_>) -> Value {
    json!({
        "Driver": device.get("driver").text(),
        "Pool": device.get("pool").text(),
        "Device": device.get("device").text(),
    })
}

fn check(device: &At<'_>, allocated: &[Value], errors: &mut FieldErrors) {
    driver_name(&device.get("driver"), errors);
    pool_name(&device.get("pool"), errors);
    let name = device.get("device");
    errors.extend(name.all(names::dns1123_label(name.text())));
    let id = id(device);
    if !allocated.contains(&id) {
        errors.push(FieldError::invalid(&device.path, &id, "must be an allocated device in the claim"));
    }
    let list = device.get("conditions");
    if list.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&list.path, list.len(), CONDITIONS_MAX));
    }
    conditions::check_all(&list, errors);
    if let Some(data) = device.some("data") {
        raw_object(&data, DATA_BYTES_MAX, errors);
    }
    network(&device.get("networkData"), errors);
}

fn network(data: &At<'_>, errors: &mut FieldErrors) {
    for (field, max) in
        [("interfaceName", INTERFACE_BYTES_MAX), ("hardwareAddress", HARDWARE_ADDRESS_BYTES_MAX)]
    {
        if data.get(field).len() > max {
            errors.push(FieldError::too_long(&data.get(field).path, max));
        }
    }
    let addresses = data.get("ips");
    each(&addresses, ADDRESSES_MAX, errors, interface_address);
    let mut seen = BTreeSet::new();
    errors.extend(addresses.items().filter(|at| !seen.insert(at.text())).map(|at| at.duplicate()));
}

/// An address with the length of its network's prefix. Source: `IsValidInterfaceAddress`.
fn interface_address(at: &At<'_>, errors: &mut FieldErrors) {
    const RULE: &str = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
    let Some(address) = Cidr::legacy(at.text()) else {
        errors.push(at.invalid(RULE));
        return;
    };
    let canonical = address.to_string();
    if at.text() != canonical {
        errors.push(at.invalid(&format!("must be in canonical form ({canonical:?})")));
    }
}

/// A write to the status of a ResourceClaim.
pub(crate) fn claim(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (root, before) = (At::root(new), At::root(old).get("status"));
    let known = requests(&root.get("spec").get("devices"));
    let status = root.get("status");
    let users = status.get("reservedFor");
    each(&users, USERS_MAX, &mut errors, |item, errors| {
        for field in ["resource", "name", "uid"] {
            if item.get(field).text().is_empty() {
                errors.push(item.get(field).required(""));
            }
        }
    });
    unique(&users, |item| item.get("uid").text(), &mut errors);
    check_all(&status, &mut errors);
    let allocation = status.get("allocation");
    if !users.is_empty() && !allocation.is_set() {
        errors.push(users.forbidden("may not be specified when `allocated` is not set"));
    } else if root.get("metadata").get("deletionTimestamp").is_set() {
        let had = before.get("reservedFor");
        if users.items().any(|item| !had.items().any(|old| old.value == item.value)) {
            errors.push(users.forbidden(
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            ));
        }
    }
    if before.get("allocation").is_set() && allocation.is_set() {
        allocation.immutable(&before.get("allocation"), &mut errors);
    } else if allocation.is_set() {
        allocated(&allocation, &known, &mut errors);
    }
    errors
}

fn allocated(allocation: &At<'_>, known: &Requests<'_>, errors: &mut FieldErrors) {
    let devices = allocation.get("devices");
    each(&devices.get("results"), LIST_MAX, errors, |item, errors| {
        reference(&item.get("request"), known, errors);
        driver_name(&item.get("driver"), errors);
        pool_name(&item.get("pool"), errors);
        let device = item.get("device");
        errors.extend(device.all(names::dns1123_label(device.text())));
    });
    each(&devices.get("config"), 2 * LIST_MAX, errors, |item, errors| {
        item.get("source").one_of(&["FromClaim", "FromClass"], errors);
        references(&item.get("requests"), known, errors);
        configuration(item, errors);
    });
    if let Some(selector) = allocation.some("nodeSelector") {
        node_selector(&selector, Values::Labels, errors);
    }
}
