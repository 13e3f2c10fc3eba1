//! Asks for one image at a time: which digest a tag means, its manifest for a platform, its configuration.
//!
//! A [`Session`] is about one reference and one set of credentials; it keeps what the registry has granted. Mirrors are
//! asked first and need not have everything: what one does not give, the next is asked for. A pull secret is for the
//! registry that the image's name names; mirrors have credentials of their own, in `registries.yaml`.

use std::sync::Arc;
use std::time::Duration;

use base::{Random, backoff::Backoff};
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::auth::{Challenge, Credentials, TOKEN_BYTES_MAX, TokenAnswer, TokenRequest, basic};
use crate::config::{Endpoint, Registries};
use crate::digest::Digest;
use crate::document::{
    ACCEPTED, Descriptor, Document, INDEX_DEPTH_MAX, MANIFEST_BYTES_MAX, Manifest, Platform,
};
use crate::error::Error;
use crate::proxy::Proxies;
use crate::reference::Reference;
use crate::transport::{Ask, Transport, failure, whole};

/// Largest configuration of an image.
const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// How often a small document is asked for before nobody is said to answer.
const TRIES: u32 = 3;
/// Before the second try.
const RETRY_FIRST: Duration = Duration::from_millis(500);
/// Before further tries.
const RETRY_MAX: Duration = Duration::from_secs(4);
/// The share of a delay that is added by chance, so that a fleet of nodes does not come back at once.
const RETRY_JITTER: f64 = 0.5;

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// A client of registries, with one set of settings.
pub struct Client {
    pub(crate) registries: Arc<Registries>,
    pub(crate) transport: Transport,
    pub(crate) random: Random,
}

impl Client {
    /// A client with these settings, by the proxies that the environment names.
    pub fn new(registries: Registries, random: Random) -> Self {
        let registries = Arc::new(registries);
        let transport = Transport::new(Arc::clone(&registries), Proxies::of_environment());
        Self { transport, registries, random }
    }

    /// Begins to ask for what `reference` names. `tries` is how often silence is met with another try; at least once.
    ///
    /// # Errors
    /// The settings are wrong.
    pub fn session(
        self: &Arc<Self>,
        reference: Reference,
        credentials: Option<Credentials>,
        retry_policy: RetryPolicy,
    ) -> Result<Session, Error> {
        let mut hosts = Vec::new();
        for endpoint in self.registries.endpoints(&reference) {
            let given = credentials.clone().filter(|_| endpoint.is_origin);
            let credentials = match given {
                Some(given) => Some(given),
                None => self.registries.credentials(&endpoint.authority)?,
            };
            let authorization = match &credentials {
                Some(Credentials::RegistryToken(token)) => Some(format!("Bearer {token}")),
                _ => None,
            };
            hosts.push(Host { endpoint, credentials, authorization: Mutex::new(authorization) });
        }
        Ok(Session { client: Arc::clone(self), reference, hosts, retry_policy })
    }
}

/// The reaction to silence and passing errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// With a few more tries.
    Usual,
    /// Not at all.
    None,
}

/// One host to ask, the registry or a mirror, and what it has granted.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    credentials: Option<Credentials>,
    authorization: Mutex<Option<String>>,
}

/// Questions about one reference.
pub struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) reference: Reference,
    pub(crate) hosts: Vec<Host>,
    retry_policy: RetryPolicy,
}

/// An image for a platform.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Its configuration and layers.
    pub manifest: Manifest,
    /// The configuration, checked.
    pub config: Vec<u8>,
}

impl Session {
    /// The reference that this session is about.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The digest that the registry has for the reference: of an index if there is one. Says also that we may have it.
    ///
    /// # Errors
    /// It is not there, we may not have it, or nobody answers.
    pub async fn digest(&self) -> Result<Digest, Error> {
        let what = format!("manifests/{}", self.reference.target());
        let mut tour = self.tour();
        let digest = loop {
            let Some(host) = tour.next().await else { return Err(tour.end()) };
            match self.digest_at(host, &what).await {
                Ok(digest) => break digest,
                Err(error) => tour.failed(host, error),
            }
        };
        match &self.reference.digest {
            Some(expected) if *expected != digest => Err(Error::Digest {
                what: self.reference.to_string(),
                expected: expected.to_string(),
                actual: digest.to_string(),
            }),
            _ => Ok(digest),
        }
    }

    async fn digest_at(&self, host: &Host, what: &str) -> Result<Digest, Error> {
        let answer = self.ask(host, Method::HEAD, what, accepting()).await;
        let said = match &answer {
            Ok(answer) => answer.headers().get(CONTENT_DIGEST).and_then(|it| it.to_str().ok()?.parse().ok()),
            // Some registries have no HEAD.
            Err(Error::Unexpected(_)) => None,
            Err(_) => return Err(answer.err().unwrap_or_else(|| Error::Unexpected(String::new()))),
        };
        match said {
            Some(digest) => Ok(digest),
            None => {
                let bytes = self.document(host, what, MANIFEST_BYTES_MAX, accepting()).await?;
                let by_digest = self.reference.digest.as_ref().filter(|digest| digest.is_of(&bytes));
                Ok(by_digest.cloned().unwrap_or_else(|| Digest::of(&bytes)))
            }
        }
    }

    /// The image for `platform` at `digest`, which may be an index.
    ///
    /// # Errors
    /// It is not there or not for this platform, or something of it is broken.
    pub async fn image(&self, digest: &Digest, platform: &Platform) -> Result<Resolved, Error> {
        let mut next = digest.clone();
        for _ in 0..=INDEX_DEPTH_MAX {
            let what = format!("manifests/{next}");
            let bytes = self.checked(&what, &next, MANIFEST_BYTES_MAX, accepting()).await?;
            match Document::parse(&format!("manifest {next}"), &bytes)? {
                Document::Manifest(manifest) => {
                    let digest = &manifest.config.digest;
                    let what = format!("blobs/{digest}");
                    let config = self.checked(&what, digest, CONFIG_BYTES_MAX, HeaderMap::new()).await?;
                    return Ok(Resolved { manifest, config });
                }
                Document::Index(index) => {
                    let found = index.for_platform(platform);
                    let found: &Descriptor = found.first().ok_or_else(|| {
                        Error::NotFound(format!(
                            "no match for platform {}/{} in manifest {next}",
                            platform.os, platform.architecture
                        ))
                    })?;
                    next = found.digest.clone();
                }
            }
        }
        Err(Error::invalid(format!("manifest {digest}"), "indexes nested too deeply"))
    }

    /// A document that is what its digest says, from whoever has it so.
    async fn checked(
        &self,
        what: &str,
        digest: &Digest,
        limit: u64,
        headers: HeaderMap,
    ) -> Result<Vec<u8>, Error> {
        let mut tour = self.tour();
        while let Some(host) = tour.next().await {
            match self.document(host, what, limit, headers.clone()).await {
                Ok(bytes) if digest.is_of(&bytes) => return Ok(bytes),
                Ok(bytes) => {
                    let error = Error::Digest {
                        what: host.endpoint.url(what),
                        expected: digest.to_string(),
                        actual: Digest::of(&bytes).to_string(),
                    };
                    tour.failed(host, error);
                }
                Err(error) => tour.failed(host, error),
            }
        }
        Err(tour.end())
    }

    async fn document(
        &self,
        host: &Host,
        what: &str,
        limit: u64,
        headers: HeaderMap,
    ) -> Result<Vec<u8>, Error> {
        let answer = self.ask(host, Method::GET, what, headers).await?;
        whole(answer, &host.endpoint.url(what), limit).await
    }

    fn tour(&self) -> Tour<'_> {
        Tour { session: self, next: 0, round: 1, last: None, backoff: self.backoff() }
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(RETRY_FIRST, RETRY_MAX, RETRY_JITTER)
    }

    /// Asks one host, and proves who we are if it wants to know. Only successes are returned.
    pub(crate) async fn ask(
        &self,
        host: &Host,
        method: Method,
        what: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Error> {
        let url = host.endpoint.url(what);
        let authorization = host.authorization.lock().clone();
        let mut ask = Ask { method, headers, ..Ask::get(url) }.authorized(authorization);
        let mut answer = self.client.transport.send(&ask).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let asked = answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
            let challenge = Challenge::parse(asked);
            let Some(authorization) = self.answer_to(host, challenge).await? else {
                return Err(failure(&ask.method, &ask.url, answer).await);
            };
            *host.authorization.lock() = Some(authorization.clone());
            ask = ask.authorized(Some(authorization));
            answer = self.client.transport.send(&ask).await?;
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(failure(&ask.method, &ask.url, answer).await)
    }

    /// What to say to a challenge; `None` if there is nothing to say.
    async fn answer_to(&self, host: &Host, challenge: Option<Challenge>) -> Result<Option<String>, Error> {
        match (challenge, &host.credentials) {
            (Some(Challenge::Basic), Some(Credentials::Password { username, password })) => {
                Ok(Some(basic(username, password)))
            }
            (Some(Challenge::Basic), _) => Err(Error::Denied(
                "pull access denied, repository does not exist or may require authorization: \
                 authorization failed: no basic auth credentials"
                    .into(),
            )),
            // A token that was given and is not taken is not made better by another.
            (Some(Challenge::Bearer { .. }), Some(Credentials::RegistryToken(_))) => Ok(None),
            (Some(Challenge::Bearer { realm, service, scope }), credentials) => {
                let needed = format!("repository:{}:pull", host.endpoint.repository);
                let scope = scope.filter(|scope| scope.starts_with("repository:")).unwrap_or(needed);
                let service = (realm.as_str(), service.as_deref(), scope.as_str());
                let request = TokenRequest::new(service, credentials.as_ref(), &host.endpoint.scheme)?;
                self.token(request).await.map(Some)
            }
            (None, _) => Ok(None),
        }
    }

    async fn token(&self, request: TokenRequest) -> Result<String, Error> {
        let method = if request.form.is_some() { Method::POST } else { Method::GET };
        let ask =
            Ask { method, form: request.form, ..Ask::get(request.url) }.authorized(request.authorization);
        let answer = self.client.transport.send(&ask).await?;
        if !answer.status().is_success() {
            let error = failure(&ask.method, &ask.url, answer).await;
            return Err(error.within("failed to authorize: failed to fetch oauth token"));
        }
        let bytes = whole(answer, "the token", TOKEN_BYTES_MAX).await?;
        let answer: Result<TokenAnswer, _> = serde_json::from_slice(&bytes);
        let token = answer.ok().and_then(TokenAnswer::authorization);
        token.ok_or_else(|| Error::Denied("failed to authorize: the token service gave no token".into()))
    }
}

/// All hosts in turn, and again while nobody answers. The last one's error counts: it is the registry itself.
struct Tour<'a> {
    session: &'a Session,
    next: usize,
    round: u32,
    last: Option<Error>,
    backoff: Backoff,
}

impl<'a> Tour<'a> {
    async fn next(&mut self) -> Option<&'a Host> {
        let session = self.session;
        let tries = if session.retry_policy == RetryPolicy::Usual { TRIES } else { 1 };
        if self.next == session.hosts.len() && self.round < tries {
            if !self.last.as_ref().is_some_and(Error::is_transient) {
                return None;
            }
            tokio::time::sleep(self.backoff.next(&session.client.random)).await;
            (self.next, self.round) = (0, self.round + 1);
        }
        let host = session.hosts.get(self.next)?;
        self.next += 1;
        Some(host)
    }

    fn failed(&mut self, host: &Host, error: Error) {
        tracing::debug!(endpoint = host.endpoint.authority, %error, "no answer of use");
        self.last = Some(error);
    }

    fn end(self) -> Error {
        self.last.unwrap_or_else(|| Error::Unexpected("there is no place to ask".into()))
    }
}

fn accepting() -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(ACCEPTED))])
}

#[cfg(test)]
mod tests;
