//! A request to the API, as data, and the sending of one.

use http::Request;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cause;
use crate::informer::{Decode, Kind, Transform};
use crate::metadata::Object;
use crate::resource_ref::{ResourceRef, key_of};

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiRequest {
    /// The effect of the request.
    pub verb: Verb,
    /// On which resource.
    pub resource: ResourceRef,
    /// Empty for cluster scope.
    pub namespace: String,
    /// Empty when the server chooses it (`generateName`); a DELETE without a name is of the whole collection.
    pub name: String,
    /// Empty if none.
    pub subresource: &'static str,
    /// The body; JSON.
    pub body: Value,
}

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST. `AlreadyExists` fails the plan: the next run sees what is there.
    Create,
    /// PUT.
    Update,
    /// PATCH with this content type.
    Patch(&'static str),
    /// GET, which fails the plan if the object is there with the uid of the body's preconditions; any, if empty.
    RequireAbsent,
    /// POST of a SubjectAccessReview, which fails the plan unless its subject is allowed what it asks.
    RequireAllowed,
    /// DELETE; `NotFound` counts as done, and so does a failed precondition on the uid.
    Delete,
}

/// The body of a patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Strategic merge patch.
    Strategic(Value),
    /// RFC 6902.
    Json(Value),
}

/// Source: `DeleteOptions.propagationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents go after the owner.
    Background,
    /// The owner goes after its dependents.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

impl ApiRequest {
    /// Creates `object`.
    pub fn create<K: Object + Serialize>(object: &K) -> Self {
        Self::of(Verb::Create, object, "")
    }

    /// Replaces `object`, guarded by its resourceVersion.
    pub fn update<K: Object + Serialize>(object: &K) -> Self {
        Self::of(Verb::Update, object, "")
    }

    pub(crate) fn of<K: Object + Serialize>(verb: Verb, object: &K, subresource: &'static str) -> Self {
        let meta = object.metadata();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        let body = serde_json::to_value(object).unwrap_or_default();
        Self::new(verb, ResourceRef::of::<K>(), namespace, name, subresource, body)
    }

    /// Patches an object.
    pub fn patch_object<K: Object>(namespace: &str, name: &str, patch: Patch) -> Self {
        Self::patch(ResourceRef::of::<K>(), namespace, name, "", patch)
    }

    /// Patches an object's status.
    pub fn patch_status<K: Object>(namespace: &str, name: &str, patch: Patch) -> Self {
        Self::patch(ResourceRef::of::<K>(), namespace, name, "status", patch)
    }

    /// Deletes an object, but only the one with `uid` if given.
    pub fn delete<K: Object>(
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        propagation: Propagation,
        grace_period_seconds: Option<i64>,
    ) -> Self {
        let body = delete_options(uid, propagation, grace_period_seconds);
        Self::new(Verb::Delete, ResourceRef::of::<K>(), namespace, name, "", body)
    }

    pub(crate) fn patch(
        resource: ResourceRef,
        namespace: &str,
        name: &str,
        subresource: &'static str,
        patch: Patch,
    ) -> Self {
        let (content_type, body) = match patch {
            Patch::Merge(body) => ("application/merge-patch+json", body),
            Patch::Strategic(body) => ("application/strategic-merge-patch+json", body),
            Patch::Json(body) => ("application/json-patch+json", body),
        };
        Self::new(Verb::Patch(content_type), resource, namespace, name, subresource, body)
    }

    pub(crate) fn new(
        verb: Verb,
        resource: ResourceRef,
        namespace: &str,
        name: &str,
        subresource: &'static str,
        body: Value,
    ) -> Self {
        Self { verb, resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource, body }
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        key_of(Some(&self.namespace), &self.name)
    }

    /// The HTTP request.
    ///
    /// # Errors
    /// If a name cannot stand in a URL.
    pub fn to_http(&self) -> Result<Request<Vec<u8>>, http::Error> {
        let mut path = match (self.verb, self.subresource) {
            (Verb::Create | Verb::RequireAllowed, "") => self.resource.collection_path(&self.namespace),
            (Verb::Delete, "") if self.name.is_empty() => self.resource.collection_path(&self.namespace),
            _ => self.resource.object_path(&self.namespace, &self.name),
        };
        if !self.subresource.is_empty() {
            path.push('/');
            path.push_str(self.subresource);
        }
        let (method, content_type) = match self.verb {
            Verb::Create | Verb::RequireAllowed => ("POST", "application/json"),
            Verb::Update => ("PUT", "application/json"),
            Verb::Patch(content_type) => ("PATCH", content_type),
            Verb::RequireAbsent => ("GET", "application/json"),
            Verb::Delete => ("DELETE", "application/json"),
        };
        Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .body(if self.verb == Verb::RequireAbsent {
                Vec::new()
            } else {
                self.body.to_string().into_bytes()
            })
    }
}

pub(crate) fn delete_options(
    uid: Option<&str>,
    propagation: Propagation,
    grace_period_seconds: Option<i64>,
) -> Value {
    let mut options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation.as_str(),
    });
    if let Some(uid) = uid {
        options["preconditions"] = json!({ "uid": uid });
    }
    if let Some(seconds) = grace_period_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

/// Sends one planned request with the current cause, and reads the answer.
///
/// # Errors
/// What the API server answered, or why it could not be asked.
pub async fn send<K: Decode>(client: &kube::Client, request: &ApiRequest) -> Result<K, kube::Error> {
    let http = request.to_http().map_err(kube::Error::HttpError)?;
    answer(client, http).await
}

/// Sends one request with the current cause. Nobody reads the answer.
///
/// # Errors
/// As [`send`].
pub async fn carry_out(client: &kube::Client, request: &ApiRequest) -> Result<(), kube::Error> {
    let http = request.to_http().map_err(kube::Error::HttpError)?;
    client.request_text(cause::stamp(http)).await.map(drop)
}

/// The object of that name as it is now, if there is one; see [`get`].
///
/// # Errors
/// As [`send`].
pub async fn find<K: Kind>(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> Result<Option<K>, kube::Error> {
    match get(client, namespace, name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// The object of that name as it is now; the namespace of what has none is empty.
///
/// # Errors
/// As [`send`].
pub async fn get<K: Kind>(client: &kube::Client, namespace: &str, name: &str) -> Result<K, kube::Error> {
    let http = Request::get(ResourceRef::of::<K>().object_path(namespace, name)).body(Vec::new());
    answer(client, http.map_err(kube::Error::HttpError)?).await
}

/// Reads an answer by the decoder that informers of its kind have: all of its fields, and as Go would.
async fn answer<K: Decode>(client: &kube::Client, request: Request<Vec<u8>>) -> Result<K, kube::Error> {
    let text = client.request_text(cause::stamp(request)).await?;
    K::decode(&text, &Transform::default()).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests;
