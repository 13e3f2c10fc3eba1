//! `serviceaccounts/token`: a TokenRequest is answered with a bound token.
//!
//! Source: KEP-1205, `pkg/registry/core/serviceaccount/storage/token.go`.

use auth::token::{Private, Reference};
use http::StatusCode;
use jiff::SignedDuration;
use machinery::field::{FieldError, Path};
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};

use crate::admission::service_account::TOKEN_SECONDS;
use crate::admission::unstored;
use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::status::{Error, Result, Subject};
use crate::tree::text;
use crate::write::change::current;
use crate::write::decoding;

const SECONDS_DEFAULT: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
/// How long a token is good that is good for longer than was asked for.
const SECONDS_EXTENDED: i64 = 365 * 24 * 3600;

/// Issues a token.
///
/// # Errors
/// 404 when the service account is absent, 409 when the bound object is another one, 422 for a bad lifetime.
pub async fn request_token(api: &Api, request: &Authorized) -> Result<Answer> {
    let mut object = decoding::body_of(request, "authentication.k8s.io/v1", "TokenRequest")?;
    object = unstored::post(api, request, object).await?;
    let account = request.kind.value(&*current(api, request, &request.key()).await?);
    let asked = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS_DEFAULT);
    check_lifetime(asked)?;
    let most = api.config.options.service_accounts.token_seconds_max;
    let seconds = most.map_or(asked, |most| most.min(asked));
    if seconds < asked {
        request.notes.warn(format!("requested expiration of {asked} seconds shortened to {seconds} seconds"));
    }
    let audiences: Vec<String> = object
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let namespace = request.resource.namespace.clone();
    let pod = (text(&object, "/spec/boundObjectRef/kind") == "Pod")
        .then(|| find(api, "pods", &namespace, text(&object, "/spec/boundObjectRef/name")).ok())
        .flatten();
    crate::admission::node_restriction::validate_posted(request, &object, pod.as_ref())?;
    crate::admission::node_restriction::validate_audience(api, request, &object, pod.as_ref()).await?;
    let mut private =
        Private { namespace: namespace.clone(), serviceaccount: reference(&account), ..Private::default() };
    bind(api, &object, &namespace, &mut private)?;
    let now = api.clock.now();
    let tokens = api.security.tokens();
    let mut lifetime = seconds;
    if api.config.options.service_accounts.extends_tokens
        && is_extendable(&private, seconds)
        && audiences.iter().all(|audience| tokens.audiences().contains(audience))
    {
        private.warnafter = Some(now.as_second() + seconds);
        lifetime = SECONDS_EXTENDED;
    }
    let token = tokens
        .issue(private, &audiences, lifetime, now, api.random.uuid())
        .map_err(|_| Error::internal("the token could not be signed"))?;
    let shown = if audiences.is_empty() { tokens.audiences().to_vec() } else { audiences };
    let end = metadata::time(now + SignedDuration::from_secs(seconds));
    if let Some(map) = object.as_object_mut() {
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        spec["audiences"] = json!(shown);
        spec["expirationSeconds"] = seconds.into();
        map.insert("status".to_owned(), json!({"token": token, "expirationTimestamp": end}));
        map.insert(
            "metadata".to_owned(),
            json!({"name": request.resource.name, "namespace": namespace, "creationTimestamp": metadata::time(now)}),
        );
    }
    Ok(Answer::Value { code: StatusCode::CREATED, value: object })
}

/// Whether it is the token that admission has given a Pod: its kubelet reads a new one in time, its containers may not.
fn is_extendable(private: &Private, seconds: i64) -> bool {
    private.pod.is_some() && seconds == TOKEN_SECONDS
}

fn check_lifetime(seconds: i64) -> Result<()> {
    let path = Path::new("spec").child("expirationSeconds");
    let why = match seconds {
        n if n < SECONDS_MIN => "may not specify a duration less than 10 minutes",
        n if n > SECONDS_MAX => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let subject = Subject { group: "authentication.k8s.io", resource: "TokenRequest" };
    Err(Error::invalid(subject, "", &FieldError::invalid(&path, seconds, why).into()))
}

fn reference(object: &Value) -> Reference {
    let metadata = Metadata::of(object);
    Reference { name: metadata.name().to_owned(), uid: metadata.uid().to_owned() }
}

/// Binds the token to the Pod, Secret or Node that the request names.
fn bind(api: &Api, object: &Value, namespace: &str, private: &mut Private) -> Result<()> {
    let Some(bound) = object.pointer("/spec/boundObjectRef").filter(|bound| !bound.is_null()) else {
        return Ok(());
    };
    let (resource, namespace) = match text(bound, "/kind") {
        "Pod" => ("pods", namespace),
        "Secret" => ("secrets", namespace),
        "Node" => ("nodes", ""),
        other => return Err(Error::bad_request(format!("cannot bind token for object of type {other}"))),
    };
    let found = find(api, resource, namespace, text(bound, "/name"))?;
    let reference = reference(&found);
    let wanted = text(bound, "/uid");
    if !wanted.is_empty() && wanted != reference.uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Error::conflict(Subject { group: "", resource }, &reference.name, &why));
    }
    if resource == "pods" && text(&found, "/spec/serviceAccountName") != private.serviceaccount.name {
        let name = &private.serviceaccount.name;
        return Err(Error::bad_request(format!(
            "cannot bind token for serviceaccount {name:?} to pod running with different serviceaccount name."
        )));
    }
    match resource {
        "pods" => {
            let node = text(&found, "/spec/nodeName");
            if !node.is_empty() {
                let uid = find(api, "nodes", "", node).map(|node| Metadata::of(&node).uid().to_owned());
                private.node = Some(Reference { name: node.to_owned(), uid: uid.unwrap_or_default() });
            }
            private.pod = Some(reference);
        }
        "secrets" => private.secret = Some(reference),
        _ => private.node = Some(reference),
    }
    Ok(())
}

fn find(api: &Api, resource: &str, namespace: &str, name: &str) -> Result<Value> {
    let kind = api.kind("", "v1", resource).ok_or_else(Error::unknown_path)?;
    let object = kind.cache().get(&kind.key(namespace, name));
    object.map(|object| kind.value(&object)).ok_or_else(|| Error::not_found(kind.subject(), name))
}
