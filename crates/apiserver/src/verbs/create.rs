//! POST: a new object.

use http::StatusCode;
use machinery::metadata::{self, Metadata};
use serde_json::Value;

use super::managed::{self, Ownership};
use super::{Request, answer, decode, refused};
use crate::admission::{self, Operation};
use crate::answer::Answer;
use crate::api::Api;
use crate::door::{Committed, Refusal};
use crate::kinds::Part;
use crate::status::{Error, Result, Subject};

/// The longest prefix of a generated name; the rest is chance.
const GENERATED_PREFIX_BYTES_MAX: usize = 58;
/// How many characters of chance a generated name ends with.
const GENERATED_SUFFIX_LEN: usize = 5;
/// How often another generated name is tried.
const GENERATED_NAME_TRIES: usize = 8;

/// Creates the object in the body.
///
/// # Errors
/// What the client is told.
pub async fn create(api: &Api, request: &Request) -> Result<Answer> {
    let mut object = decode::body(request)?;
    if !request.kind.row().is_stored() {
        take_namespace(request, &mut object)?;
        let errors = request.kind.validate_create(&object);
        if !errors.is_empty() {
            return Err(Error::invalid(request.kind.kind_subject(), "", &errors));
        }
        return crate::reviews::review(api, request, object).await;
    }
    let committed = create_object(api, request, object).await?;
    Ok(answer(StatusCode::CREATED, committed))
}

/// Creates an object, through admission.
///
/// # Errors
/// What the client is told.
pub async fn create_object(api: &Api, request: &Request, object: Value) -> Result<Committed> {
    create_owned(api, request, object, Ownership::Track).await
}

/// As [`create_object`], for an object that may have its managed fields already.
///
/// # Errors
/// What the client is told.
pub async fn create_owned(
    api: &Api,
    request: &Request,
    mut object: Value,
    ownership: Ownership,
) -> Result<Committed> {
    take_identity(request, &mut object)?;
    let is_generated =
        Metadata::of(&object).name().is_empty() && !Metadata::of(&object).generate_name().is_empty();
    if !Metadata::of(&object).resource_version().is_empty() {
        return Err(Error::bad_request("resourceVersion should not be set on objects to be created"));
    }
    crate::codec::default(&request.kind, &mut object)?;
    if ownership == Ownership::Track {
        managed::track(api, request, Part::Object, None, &mut object);
    }
    admission::wait_for_prerequisites(api, request, &object).await?;
    if !is_generated {
        return create_once(api, request, object).await;
    }
    for attempt in 1.. {
        let mut candidate = object.clone();
        generate_name(api, &mut candidate);
        match create_once(api, request, candidate).await {
            Err(error) if error.reason == "AlreadyExists" && attempt < GENERATED_NAME_TRIES => {}
            other => return other,
        }
    }
    Err(Error::internal("no name could be generated"))
}

async fn create_once(api: &Api, request: &Request, object: Value) -> Result<Committed> {
    let strategy = request.kind.strategy();
    let mut object = admission::mutate(api, request, Operation::Create, object, None)?;
    crate::codec::default(&request.kind, &mut object)?;
    fill_system_metadata(api, &mut object);
    strategy.begin_create(&mut object);
    let warnings = (strategy.warnings)(&object);
    let is_generated = !Metadata::of(&object).generate_name().is_empty();
    let admitted = admission::admit(api, request, Operation::Create, object, None).await?;
    request.notes.warn_all(warnings);
    let name = admitted.name().to_owned();
    let exists = || already_exists(request, &name, is_generated);
    if request.is_dry_run() {
        if request.kind.cache().get(admitted.key()).is_some() {
            return Err(exists());
        }
        return admitted.as_if_committed(0);
    }
    match api.door.create(&admitted, request.cause_bytes()).await {
        Ok(committed) => Ok(committed),
        Err(Refusal::Conflict(_)) => {
            admission::undo(api, &admitted).await;
            Err(exists())
        }
        Err(refusal) => {
            admission::undo(api, &admitted).await;
            Err(refused(refusal, request.subject(), &name))
        }
    }
}

/// Upstream takes any name for a generated one that comes with a prefix.
fn already_exists(request: &Request, name: &str, is_generated: bool) -> Error {
    let subject = Subject { group: request.kind.group(), resource: request.kind.resource() };
    match is_generated {
        true => Error::name_not_generated(subject, name),
        false => Error::already_exists(subject, name),
    }
}

/// Namespace and name come from the URL; the body must agree.
fn take_identity(request: &Request, object: &mut Value) -> Result<()> {
    take_namespace(request, object)?;
    if !request.resource.name.is_empty() {
        let name = Metadata::of(object).name();
        if !name.is_empty() && name != request.resource.name {
            return Err(name_mismatch(name, &request.resource.name));
        }
        metadata::set(object, "name", request.resource.name.as_str());
    }
    Ok(())
}

/// The namespace of the URL goes into the object.
///
/// # Errors
/// 400 if the object says another one.
pub fn take_namespace(request: &Request, object: &mut Value) -> Result<()> {
    let sent = Metadata::of(object).namespace();
    if !request.kind.is_namespaced() {
        metadata::remove(object, "namespace");
        return Ok(());
    }
    let namespace = request.resource.namespace.as_str();
    if namespace.is_empty() {
        return Err(Error::bad_request("an empty namespace may not be set during creation"));
    }
    if !sent.is_empty() && sent != namespace {
        return Err(Error::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata::set(object, "namespace", namespace);
    Ok(())
}

/// 400: URL and body disagree about the name.
pub fn name_mismatch(object: &str, url: &str) -> Error {
    Error::bad_request(format!(
        "the name of the object ({object}) does not match the name on the URL ({url})"
    ))
}

fn generate_name(api: &Api, object: &mut Value) {
    let mut base = Metadata::of(object).generate_name().to_owned();
    let mut cut = base.len().min(GENERATED_PREFIX_BYTES_MAX);
    while !base.is_char_boundary(cut) {
        cut -= 1;
    }
    base.truncate(cut);
    metadata::set(object, "name", format!("{base}{}", api.random.name_suffix(GENERATED_SUFFIX_LEN)));
}

fn fill_system_metadata(api: &Api, object: &mut Value) {
    metadata::set(object, "uid", api.random.uuid());
    metadata::set(object, "creationTimestamp", metadata::time(api.clock.now()));
    metadata::remove(object, "selfLink");
    super::update::drop_empty_metadata(object);
}
