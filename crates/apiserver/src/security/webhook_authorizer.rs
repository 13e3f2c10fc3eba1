//! An authorization webhook: asks, keeps what is answered for a while, and knows what to say when nothing is.
//!
//! Source: `k8s.io/apiserver/plugin/pkg/authorizer/webhook`.

use std::sync::Arc;
use std::time::Duration;

use auth::{Attributes, Decision, UserInfo};
use base::Random;
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::warn;

use super::access_review::{self, Status};
use super::answer_cache::{AnswerCache, Key};
use super::authorization_metrics::{AuthorizationMetrics, CallResult};
use super::verdict::Verdict;
use crate::authorization_config::{FailurePolicy, Webhook};
use crate::webhook_client::retry::{Retries, Retry};
use crate::webhook_client::{CallError, Client};

/// How many answers are kept. Source: `cache.NewLRUExpireCache` in `newWithBackoff`.
const ANSWERS_MAX: usize = 8192;

/// One webhook.
pub(super) struct WebhookAuthorizer {
    config: Webhook,
    client: Arc<Client>,
    answers: AnswerCache<Status>,
    metrics: Arc<AuthorizationMetrics>,
    random: Random,
}

impl WebhookAuthorizer {
    /// Asks through a client.
    pub(super) fn new(
        config: &Webhook,
        client: Arc<Client>,
        metrics: Arc<AuthorizationMetrics>,
        random: Random,
    ) -> Self {
        Self { config: config.clone(), client, answers: AnswerCache::new(ANSWERS_MAX), metrics, random }
    }

    /// What it says, or is taken to say.
    pub(super) async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Verdict {
        let spec = access_review::spec(user, attributes);
        if let Some(excluded) = self.excluded(&spec) {
            return excluded;
        }
        let key = key(&Value::Object(spec.clone()));
        if let Some(known) = self.answers.get(&key, Instant::now()) {
            return verdict(known);
        }
        let body = Bytes::from(access_review::request(self.config.version, &spec).to_string());
        let status = match self.ask(body).await {
            Ok(status) => status,
            Err((failure, result)) => return self.unanswered(&failure, result),
        };
        let kept_for = if status.allowed { self.config.authorized_ttl } else { self.config.unauthorized_ttl };
        if !kept_for.is_zero() && access_review::is_kept(attributes) {
            self.answers.put(key, status.clone(), Instant::now() + kept_for);
        }
        verdict(status)
    }

    /// The verdict, if the conditions do not let the webhook be asked.
    fn excluded(&self, spec: &Map<String, Value>) -> Option<Verdict> {
        let Webhook { name, match_conditions, .. } = &self.config;
        if match_conditions.is_empty() {
            return None;
        }
        let begun = Instant::now();
        let matched = match_conditions.matches(spec);
        self.metrics.matched(name, begun.elapsed(), matched.as_ref().ok().copied());
        match matched {
            Ok(true) => None,
            Ok(false) => Some(Decision::NoOpinion(String::new()).into()),
            Err(why) => {
                warn!(
                    webhook = name,
                    %why, "match conditions of an authorization webhook cannot be evaluated"
                );
                let decision = match self.config.failure_policy {
                    FailurePolicy::Deny => Decision::Deny(String::new()),
                    FailurePolicy::NoOpinion => Decision::NoOpinion(String::new()),
                };
                Some(Verdict { decision, error: Some(why.to_string()) })
            }
        }
    }

    async fn ask(&self, body: Bytes) -> Result<Status, (CallError, CallResult)> {
        let mut retries = Retries::new(Retry::Transient, Duration::from_millis(500));
        loop {
            let call = Call::begin(self);
            let answer = self.client.post(body.clone(), Instant::now() + self.config.timeout).await;
            let answer = answer.and_then(|answer| {
                access_review::status(self.config.version, &answer).map_err(CallError::unreadable)
            });
            let result = match &answer {
                Ok(_) => CallResult::Success,
                Err(failure) if failure.is_timeout() => CallResult::Timeout,
                Err(_) => CallResult::Error,
            };
            call.end(result);
            match answer {
                Ok(status) => return Ok(status),
                Err(failure) => match retries.next(&failure, &self.random) {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => return Err((failure, result)),
                },
            }
        }
    }

    /// What is taken for its answer. Where it is stays in the log.
    fn unanswered(&self, failure: &CallError, result: CallResult) -> Verdict {
        let name = &self.config.name;
        warn!(webhook = name, %failure, "an authorization webhook could not be asked");
        let decision = match self.config.failure_policy {
            FailurePolicy::Deny => Decision::Deny(String::new()),
            FailurePolicy::NoOpinion => {
                self.metrics.failed_open(name, result);
                Decision::NoOpinion(String::new())
            }
        };
        let error = format!("authorization webhook {name:?} could not be asked");
        Verdict { decision, error: Some(error) }
    }
}

fn verdict(status: Status) -> Verdict {
    match (status.allowed, status.denied) {
        (true, true) => Verdict {
            decision: Decision::Deny(status.reason),
            error: Some("webhook subject access review returned both allow and deny response".to_owned()),
        },
        (false, true) => Decision::Deny(status.reason).into(),
        (true, false) => Decision::Allow(status.reason).into(),
        (false, false) => Decision::NoOpinion(status.reason).into(),
    }
}

fn key(spec: &Value) -> Key {
    let mut key = Key::default();
    let found = digest(&SHA256, spec.to_string().as_bytes());
    key.iter_mut().zip(found.as_ref()).for_each(|(to, from)| *to = *from);
    key
}

/// A call under way: it is counted also when nobody waits for it any more.
struct Call<'a> {
    webhook: &'a WebhookAuthorizer,
    begun: Instant,
    result: CallResult,
}

impl<'a> Call<'a> {
    fn begin(webhook: &'a WebhookAuthorizer) -> Self {
        Self { webhook, begun: Instant::now(), result: CallResult::Canceled }
    }

    fn end(mut self, result: CallResult) {
        self.result = result;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let webhook = self.webhook;
        webhook.metrics.called(&webhook.config.name, self.result, self.begun.elapsed());
    }
}
