//! The common part of asking webhooks, whether they may change anything or not.

use std::time::Duration;

use base::Random;
use serde_json::Value;
use tokio::time::Instant;

use super::attributes::{Attributes, Form};
use super::client::CallError;
use super::conditions::Input;
use super::hooks::{FailurePolicy, Hook};
use super::metrics::{About, Refusal, WebhookMetrics};
use super::review::{self, AnswerError, Duty, Shown, Verdict};
use crate::notes::Notes;
use crate::status::{Error, Result};

/// The environment of a round of asking.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Warnings and annotations of the request.
    pub notes: &'a Notes,
    /// Counts.
    pub metrics: &'a WebhookMetrics,
    /// Chance, for uids.
    pub random: &'a Random,
    /// The deadline of the request.
    pub deadline: Instant,
}

impl Environment<'_> {
    /// The check that there is time left for anything.
    ///
    /// # Errors
    /// 504 if there is not.
    pub fn check_time(&self) -> Result<()> {
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(Error::timeout("request did not complete within requested timeout")),
        }
    }
}

/// The reason why a webhook could not be asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Calling {
    why: String,
    code: u16,
}

impl Calling {
    /// For a reason that nobody counts apart.
    pub fn other(why: String) -> Self {
        Self { why, code: 503 }
    }
}

/// The reason why a request does not go on, as far as one webhook is concerned.
#[derive(Debug)]
pub enum Failure {
    /// It could not be asked: the failure policy decides.
    Calling(Calling),
    /// It refuses.
    Refused(Error),
    /// What it wants cannot be done.
    Internal(Error),
}

impl Failure {
    /// The error that the client is told.
    pub fn into_error(self, hook: &Hook) -> Error {
        match self {
            Self::Calling(failure) => {
                tracing::warn!(webhook = hook.name, %failure, "a webhook could not be asked: the request is refused");
                Error::internal(format!("failed calling webhook {:?}: {failure}", hook.name))
            }
            Self::Refused(error) | Self::Internal(error) => error,
        }
    }
}

/// A call of one webhook about one request.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The environment of the round.
    pub environment: &'a Environment<'a>,
    /// The webhook.
    pub hook: &'a Hook,
    /// Its duty.
    pub duty: Duty,
    /// The request.
    pub attributes: &'a Attributes<'a>,
    /// The version in which the webhook wants to see objects.
    pub form: &'a Form,
}

impl Call<'_> {
    /// Asks, and passes on to client and audit log what the webhook says beside its verdict.
    ///
    /// # Errors
    /// As [`Failure`].
    pub async fn ask(&self, shown: Shown<'_>) -> Result<Verdict, Failure> {
        let Self { environment, hook, duty, attributes, form } = *self;
        if attributes.is_dry_run && !hook.takes_dry_run {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Failure::Internal(Error::bad_request(why)));
        }
        let calling = |code: u16, why: String| Failure::Calling(Calling { why, code });
        let uncreated = |why: &str| calling(400, format!("could not create admission objects: {why}"));
        let version = hook.review.ok_or_else(|| {
            uncreated("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
        })?;
        let uid = environment.random.uuid();
        let body = review::request(version, &uid, attributes, form, shown)
            .map_err(|failure| uncreated(&failure.to_string()))?;
        let client = hook.client.as_ref();
        let client = client
            .map_err(|why| calling(500, format!("could not get REST client: {}", base::error_chain(why))))?;
        let deadline = environment.deadline.min(Instant::now() + hook.timeout);
        let failed =
            |failure: CallError| calling(failure.code(), format!("failed to call webhook: {failure}"));
        let answer = client.post(body, deadline).await.map_err(failed)?;
        let verdict = review::verdict(version, &uid, duty, &answer).map_err(|failure| match failure {
            AnswerError::Unreadable(why) => failed(CallError::unreadable(why)),
            AnswerError::Invalid(why) => calling(503, format!("received invalid webhook response: {why}")),
        })?;
        self.tell(&verdict);
        if !verdict.is_allowed {
            return Err(Failure::Refused(review::refusal(&hook.name, verdict.status)));
        }
        Ok(verdict)
    }

    fn tell(&self, verdict: &Verdict) {
        let Self { environment, hook, .. } = self;
        for (key, value) in &verdict.annotations {
            let key = format!("{}/{key}", hook.name);
            if review::is_annotation_key(&key) {
                environment.notes.annotate(&key, value);
            } else {
                tracing::warn!(webhook = hook.name, key, "an audit annotation has no valid key");
            }
        }
        environment.notes.warn_all(verdict.warnings.iter().cloned());
    }

    /// The decision whether the webhook's conditions let it be asked.
    ///
    /// # Errors
    /// 403 if they cannot be evaluated and the webhook's failures count.
    pub async fn meets_conditions(&self, object: Option<&Value>) -> Result<bool> {
        let Self { environment, hook, attributes, form, .. } = *self;
        let Some(conditions) = &hook.conditions else { return Ok(true) };
        let shown = attributes.shown_if_any(object, form).await?;
        let old = attributes.shown_if_any(attributes.old, form).await?;
        let input = Input { attributes, form, object: shown.as_ref(), old: old.as_ref() };
        match conditions.evaluate(input).await {
            Ok(true) => Ok(true),
            Ok(false) => {
                environment.metrics.excluded(self.about());
                Ok(false)
            }
            Err(errors) => {
                environment.metrics.condition_failed(self.about());
                match hook.failure_policy {
                    FailurePolicy::Ignore => Ok(false),
                    FailurePolicy::Fail => {
                        let why = match errors.as_slice() {
                            [one] => one.clone(),
                            many => format!("[{}]", many.join(", ")),
                        };
                        Err(Error::forbidden(attributes.kind.subject(), attributes.name, &why))
                    }
                }
            }
        }
    }

    /// Counts what came of asking.
    pub fn count<T>(&self, took: Duration, outcome: &Result<T, Failure>) {
        let (metrics, hook, about) = (self.environment.metrics, self.hook, self.about());
        let (code, is_rejected) = match outcome {
            Ok(_) => (200, false),
            Err(Failure::Calling(failure)) => {
                let is_rejected = hook.failure_policy == FailurePolicy::Fail;
                if is_rejected {
                    metrics.rejected(about, Refusal::Calling, failure.code);
                }
                (failure.code, is_rejected)
            }
            Err(Failure::Refused(error)) => {
                metrics.rejected(about, Refusal::ByWebhook, error.code.as_u16());
                (error.code.as_u16(), true)
            }
            Err(Failure::Internal(_)) => {
                metrics.rejected(about, Refusal::Internal, 0);
                (0, true)
            }
        };
        metrics.asked(about, took, (code, is_rejected));
    }

    /// The webhook and the request, as metrics name them.
    pub fn about(&self) -> About<'_> {
        let step = match self.duty {
            Duty::Mutating => "admit",
            Duty::Validating => "validating",
        };
        About { name: &self.hook.name, step, operation: self.attributes.operation.as_str() }
    }
}
