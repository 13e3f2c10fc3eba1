//! ResourceSlices of `resource.k8s.io/v1`: which devices a driver offers, and where.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;
use super::device::{each, pool_name, qualified, unique};
use super::device_taint::taint;
use super::scheduling::node_selector;
use super::selector::Values;
use super::volume::driver_name;

const DEVICES_MAX: usize = 128;
const DEVICES_ADVANCED_MAX: usize = 64;
const PER_DEVICE_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 8;
const VALUE_BYTES_MAX: usize = 64;
const ONE_PLACE: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

/// A ResourceSlice.
pub(crate) fn check(object: &Value) -> FieldErrors {
    check_beside(object, &Value::Null)
}

fn check_beside(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    driver_name(&spec.get("driver"), &mut errors);
    let pool = spec.get("pool");
    pool_name(&pool.get("name"), &mut errors);
    let count = pool.get("resourceSliceCount");
    if count.number().unwrap_or_default() <= 0 {
        let number = count.number().unwrap_or_default();
        errors.push(FieldError::invalid(&count.path, number, "must be greater than zero"));
    }
    let generation = pool.get("generation");
    if generation.number().is_some_and(|number| number < 0) {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
    place(&spec, &mut errors);
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    if devices.is_set() && counters.is_set() {
        errors.push(FieldError::invalid(
            &spec.path,
            "",
            "only one of `sharedCounters` or `devices` is allowed",
        ));
    }
    let is_advanced = |d: &At<'_>| !d.get("taints").is_empty() || !d.get("consumesCounters").is_empty();
    let devices_max =
        if devices.items().any(|d| is_advanced(&d)) { DEVICES_ADVANCED_MAX } else { DEVICES_MAX };
    let had = At::root(old).get("spec").get("devices");
    each(&devices, devices_max, &mut errors, |item, errors| device(item, &had, errors));
    unique(&devices, |item| item.get("name").text(), &mut errors);
    each(&counters, COUNTER_SETS_MAX, &mut errors, |set, errors| {
        set.get("name").named(names::dns1123_label, errors);
        counter_map(&set.get("counters"), errors);
    });
    unique(&counters, |item| item.get("name").text(), &mut errors);
    errors
}

/// An update of a ResourceSlice: whose it is, and where, stays.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = check_beside(new, old);
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    new.get("pool").get("name").immutable(&old.get("pool").get("name"), &mut errors);
    new.get("driver").immutable(&old.get("driver"), &mut errors);
    new.get("nodeName").immutable(&old.get("nodeName"), &mut errors);
    errors
}

/// A driver's name should not depend on case. New slices and changed ones.
pub(crate) fn warnings(object: &Value) -> Vec<String> {
    let driver = At::root(object).get("spec").get("driver");
    let text = driver.text();
    let has_capitals = text != text.to_lowercase();
    has_capitals
        .then(|| {
            format!(
                "{}: driver names should be lowercase; {text:?} contains uppercase characters",
                driver.path
            )
        })
        .into_iter()
        .collect()
}

fn place(spec: &At<'_>, errors: &mut FieldErrors) {
    let mut set = Vec::new();
    if let Some(name) = spec.some("nodeName") {
        if name.text().is_empty() {
            errors.push(name.invalid("must be either unset or set to a non-empty string"));
        } else {
            set.push("`nodeName`");
            errors.extend(name.all(names::dns1123_subdomain(name.text())));
        }
    }
    if let Some(selector) = spec.some("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(&selector, Values::Labels, errors);
        let terms = selector.get("nodeSelectorTerms");
        if terms.len() != 1 {
            errors.push(terms.invalid("must have exactly one node selector term"));
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match spec.some(field) {
            Some(at) if at.flag() => set.push(shown),
            Some(at) => errors.push(at.invalid("must be either unset or set to true")),
            None => {}
        }
    }
    match set.len() {
        0 => errors.push(spec.required(ONE_PLACE)),
        1 => {}
        _ => errors.push(FieldError::invalid(
            &spec.path,
            format!("{{{}}}", set.join(", ")),
            &format!("{ONE_PLACE}, but multiple fields are set"),
        )),
    }
}

fn device(device: &At<'_>, had: &At<'_>, errors: &mut FieldErrors) {
    let name = device.get("name");
    errors.extend(name.all(names::dns1123_label(name.text())));
    let (attributes, capacity) = (device.get("attributes"), device.get("capacity"));
    let count = attributes.len() + capacity.len();
    if count > PER_DEVICE_MAX {
        let rule = format!("the total number of attributes and capacities must not exceed {PER_DEVICE_MAX}");
        errors.push(FieldError::invalid(&device.path, i64::try_from(count).unwrap_or(i64::MAX), &rule));
    }
    for (name, value) in attributes.entries() {
        qualified(&value, name, errors);
        attribute(&value, errors);
    }
    for (name, value) in capacity.entries() {
        qualified(&value, name, errors);
    }
    // Taints that the device of that name had already may stay.
    let taints = device.get("taints");
    let old = had.items().find(|old| old.get("name").text() == name.text());
    if old.is_none_or(|old| old.get("taints").value != taints.value) {
        let new = At::root(&Value::Null);
        each(&taints, TAINTS_MAX, errors, |item, errors| taint(item, &new, errors));
    }
    let consumed = device.get("consumesCounters");
    for item in consumed.items() {
        item.get("counterSet").named(names::dns1123_label, errors);
        counter_map(&item.get("counters"), errors);
    }
    unique(&consumed, |item| item.get("counterSet").text(), errors);
}

fn counter_map(counters: &At<'_>, errors: &mut FieldErrors) {
    if counters.is_empty() {
        errors.push(counters.required(""));
    }
    for (name, value) in counters.entries() {
        let rules = names::dns1123_label(name);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&value.path, name, rule)));
    }
}

fn attribute(attribute: &At<'_>, errors: &mut FieldErrors) {
    const RULE: &str = "exactly one value must be specified";
    let (text, version) = (attribute.get("string"), attribute.get("version"));
    for value in [&text, &version] {
        if value.len() > VALUE_BYTES_MAX {
            errors.push(FieldError::too_long(&value.path, VALUE_BYTES_MAX));
        }
    }
    if version.is_set() && !is_semver(version.text()) {
        errors.push(version.invalid("must be a string compatible with semver.org spec 2.0.0"));
    }
    let set = ["bool", "int", "string", "version"].iter().filter(|f| attribute.get(f).is_set()).count();
    match set {
        0 => errors.push(FieldError::invalid(&attribute.path, "", RULE)),
        1 => {}
        _ => errors.push(attribute.invalid(RULE)),
    }
}

fn is_semver(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_pre = |part: &str| is_number(part) || (is_word(part) && !part.bytes().all(|b| b.is_ascii_digit()));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_pre))
        && build.is_none_or(|build| build.split('.').all(is_word))
}
