//! StorageVersionMigrations and StorageVersions.

use std::collections::{BTreeMap, BTreeSet};

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;

const API_VERSION: &str = "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', \
                           start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                           'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS \
                           subdomain prefix and '/' (e.g. 'example.com/MyVersion')";
const NO_COMMON: &str = "should be nil if servers do not agree on the same encoding version, or if there is no server \
                         reporting the supported versions yet";

/// A StorageVersionMigration.
pub(crate) fn migration(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let target = At::root(object).get("spec").get("resource");
    let (resource, group) = (target.get("resource"), target.get("group"));
    if resource.text().is_empty() {
        errors.push(resource.required("resource is required to be set"));
    } else {
        let rules = names::dns1035_label(resource.text());
        if !rules.is_empty() {
            errors.push(resource.invalid(&rules.join(",")));
        }
    }
    let rules = names::dns1123_subdomain(group.text());
    if !group.text().is_empty() && !rules.is_empty() {
        errors.push(group.invalid(&rules.join(",")));
    }
    errors
}

/// An update of a StorageVersionMigration: what is migrated stays.
pub(crate) fn migration_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = migration(new);
    At::root(new).get("spec").immutable(&At::root(old).get("spec"), &mut errors);
    errors
}

/// A write to the status of a StorageVersionMigration.
pub(crate) fn migration_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new).get("status"), At::root(old).get("status"));
    let (version, before) = (new.get("resourceVersion"), old.get("resourceVersion"));
    if !before.text().is_empty() {
        version.immutable(&before, &mut errors);
    }
    let is = |status: &At<'_>, kind: &str| {
        let mut conditions = status.get("conditions").items();
        conditions.any(|c| c.get("type").text() == kind && c.get("status").text() == "True")
    };
    let conditions = new.get("conditions");
    let (done, failed, running) = (is(&new, "Succeeded"), is(&new, "Failed"), is(&new, "Running"));
    for (is_broken, rule) in [
        (done && failed, "Both success and failed conditions cannot be true at the same time"),
        (done && running, "Running condition cannot be true when success condition is true"),
        (failed && running, "Running condition cannot be true when failed condition is true"),
        (is(&old, "Succeeded") && !done, "Success condition cannot be set to false once it is true"),
        (is(&old, "Failed") && !failed, "Failed condition cannot be set to false once it is true"),
    ] {
        if is_broken {
            errors.push(conditions.invalid(rule));
        }
    }
    errors
}

/// A StorageVersion, which is named after a group and a resource of it. What it says is its status.
pub(crate) fn version(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = At::root(object).get("metadata").get("name");
    let Some((group, resource)) = name.text().rsplit_once('.') else {
        errors.push(name.invalid("name must be in the form of <group>.<resource>"));
        return errors;
    };
    let of_group =
        names::dns1123_subdomain(group).into_iter().map(|rule| format!("the group segment {rule}"));
    let of_resource =
        names::dns1035_label(resource).into_iter().map(|rule| format!("the resource segment {rule}"));
    errors.extend(name.all(of_group.chain(of_resource).collect()));
    errors
}

/// A write to the status of a StorageVersion.
pub(crate) fn version_status(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new).get("status");
    let mut servers = BTreeSet::new();
    for entry in status.get("storageVersions").items() {
        let server = entry.get("apiServerID");
        if !servers.insert(server.text()) {
            errors.push(server.duplicate());
        }
        errors.extend(server.all(names::dns1123_subdomain(server.text())));
        versions(&entry, &mut errors);
    }
    errors.extend(common_version(&status));
    version_conditions(&status, &mut errors);
    errors
}

/// The versions of one server: what it writes and serves it can read.
fn versions(entry: &At<'_>, errors: &mut FieldErrors) {
    let encoding = entry.get("encodingVersion");
    let rules = api_version(encoding.text());
    if !rules.is_empty() {
        errors.push(encoding.invalid(&rules.join(",")));
    }
    let decodable = entry.get("decodableVersions");
    let known: Vec<&str> = decodable.items().map(|version| version.text()).collect();
    let invalid = |version: &At<'_>| {
        let rules = api_version(version.text());
        (!rules.is_empty()).then(|| version.invalid(&rules.join(",")))
    };
    errors.extend(decodable.items().filter_map(|version| invalid(&version)));
    if !known.contains(&encoding.text()) {
        let rule = format!("decodableVersions must include encodingVersion {}", encoding.text());
        errors.push(decodable.invalid(&rule));
    }
    for served in entry.get("servedVersions").items() {
        errors.extend(invalid(&served));
        if !known.contains(&served.text()) {
            errors.push(served.invalid(&format!(
                "individual served version : {} must be included in decodableVersions : [{}]",
                served.text(),
                known.join(" ")
            )));
        }
    }
}

fn common_version(status: &At<'_>) -> Option<FieldError> {
    let entries: Vec<_> =
        status.get("storageVersions").items().map(|entry| entry.get("encodingVersion")).collect();
    let first = entries.first().map(At::text);
    let actual = first.filter(|first| entries.iter().all(|version| version.text() == *first));
    let said = status.get("commonEncodingVersion");
    match (actual, said.is_set()) {
        (None, false) => None,
        (None, true) => Some(said.invalid(NO_COMMON)),
        (Some(actual), false) => {
            let rule = format!("the common encoding version is {actual}");
            Some(FieldError::invalid(&said.path, None::<&Value>, &rule))
        }
        (Some(actual), true) if actual == said.text() => None,
        (Some(actual), true) => {
            Some(said.invalid(&format!("the actual common encoding version is {actual}")))
        }
    }
}

/// Conditions of any type; that their paths lack the list's name is upstream's.
fn version_conditions(status: &At<'_>, errors: &mut FieldErrors) {
    let mut places = BTreeMap::new();
    for (place, condition) in status.get("conditions").items().enumerate() {
        let at = |name: &str| At { path: status.path.index(place).child(name), ..condition.get(name) };
        let (kind, is_true) = (at("type"), at("status"));
        if let Some(before) = places.insert(kind.text(), place) {
            errors.push(kind.invalid(&format!(
                "the type of the condition is not unique, it also appears in conditions[{before}]"
            )));
        }
        errors.extend(kind.all(names::qualified_name(kind.text())));
        errors.extend(is_true.all(names::qualified_name(is_true.text())));
        let texts = [at("reason"), at("message")];
        errors.extend(texts.iter().filter(|text| text.text().is_empty()).map(|text| text.required("")));
    }
}

/// The rules that an apiVersion breaks.
fn api_version(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version) = match parts.as_slice() {
        [version] => (None, *version),
        [group, version] => (Some(*group), *version),
        _ => return vec![API_VERSION.to_owned()],
    };
    let part = |what: &str, text: &str, rule: fn(&str) -> Vec<String>| -> Vec<String> {
        if text.is_empty() {
            return vec![format!("{what} part: must be non-empty")];
        }
        rule(text).into_iter().map(|rule| format!("{what} part: {rule}")).collect()
    };
    let mut rules = group.map(|group| part("group", group, names::dns1123_subdomain)).unwrap_or_default();
    rules.extend(part("version", version, names::dns1035_label));
    rules
}
