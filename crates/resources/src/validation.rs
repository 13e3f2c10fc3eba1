//! Rules that objects must keep, with upstream's messages; every broken one is reported.
//!
//! Validators see decoded and defaulted objects. [`At`] is a value together with its path, so that a rule reads like
//! the field it is about. Metadata is checked here for all kinds alike; a kind's own rules are in its strategy.
//! Source: `k8s.io/kubernetes/pkg/apis/*/validation`.

pub mod crd;
pub mod metadata;

pub(crate) mod address;
pub(crate) mod admission_policy;
pub(crate) mod admission_rules;
pub(crate) mod api_service;
pub(crate) mod apps;
pub(crate) mod autoscaler;
pub(crate) mod batch;
pub(crate) mod certificates;
pub(crate) mod classes;
mod conditions;
pub(crate) mod config;
pub(crate) mod container;
pub(crate) mod csi;
pub(crate) mod device;
pub(crate) mod device_status;
mod device_taint;
pub(crate) mod device_taint_rule;
mod diff;
pub(crate) mod disruption_budget;
pub(crate) mod endpoint_slice;
pub(crate) mod endpoints;
pub(crate) mod env;
pub(crate) mod event;
mod fields;
pub(crate) mod flow_control;
pub(crate) mod ingress;
mod internal;
pub(crate) mod ip;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod mount;
pub(crate) mod mutating_policy;
pub(crate) mod namespace;
pub(crate) mod network_policy;
pub(crate) mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
pub(crate) mod pod_annotations;
pub(crate) mod pod_certificates;
pub(crate) mod pod_ephemeral;
pub(crate) mod pod_resize;
pub(crate) mod pod_spec;
pub(crate) mod pod_status;
pub(crate) mod pod_update;
mod pod_view;
pub(crate) mod probe;
pub(crate) mod quantities;
pub(crate) mod rbac;
pub(crate) mod resource_slice;
pub(crate) mod review;
pub(crate) mod scheduling;
pub(crate) mod secret;
pub(crate) mod security_context;
pub(crate) mod selector;
pub(crate) mod service;
mod signer;
pub(crate) mod storage;
pub(crate) mod storage_version;
pub(crate) mod volume;
pub(crate) mod warnings;
pub(crate) mod webhook;

pub use service::service_cluster_addresses;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::Value;

use crate::resource::Resource;
use pod_view::PodView;

impl Resource {
    /// Every broken rule of a new object, metadata included.
    pub fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = metadata::create(self, object);
        errors.extend((self.strategy.validate_create)(object));
        errors.extend(self.strategy.rules.iter().flat_map(|rules| rules.validate_create(object)));
        errors
    }

    /// Every broken rule of an update of the whole object, metadata included.
    pub fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = metadata::update(self, new, old);
        errors.extend((self.strategy.validate_update)(new, old));
        errors.extend(self.strategy.rules.iter().flat_map(|rules| rules.validate_update(new, old)));
        errors
    }

    /// Every broken rule of a write to `/status`, metadata included.
    pub fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = metadata::update(self, new, old);
        errors.extend((self.strategy.validate_status_update)(new, old));
        errors.extend(self.strategy.rules.iter().flat_map(|rules| rules.validate_status_update(new, old)));
        errors
    }
}

static NULL: Value = Value::Null;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

/// A value and where it is; absent fields are null.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    value: &'a Value,
    path: Path,
}

impl<'a> At<'a> {
    fn root(object: &'a Value) -> Self {
        Self { value: object, path: Path::default() }
    }

    /// The field `name`.
    fn get(&self, name: &str) -> Self {
        Self { value: self.value.get(name).unwrap_or(&NULL), path: self.path.child(name) }
    }

    /// The field `name`, if it is there.
    fn some(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Self { value, path: self.path.child(name) })
    }

    fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let path = self.path.clone();
        let list = self.value.as_array().into_iter().flatten();
        list.enumerate().map(move |(i, value)| Self { value, path: path.index(i) })
    }

    /// Keys and values of a map.
    fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let path = self.path.clone();
        let map = self.value.as_object().into_iter().flatten();
        map.map(move |(key, value)| (key.as_str(), Self { value, path: path.key(key) }))
    }

    fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            Value::String(text) => text.len(),
            _ => 0,
        }
    }

    fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    fn invalid(&self, detail: &str) -> FieldError {
        FieldError::invalid(&self.path, self.value, detail)
    }

    fn required(&self, detail: &str) -> FieldError {
        FieldError::required(&self.path, detail)
    }

    fn forbidden(&self, detail: &str) -> FieldError {
        FieldError::forbidden(&self.path, detail)
    }

    fn duplicate(&self) -> FieldError {
        FieldError::duplicate(&self.path, self.value)
    }

    /// The text breaks these rules.
    fn all(&self, rules: Vec<String>) -> impl Iterator<Item = FieldError> + use<'a> {
        let at = self.clone();
        rules.into_iter().map(move |rule| at.invalid(&rule))
    }

    /// A text that must be there and keep a rule.
    fn named(&self, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
        if self.text().is_empty() {
            errors.push(self.required(""));
        } else {
            errors.extend(self.all(rule(self.text())));
        }
    }

    /// A text that keeps a rule if it is there.
    fn optional(&self, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
        if !self.text().is_empty() {
            errors.extend(self.all(rule(self.text())));
        }
    }

    /// A text that must be one of `supported`.
    fn one_of(&self, supported: &[&str], errors: &mut FieldErrors) {
        if self.text().is_empty() {
            errors.push(self.required(""));
        } else {
            self.if_one_of(supported, errors);
        }
    }

    /// A text that, if it is there, must be one of `supported`.
    fn if_one_of(&self, supported: &[&str], errors: &mut FieldErrors) {
        if self.is_set() && !supported.contains(&self.text()) {
            errors.push(FieldError::not_supported(&self.path, self.value, supported));
        }
    }

    /// A number that, if it is there, must not be negative.
    fn not_negative(&self, errors: &mut FieldErrors) {
        if self.number().is_some_and(|n| n < 0) {
            errors.push(self.invalid(NOT_NEGATIVE));
        }
    }

    /// The same as in `old`.
    fn immutable(&self, old: &At<'_>, errors: &mut FieldErrors) {
        if self.value != old.value {
            errors.push(self.invalid("field is immutable"));
        }
    }

    /// A port number, or the name of a port; an absent one is 0.
    fn port(&self, errors: &mut FieldErrors) {
        match self.value {
            Value::Number(_) | Value::Null => self.port_number(errors),
            _ => errors.extend(self.all(names::port_name(self.text()))),
        }
    }
}

/// Labels, wherever they stand.
fn labels(at: &At<'_>, errors: &mut FieldErrors) {
    for (key, value) in at.entries() {
        errors.extend(names::qualified_name(key).iter().map(|e| FieldError::invalid(&at.path, key, e)));
        let value = value.text();
        errors.extend(names::label_value(value).iter().map(|e| FieldError::invalid(&at.path, value, e)));
    }
}

#[cfg(test)]
mod platform_tests;
#[cfg(test)]
mod tests;
