//! DeviceTaintRules of `resource.k8s.io/v1alpha3`: one taint, and which devices have it.
//!
//! Source: `ValidateDeviceTaintRule` of `pkg/apis/resource/validation`, KEP-5055.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::device::pool_name;
use super::device_taint::taint;
use super::volume::driver_name;
use super::{At, conditions};

/// Conditions of a rule. Source: `DeviceTaintRuleStatusMaxConditions`.
const CONDITIONS_MAX: usize = 8;

/// A DeviceTaintRule.
pub(crate) fn check(object: &Value) -> FieldErrors {
    check_beside(object, &Value::Null)
}

/// An update of a DeviceTaintRule.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    check_beside(new, old)
}

/// A write to the status of a DeviceTaintRule.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let list = At::root(new).get("status").get("conditions");
    conditions::check_all(&list, &mut errors);
    if list.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&list.path, list.len(), CONDITIONS_MAX));
    }
    errors
}

fn check_beside(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (spec, old) = (At::root(object).get("spec"), At::root(old).get("spec"));
    let selector = spec.get("deviceSelector");
    selector.some("driver").inspect(|driver| driver_name(driver, &mut errors));
    selector.some("pool").inspect(|pool| pool_name(pool, &mut errors));
    let device = selector.some("device");
    errors.extend(device.iter().flat_map(|device| device.all(names::dns1123_label(device.text()))));
    taint(&spec.get("taint"), &old.get("taint"), &mut errors);
    errors
}
