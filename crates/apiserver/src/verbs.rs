//! The verbs: one file each, and none of them names a kind. Where kinds differ, their row says so.
//!
//! A verb takes an [`Authorized`] request and gives an [`Answer`]; `respond` turns that into bytes.

pub mod create;
pub mod delete;
pub mod delete_collection;
pub mod get;
pub mod list;
pub mod patch;
pub mod update;
pub mod watch;

pub mod list_options;
pub mod options;
pub mod scale;
pub mod subresources;

use http::StatusCode;

use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::status::{Error, Result};
use crate::write::door::Committed;

/// Runs the verb of a request that [`check`] has seen.
///
/// # Errors
/// What the client is told.
pub async fn run(api: &Api, request: &Authorized) -> Result<Answer> {
    if !request.resource.subresource.is_empty() {
        return Box::pin(subresources::run(api, request)).await;
    }
    begin(request)?;
    let verb = request.resource.verb;
    // Writes are boxed, so that reads need not be as large as the largest of them.
    let answer = match request.resource.verb {
        Verb::Get => get::get(api, request).await,
        Verb::List => list::list(api, request).await,
        Verb::Watch => watch::watch(api, request).await,
        Verb::Create => Box::pin(create::create(api, request)).await,
        Verb::Update => Box::pin(update::update(api, request)).await,
        Verb::Patch => Box::pin(patch::patch(api, request)).await,
        Verb::Delete => Box::pin(delete::delete(api, request)).await,
        Verb::DeleteCollection => Box::pin(delete_collection::delete_collection(api, request)).await,
    }?;
    if matches!(verb, Verb::Create | Verb::Update | Verb::Patch) {
        warn_of_unserved(request);
    }
    Ok(answer)
}

/// Checks that the verb can be done on the resource itself, and warns of one that goes out of use.
///
/// # Errors
/// 405 if it cannot.
pub fn begin(request: &Authorized) -> Result<()> {
    check_verb(request)?;
    if !request.kind.row().deprecation.is_empty() {
        request.notes.warn(&*request.kind.row().deprecation);
    }
    Ok(())
}

/// Tells whoever wrote an object that no part acts on it. Controllers know what they do: nobody reads what they are told.
fn warn_of_unserved(request: &Authorized) {
    const CONTROLLERS: &str = "system:serviceaccount:kube-system:";
    let unserved = machinery::unserved::unserved(request.kind.group(), request.kind.resource());
    if let Some(unserved) = unserved.filter(|_| !request.user().name.starts_with(CONTROLLERS)) {
        request.notes.warn(unserved.to_string());
    }
}

/// Checks method, options and view.
///
/// # Errors
/// 400, 405 or 406 for what cannot be meant.
pub fn check(request: &Authorized) -> Result<()> {
    check_method(request)?;
    options::check(request)?;
    options::check_view(request)
}

/// Checks that the verb can be done on the resource itself.
///
/// # Errors
/// 405 if it cannot.
pub fn check_verb(request: &Authorized) -> Result<()> {
    let (verb, is_collection) = (request.resource.verb, request.resource.name.is_empty());
    if verb == Verb::Create && request.kind.row().is_terminating {
        return Err(Error::ending(verb.as_str()));
    }
    let needs_name = matches!(verb, Verb::Update | Verb::Patch);
    if !request.kind.has_verb(verb)
        || (needs_name && is_collection)
        || (verb == Verb::Create && !is_collection)
    {
        return Err(Error::method_not_allowed());
    }
    Ok(())
}

/// Only a proxy takes HEAD, and who watches GETs, whatever the path says.
///
/// # Errors
/// 405.
fn check_method(request: &Authorized) -> Result<()> {
    let method = &request.info.method;
    let is_watch = request.resource.verb == Verb::Watch;
    if method == http::Method::HEAD || (is_watch && method != http::Method::GET) {
        return Err(Error::method_not_allowed());
    }
    Ok(())
}

/// Answers with what was committed.
pub fn answer(code: StatusCode, committed: Committed) -> Answer {
    Answer::Object { code, object: committed.object }
}
