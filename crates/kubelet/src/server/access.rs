//! Who asks, and may they: the API server's own certificate may everything, everybody else what the API server says.
//!
//! Certificates of the cluster's authority and bearer tokens (TokenReview) say who; SubjectAccessReview says whether.
//! Answers are kept for a while, as upstream does. Source: `pkg/kubelet/server/auth.go`, KEP-2862.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Refusal;
use crate::context::Context;

/// How long a yes is good for. Source: `authorization.webhook.cacheAuthorizedTTL` is 5 m; a token's review is 2 m.
const YES: Duration = Duration::from_secs(120);
/// How long a no is. Source: `cacheUnauthorizedTTL`.
const NO: Duration = Duration::from_secs(30);
/// Answers that are kept.
const KEPT_MAX: usize = 1024;

/// Somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) name: String,
    groups: Vec<String>,
    uid: String,
}

/// Who wants to do what: a path and a verb.
type Asked = (User, String, &'static str);

/// What was answered before.
#[derive(Default)]
pub(crate) struct Access {
    tokens: Mutex<HashMap<String, (Instant, Option<User>)>>,
    reviews: Mutex<HashMap<Asked, (Instant, bool)>>,
}

/// The user of a certificate that the configured authority has signed.
pub(super) fn of_certificate(certificate: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok())?.to_owned();
    let groups =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    Some(User { name, groups, uid: String::new() })
}

/// The resource that a path stands for; several where any of them is enough, the finest first.
pub(super) fn subresources(path: &str) -> &'static [&'static str] {
    let is_below =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if is_below("/stats") {
        return &["stats"];
    }
    if is_below("/metrics") {
        return &["metrics"];
    }
    if is_below("/logs") {
        return &["log"];
    }
    if is_below("/csi") {
        return &["csi"];
    }
    if is_below("/checkpoint") {
        return &["checkpoint"];
    }
    if is_below("/pods") || is_below("/runningpods") {
        return &["pods", "proxy"];
    }
    if is_below("/healthz") {
        return &["healthz", "proxy"];
    }
    if is_below("/configz") {
        return &["configz", "proxy"];
    }
    &["proxy"]
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

impl Access {
    /// Lets a request pass.
    ///
    /// # Errors
    /// 401 for nobody, 403 for who may not, 500 if the API server does not say.
    pub(super) async fn check(
        &self,
        context: &Context,
        certified: Option<&User>,
        (method, path, headers): (&Method, &str, &HeaderMap),
    ) -> Result<(), Refusal> {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let user = match (certified, token) {
            (Some(user), _) => user.clone(),
            (None, Some(token)) => self.of_token(context, token).await?,
            (None, None) => return Err(unauthorized()),
        };
        let subresources = subresources(path);
        for subresource in subresources {
            if self.may(context, &user, verb(method), subresource).await? {
                return Ok(());
            }
        }
        let (verb, name) = (verb(method), &user.name);
        let resources = subresources.join(" ");
        let message =
            format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{resources}])\n");
        Err(Refusal(StatusCode::FORBIDDEN, message))
    }

    async fn of_token(&self, context: &Context, token: &str) -> Result<User, Refusal> {
        if let Some((at, known)) = self.tokens.lock().get(token)
            && at.elapsed() < if known.is_some() { YES } else { NO }
        {
            return known.clone().ok_or_else(unauthorized);
        }
        let api: Api<TokenReview> = Api::all(context.client.clone());
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = api.create(&PostParams::default(), &review).await;
        let status = answer.map_err(|error| Refusal::internal(error.to_string()))?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| User {
            name: user.username.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
        });
        keep(&mut self.tokens.lock(), token.to_owned(), user.clone());
        user.ok_or_else(unauthorized)
    }

    async fn may(
        &self,
        context: &Context,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Refusal> {
        let key = (user.clone(), format!("{verb} {subresource}"), verb);
        if let Some((at, allowed)) = self.reviews.lock().get(&key)
            && at.elapsed() < if *allowed { YES } else { NO }
        {
            return Ok(*allowed);
        }
        let api: Api<SubjectAccessReview> = Api::all(context.client.clone());
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.into()),
            name: Some(context.config.node_name.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = api.create(&PostParams::default(), &review).await;
        let status = answer.map_err(|error| Refusal::internal(error.to_string()))?.status.unwrap_or_default();
        keep(&mut self.reviews.lock(), key, status.allowed);
        Ok(status.allowed)
    }
}

fn keep<K: std::hash::Hash + Eq, V>(kept: &mut HashMap<K, (Instant, V)>, key: K, value: V) {
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(key, (Instant::now(), value));
}

fn unauthorized() -> Refusal {
    Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_for_upstreams_subresources() {
        for (path, expect) in [
            ("/metrics/cadvisor", &["metrics"][..]),
            ("/stats/summary", &["stats"]),
            ("/statsx", &["proxy"]),
            ("/exec/ns/pod/container", &["proxy"]),
            ("/pods", &["pods", "proxy"]),
            ("/configz", &["configz", "proxy"]),
        ] {
            assert_eq!(subresources(path), expect, "{path}");
        }
    }
}
