//! Ingresses and IngressClasses.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::net::legacy_ip;
use serde_json::Value;

use super::At;

const CONTROLLER_BYTES_MAX: usize = 250;
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const NAME_ONLY: &str = "must be a DNS name, not an IP address";
/// What the path of a rule must not contain, and how it must not end.
const PATH_SEQUENCES: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const PATH_ENDS: &[&str] = &["/..", "/."];

/// A new Ingress.
pub(crate) fn create(object: &Value) -> FieldErrors {
    let mut errors = check(object, &Value::Null);
    let ingress = At::root(object);
    let annotation = ingress.get("metadata").get("annotations").get(CLASS_ANNOTATION);
    let class = ingress.get("spec").get("ingressClassName");
    if annotation.is_set() && class.is_set() && annotation.text() != class.text() {
        let path = ingress.get("annotations").get(CLASS_ANNOTATION).path;
        errors.push(FieldError::invalid(
            &path,
            annotation.text(),
            "must match `ingressClassName` when both are specified",
        ));
    }
    errors
}

/// An update of an Ingress.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    check(new, old)
}

fn check(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let had = At::root(old).get("spec").get("tls");
    let (rules, default) = (spec.get("rules"), spec.some("defaultBackend"));
    if rules.is_empty() && default.is_none() {
        let shown: &Value = if rules.is_set() { rules.value } else { &Value::Null };
        errors.push(FieldError::invalid(
            &spec.path,
            shown,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if let Some(default) = default {
        backend(&default, &mut errors);
    }
    rules.items().for_each(|item| rule(&item, &mut errors));
    for tls in spec.get("tls").items() {
        tls.get("hosts").items().for_each(|name| host(&name, &mut errors));
        // What was let in once with a bad name may have them.
        if had.items().all(|tls| has_good_secret(&tls)) {
            tls.get("secretName").optional(names::dns1123_subdomain, &mut errors);
        }
    }
    let class = spec.get("ingressClassName");
    if class.is_set() {
        errors.extend(class.all(names::dns1123_subdomain(class.text())));
    }
    errors
}

fn has_good_secret(tls: &At<'_>) -> bool {
    let mut errors = FieldErrors::new();
    tls.get("secretName").optional(names::dns1123_subdomain, &mut errors);
    errors.is_empty()
}

fn host(host: &At<'_>, errors: &mut FieldErrors) {
    let rule =
        if host.text().contains('*') { names::wildcard_dns1123_subdomain } else { names::dns1123_subdomain };
    errors.extend(host.all(rule(host.text())));
}

fn rule(rule: &At<'_>, errors: &mut FieldErrors) {
    let name = rule.get("host");
    if !name.text().is_empty() {
        if legacy_ip(name.text()).is_some() {
            errors.push(name.invalid(NAME_ONLY));
        }
        host(&name, errors);
    }
    let Some(http) = rule.some("http") else { return };
    let paths = http.get("paths");
    if paths.is_empty() {
        errors.push(paths.required(""));
    }
    paths.items().for_each(|item| path(&item, errors));
}

fn path(item: &At<'_>, errors: &mut FieldErrors) {
    let (kind, path) = (item.get("pathType"), item.get("path"));
    let is_absolute = path.text().starts_with('/');
    match kind.text() {
        _ if !kind.is_set() => {
            errors.push(kind.required("pathType must be specified"));
            return;
        }
        "Exact" | "Prefix" => {
            if !is_absolute {
                errors.push(FieldError::invalid(&path.path, path.text(), "must be an absolute path"));
            }
            for part in PATH_SEQUENCES.iter().filter(|part| path.text().contains(**part)) {
                errors.push(path.invalid(&format!("must not contain '{part}'")));
            }
            for end in PATH_ENDS.iter().filter(|end| path.text().ends_with(**end)) {
                errors.push(path.invalid(&format!("cannot end with '{end}'")));
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !is_absolute {
                errors.push(path.invalid("must be an absolute path"));
            }
        }
        _ => kind.if_one_of(PATH_TYPES, errors),
    }
    backend(&item.get("backend"), errors);
}

fn backend(backend: &At<'_>, errors: &mut FieldErrors) {
    let told = |rule| FieldError::invalid(&backend.path, "", rule);
    match (backend.some("resource"), backend.some("service")) {
        (Some(_), Some(_)) => errors.push(told("cannot set both resource and service backends")),
        (Some(resource), None) => typed_reference(&resource, errors),
        (None, Some(service)) => {
            service.get("name").named(names::dns1035_label, errors);
            let port = service.get("port");
            let (name, number) = (port.get("name"), port.get("number"));
            match (!name.text().is_empty(), number.number().unwrap_or_default() != 0) {
                (true, true) => errors.push(told("cannot set both port name & port number")),
                (true, false) => errors.extend(name.all(names::port_name(name.text()))),
                (false, true) => {
                    errors.extend(number.all(names::port_number(number.number().unwrap_or_default())));
                }
                (false, false) => errors.push(backend.required("port name or number is required")),
            }
        }
        (None, None) => errors.push(told("resource or service backend is required")),
    }
}

fn typed_reference(reference: &At<'_>, errors: &mut FieldErrors) {
    let group = reference.get("apiGroup");
    if group.is_set() {
        errors.extend(group.all(names::dns1123_subdomain(group.text())));
    }
    for field in ["kind", "name"] {
        let at = reference.get(field);
        if at.text().is_empty() {
            errors.push(at.required(&format!("{field} is required")));
        }
        errors.extend(at.all(names::path_segment(at.text())));
    }
}

/// A write to the status of an Ingress.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for ingress in At::root(new).get("status").get("loadBalancer").get("ingress").items() {
        let (address, name) = (ingress.get("ip"), ingress.get("hostname"));
        if !address.text().is_empty() {
            address.ip(&mut errors);
        }
        name.optional(names::dns1123_subdomain, &mut errors);
        if legacy_ip(name.text()).is_some() {
            errors.push(name.invalid(NAME_ONLY));
        }
    }
    errors
}

/// Warnings about a new Ingress.
pub(crate) fn warnings(ingress: &Value) -> Vec<String> {
    let annotations = At::root(ingress).get("metadata").get("annotations");
    if annotations.get(CLASS_ANNOTATION).is_set() {
        return vec![format!(
            "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
        )];
    }
    Vec::new()
}

/// An IngressClass.
pub(crate) fn class(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let controller = spec.get("controller");
    if controller.len() > CONTROLLER_BYTES_MAX {
        errors.push(FieldError::too_long(&controller.path, CONTROLLER_BYTES_MAX));
    }
    errors.extend(names::domain_prefixed_path(&controller.path, controller.text()));
    if let Some(parameters) = spec.some("parameters") {
        class_parameters(&parameters, &mut errors);
    }
    errors
}

/// An update of an IngressClass: its controller stays.
pub(crate) fn class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let controller = |object| At::root(object).get("spec").get("controller");
    controller(new).immutable(&controller(old), &mut errors);
    errors.extend(class(new));
    errors
}

fn class_parameters(parameters: &At<'_>, errors: &mut FieldErrors) {
    typed_reference(parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.text() {
        _ if !scope.is_set() => errors.push(scope.required("")),
        "Namespace" if !namespace.is_set() => {
            errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        "Namespace" => errors.extend(namespace.all(names::dns1123_label(namespace.text()))),
        "Cluster" if namespace.is_set() => {
            errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'"));
        }
        _ => scope.if_one_of(&["Cluster", "Namespace"], errors),
    }
}
