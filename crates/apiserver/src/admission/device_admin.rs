//! Devices are administered only from namespaces that are made for it: `adminAccess` of resource claims.
//!
//! A rule of upstream's registry, which has no plugin there; it needs the namespace, which validation does not see.
//! Source: `AuthorizedForAdmin` of `pkg/registry/resource`, KEP-5018.

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation};
use crate::kinds::Part;
use crate::status::{Error, Result};

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Refuses claims for administration, and what a scheduler gives them, elsewhere.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = &context.request.kind;
    if kind.group() != "resource.k8s.io" {
        return Ok(());
    }
    let asked = match (kind.resource(), context.operation) {
        ("resourceclaims", Operation::Create) => of_requests(object, "/spec/devices/requests"),
        ("resourceclaimtemplates", Operation::Create) => of_requests(object, "/spec/spec/devices/requests"),
        ("resourceclaims", Operation::Update(Part::Status)) => of_results(object, context.old),
        _ => None,
    };
    let Some(path) = asked else { return Ok(()) };
    let namespace = context.lookup("", "v1", "namespaces", "", &context.request.resource.namespace);
    let is_for_it =
        namespace.as_ref().and_then(|namespace| Metadata::of(namespace).label(LABEL)) == Some("true");
    if is_for_it {
        return Ok(());
    }
    let why =
        format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    let errors = FieldErrors::from(FieldError::forbidden(&path, &why));
    Err(Error::invalid(kind.kind_subject(), Metadata::of(object).name(), &errors))
}

fn asks(object: &Value) -> bool {
    object.get("adminAccess").and_then(Value::as_bool) == Some(true)
}

/// The first request that asks to administer.
fn of_requests(object: &Value, pointer: &str) -> Option<Path> {
    let requests = object.pointer(pointer).and_then(Value::as_array)?;
    let first = requests.iter().position(|request| request.get("exactly").is_some_and(asks))?;
    Some(Path::new("spec").child("devices").child("requests").index(first).child("adminAccess"))
}

/// The first device that is newly given for administration.
fn of_results(object: &Value, old: Option<&Value>) -> Option<Path> {
    const RESULTS: &str = "/status/allocation/devices/results";
    if old.is_some_and(|old| old.pointer(RESULTS).is_some()) {
        return None;
    }
    let first = object.pointer(RESULTS).and_then(Value::as_array)?.iter().position(asks)?;
    let path = Path::new("status").child("allocation").child("devices").child("results");
    Some(path.index(first).child("adminAccess"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_to_administer_is_named() {
        let claim: Value = serde_saphyr::from_str(
            "{spec: {devices: {requests: [{exactly: {}}, {exactly: {adminAccess: true}}]}}, \
             status: {allocation: {devices: {results: [{adminAccess: true}]}}}}",
        )
        .unwrap();
        let shown = |path: Option<Path>| path.map(|path| path.to_string()).unwrap_or_default();
        assert_eq!(
            shown(of_requests(&claim, "/spec/devices/requests")),
            "spec.devices.requests[1].adminAccess"
        );
        assert_eq!(shown(of_results(&claim, None)), "status.allocation.devices.results[0].adminAccess");
        assert_eq!(shown(of_results(&claim, Some(&claim))), "");
    }
}
