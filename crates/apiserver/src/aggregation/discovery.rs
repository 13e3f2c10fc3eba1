//! Asks a server elsewhere what it serves and how its objects look, at first and every minute; one that did not answer
//! sooner. Its answers are bounded in size and time.
//!
//! Source: `discoveryManager` of `k8s.io/kube-aggregator/pkg/apiserver`, `pkg/controllers/{openapi,openapiv3}` there.

use std::sync::Arc;
use std::time::Duration;

use auth::UserInfo;
use base::Backoff;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, Response, StatusCode};
use schema::walk::budget::Allowance;
use schema::walk::decode::{DecodeError, FieldValidation};
use serde_json::Value;
use tracing::{debug, warn};

use super::Aggregation;
use super::remote::{self, aggregator};
use super::served::Served;
use crate::api::Api;
use crate::body::Body;
use crate::catalogue::remote_discovery::{self, RemoteDiscovery};
use crate::catalogue::specification::Specification;
use crate::configuration_error::Cause;
use crate::connection_error::ConnectionError;
use crate::tree::text;

/// How often a server is asked. Source: `discoveryRefreshInterval`, `successfulUpdateDelay`.
const EVERY: Duration = Duration::from_secs(60);
/// After one that did not answer. Source: the rate limiter of `discoveryManager`.
const RETRY_FIRST: Duration = Duration::from_millis(500);
/// How long discovery may take. Source: `fetchFreshDiscoveryForService`.
const DISCOVERY_MAX: Duration = Duration::from_secs(5);
/// How long an OpenAPI document may take. Source: `specDownloadTimeout`.
const DOCUMENT_MAX: Duration = Duration::from_secs(60);
/// How large discovery may be, and the index of OpenAPI documents.
const DISCOVERY_BYTES_MAX: usize = 2 << 20;
/// How large an OpenAPI document of version 2 may be, of which only a part is kept.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// The longest hash that is taken as it is.
const HASH_CHARS_MAX: usize = 128;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";

/// What kept the server from telling.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// It could not be asked.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// It answered with another status.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// Its document cannot be read.
    #[error("it sent what cannot be read: {0}")]
    Unreadable(#[from] DecodeError),
    /// Its document is another one.
    #[error("it sent another document than asked for")]
    OtherDocument,
    /// Its document of OpenAPI cannot be used, or nobody is there to read it.
    #[error(transparent)]
    Unusable(Cause),
}

/// Keeps what is known of a server true to what it tells, for ever.
pub(super) async fn keep(api: &Api, aggregation: &Aggregation, served: &Served) {
    let name = &served.registration.name;
    let mut backoff = Backoff::new(RETRY_FIRST, EVERY, 0.0);
    let mut tag = None;
    loop {
        let is_stale = ask(api, aggregation, served, &mut tag).await;
        let wait = match is_stale {
            true => backoff.next(&api.random),
            false => {
                backoff.reset();
                EVERY
            }
        };
        debug!(api = name, is_stale, "an aggregated API was asked what it serves");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = served.turned.notified() => {}
        }
    }
}

/// Asks once; says whether the answer is stale. `tag` is that of the OpenAPI document that is known.
async fn ask(api: &Api, aggregation: &Aggregation, served: &Served, tag: &mut Option<String>) -> bool {
    let name = &served.registration.name;
    let before = aggregation.discovery(name);
    let mut discovery = RemoteDiscovery::clone(&before);
    {
        let Ok(_permit) = aggregation.asking.acquire().await else { return true };
        match tokio::time::timeout(DISCOVERY_MAX, resources((api, aggregation), served, &before)).await {
            Ok(Ok(found)) => {
                (discovery.resources, discovery.etag, discovery.is_stale) = (Some(found.0), found.1, false);
            }
            Ok(Err(failure)) => {
                debug!(api = name, %failure, "an aggregated API did not tell what it serves");
                discovery.is_stale = true;
            }
            Err(_) => discovery.is_stale = true,
        }
    }
    // Discovery does not wait for documents that take their time.
    aggregation.set_discovery(api, &served.link, name, discovery.clone()).await;
    let is_stale = discovery.is_stale;
    if !is_stale {
        documents(api, aggregation, served, tag, &mut discovery).await;
        aggregation.set_discovery(api, &served.link, name, discovery).await;
    }
    is_stale
}

/// Asks for OpenAPI documents. What does not come stays as it was.
async fn documents(
    api: &Api,
    aggregation: &Aggregation,
    served: &Served,
    tag: &mut Option<String>,
    discovery: &mut RemoteDiscovery,
) {
    let name = &served.registration.name;
    let Ok(_permit) = aggregation.documents.acquire().await else { return };
    match tokio::time::timeout(DISCOVERY_MAX, third(api, aggregation, served)).await {
        Ok(Ok(hash)) => discovery.third = hash,
        Ok(Err(failure)) => debug!(api = name, %failure, "no index of OpenAPI documents"),
        Err(_) => debug!(api = name, "the index of OpenAPI documents took too long"),
    }
    match tokio::time::timeout(DOCUMENT_MAX, second(api, aggregation, served, tag)).await {
        Ok(Ok(Some(found))) => discovery.second = Some(found),
        Ok(Ok(None)) => {}
        Ok(Err(failure)) => debug!(api = name, %failure, "no OpenAPI document of version 2"),
        Err(_) => warn!(api = name, "the OpenAPI document of version 2 took too long"),
    }
}

/// The resources and what their form is called: aggregated, or of the group-version alone from older servers.
async fn resources(
    (api, aggregation): (&Api, &Aggregation),
    served: &Served,
    before: &RemoteDiscovery,
) -> Result<(Arc<Vec<Value>>, Option<String>), Failure> {
    let (group, version) = (&served.registration.group, &served.registration.version);
    let known = before.etag.as_deref().zip(before.resources.as_ref());
    let etag = known.map(|(etag, _)| etag);
    let answer = get(api, served, request("/apis", AGGREGATED, &aggregator(), etag)?).await?;
    match (answer.status(), known) {
        (StatusCode::NOT_MODIFIED, Some((etag, resources))) => {
            return Ok((Arc::clone(resources), Some(etag.to_owned())));
        }
        (unavailable @ StatusCode::SERVICE_UNAVAILABLE, _) => return Err(Failure::Status(unavailable)),
        (StatusCode::OK, _)
            if header(&answer, CONTENT_TYPE).is_some_and(|ty| ty.contains("apidiscovery.k8s.io")) =>
        {
            let etag = header(&answer, ETAG).map(str::to_owned);
            let (group, version) = (group.clone(), version.clone());
            let read = move |document: Value| remote_discovery::of_aggregated(&document, &group, &version);
            let found = parsed(aggregation, answer.into_body(), read).await?.ok_or(Failure::OtherDocument)?;
            return Ok((Arc::new(found), etag));
        }
        _ => {}
    }
    let nobody = UserInfo { name: aggregator().name, ..UserInfo::default() };
    let answer = get(api, served, request(&served.registration.path(), JSON, &nobody, None)?).await?;
    if answer.status() != StatusCode::OK {
        return Err(Failure::Status(answer.status()));
    }
    let (group, version) = (group.clone(), version.clone());
    let read = move |document: Value| remote_discovery::of_resource_list(&document, &group, &version);
    let found = parsed(aggregation, answer.into_body(), read).await?.ok_or(Failure::OtherDocument)?;
    Ok((Arc::new(found), None))
}

/// The hash of the group-version's OpenAPI document; nothing if there is none.
async fn third(api: &Api, aggregation: &Aggregation, served: &Served) -> Result<Option<String>, Failure> {
    let answer = get(api, served, request("/openapi/v3", JSON, &reader(), None)?).await?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        other => return Err(Failure::Status(other)),
    }
    let path = served.registration.path();
    let read = move |index: Value| {
        let entry = index.get("paths").and_then(|paths| paths.get(path.trim_start_matches('/')));
        entry.map(|entry| text(entry, "/serverRelativeURL").to_owned())
    };
    let url = parsed(aggregation, answer.into_body(), read).await?;
    Ok(url.map(|url| {
        let hash = url.split_once("hash=").map_or("", |(_, hash)| hash);
        let is_plain = !hash.is_empty()
            && hash.len() <= HASH_CHARS_MAX
            && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match is_plain {
            true => hash.to_owned(),
            // It is only told from others by it.
            false => hashed(&url),
        }
    }))
}

fn hashed(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The part of its OpenAPI document of version 2 that is about the group-version; nothing if it is known.
async fn second(
    api: &Api,
    aggregation: &Aggregation,
    served: &Served,
    tag: &mut Option<String>,
) -> Result<Option<Arc<Specification>>, Failure> {
    let answer = get(api, served, request("/openapi/v2", JSON, &reader(), tag.as_deref())?).await?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED => return Ok(None),
        other => return Err(Failure::Status(other)),
    }
    let etag = header(&answer, ETAG).map(str::to_owned);
    let (group, version) = (served.registration.group.clone(), served.registration.version.clone());
    let read = move |document: Value| Specification::of(document, &group, &version);
    let made = parsed(aggregation, answer.into_body(), read)
        .await?
        .map_err(|failure| Failure::Unusable(failure.into()))?;
    *tag = etag;
    Ok(Some(Arc::new(made)))
}

/// Who asks for OpenAPI documents. Source: `aggregatorUser` of upstream's controllers.
fn reader() -> UserInfo {
    UserInfo { name: "system:aggregator".to_owned(), ..UserInfo::default() }
}

/// A request for a document, unless it is still the one that has this tag.
fn request(path: &str, accept: &str, user: &UserInfo, etag: Option<&str>) -> Result<Request<Body>, Failure> {
    let mut request = remote::own_request(path, accept, user).map_err(ConnectionError::from)?;
    if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
        request.headers_mut().insert(IF_NONE_MATCH, etag);
    }
    Ok(request)
}

async fn get(api: &Api, served: &Served, request: Request<Body>) -> Result<Response<Bytes>, Failure> {
    let bytes_max =
        if request.uri().path() == "/openapi/v2" { DOCUMENT_BYTES_MAX } else { DISCOVERY_BYTES_MAX };
    Ok(remote::ask(api, &served.link, request, bytes_max).await?)
}

/// What is read from a document of bounded depth, whose tree has bounded room. One is read at a time.
async fn parsed<T: Send + 'static>(
    aggregation: &Aggregation,
    bytes: Bytes,
    read: impl FnOnce(Value) -> T + Send + 'static,
) -> Result<T, Failure> {
    let _permit = aggregation.reading.acquire().await.map_err(|failure| Failure::Unusable(failure.into()))?;
    let parsed = tokio::task::spawn_blocking(move || {
        let decoded = schema::text::json(&bytes, Allowance::Schemas, FieldValidation::Ignore);
        decoded.map(|decoded| read(decoded.value))
    });
    Ok(parsed.await.map_err(|failure| Failure::Unusable(failure.into()))??)
}

fn header(answer: &Response<Bytes>, name: http::HeaderName) -> Option<&str> {
    answer.headers().get(name).and_then(|value| value.to_str().ok())
}
