//! DeviceClasses, ResourceClaims and ResourceClaimTemplates of `resource.k8s.io/v1`.
//!
//! CEL expressions must compile; one that was stored before is not looked at again.
//! Source: `pkg/apis/resource/validation`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use expressions::device::{CompileError, Selectors};
use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::device_taint::toleration;
use super::volume::driver_name;
use super::{At, metadata};

pub(super) const LIST_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const ID_BYTES_MAX: usize = 32;
const DOMAIN_BYTES_MAX: usize = 63;
const POOL_BYTES_MAX: usize = 253;
const ONE_KIND: &str = "exactly one of `exactly` or `firstAvailable` is required";
const NO_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Keeps what was compiled.
static SELECTORS: LazyLock<Selectors> = LazyLock::new(Selectors::default);

/// The requests of a claim, and what each can be fulfilled by.
pub(super) type Requests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Checks each item, unless there are too many.
pub(super) fn each(
    list: &At<'_>,
    items_max: usize,
    errors: &mut FieldErrors,
    mut check: impl FnMut(&At<'_>, &mut FieldErrors),
) {
    if list.len() > items_max {
        errors.push(FieldError::too_many(&list.path, list.len(), items_max));
        return;
    }
    list.items().for_each(|item| check(&item, errors));
}

/// Each item's key once.
pub(super) fn unique<'a>(list: &At<'a>, key: impl Fn(&At<'a>) -> &'a str, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for item in list.items() {
        if !seen.insert(key(&item)) {
            errors.push(FieldError::duplicate(&item.path, key(&item)));
        }
    }
}

/// A DeviceClass.
pub(crate) fn class(object: &Value) -> FieldErrors {
    class_beside(object, &Value::Null)
}

/// An update of a DeviceClass.
pub(crate) fn class_update(new: &Value, old: &Value) -> FieldErrors {
    class_beside(new, old)
}

fn class_beside(object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let selectors = spec.get("selectors");
    if old.pointer("/spec/selectors") != Some(selectors.value) {
        each(&selectors, LIST_MAX, &mut errors, selector);
    }
    each(&spec.get("config"), LIST_MAX, &mut errors, configuration);
    let name = spec.get("extendedResourceName");
    let (domain, resource) = name.text().split_once('/').unwrap_or_default();
    let is_extended = names::qualified_name(name.text()).is_empty()
        && !resource.is_empty()
        && domain != "kubernetes.io"
        && !domain.ends_with(".kubernetes.io")
        && !domain.starts_with("requests.");
    if name.is_set() && !is_extended {
        errors.push(name.invalid("must be a valid extended resource name"));
    }
    errors
}

fn selector(selector: &At<'_>, errors: &mut FieldErrors) {
    let cel = selector.get("cel");
    if !cel.is_set() {
        errors.push(cel.required(""));
        return;
    }
    let expression = cel.get("expression");
    if expression.len() > EXPRESSION_BYTES_MAX {
        errors.push(FieldError::too_long(&expression.path, EXPRESSION_BYTES_MAX));
        return;
    }
    match SELECTORS.check(expression.text()) {
        Ok(()) => {}
        Err(CompileError::Invalid(why)) => errors.push(expression.invalid(&why)),
        Err(error @ CompileError::TooCostly) => {
            errors.push(FieldError::forbidden(&expression.path, &error.to_string()));
        }
    }
}

pub(super) fn configuration(config: &At<'_>, errors: &mut FieldErrors) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        errors.push(opaque.required(""));
        return;
    }
    driver_name(&opaque.get("driver"), errors);
    let parameters = opaque.get("parameters");
    if parameters.is_set() {
        raw_object(&parameters, PARAMETERS_BYTES_MAX, errors);
    } else {
        errors.push(parameters.required(""));
    }
}

/// What only the driver can read: an object, and not too large.
pub(super) fn raw_object(raw: &At<'_>, bytes_max: usize, errors: &mut FieldErrors) {
    if raw.value.to_string().len() > bytes_max {
        errors.push(FieldError::too_long(&raw.path, bytes_max));
    } else if !raw.value.is_object() {
        errors.push(FieldError::invalid(&raw.path, "<value omitted>", "must be a valid JSON object"));
    }
}

/// A ResourceClaim.
pub(crate) fn claim(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    claim_spec(&At::root(object).get("spec"), &mut errors);
    errors
}

/// An update of a ResourceClaim, or of a template: the spec stays.
pub(crate) fn claim_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    At::root(new).get("spec").immutable(&At::root(old).get("spec"), &mut errors);
    errors
}

/// A ResourceClaimTemplate.
pub(crate) fn claim_template(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let template = spec.get("metadata");
    metadata::annotations(&template.get("annotations"), &mut errors);
    super::labels(&template.get("labels"), &mut errors);
    for (name, value) in template.entries() {
        if !matches!(name, "labels" | "annotations") && value.is_set() {
            errors.push(template.get(name).forbidden("cannot be set"));
        }
    }
    claim_spec(&spec.get("spec"), &mut errors);
    errors
}

fn claim_spec(spec: &At<'_>, errors: &mut FieldErrors) {
    let devices = spec.get("devices");
    let known = requests(&devices);
    let list = devices.get("requests");
    each(&list, LIST_MAX, errors, request);
    unique(&list, |item| item.get("name").text(), errors);
    each(&devices.get("constraints"), LIST_MAX, errors, |item, errors| {
        references(&item.get("requests"), &known, errors);
        match (item.some("matchAttribute"), item.some("distinctAttribute")) {
            (Some(name), _) | (None, Some(name)) => fully_qualified(&name, errors),
            (None, None) => errors.push(item.get("matchAttribute").required("")),
        }
    });
    each(&devices.get("config"), LIST_MAX, errors, |item, errors| {
        references(&item.get("requests"), &known, errors);
        configuration(item, errors);
    });
}

pub(super) fn requests<'a>(devices: &At<'a>) -> Requests<'a> {
    let name = |at: &At<'a>| at.get("name").text();
    let all = devices.get("requests").items();
    all.map(|r| (name(&r), r.get("firstAvailable").items().map(|sub| name(&sub)).collect())).collect()
}

fn request(request: &At<'_>, errors: &mut FieldErrors) {
    let name = request.get("name");
    errors.extend(name.all(names::dns1123_label(name.text())));
    let alternatives = request.get("firstAvailable");
    match (request.some("exactly"), !alternatives.is_empty()) {
        (None, false) => errors.push(request.required(ONE_KIND)),
        (Some(_), true) => {
            let rule = format!("{ONE_KIND}, but multiple fields are set");
            errors.push(FieldError::invalid(&request.path, &Value::Null, &rule));
        }
        (Some(exactly), false) => one_of_class(&exactly, errors),
        (None, true) => {
            each(&alternatives, ALTERNATIVES_MAX, errors, |item, errors| {
                let name = item.get("name");
                errors.extend(name.all(names::dns1123_label(name.text())));
                one_of_class(item, errors);
            });
            unique(&alternatives, |item| item.get("name").text(), errors);
        }
    }
}

fn one_of_class(request: &At<'_>, errors: &mut FieldErrors) {
    request.get("deviceClassName").named(names::dns1123_subdomain, errors);
    each(&request.get("selectors"), LIST_MAX, errors, selector);
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    let number = count.number().unwrap_or_default();
    match mode.text() {
        "All" if number != 0 => {
            errors.push(count.invalid("must not be specified when allocationMode is 'All'"));
        }
        "ExactCount" if number <= 0 => {
            errors.push(FieldError::invalid(&count.path, number, "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        text => errors.push(FieldError::not_supported(&mode.path, text, &["All", "ExactCount"])),
    }
    request.get("tolerations").items().for_each(|item| toleration(&item, errors));
}

pub(super) fn references(list: &At<'_>, known: &Requests<'_>, errors: &mut FieldErrors) {
    each(list, LIST_MAX, errors, |item, errors| reference(item, known, errors));
    unique(list, At::text, errors);
}

pub(super) fn reference(item: &At<'_>, known: &Requests<'_>, errors: &mut FieldErrors) {
    let (name, below) = match item.text().split_once('/') {
        None => (item.text(), None),
        Some((_, below)) if below.contains('/') => {
            errors.push(item.invalid(NO_REQUEST));
            return;
        }
        Some((name, below)) => (name, Some(below)),
    };
    for segment in [Some(name), below].into_iter().flatten() {
        let rules = names::dns1123_label(segment);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&item.path, segment, rule)));
    }
    let is_known = match (known.get(name), below) {
        (Some(_), None) => true,
        (Some(all), Some(below)) => all.contains(below),
        (None, _) => false,
    };
    if !is_known {
        errors.push(item.invalid(NO_REQUEST));
    }
}

/// A name with a domain: `dra.example.com/model`.
fn fully_qualified(name: &At<'_>, errors: &mut FieldErrors) {
    qualified(name, name.text(), errors);
    if !name.text().contains('/') {
        errors.push(name.invalid("a fully qualified name must be a domain and a name separated by a slash"));
    }
}

/// The name of an attribute or a capacity, with or without a domain.
pub(super) fn qualified(at: &At<'_>, text: &str, errors: &mut FieldErrors) {
    let told = |rule| FieldError::invalid(&at.path, "", rule);
    match text.split_once('/') {
        None => identifier(at, text, errors),
        Some((_, name)) if name.contains('/') => {
            errors.push(FieldError::invalid(&at.path, text, "must not contain more than one slash"));
        }
        Some((domain, name)) => {
            if domain.is_empty() {
                errors.push(told("the domain must not be empty"));
            } else {
                if domain.len() > DOMAIN_BYTES_MAX {
                    errors.push(FieldError::too_long(&at.path, DOMAIN_BYTES_MAX));
                }
                let rules = names::dns1123_subdomain(&domain.to_lowercase());
                errors.extend(rules.iter().map(|rule| FieldError::invalid(&at.path, domain, rule)));
            }
            if name.is_empty() {
                errors.push(told("the name must not be empty"));
            } else {
                identifier(at, name, errors);
            }
        }
    }
}

fn identifier(at: &At<'_>, text: &str, errors: &mut FieldErrors) {
    if text.len() > ID_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, ID_BYTES_MAX));
    }
    let is_good = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_good {
        errors.push(FieldError::invalid(
            &at.path,
            text,
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')",
        ));
    }
}

/// The name of a pool: subdomains between slashes.
pub(super) fn pool_name(name: &At<'_>, errors: &mut FieldErrors) {
    if name.text().is_empty() {
        errors.push(name.required(""));
        return;
    }
    if name.len() > POOL_BYTES_MAX {
        errors.push(FieldError::too_long(&name.path, POOL_BYTES_MAX));
    }
    for part in name.text().split('/') {
        let rules = names::dns1123_subdomain(part);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&name.path, part, rule)));
    }
}
