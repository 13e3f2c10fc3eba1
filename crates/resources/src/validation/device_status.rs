//! The status by drivers of the devices that a ResourceClaim was given: `status.devices`.
//!
//! Source: `validateDeviceStatus` of `pkg/apis/resource/validation`, KEP-4817.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::net::Cidr;
use serde_json::{Value, json};

use super::device::{each, pool_name, raw_object};
use super::volume::driver_name;
use super::{At, conditions};

const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_ADDRESS_BYTES_MAX: usize = 128;
const ADDRESSES_MAX: usize = 16;

/// Every entry is about a device of the allocation, and each device has one.
pub(super) fn check_all(status: &At<'_>, errors: &mut FieldErrors) {
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
