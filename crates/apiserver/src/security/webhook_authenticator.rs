//! A token webhook: asks who somebody is whom nothing here knows, once for all who ask at the same time, and keeps what is
//! answered for a while.
//!
//! Tokens are not kept: what answers are found by is a digest under a key of this process alone. Failures are not kept.
//! Source: `k8s.io/apiserver/plugin/pkg/authenticator/token/webhook`, `pkg/authentication/token/cache`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::metrics::Metrics as Registry;
use base::{Random, Tasks};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::time::Instant;
use tracing::warn;

use super::answer_cache::{AnswerCache, Key};
use super::token_review::{self, Known};
use crate::authentication_config::TokenWebhook;
use crate::configuration_error::ConfigurationError;
use crate::webhook_client::retry::{Retries, Retry};
use crate::webhook_client::{CALL_MAX, CallError, Client};

/// How many answers are kept. Source: 32 stripes of `newSimpleCache`.
const ANSWERS_MAX: usize = 32 * 1024;
/// How long everybody waits for one question, retries included. Source: `sharedLookupTimeout`.
const QUESTION_MAX: Duration = Duration::from_secs(30);
/// How many questions are kept in mind before those that nobody waits for any more are looked for.
const QUESTIONS_MAX: usize = 1024;

type Answer = Result<Option<Arc<Known>>, Arc<str>>;
type Question = Shared<BoxFuture<'static, Answer>>;

/// The webhook.
pub(super) struct WebhookAuthenticator(Arc<Inner>);

struct Inner {
    config: TokenWebhook,
    client: Arc<Client>,
    answers: AnswerCache<Option<Arc<Known>>>,
    questions: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, Answer>>>>,
    key: hmac::Key,
    metrics: Arc<TokenMetrics>,
    random: Random,
}

impl WebhookAuthenticator {
    /// Nobody has been asked for yet.
    ///
    /// # Errors
    /// That there is no client, or no chance.
    pub(super) fn new(
        config: TokenWebhook,
        tasks: &Tasks,
        random: Random,
        registry: &Registry,
    ) -> Result<Self, ConfigurationError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Self(Arc::new(Inner {
            client: config.target.client(tasks)?,
            config,
            answers: AnswerCache::new(ANSWERS_MAX),
            questions: Mutex::default(),
            key: key.map_err(|_| ConfigurationError::unusable("there are no random numbers"))?,
            metrics: registry.part(TokenMetrics::new),
            random,
        })))
    }

    /// Whom the webhook knows by a token for these audiences; `None` if nobody.
    ///
    /// # Errors
    /// That it could not be asked, for the log.
    pub(super) async fn known(&self, token: &str, audiences: &[String]) -> Answer {
        let (inner, begun) = (&self.0, Instant::now());
        let key = inner.key_of(token, audiences);
        if let Some(answer) = inner.answers.get(&key, begun) {
            inner.metrics.asked("hit", begun.elapsed());
            return Ok(answer);
        }
        let question = inner.question(key, || {
            let (inner, token, audiences) = (Arc::clone(inner), token.to_owned(), audiences.to_vec());
            async move { inner.ask(key, &token, &audiences).await }.boxed()
        });
        let answer = question.await;
        inner.metrics.asked("miss", begun.elapsed());
        answer
    }
}

impl Inner {
    /// The question that somebody is waiting for already, or a new one.
    fn question(&self, key: Key, ask: impl FnOnce() -> BoxFuture<'static, Answer>) -> Question {
        let mut questions = self.questions.lock();
        if let Some(question) = questions.get(&key).and_then(WeakShared::upgrade) {
            return question;
        }
        if questions.len() >= QUESTIONS_MAX {
            questions.retain(|_, question| question.upgrade().is_some());
        }
        let question = ask().shared();
        questions.extend(question.downgrade().map(|weak| (key, weak)));
        question
    }

    async fn ask(&self, key: Key, token: &str, audiences: &[String]) -> Answer {
        let asked = tokio::time::timeout(QUESTION_MAX, self.exchange(token, audiences)).await;
        self.questions.lock().remove(&key);
        let failed = |why: String| {
            warn!(%why, "the token webhook could not be asked");
            self.metrics.fetched("error");
            Err(Arc::from(why))
        };
        let found = match asked {
            Ok(Ok(found)) => found.map(Arc::new),
            Ok(Err(failure)) => return failed(failure.to_string()),
            Err(_) => return failed("it does not answer in time".to_owned()),
        };
        self.metrics.fetched("ok");
        if !self.config.cache_ttl.is_zero() {
            self.answers.put(key, found.clone(), Instant::now() + self.config.cache_ttl);
        }
        Ok(found)
    }

    async fn exchange(&self, token: &str, audiences: &[String]) -> Result<Option<Known>, CallError> {
        let version = self.config.version;
        let body = Bytes::from(token_review::request(version, token, audiences).to_string());
        let mut retries = Retries::new(Retry::Transient, Duration::from_millis(500));
        loop {
            let answer = self.client.post(body.clone(), Instant::now() + CALL_MAX).await;
            let known = answer
                .and_then(|answer| token_review::known(version, &answer).map_err(CallError::unreadable));
            match known {
                Ok(known) => return Ok(known),
                Err(failure) => match retries.next(&failure, &self.random) {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => return Err(failure),
                },
            }
        }
    }

    /// Lengths stand before texts, so that no two questions look the same.
    fn key_of(&self, token: &str, audiences: &[String]) -> Key {
        let mut context = hmac::Context::with_key(&self.key);
        let mut add = |text: &str| {
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        };
        add(token);
        audiences.iter().for_each(|audience| add(audience));
        let mut key = Key::default();
        key.iter_mut().zip(context.sign().as_ref()).for_each(|(to, from)| *to = *from);
        key
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

/// `authentication_token_cache_*`.
struct TokenMetrics {
    requests: Family<StatusLabels, Counter>,
    durations: Family<StatusLabels, Histogram, fn() -> Histogram>,
    fetches: Family<StatusLabels, Counter>,
}

impl TokenMetrics {
    fn new(registry: &Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
            }),
            fetches: Family::default(),
        };
        let name = |rest: &str| format!("authentication_token_cache_{rest}");
        registry.register(&name("request"), "Tokens that the webhook is for", &metrics.requests);
        registry.register(&name("request_duration_seconds"), "How long they take", &metrics.durations);
        registry.register(&name("fetch"), "Questions to the token webhook", &metrics.fetches);
        metrics
    }

    fn asked(&self, status: &'static str, took: Duration) {
        self.requests.get_or_create(&StatusLabels { status }).inc();
        self.durations.get_or_create(&StatusLabels { status }).observe(took.as_secs_f64());
    }

    fn fetched(&self, status: &'static str) {
        self.fetches.get_or_create(&StatusLabels { status }).inc();
    }
}
