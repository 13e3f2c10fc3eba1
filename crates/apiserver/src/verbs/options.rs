//! The options that requests may have: checked before anything is done.

use machinery::field::{FieldError, FieldErrors, Path};

use crate::codec::{APPLY_PATCH, FieldValidation};
use crate::negotiate::{View, media_type};
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::status::{Error, Result, Subject};
use crate::write::ownership::{MANAGER_BYTES_MAX, is_printable};

/// Checks the options that all writes have: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
///
/// # Errors
/// 422 with every option that is wrong.
pub fn check(request: &Authorized) -> Result<()> {
    let query = &request.info.query;
    let is_apply = request.resource.verb == Verb::Patch && media_type(&request.headers) == APPLY_PATCH;
    let manager = query.get("fieldManager");
    let mut errors = FieldErrors::new();
    match manager {
        None if is_apply => {
            errors.push(FieldError::required(&Path::new("fieldManager"), "is required for apply patch"));
        }
        Some(manager) => check_manager(manager, &mut errors),
        None => {}
    }
    if request.resource.verb == Verb::Patch && !is_apply && query.has("force") {
        errors.push(FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
    }
    if let Some(other) = query.get("dryRun").filter(|value| *value != "All") {
        errors.push(FieldError::not_supported(&Path::new("dryRun"), other, &["All"]));
    }
    if let Some(other) = query.get("fieldValidation")
        && FieldValidation::parse(other).is_none()
    {
        let supported = ["", "Ignore", "Strict", "Warn"];
        errors.push(FieldError::not_supported(&Path::new("fieldValidation"), other, &supported));
    }
    let kind = match request.resource.verb {
        _ if errors.is_empty() => return Ok(()),
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
        Verb::Get | Verb::List | Verb::Watch => return Ok(()),
    };
    Err(Error::invalid(Subject { group: "meta.k8s.io", resource: kind }, "", &errors))
}

/// Checks that what is answered can be seen in the view that is asked for.
///
/// # Errors
/// 406 for the metadata of one object where there is a list, and the other way round; 400 for rows of unknown content.
pub fn check_view(request: &Authorized) -> Result<()> {
    let row = request.kind.row();
    match (request.accept.view, request.resource.verb) {
        (View::Metadata, Verb::List | Verb::DeleteCollection) => Err(Error::no_such_view(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{})",
            row.version, row.list_kind
        ))),
        (View::MetadataList, Verb::List | Verb::DeleteCollection) => Ok(()),
        (View::MetadataList, _) => Err(Error::no_such_view(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
            row.version, row.kind
        ))),
        (View::Table, _) => match request.info.query.get("includeObject") {
            None | Some("None" | "Metadata" | "Object") => Ok(()),
            Some(other) => {
                let path = Path::new("includeObject");
                let error = FieldError::not_supported(&path, other, &["Metadata", "None", "Object"]);
                Err(Error::bad_request(format!("Unable to convert to Table as requested: {error}")))
            }
        },
        _ => Ok(()),
    }
}

fn check_manager(manager: &str, errors: &mut FieldErrors) {
    let path = Path::new("fieldManager");
    if manager.len() > MANAGER_BYTES_MAX {
        errors.push(FieldError::too_long(&path, MANAGER_BYTES_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid(&path, manager, &detail));
    }
}
