//! The audit log: who did what, by upstream's policy.
//!
//! A request that the policy does not care about costs a walk over its rules; without a policy it costs nothing.
//! Events are made on the way out and written elsewhere; when the disk does not keep up, they are dropped and counted.
//! Source: `audit.k8s.io/v1`.

pub mod log;
mod metrics;
pub mod policy;
pub mod webhook;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use auth::UserInfo;
use base::metrics::Metrics as Registry;
use base::{Clock, Random, Tasks};
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use machinery::metadata;
use serde_json::{Value, json};
use tracing::warn;

use crate::body::{self, Body};
use crate::formats;
use crate::negotiate::{Format, content_format};
use crate::notes::{Detail, Notes};
use crate::request_info::RequestInfo;
use crate::request_info::cut;
use crate::status::{Error, Result};
pub use log::LogFile;
use metrics::AuditMetrics;
use policy::{Level, Policy, Stage, Verdict};
use webhook::{NotSent, Webhook};

const AUDIT_ID: &str = "audit-id";
/// So many addresses are taken from what a request says it came through; where it did come from is told besides.
const SOURCES_MAX: usize = 32;
/// What is longer is cut, and ends with the suffix. Source: `maxUserAgentLength`.
const USER_AGENT_BYTES_MAX: usize = 1024;
const CUT_SUFFIX: &str = "...TRUNCATED";

/// The policy and the destinations of the audit log.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy.
    pub policy: Policy,
    /// The file.
    pub log: LogFile,
    /// The webhook.
    pub webhook: Option<webhook::Config>,
}

/// The log of a server.
pub struct Audit {
    policy: Policy,
    lines: log::Lines,
    webhook: Option<Webhook>,
    metrics: Arc<AuditMetrics>,
    clock: Clock,
    random: Random,
    dropped: AtomicU64,
}

/// The record of a request under way, for the log.
pub struct Trail {
    audit: Arc<Audit>,
    verdict: Verdict,
    event: Value,
    is_watch: bool,
    /// Why nobody knows who sent it.
    failure: Option<String>,
}

impl Audit {
    /// Opens the log.
    ///
    /// # Errors
    /// If its file cannot be opened, or the webhook's certificates cannot be used.
    pub fn start(
        config: Config,
        tasks: &Tasks,
        registry: &Registry,
        clock: Clock,
        random: Random,
    ) -> std::io::Result<Self> {
        let metrics = registry.part(AuditMetrics::new);
        let lines = log::start(config.log, tasks, clock.clone())?;
        let webhook = config
            .webhook
            .map(|webhook| Webhook::start(webhook, &metrics, tasks, clock.clone(), random.clone()));
        let webhook = webhook.transpose().map_err(std::io::Error::other)?;
        let policy = config.policy;
        Ok(Self { policy, lines, webhook, metrics, clock, random, dropped: AtomicU64::new(0) })
    }

    /// Begins to follow a request, if the policy wants it; `acting_as` is whom `user` impersonates.
    ///
    /// # Errors
    /// 500 if its first event cannot be stored and that is asked for.
    pub async fn begin(
        self: &Arc<Self>,
        user: &UserInfo,
        acting_as: Option<&UserInfo>,
        info: &RequestInfo,
        headers: &HeaderMap,
        address: Option<SocketAddr>,
    ) -> Result<Option<Trail>> {
        let Some(trail) = self.follow(user, acting_as, info, headers, address) else { return Ok(None) };
        let sent = trail.send(Stage::RequestReceived, trail.event.clone()).await;
        if sent.is_err() && self.webhook.as_ref().is_some_and(Webhook::is_strict) {
            self.metrics.rejected();
            return Err(Error::internal("failed to store audit event"));
        }
        Ok(Some(trail))
    }

    fn follow(
        self: &Arc<Self>,
        user: &UserInfo,
        acting_as: Option<&UserInfo>,
        info: &RequestInfo,
        headers: &HeaderMap,
        address: Option<SocketAddr>,
    ) -> Option<Trail> {
        let verdict = self.policy.judge(user, info);
        self.metrics.judged(verdict.level);
        if verdict.level == Level::None {
            return None;
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let id = match text(AUDIT_ID) {
            "" => self.random.uuid(),
            given => given.chars().take(64).collect(),
        };
        let uri = if info.raw_query.is_empty() {
            info.path.clone()
        } else {
            format!("{}?{}", info.path, info.raw_query)
        };
        let verb = info.resource.as_ref().map_or_else(
            || info.method.as_str().to_ascii_lowercase(),
            |resource| resource.verb.as_str().to_owned(),
        );
        let mut event = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": verdict.level.as_str(),
            "auditID": id,
            "stage": "",
            "requestURI": uri,
            "verb": verb,
            "user": user_info(user),
            "sourceIPs": sources(headers, address),
            "userAgent": user_agent(text("user-agent")),
            "requestReceivedTimestamp": metadata::micro_time(self.clock.now()),
        });
        if let Some(target) = acting_as {
            event["impersonatedUser"] = user_info(target);
        }
        if let Some(resource) = &info.resource {
            let parts = [
                ("resource", &resource.resource),
                ("namespace", &resource.namespace),
                ("name", &resource.name),
                ("apiGroup", &resource.group),
                ("apiVersion", &resource.version),
                ("subresource", &resource.subresource),
            ];
            let given = parts.into_iter().filter(|(_, value)| !value.is_empty());
            event["objectRef"] =
                given.map(|(name, value)| (name.to_owned(), Value::from(value.as_str()))).collect();
        }
        let is_watch = info.resource.as_ref().is_some_and(|r| r.verb == crate::request_info::Verb::Watch);
        Some(Trail { audit: Arc::clone(self), verdict, event, is_watch, failure: None })
    }

    /// Begins to follow a request whose sender nobody knows. Source: `WithFailedAuthenticationAudit`.
    pub fn begin_unknown(
        self: &Arc<Self>,
        info: &RequestInfo,
        headers: &HeaderMap,
        address: Option<SocketAddr>,
        is_certified: bool,
    ) -> Option<Trail> {
        let mut trail = self.follow(&UserInfo::default(), None, info, headers, address)?;
        trail.event["user"] = json!({});
        trail.failure = Some(attempts(headers, is_certified));
        Some(trail)
    }

    async fn write(&self, event: &Value, level: Level) -> std::result::Result<(), NotSent> {
        self.metrics.made();
        if !self.lines.send(event.to_string()) {
            self.metrics.failed("log", 1);
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                warn!(dropped, "the audit log cannot keep up: events are dropped");
            }
        }
        match &self.webhook {
            Some(webhook) => webhook.take(event, level).await,
            None => Ok(()),
        }
    }
}

/// A user agent, at its bounded length.
fn user_agent(given: &str) -> String {
    match cut(given, USER_AGENT_BYTES_MAX) {
        short if short.len() == given.len() => given.to_owned(),
        start => format!("{start}{CUT_SUFFIX}"),
    }
}

/// What a response says, whatever it is written in: the log is JSON.
fn object_of(headers: &HeaderMap, bytes: &[u8]) -> Option<Value> {
    match content_format(headers).ok()? {
        // Ours, and however long.
        Format::Json => serde_json::from_slice(bytes).ok(),
        format => formats::decode(format, bytes).ok(),
    }
}

/// The name in an object's metadata; of JSON nothing else is read.
fn sent_name(headers: &HeaderMap, body: &Bytes) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Object {
        metadata: Named,
    }
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    match content_format(headers).ok()? {
        Format::Json => serde_json::from_slice(body).ok().map(|object: Object| object.metadata.name),
        format => {
            let object = formats::decode(format, body).ok()?;
            Some(metadata::Metadata::of(&object).name().to_owned())
        }
    }
}

/// How somebody tried to say who they are. Source: `getAuthMethods`.
fn attempts(headers: &HeaderMap, is_certified: bool) -> String {
    let authorization =
        headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let scheme = authorization.trim().split_once(' ').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let named = scheme.filter(|scheme| matches!(scheme.as_str(), "basic" | "bearer"));
    let all: Vec<String> = named.into_iter().chain(is_certified.then(|| "x509".to_owned())).collect();
    if all.is_empty() {
        return "Authentication failed, no credentials provided".to_owned();
    }
    format!("Authentication failed, attempted: {}", all.join(", "))
}

/// Whom a request came through, as `X-Forwarded-For` and `X-Real-Ip` say, then from whom. Source: `utilnet.SourceIPs`.
fn sources(headers: &HeaderMap, address: Option<SocketAddr>) -> Vec<IpAddr> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parse = |text: &str| text.trim().parse().ok().map(|ip: IpAddr| ip.to_canonical());
    let said = text("x-forwarded-for").split(',').filter_map(parse);
    let mut all: Vec<IpAddr> = said.take(SOURCES_MAX).collect();
    if let Some(ip) = parse(text("x-real-ip")).filter(|ip| !all.contains(ip)) {
        all.push(ip);
    }
    if let Some(ip) = address.map(|address| address.ip().to_canonical()).filter(|ip| all.last() != Some(ip)) {
        all.push(ip);
    }
    all
}

impl Trail {
    /// The id that the response carries.
    pub fn id(&self) -> &str {
        self.event.get("auditID").and_then(Value::as_str).unwrap_or_default()
    }

    /// Takes note of what was sent: of a new object its name, which the path does not have, and all of it if the policy
    /// wants that. Source: `LogRequestObject`.
    pub fn request(&mut self, headers: &HeaderMap, body: &Bytes) {
        let is_new = self.event["verb"] == "create";
        let nameless = self.event.get_mut("objectRef").filter(|of| is_new && of.get("name").is_none());
        if let Some(of) = nameless
            && let Some(name) = sent_name(headers, body).filter(|name| !name.is_empty())
        {
            of["name"] = name.into();
        }
        if self.verdict.level >= Level::Request
            && !body.is_empty()
            && let Ok(format) = content_format(headers)
            && let Ok(object) = formats::decode(format, body)
        {
            self.event["requestObject"] = self.shown(object);
        }
    }

    /// Says how it ended. The body is read only if the policy wants it, and never that of a stream.
    pub async fn finish(mut self, response: Response<Body>, notes: &Notes, now: Timestamp) -> Response<Body> {
        let code = response.status();
        let mut status = json!({"metadata": {}, "code": code.as_u16()});
        let wants_body =
            self.verdict.level == Level::RequestResponse || code.is_client_error() || code.is_server_error();
        let is_whole = body::finish::size(&response).is_some();
        let response = if wants_body && is_whole && !self.is_watch {
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            if let Some(object) = object_of(&parts.headers, &bytes) {
                for field in ["status", "message", "reason", "details"] {
                    if let Some(value) = object.get(field).filter(|_| !code.is_success()) {
                        status[field] = value.clone();
                    }
                }
                if self.verdict.level == Level::RequestResponse {
                    self.event["responseObject"] = self.shown(object);
                }
            }
            Response::from_parts(parts, body::full(bytes))
        } else {
            response
        };
        if let Some(failure) = &self.failure {
            status["message"] = failure.as_str().into();
        }
        self.event["responseStatus"] = status;
        let is_whole = self.verdict.level >= Level::Request;
        let detail = if is_whole { Detail::Request } else { Detail::Metadata };
        let annotations: BTreeMap<String, String> = notes.annotations(detail);
        if !annotations.is_empty() {
            self.event["annotations"] = json!(annotations);
        }
        self.event["stageTimestamp"] = metadata::micro_time(now).into();
        let is_first = self.is_watch || self.failure.is_some();
        let stage = if is_first { Stage::ResponseStarted } else { Stage::ResponseComplete };
        let event = self.event.take();
        // What was done is done, whether the webhook knows of it or not.
        self.send(stage, event).await.ok();
        response
    }

    fn shown(&self, mut object: Value) -> Value {
        if self.verdict.omit_managed_fields {
            metadata::remove(&mut object, "managedFields");
            for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
                metadata::remove(item, "managedFields");
            }
        }
        object
    }

    async fn send(&self, stage: Stage, mut event: Value) -> std::result::Result<(), NotSent> {
        if self.verdict.omit_stages.contains(&stage) {
            return Ok(());
        }
        event["stage"] = stage.as_str().into();
        if event.get("stageTimestamp").is_none() {
            event["stageTimestamp"] = metadata::micro_time(self.audit.clock.now()).into();
        }
        self.audit.write(&event, self.verdict.level).await
    }
}

/// A user as the API shows it.
pub fn user_info(user: &UserInfo) -> Value {
    let mut value = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        value["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_has_a_length() {
        for (given, expect) in
            [(0, 0), (1024, 1024), (1025, 1024 + CUT_SUFFIX.len()), (300_000, 1024 + CUT_SUFFIX.len())]
        {
            let found = user_agent(&"a".repeat(given));
            assert_eq!(found.len(), expect, "{given}");
            assert_eq!(found.ends_with(CUT_SUFFIX), given > 1024, "{given}");
        }
    }

    #[test]
    fn a_request_comes_from_whom_it_says_and_last_from_where_it_came() {
        let check = |headers: &[(&'static str, &str)], expect: &[&str]| {
            let headers = headers.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
            });
            let found = sources(&headers.collect(), Some("192.0.2.9:40000".parse().unwrap()));
            assert_eq!(found.iter().map(IpAddr::to_string).collect::<Vec<_>>(), expect);
        };
        check(&[], &["192.0.2.9"]);
        check(&[("x-forwarded-for", "192.0.2.1, x, 192.0.2.2")], &["192.0.2.1", "192.0.2.2", "192.0.2.9"]);
        check(&[("x-forwarded-for", "192.0.2.9")], &["192.0.2.9"]);
        check(&[("x-real-ip", "::ffff:192.0.2.3")], &["192.0.2.3", "192.0.2.9"]);
        let both = [("x-forwarded-for", "192.0.2.3,192.0.2.4"), ("x-real-ip", "192.0.2.3")];
        check(&both, &["192.0.2.3", "192.0.2.4", "192.0.2.9"]);
        let many = vec!["192.0.2.1"; 10_000].join(",");
        let expect = [vec!["192.0.2.1"; SOURCES_MAX], vec!["192.0.2.9"]].concat();
        check(&[("x-forwarded-for", &many)], &expect);
    }
}
