//! The verbs: one file each, and none of them names a kind. Where kinds differ, their row says so.
//!
//! A verb takes an authorised [`Request`] and gives an [`Answer`]; `respond` turns that into bytes.

pub mod create;
pub mod delete;
pub mod delete_collection;
pub mod get;
pub mod list;
pub mod patch;
pub mod update;
pub mod watch;

pub mod decode;
pub mod list_options;
pub mod managed;
pub mod options;
pub mod scale;
pub mod subresources;

use std::net::IpAddr;
use std::sync::Arc;

use auth::UserInfo;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::answer::Answer;
use crate::api::Api;
use crate::cache::CachedObject;
use crate::catalogue::Snapshot;
use crate::door::{Committed, Refusal};
use crate::kinds::Kind;
use crate::negotiate::Accept;
use crate::notes::Notes;
use crate::place::Placed;
use crate::request_info::{RequestInfo, ResourceInfo, Verb, cut};
use crate::status::{Error, Result, Subject};

/// A component's name is kept up to here, a user's up to there: both are what a client says, and both are remembered with
/// every write.
const COMPONENT_BYTES_MAX: usize = 64;
const USER_BYTES_MAX: usize = 256;
/// How often a write is tried again when somebody else wrote in between.
pub const CONFLICT_RETRIES_MAX: usize = 16;

/// An authenticated and authorised request for a resource.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method, path and query.
    pub info: RequestInfo,
    /// The resource part.
    pub resource: Placed,
    /// The kinds as they are for this request, whatever changes meanwhile.
    pub catalogue: Arc<Snapshot>,
    /// The one that it is about.
    pub kind: Kind,
    /// Who.
    pub user: UserInfo,
    /// Where they are; absent inside this process, behind a front proxy, and for those whom somebody acts as.
    pub origin: Option<IpAddr>,
    /// The headers.
    pub headers: HeaderMap,
    /// What the client wants.
    pub accept: Accept,
    /// The body; empty for reads.
    pub body: Bytes,
    /// Unix time of arrival in microseconds.
    pub received_us: i64,
    /// The revision that made the client act; 0 if unknown.
    pub cause: u64,
    /// Warnings and audit annotations; shared by copies.
    pub notes: Arc<Notes>,
}

impl Request {
    /// The resource, as errors name it.
    pub fn subject(&self) -> Subject<'_> {
        self.kind.subject()
    }

    /// The store's key of the object that the request names.
    pub fn key(&self) -> String {
        self.kind.key(&self.resource.namespace, &self.resource.name)
    }

    /// Whether nothing may be stored.
    pub fn is_dry_run(&self) -> bool {
        self.info.query.get("dryRun") == Some("All")
    }

    /// Which component it is: the ServiceAccount that a controller's `User-Agent` ends with, else its first word.
    pub fn component(&self) -> &str {
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
        let agent = agent.unwrap_or_default();
        let component = match agent.split_once("/system:serviceaccount:kube-system:") {
            Some((_, controller)) => controller,
            None => agent.split([' ', '/']).next().unwrap_or_default(),
        };
        cut(component, COMPONENT_BYTES_MAX)
    }

    /// What is stored beside the revision that this request makes.
    pub fn cause_bytes(&self) -> Bytes {
        let cause = json!({
            "parent": self.cause,
            "component": self.component(),
            "user": cut(&self.user.name, USER_BYTES_MAX),
            "verb": self.resource.verb.as_str(),
            "subresource": self.resource.subresource,
            "at_us": self.received_us,
        });
        Bytes::from(cause.to_string())
    }

    /// The same client asking for something else, for what one request does on behalf of another.
    ///
    /// # Errors
    /// As [`Placed::new`].
    pub fn with_resource(&self, kind: &Kind, resource: ResourceInfo) -> Result<Self> {
        let resource = Placed::new(kind, resource)?;
        Ok(Self { kind: kind.clone(), resource, ..self.clone() })
    }
}

/// Runs the verb of a request.
///
/// # Errors
/// What the client is told.
pub async fn run(api: &Api, request: &Request) -> Result<Answer> {
    check(request)?;
    if !request.resource.subresource.is_empty() {
        return Box::pin(subresources::run(api, request)).await;
    }
    check_verb(request)?;
    let verb = request.resource.verb;
    if !request.kind.row().deprecation.is_empty() {
        request.notes.warn(&*request.kind.row().deprecation);
    }
    if crate::component_statuses::is_kind(&request.kind) {
        return crate::component_statuses::read(api, request).await;
    }
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
    match verb.is_write() && crate::custom::is_followed(request) {
        true => Box::pin(crate::custom::settle(api, request, answer)).await,
        false => Ok(answer),
    }
}

/// Tells whoever wrote an object that no part acts on it. Controllers know what they do: nobody reads what they are told.
fn warn_of_unserved(request: &Request) {
    const CONTROLLERS: &str = "system:serviceaccount:kube-system:";
    let unserved = machinery::unserved::unserved(request.kind.group(), request.kind.resource());
    if let Some(unserved) = unserved.filter(|_| !request.user.name.starts_with(CONTROLLERS)) {
        request.notes.warn(unserved.to_string());
    }
}

/// Checks method, options and view.
///
/// # Errors
/// 400, 405 or 406 for what cannot be meant.
pub fn check(request: &Request) -> Result<()> {
    check_method(request)?;
    options::check(request)?;
    options::check_view(request)
}

/// Checks that the verb can be done on the resource itself.
///
/// # Errors
/// 405 if it cannot.
pub fn check_verb(request: &Request) -> Result<()> {
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
fn check_method(request: &Request) -> Result<()> {
    let method = &request.info.method;
    let is_watch = request.resource.verb == Verb::Watch;
    if method == http::Method::HEAD || (is_watch && method != http::Method::GET) {
        return Err(Error::method_not_allowed());
    }
    Ok(())
}

/// The object under `key`, as of now.
///
/// # Errors
/// 404, or 504 when the cache lags.
pub async fn current(api: &Api, request: &Request, key: &str) -> Result<Arc<CachedObject>> {
    api.cache.fresh().await?;
    request.kind.cache().read(key)?.ok_or_else(|| Error::not_found(request.subject(), &request.resource.name))
}

/// Answers with what was committed.
pub fn answer(code: StatusCode, committed: Committed) -> Answer {
    Answer::Object { code, object: committed.object }
}

/// Turns a refusal that is not tried again into an error.
pub fn refused(refusal: Refusal, subject: Subject<'_>, name: &str) -> Error {
    match refusal {
        Refusal::Conflict(_) => Error::modified(subject, name),
        Refusal::Failed(error) => error,
    }
}
