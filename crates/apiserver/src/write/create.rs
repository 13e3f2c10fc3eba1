//! A new object, through all stages.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::admit::admit;
use super::commit::{Step, commit};
use super::door::{Committed, Refusal};
use super::validation::Fate;
use super::{Decoded, Ownership, Writer, identity, ownership, preparation};
use crate::admission::{self, Context, Operation};
use crate::kinds::Part;
use crate::request::Authorized;
use crate::status::{Error, Result, Subject};

/// How often another generated name is tried.
const GENERATED_NAME_TRIES: usize = 8;

/// Creates an object.
///
/// # Errors
/// What the client is told.
pub async fn create(writer: &Writer, request: &Authorized, decoded: Decoded) -> Result<Committed> {
    create_owned(writer, request, decoded, Ownership::Track).await
}

/// As [`create`], for an object that may have its managed fields already.
///
/// # Errors
/// What the client is told.
pub async fn create_owned(
    writer: &Writer,
    request: &Authorized,
    decoded: Decoded,
    ownership: Ownership,
) -> Result<Committed> {
    let mut object = decoded.into_object();
    identity::take(request, &mut object)?;
    if !Metadata::of(&object).resource_version().is_empty() {
        return Err(Error::bad_request("resourceVersion should not be set on objects to be created"));
    }
    preparation::default(writer, &request.kind, &mut object)?;
    if ownership == Ownership::Track {
        ownership::track(writer, request, Part::Object, None, &mut object).await;
    }
    if !identity::is_generated(&object) {
        return create_once(writer, request, object).await;
    }
    for attempt in 1.. {
        let mut candidate = object.clone();
        identity::generate_name(writer, &mut candidate);
        match create_once(writer, request, candidate).await {
            Err(error) if error.reason == "AlreadyExists" && attempt < GENERATED_NAME_TRIES => {}
            other => return other,
        }
    }
    Err(Error::internal("no name could be generated"))
}

async fn create_once(writer: &Writer, request: &Authorized, mut object: Value) -> Result<Committed> {
    let context = Context::new(writer, request, Operation::Create, None);
    admission::mutate(&context, &mut object).await?;
    preparation::default(writer, &request.kind, &mut object)?;
    let warnings = preparation::for_create(writer, &request.kind, &mut object);
    let is_generated = !Metadata::of(&object).generate_name().is_empty();
    let ready = admit(writer, &context, object, Fate::Stays).await?;
    request.notes.warn_all(warnings);
    let name = ready.admitted.name().to_owned();
    match commit(writer, request, ready, Step::Create).await {
        Ok(committed) => Ok(committed),
        Err(Refusal::Conflict(_)) => Err(already_exists(request, &name, is_generated)),
        Err(Refusal::Failed(error)) => Err(error),
    }
}

/// Upstream takes any name for a generated one that comes with a prefix.
fn already_exists(request: &Authorized, name: &str, is_generated: bool) -> Error {
    let subject = Subject { group: request.kind.group(), resource: request.kind.resource() };
    match is_generated {
        true => Error::name_not_generated(subject, name),
        false => Error::already_exists(subject, name),
    }
}
