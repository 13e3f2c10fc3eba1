//! Has mutating policies change the object of a request, each what the one before it has made.
//!
//! Source: `plugin/policy/mutating/dispatcher.go`, `plugin/policy/generic/policy_dispatcher.go`.

use std::fmt::Display;
use std::sync::Arc;

use expressions::{MATCH_CONDITIONS_BUDGET, RUNTIME_BUDGET};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::evaluation::{self, Scope};
use super::invocations::{Invocation, Misconfigured, invocations};
use super::is_exempt;
use super::metrics::{ErrorType, MutationMetrics};
use super::mutation::{self, Failure, Mutation, Mutations};
use super::policy::{FailurePolicy, Hook, Policy};
use super::view::{self, Beside, View};
use crate::codec::FieldValidation;
use crate::expression_authorizer::ExpressionAuthorizer;
use crate::reinvocation::{Phase, Reinvocation};
use crate::security::Security;
use crate::status::{Error, Result};
use crate::webhooks::attributes::Attributes;
use crate::webhooks::metrics::WebhookMetrics;

/// Policies that fail and are told of.
const CAUSES_MAX: usize = 100;

/// The environment that policies are carried out with.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Counts.
    pub metrics: &'a MutationMetrics,
    /// Counts that webhooks have, too.
    pub webhooks: &'a WebhookMetrics,
    /// The authorizers that are asked what somebody may do.
    pub security: &'a Arc<Security>,
    /// The deadline of the request.
    pub deadline: Instant,
}

/// Has all policies that the request concerns change its object.
///
/// # Errors
/// What the policies say that fail and may not; 404 if the request's namespace is not there; 500 for what is no such object
/// any more; 504 if there is no time left.
pub async fn admit(
    environment: &Environment<'_>,
    hooks: &[Hook<Mutations>],
    attributes: &Attributes<'_>,
    object: &mut Option<Value>,
    rounds: &mut Reinvocation,
) -> Result<()> {
    if is_exempt(attributes) {
        return Ok(());
    }
    let found = invocations(hooks, attributes, object.as_ref());
    if found.is_empty() {
        return Ok(());
    }
    let namespace = view::namespace(attributes.kinds, attributes)?;
    let authorizer = ExpressionAuthorizer::new(environment.security, attributes.user);
    let beside = Beside {
        params: None,
        namespace: namespace.as_ref(),
        authorizer: Some((authorizer.value(), authorizer.request_resource(attributes.resource()))),
    };
    rounds.begin(Phase::Policies, object.as_ref());
    let mut run =
        Run { environment, attributes, authorizer, rounds, beside, is_applied: false, refusals: Vec::new() };
    for one in found {
        match one {
            Ok(invocation) => run.invoke(&invocation, object).await?,
            Err(wrong) => run.misconfigured(&wrong),
        }
        // Thousands of policies are no reason for others to wait.
        tokio::task::consume_budget().await;
    }
    let Run { is_applied, refusals, rounds, .. } = run;
    // As upstream, for which whatever was applied has changed the object.
    if is_applied && rounds.has_asked(Phase::Policies) {
        rounds.changed(Phase::Policies);
    }
    rounds.end(Phase::Policies, object.as_ref());
    refused(attributes, refusals)
}

/// The policies of one request.
struct Run<'a, 'r> {
    environment: &'a Environment<'a>,
    attributes: &'a Attributes<'a>,
    authorizer: Arc<ExpressionAuthorizer>,
    rounds: &'r mut Reinvocation,
    /// What all of them see, apart from parameters.
    beside: Beside<'a>,
    /// Whether any mutation has been applied.
    is_applied: bool,
    refusals: Vec<Refusal>,
}

impl Run<'_, '_> {
    async fn invoke(
        &mut self,
        invocation: &Invocation<'_, Mutations>,
        object: &mut Option<Value>,
    ) -> Result<()> {
        let (policy, attributes) = (invocation.policy, self.attributes);
        let params = match invocation.params().await {
            Ok(params) => params,
            Err(wrong) => {
                self.misconfigured(&wrong);
                return Ok(());
            }
        };
        let beside = Beside { params: params.as_ref(), ..self.beside.clone() };
        let mut view = View::new(attributes, invocation.form.clone(), object.as_ref()).await?;
        let wanted = || policy.evaluate(|| is_wanted(policy, &view, &beside));
        match self.authorizer.settle(wanted).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(failures) => {
                let (metrics, operation) = (self.environment.webhooks, attributes.operation.as_str());
                metrics.policy_conditions_failed(&policy.name, operation, failures.len());
                self.fail(invocation, evaluation::joined(failures));
                return Ok(());
            }
        }
        let key = key(invocation, params.as_ref());
        if self.rounds.skips(Phase::Policies, &key) {
            return Ok(());
        }
        let mut is_changed = false;
        for mutation in &policy.evaluator.mutations {
            if object.is_none() {
                break;
            }
            self.check_time()?;
            let begun = Instant::now();
            let evaluate = || policy.evaluate(|| evaluate(policy, mutation, attributes, &view, &beside));
            let made = match self.authorizer.settle(evaluate).await {
                Ok(made) => {
                    let taken = attributes.taken(made, &view.form, FieldValidation::Strict).await;
                    taken.map_err(Failure::Request)
                }
                Err(failure) => Err(failure),
            };
            self.count(invocation, &made, begun);
            match made {
                Ok(made) => {
                    self.is_applied = true;
                    if object.as_ref() != Some(&made) {
                        is_changed = true;
                        view.object = Some(attributes.shown(&made, &view.form).await?);
                        *object = Some(made);
                    }
                }
                Err(Failure::Policy(why)) => self.fail(invocation, why),
                Err(Failure::Uncompiled(why)) => self.fail(invocation, why),
                Err(Failure::Evaluation(why)) => self.fail(invocation, why),
                Err(Failure::Request(failure)) => return Err(failure),
            }
        }
        if is_changed {
            self.rounds.changed(Phase::Policies);
        }
        if policy.evaluator.is_reinvoked {
            self.rounds.asked(Phase::Policies, key);
        }
        Ok(())
    }

    fn misconfigured(&mut self, wrong: &Misconfigured<'_, Mutations>) {
        if wrong.counts() && self.refusals.len() < CAUSES_MAX {
            self.refusals.push(Refusal::misconfigured(wrong));
        }
    }

    fn fail(&mut self, invocation: &Invocation<'_, Mutations>, why: impl Display) {
        if invocation.policy.failure_policy == FailurePolicy::Fail && self.refusals.len() < CAUSES_MAX {
            self.refusals.push(Refusal::failed(invocation, why));
        }
    }

    fn check_time(&self) -> Result<()> {
        match Instant::now() >= self.environment.deadline {
            true => Err(Error::timeout("request did not complete within requested timeout")),
            false => Ok(()),
        }
    }

    fn count(&self, invocation: &Invocation<'_, Mutations>, made: &Result<Value, Failure>, begun: Instant) {
        let error_type = match made {
            Ok(_) => ErrorType::None,
            Err(Failure::Uncompiled(_)) => ErrorType::Compile,
            Err(Failure::Evaluation(why)) => why.into(),
            Err(Failure::Policy(_) | Failure::Request(_)) => ErrorType::Invalid,
        };
        let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
        self.environment.metrics.checked(policy, binding, error_type, begun.elapsed());
    }
}

/// Whether a policy's conditions hold.
///
/// # Errors
/// Why nobody knows.
fn is_wanted(
    policy: &Policy<Mutations>,
    view: &View,
    beside: &Beside<'_>,
) -> Result<bool, Vec<evaluation::Failure>> {
    if policy.conditions.is_empty() {
        return Ok(true);
    }
    let scope = Scope::new(&policy.variables, MATCH_CONDITIONS_BUDGET);
    let scope = scope.seeing(view.of_conditions(beside.clone()));
    evaluation::hold(scope, &policy.conditions)
}

/// What a mutation makes of the object. Each has a budget of its own, and variables that see what those before it have made.
fn evaluate(
    policy: &Policy<Mutations>,
    mutation: &Mutation,
    attributes: &Attributes<'_>,
    view: &View,
    beside: &Beside<'_>,
) -> Result<Value, Failure> {
    if let Err(why) = &mutation.expression.program {
        return Err(Failure::Uncompiled(why.clone()));
    }
    let scope = Scope::new(&policy.variables, RUNTIME_BUDGET);
    let scope = scope.seeing(view.of_expressions(beside.clone()));
    let value = scope.evaluate(&mutation.expression);
    let value = value.map_err(Failure::Evaluation)?;
    let object = view.object.as_ref().unwrap_or(&Value::Null);
    mutation::mutated(mutation, &value, attributes, &view.form, object)
}

/// What tells an invocation from all others of a request.
fn key(invocation: &Invocation<'_, Mutations>, params: Option<&Value>) -> String {
    let metadata = |name: &str| {
        let found = params.and_then(|params| params.pointer(name));
        found.and_then(Value::as_str).unwrap_or_default()
    };
    let (namespace, name) = (metadata("/metadata/namespace"), metadata("/metadata/name"));
    format!("{}/{}/{namespace}/{name}", invocation.policy.name, invocation.binding.name)
}

/// Why a policy refuses a request.
struct Refusal {
    message: String,
    /// The reason in the answer, if it is not that the request is forbidden.
    reason: &'static str,
}

impl Refusal {
    fn failed(invocation: &Invocation<'_, Mutations>, why: impl Display) -> Self {
        let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
        let message = format!("policy '{policy}' with binding '{binding}' denied request: {why}");
        Self { message, reason: "Invalid" }
    }

    fn misconfigured(wrong: &Misconfigured<'_, Mutations>) -> Self {
        let (policy, why) = (&wrong.policy.name, &wrong.message);
        let message = match wrong.binding {
            Some(binding) => {
                format!("policy '{policy}' with binding '{}' denied request: {why}", binding.name)
            }
            None => format!("policy {policy:?} denied request: {why}"),
        };
        Self { message, reason: "Forbidden" }
    }
}

/// The answer: what the first of them says, and what all of them say in its details.
fn refused(attributes: &Attributes<'_>, refusals: Vec<Refusal>) -> Result<()> {
    let Some(first) = refusals.first() else { return Ok(()) };
    let forbidden = Error::forbidden(attributes.kind.subject(), attributes.name, &first.message);
    let causes: Vec<Value> = refusals.iter().map(|refusal| json!({"message": refusal.message})).collect();
    let mut details = forbidden.details;
    details["causes"] = causes.into();
    Err(Error::foreign(forbidden.code, first.reason.to_owned(), first.message.clone(), details))
}
