//! Has requests pass validating policies: refuses, warns and annotates as their bindings say.
//!
//! Source: `plugin/policy/validating/dispatcher.go`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::invocations::{Invocation, Misconfigured, invocations};
use super::is_exempt;
use super::metrics::{Enforcement, ErrorType, ValidationMetrics};
use super::policy::{Action, Hook};
use super::validation::{self, Decision, Outcome, Reason, Told, Validations, Verdict};
use super::view::{self, Beside, View};
use crate::expression_authorizer::ExpressionAuthorizer;
use crate::notes::Notes;
use crate::security::Security;
use crate::status::{Error, Result};
use crate::webhooks::attributes::Attributes;
use crate::webhooks::metrics::WebhookMetrics;

const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
/// Bytes of an annotation of one binding.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// The environment that policies are carried out with.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Warnings and annotations of the request.
    pub notes: &'a Notes,
    /// Counts.
    pub metrics: &'a ValidationMetrics,
    /// Counts that webhooks have, too.
    pub webhooks: &'a WebhookMetrics,
    /// The authorizers that are asked what somebody may do.
    pub security: &'a Arc<Security>,
    /// The deadline of the request.
    pub deadline: Instant,
}

/// Has a request pass all policies that it concerns.
///
/// # Errors
/// What the first policy says that refuses it; 404 if its namespace is not there; 504 if there is no time left.
pub async fn validate(
    environment: &Environment<'_>,
    hooks: &[Hook<Validations>],
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<()> {
    if is_exempt(attributes) {
        return Ok(());
    }
    let mut found = invocations(hooks, attributes, object);
    if found.is_empty() {
        return Ok(());
    }
    let authorizer = ExpressionAuthorizer::new(environment.security, attributes.user);
    let asking = (authorizer.value(), authorizer.request_resource(attributes.resource()));
    let (mut views, mut namespace) = (Vec::new(), None);
    let mut run = Run { environment, refusal: None, annotations: BTreeMap::new() };
    while let Some(one) = found.pop_front() {
        let invocation = match one {
            Ok(invocation) => invocation,
            Err(wrong) => {
                run.misconfigured(&wrong);
                continue;
            }
        };
        if Instant::now() >= environment.deadline {
            return Err(Error::timeout("request did not complete within requested timeout"));
        }
        if namespace.is_none() {
            namespace = Some(view::namespace(attributes.kinds, attributes)?);
        }
        let place = view_of(&mut views, &invocation, attributes, object).await?;
        let Some(view) = views.get(place) else { continue };
        let params = match invocation.params().await {
            Ok(params) => params,
            Err(wrong) => {
                run.misconfigured(&wrong);
                continue;
            }
        };
        let beside = Beside {
            params: params.as_ref(),
            namespace: namespace.as_ref().and_then(Option::as_ref),
            authorizer: Some(asking.clone()),
        };
        let policy = invocation.policy;
        let evaluate = || policy.evaluate(|| validation::evaluate(policy, view, &beside));
        let outcome = authorizer.settle(evaluate).await;
        let operation = attributes.operation.as_str();
        environment.webhooks.policy_conditions_failed(&policy.name, operation, outcome.failed_conditions);
        run.carry_out(&invocation, outcome);
        // Thousands of policies are no reason for others to wait.
        tokio::task::consume_budget().await;
    }
    run.finish(attributes)
}

/// The place of the request in the version that a policy sees; made by the first that wants it.
async fn view_of(
    views: &mut Vec<View>,
    invocation: &Invocation<'_, Validations>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<usize> {
    if let Some(known) = views.iter().position(|view| view.form.0.is(&invocation.form.0)) {
        return Ok(known);
    }
    views.push(View::new(attributes, invocation.form.clone(), object).await?);
    Ok(views.len() - 1)
}

/// What has come of the policies so far.
struct Run<'a> {
    environment: &'a Environment<'a>,
    /// What the first to refuse says.
    refusal: Option<(String, Reason)>,
    /// By policy and key: what its bindings say, each once.
    annotations: BTreeMap<(String, String), Vec<String>>,
}

/// What the audit log is told of a validation that fails.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [Action],
}

impl Run<'_> {
    fn refuse(&mut self, policy: &str, binding: Option<&str>, why: &str, reason: Reason) {
        if self.refusal.is_some() {
            return;
        }
        let whose = match binding {
            Some(binding) => format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}'"),
            None => format!("ValidatingAdmissionPolicy '{policy}'"),
        };
        self.refusal = Some((format!("{whose} denied request: {why}"), reason));
    }

    fn misconfigured(&mut self, wrong: &Misconfigured<'_, Validations>) {
        if wrong.counts() {
            let binding = wrong.binding.map(|binding| binding.name.as_str());
            self.refuse(&wrong.policy.name, binding, &wrong.message, Reason::Invalid);
        }
    }

    fn carry_out(&mut self, invocation: &Invocation<'_, Validations>, outcome: Outcome) {
        for (index, Decision { verdict, error_type, took }) in outcome.decisions.into_iter().enumerate() {
            let (why, reason) = match verdict {
                Verdict::Holds => continue,
                Verdict::Ignored(_) => {
                    self.count(invocation, Enforcement::Allow, error_type, took);
                    continue;
                }
                Verdict::Fails(why, reason) => (why, reason),
                Verdict::Unknown(why) => (why, Reason::Invalid),
            };
            for action in &invocation.binding.actions {
                let enforcement = self.act(invocation, action, index, &why, reason);
                self.count(invocation, enforcement, error_type, took);
            }
        }
        for told in outcome.told {
            self.annotate(invocation, told);
        }
    }

    fn act(
        &mut self,
        invocation: &Invocation<'_, Validations>,
        action: &Action,
        index: usize,
        why: &str,
        reason: Reason,
    ) -> Enforcement {
        let (policy, binding) = (invocation.policy.name.as_str(), invocation.binding.name.as_str());
        let notes = self.environment.notes;
        match action {
            Action::Deny => {
                self.refuse(policy, Some(binding), why, reason);
                Enforcement::Deny
            }
            Action::Audit => {
                let failure = [ValidationFailure {
                    message: why,
                    policy,
                    binding,
                    expression_index: index,
                    validation_actions: &invocation.binding.actions,
                }];
                notes.annotate(FAILURE, &serde_json::to_string(&failure).unwrap_or_default());
                Enforcement::Audit
            }
            Action::Warn => {
                notes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {why}"
                ));
                Enforcement::Warn
            }
        }
    }

    fn count(
        &self,
        invocation: &Invocation<'_, Validations>,
        enforcement: Enforcement,
        error_type: ErrorType,
        took: Duration,
    ) {
        let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
        self.environment.metrics.checked(policy, binding, enforcement, error_type, took);
    }

    /// An annotation that fails refuses the request, whatever the binding's actions are.
    fn annotate(&mut self, invocation: &Invocation<'_, Validations>, Told { key, value, took }: Told) {
        let (policy, binding) = (invocation.policy.name.as_str(), invocation.binding.name.as_str());
        match value {
            Ok(mut value) => {
                value.truncate(value.floor_char_boundary(ANNOTATION_BYTES_MAX));
                let values = self.annotations.entry((policy.to_owned(), key)).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            Err(why) => {
                self.refuse(policy, Some(binding), &why.to_string(), Reason::Invalid);
                self.count(invocation, Enforcement::Deny, ErrorType::from(&why), took);
            }
        }
    }

    fn finish(self, attributes: &Attributes<'_>) -> Result<()> {
        for ((policy, key), values) in &self.annotations {
            self.environment.notes.annotate(&format!("{policy}/{key}"), &values.join(", "));
        }
        let Some((message, reason)) = self.refusal else { return Ok(()) };
        let (code, reason) = match reason {
            Reason::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Reason::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
            Reason::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Reason::RequestEntityTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        };
        let forbidden = Error::forbidden(attributes.kind.subject(), attributes.name, &message);
        let mut details = forbidden.details;
        details["causes"] = json!([{"message": message}]);
        Err(Error::foreign(code, reason.to_owned(), forbidden.message, details))
    }
}
