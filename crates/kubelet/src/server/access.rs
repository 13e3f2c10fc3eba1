//! Who asks, and may they: the API server says it of everybody, itself included.
//!
//! Certificates of the cluster's authority of clients and bearer tokens (TokenReview) say who; SubjectAccessReview says
//! whether. Answers are kept for a while, as upstream does, so that they hold while the API server is away.
//! Source: `pkg/kubelet/server/auth.go`, KEP-2862.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Refusal;
use crate::context::Context;

/// How long a yes is good for. Source: `authorization.webhook.cacheAuthorizedTTL`.
const ALLOWED: Duration = Duration::from_mins(5);
/// How long a no is. Source: `authorization.webhook.cacheUnauthorizedTTL`.
const REFUSED: Duration = Duration::from_secs(30);
/// How long a token's user is known. Source: `authentication.webhook.cacheTTL`.
const KNOWN: Duration = Duration::from_mins(2);
/// Answers that are kept.
const KEPT_MAX: usize = 1024;

/// Somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) name: String,
    groups: Vec<String>,
    uid: String,
}

/// Somebody with a certificate.
#[derive(Debug)]
pub(super) struct Certified {
    pub(super) user: User,
    ends_second: i64,
}

impl Certified {
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        now.as_second() <= self.ends_second
    }
}

/// Who wants to do what: a verb and a subresource of the Node.
type Asked = (User, &'static str, &'static str);

/// What was answered before.
#[derive(Default)]
pub(crate) struct Access {
    /// By their hash: a token is not kept.
    tokens: Mutex<Answers<[u8; 32], Option<User>>>,
    reviews: Mutex<Answers<Asked, bool>>,
}

/// Answers, each good until its time.
struct Answers<K, V>(HashMap<K, (Instant, V)>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Answers<K, V> {
    fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.0.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// Keeps an answer; if there is no room, in place of the one that ends first.
    fn keep(&mut self, key: K, value: V, (now, life): (Instant, Duration)) {
        if self.0.len() >= KEPT_MAX {
            self.0.retain(|_, (until, _)| now < *until);
        }
        if self.0.len() >= KEPT_MAX {
            let first = self.0.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone());
            first.map(|first| self.0.remove(&first));
        }
        self.0.insert(key, (now + life, value));
    }
}

/// The user of a certificate that the configured authority has signed.
pub(super) fn of_certificate(certificate: &[u8]) -> Option<Certified> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next().and_then(|name| name.as_str().ok())?.to_owned();
    let groups =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let ends_second = certificate.validity().not_after.timestamp();
    Some(Certified { user: User { name, groups, uid: String::new() }, ends_second })
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
        // Ours, and fine-grained as the others that the whole of the kubelet includes.
        return &["csi", "proxy"];
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
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.tokens.lock().get(&key, Instant::now()) {
            return known.ok_or_else(unauthorized);
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
        let life = if user.is_some() { KNOWN } else { REFUSED };
        self.tokens.lock().keep(key, user.clone(), (Instant::now(), life));
        user.ok_or_else(unauthorized)
    }

    async fn may(
        &self,
        context: &Context,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Refusal> {
        let key = (user.clone(), verb, subresource);
        if let Some(allowed) = self.reviews.lock().get(&key, Instant::now()) {
            return Ok(allowed);
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
        let life = if status.allowed { ALLOWED } else { REFUSED };
        self.reviews.lock().keep(key, status.allowed, (Instant::now(), life));
        Ok(status.allowed)
    }
}

fn unauthorized() -> Refusal {
    Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_and_the_first_to_end_makes_room() {
        let (start, mut answers) = (Instant::now(), Answers::default());
        answers.keep(0, true, (start, ALLOWED));
        for key in 1..=KEPT_MAX {
            answers.keep(key, false, (start, REFUSED));
        }
        assert_eq!(answers.0.len(), KEPT_MAX);
        assert_eq!(answers.get(&0, start), Some(true), "who floods the kept refusals does not drive it out");
        assert_eq!(answers.get(&0, start + ALLOWED), None);
        answers.keep(1, true, (start + REFUSED, ALLOWED));
        assert_eq!(answers.0.len(), 2, "what is over goes first");
    }

    #[test]
    fn paths_stand_for_upstreams_subresources() {
        for (path, expect) in [
            ("/metrics/cadvisor", &["metrics"][..]),
            ("/stats/summary", &["stats"]),
            ("/statsx", &["proxy"]),
            ("/exec/ns/pod/container", &["proxy"]),
            ("/pods", &["pods", "proxy"]),
            ("/configz", &["configz", "proxy"]),
            ("/csi", &["csi", "proxy"]),
        ] {
            assert_eq!(subresources(path), expect, "{path}");
        }
    }
}
