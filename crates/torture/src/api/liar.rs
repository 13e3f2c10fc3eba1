//! An API server that lies: the negative controls of what stands above a store. It changes the requests and answers of
//! an honest one, so each lie is what clients would see of a mistake in a verb or in the watch cache.

mod stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Body, Failure, Server};

/// One answer, or event, in so many is lied about.
const EVERY: u64 = 8;

/// A lie of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// An update's resourceVersion is not looked at.
    UpdateWithoutCondition,
    /// A removal's precondition is not looked at.
    RemovalWithoutCondition,
    /// An update is acknowledged and not made.
    NotWritten,
    /// A refused update is acknowledged.
    RefusalSwallowed,
    /// Two writes are said to have made the same revision.
    RevisionTwice,
    /// A read answers what was there before.
    StaleGet,
    /// A read finds nothing where something is.
    BlindGet,
    /// A list lacks an object.
    ListMissesItem,
    /// A list shows what was there before.
    StaleList,
    /// A list says that it is newer than it is.
    ListRevisionAhead,
    /// A list at a revision shows what is there now.
    ListIgnoresItsRevision,
    /// A list of one namespace has objects of all.
    WrongNamespace,
    /// A list's objects are in the wrong order.
    ListUnsorted,
    /// A watcher is not told of a change.
    DroppedEvent,
    /// A watcher is told of a change twice.
    DoubledEvent,
    /// A watcher is told of changes in the wrong order.
    ReorderedEvents,
    /// A bookmark says that a change was told that is still to come.
    BookmarkAhead,
    /// A change looks like a new object.
    ModifiedAsAdded,
    /// A removal looks like a change.
    DeletedAsModified,
    /// An event shows another object's value.
    WrongValue,
    /// An event has the resourceVersion of the one before it.
    OldVersion,
    /// What is there when a watch begins is not told in full.
    InitialEventMissing,
    /// What is there when a watch begins is said to be told before it is.
    InitialEventsEndEarly,
    /// A watch goes to sleep.
    StuckWatch,
}

/// The server.
pub struct Liar {
    inner: Arc<dyn Server>,
    lie: Lie,
    chances: Arc<AtomicU64>,
    /// Old answers, by path.
    memory: Mutex<HashMap<String, Value>>,
}

impl Liar {
    /// Tells `lie` about `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Server>, lie: Lie) -> Self {
        Self { inner, lie, chances: Arc::default(), memory: Mutex::default() }
    }

    fn is_lying(&self, lie: Lie) -> bool {
        self.lie == lie && self.chances.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }

    async fn answer(&self, mut request: Request<Bytes>) -> Result<Response<Body>, Failure> {
        let (method, asked) = (request.method().clone(), request.uri().to_string());
        if asked.contains("watch=true") {
            let answer = self.inner.send(request).await?;
            return Ok(answer.map(|body| stream::told(body, self.lie)));
        }
        if method == Method::PUT && self.is_lying(Lie::NotWritten) {
            let was: Value = serde_json::from_slice(request.body())?;
            return Ok(respond(StatusCode::OK, &newer(was)));
        }
        self.change_request(&method, &mut request)?;
        let (parts, body) = self.inner.send(request).await?.into_parts();
        let body = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        let (code, body) = match method {
            Method::GET if parts.status.is_success() => self.change_read(&asked, parts.status, body),
            Method::GET => (parts.status, body),
            _ => self.change_write(parts.status, body),
        };
        Ok(respond(code, &body))
    }

    fn change_request(&self, method: &Method, request: &mut Request<Bytes>) -> Result<(), Failure> {
        if *method == Method::PUT && self.lie == Lie::UpdateWithoutCondition {
            let mut object: Value = serde_json::from_slice(request.body())?;
            object["metadata"]["resourceVersion"].take();
            *request.body_mut() = object.to_string().into();
        }
        if *method == Method::DELETE && self.lie == Lie::RemovalWithoutCondition {
            *request.body_mut() = "{}".into();
        }
        let uri = request.uri().to_string();
        let is_list = *method == Method::GET && uri.contains("configmaps?");
        let changed = match (self.lie, uri.split_once("&resourceVersion=")) {
            (Lie::ListIgnoresItsRevision, Some((before, _))) if is_list => before.to_owned(),
            (Lie::WrongNamespace, None) if is_list => uri.replace("/namespaces/a/", "/"),
            _ => return Ok(()),
        };
        *request.uri_mut() = changed.parse()?;
        Ok(())
    }

    fn change_read(&self, asked: &str, code: StatusCode, mut body: Value) -> (StatusCode, Value) {
        let is_exact = asked.contains("resourceVersion=");
        let Some(items) = body["items"].as_array_mut() else {
            return match self.lie {
                Lie::BlindGet if self.is_lying(Lie::BlindGet) => {
                    // Only who names the object says that it is not there.
                    let name = asked.rsplit('/').next();
                    (StatusCode::NOT_FOUND, json!({"kind": "Status", "details": {"name": name}}))
                }
                Lie::StaleGet => (code, self.memory.lock().entry(asked.to_owned()).or_insert(body).clone()),
                _ => (code, body),
            };
        };
        match self.lie {
            Lie::ListMissesItem if items.len() > 1 && self.is_lying(Lie::ListMissesItem) => {
                items.remove(1);
            }
            Lie::ListUnsorted => items.reverse(),
            Lie::ListRevisionAhead if !is_exact => body = newer(body),
            Lie::StaleList if !is_exact => {
                body = self.memory.lock().entry(asked.to_owned()).or_insert(body).clone();
            }
            _ => {}
        }
        (code, body)
    }

    fn change_write(&self, code: StatusCode, mut body: Value) -> (StatusCode, Value) {
        if code == StatusCode::CONFLICT && self.lie == Lie::RefusalSwallowed {
            let revision = self.memory.lock().get("last").cloned().unwrap_or_default();
            return (StatusCode::OK, newer(json!({"metadata": {"resourceVersion": revision}})));
        }
        if code.is_success() && matches!(self.lie, Lie::RevisionTwice | Lie::RefusalSwallowed) {
            let mut memory = self.memory.lock();
            let last = memory.insert("last".to_owned(), body["metadata"]["resourceVersion"].clone());
            if let Some(last) = last.filter(|_| self.is_lying(Lie::RevisionTwice)) {
                body["metadata"]["resourceVersion"] = last;
            }
        }
        (code, body)
    }
}

impl Server for Liar {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>> {
        self.answer(request).boxed()
    }
}

/// With the next resourceVersion.
fn newer(mut object: Value) -> Value {
    let revision = super::version(&object).unwrap_or(0) + 1;
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
    object
}

fn respond(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(Into::into).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}
