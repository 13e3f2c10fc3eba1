//! Rules of `ListOptions`, for LIST, WATCH and DELETE of a collection. Pure.
//!
//! Source: `ValidateListOptions` of upstream.

use machinery::field::{FieldError, FieldErrors, Path};

use crate::request_info::Query;
use crate::status::{Error, Result, Subject};

/// The purpose of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// LIST.
    List,
    /// WATCH.
    Watch,
}

/// Checks options that contradict each other.
///
/// # Errors
/// 400 for what is no number, 422 with every broken rule.
pub fn validate(query: &Query, purpose: Purpose) -> Result<()> {
    for number in ["limit", "timeoutSeconds"] {
        query.number(number)?;
    }
    let mut errors = FieldErrors::new();
    match purpose {
        Purpose::List => list(query, &mut errors),
        Purpose::Watch => watch(query, &mut errors),
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(Subject { group: "meta.k8s.io", resource: "ListOptions" }, "", &errors))
}

fn list(query: &Query, errors: &mut FieldErrors) {
    let path = Path::new("resourceVersionMatch");
    let version = query.get("resourceVersion");
    if let Some(matching) = query.get("resourceVersionMatch") {
        if version.is_none() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(&path, why));
        }
        if query.get("continue").is_some() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(&path, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == Some("0") {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(&path, why));
        }
    }
    if query.has("sendInitialEvents") {
        let path = Path::new("sendInitialEvents");
        errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
    }
}

fn watch(query: &Query, errors: &mut FieldErrors) {
    let path = Path::new("resourceVersionMatch");
    let matching = query.get("resourceVersionMatch");
    if query.has("sendInitialEvents") {
        if matching != Some("NotOlderThan") {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, why));
        }
    } else if matching.is_some() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        errors.push(FieldError::forbidden(&path, why));
    }
    if let Some(matching) = matching {
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(&path, matching, &["NotOlderThan"]));
        }
        if query.get("continue").is_some() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(purpose: Purpose, query: &str, expect: &str) {
        let got = validate(&Query::parse(query), purpose);
        let got =
            got.map_or_else(|error| format!("{} {}", error.code.as_u16(), error.message), |()| String::new());
        assert_eq!(got, expect, "{query}");
    }

    #[test]
    fn contradictions_are_named() {
        use Purpose::{List, Watch};
        check(List, "resourceVersion=5&resourceVersionMatch=Exact", "");
        check(
            List,
            "resourceVersionMatch=Exact",
            "422 ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is \
             forbidden unless resourceVersion is provided",
        );
        check(
            List,
            "resourceVersion=0&resourceVersionMatch=Exact",
            "422 ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \
             \"exact\" is forbidden for resourceVersion \"0\"",
        );
        for purpose in [List, Watch] {
            check(purpose, "timeoutSeconds=x", "400 strconv.ParseInt: parsing \"x\": invalid syntax");
        }
        check(Watch, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "");
        check(
            Watch,
            "sendInitialEvents=true",
            "422 ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents \
             requires setting resourceVersionMatch to NotOlderThan",
        );
    }
}
