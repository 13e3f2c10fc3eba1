//! One client for all webhooks: HTTPS to a URL or to a Service, with the authorities that a configuration names.
//!
//! It knows nothing of what is asked. Connections are kept for the next call, bounded in number and in how long they
//! wait; a call that finds a kept one closed is made again on a new one. Answers are bounded in size and in time, and
//! nobody is led elsewhere: a redirect is a failure.
//!
//! Source: `k8s.io/apiserver/pkg/util/webhook/client.go`, `k8s.io/client-go/rest/request.go`.

pub mod address;
pub mod credentials;
pub mod kubeconfig;
pub mod retry;

mod connector;
mod failure;
mod tls;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Tasks;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tunnel::Connection;

use connector::{Connector, Spawner};

use crate::configuration_error::ConfigurationError;

pub use crate::connection_error::ConnectionError;
pub use address::{Address, ServiceReference};
pub use credentials::{Credential, Credentials};
pub use failure::CallError;

/// The longest answer that is read, unless somebody says otherwise. Source: `MaxRequestBodyBytes` of upstream's servers, whose
/// bodies webhooks get.
pub const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The time that a call may take, whatever else is said. Source: `setGlobalDefaults` of upstream's `authentication.go`.
pub const CALL_MAX: Duration = Duration::from_secs(30);
/// How many calls one webhook gets at a time; others wait, as long as they may.
const CALLS_MAX: usize = 256;
/// How many connections to one place wait for the next call, and for how long.
const IDLE_CONNECTIONS_MAX: usize = 25;
const IDLE_MAX: Duration = Duration::from_secs(90);
/// Who asks, in admission.
const AGENT: &str = "kube-apiserver-admission";

/// The address of a webhook, and the authorities for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The address.
    pub address: Address,
    /// PEM; the host's own authorities if empty.
    pub ca_bundle: Vec<u8>,
}

impl Config {
    /// Reads a `WebhookClientConfig`.
    ///
    /// # Errors
    /// That it names no such address, or no authorities.
    pub fn of(config: &Value) -> Result<Self, ConfigurationError> {
        let address = Address::of(config).map_err(ConfigurationError::unusable)?;
        let bundle = config.get("caBundle").and_then(Value::as_str).unwrap_or_default();
        let ca_bundle = STANDARD.decode(bundle).map_err(ConfigurationError::of("caBundle"))?;
        Ok(Self { address, ca_bundle })
    }
}

/// A dialer: it connects to what somebody names, as far as that is allowed.
pub trait Dial: Send + Sync {
    /// Connects to a host by name or address.
    fn host<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Connection, ConnectionError>>;

    /// Connects to something that is ready to serve a Service.
    fn service<'a>(
        &'a self,
        service: &'a ServiceReference,
    ) -> BoxFuture<'a, Result<Connection, ConnectionError>>;
}

/// Clients by where they lead: whoever is called by the same address and authorities shares connections.
pub struct Clients {
    dial: Arc<dyn Dial>,
    credentials: Credentials,
    tasks: Tasks,
    known: Mutex<HashMap<Config, Weak<Client>>>,
}

impl Clients {
    /// No clients yet. Connections live in `tasks`.
    pub fn new(dial: Arc<dyn Dial>, credentials: Credentials, tasks: Tasks) -> Self {
        Self { dial, credentials, tasks, known: Mutex::default() }
    }

    /// The client for a configuration.
    ///
    /// # Errors
    /// That the certificates or credentials cannot be used.
    pub fn client(&self, config: &Config) -> Result<Arc<Client>, ConfigurationError> {
        let mut known = self.known.lock();
        if let Some(client) = known.get(config).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let client = Arc::new(self.make(config)?);
        known.retain(|_, client| client.strong_count() > 0);
        known.insert(config.clone(), Arc::downgrade(&client));
        Ok(client)
    }

    fn make(&self, config: &Config) -> Result<Client, ConfigurationError> {
        let credential = self.credentials.of(&config.address.target());
        Client::new(config, &credential, Arc::clone(&self.dial), &self.tasks, AGENT)
    }
}

/// The client of one webhook.
#[derive(Debug)]
pub struct Client {
    url: String,
    authorization: Option<HeaderValue>,
    agent: &'static str,
    http: hyper_util::client::legacy::Client<Connector, Full<Bytes>>,
    calls: Semaphore,
}

impl Client {
    /// A client that shares its connections with nobody. They live in `tasks`.
    ///
    /// # Errors
    /// That the certificates or credentials cannot be used.
    pub fn new(
        config: &Config,
        credential: &Credential,
        dial: Arc<dyn Dial>,
        tasks: &Tasks,
        agent: &'static str,
    ) -> Result<Self, ConfigurationError> {
        let address = &config.address;
        let tls = tls::connector(config, credential)?;
        let http = hyper_util::client::legacy::Client::builder(Spawner(tasks.clone()))
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(Connector::new(address.clone(), dial, tls));
        let calls = Semaphore::new(CALLS_MAX);
        Ok(Self { url: address.url(), authorization: credential.authorization()?, agent, http, calls })
    }

    /// Posts a JSON document and answers what comes back with a good status. The other end is told how long it has.
    ///
    /// # Errors
    /// That it could not be reached, did not answer in time, too much, or with another status.
    pub async fn post(&self, body: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        self.post_for(body, deadline, ANSWER_BYTES_MAX).await
    }

    /// The same for an answer that may be as long as that.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn post_for(
        &self,
        body: Bytes,
        deadline: Instant,
        answer_bytes_max: usize,
    ) -> Result<Bytes, CallError> {
        let answered = self.call(body, deadline, answer_bytes_max).await?;
        match answered.body.is_empty() {
            true => Err(CallError::Empty { code: answered.code, content_type: answered.content_type }),
            false => Ok(answered.body),
        }
    }

    /// Posts a JSON document to somebody who need not answer anything but a good status.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn deliver(&self, body: Bytes, deadline: Instant) -> Result<(), CallError> {
        self.call(body, deadline, ANSWER_BYTES_MAX).await.map(drop)
    }

    async fn call(
        &self,
        body: Bytes,
        deadline: Instant,
        answer_bytes_max: usize,
    ) -> Result<Answered, CallError> {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now).min(CALL_MAX);
        let url = match left.is_zero() {
            true => self.url.clone(),
            false => format!("{}?timeout={}s", self.url, left.as_millis().div_ceil(1000)),
        };
        let exchanged =
            tokio::time::timeout_at(now + left, self.exchange(&url, body, answer_bytes_max)).await;
        exchanged.unwrap_or_else(|_| Err(CallError::Timeout { url }))
    }

    async fn exchange(&self, url: &str, body: Bytes, answer_bytes_max: usize) -> Result<Answered, CallError> {
        let _call = self.calls.acquire().await.map_err(|_| CallError::Stopping { url: url.to_owned() })?;
        let mut request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, self.agent)
            .body(Full::new(body))
            .map_err(|source| CallError::Request { url: url.to_owned(), source })?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let response = self.http.request(request).await;
        let response = response.map_err(|error| CallError::of_connection(url, error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, answer_bytes_max).collect().await.map_err(|error| {
            match error.downcast_ref::<http_body_util::LengthLimitError>() {
                Some(_) => CallError::Length { url: url.to_owned(), bytes_max: answer_bytes_max },
                None => CallError::of_connection(url, error),
            }
        })?;
        check(&parts, body.to_bytes())
    }
}

/// A good answer.
struct Answered {
    code: u16,
    content_type: String,
    body: Bytes,
}

fn check(parts: &http::response::Parts, body: Bytes) -> Result<Answered, CallError> {
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let code = parts.status.as_u16();
    if !(200..=206).contains(&code) {
        let may_be_asked_again = parts.headers.contains_key(RETRY_AFTER);
        return Err(CallError::of_status(code, may_be_asked_again, content_type, &body));
    }
    Ok(Answered { code, content_type: content_type.to_owned(), body })
}

#[cfg(test)]
mod tests;
