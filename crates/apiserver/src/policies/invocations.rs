//! The relation of a request to all policies: which it must pass, with which parameters.
//!
//! Source: `plugin/policy/generic/policy_dispatcher.go`.

use std::collections::VecDeque;

use serde_json::Value;

use super::matching::Matching;
use super::params::{self, ConfigureError, INVOCATIONS_MAX, Param};
use super::policy::{Binding, FailurePolicy, Hook, Policy};
use crate::webhooks::attributes::{Attributes, Form};

/// A policy that a request must pass: because of one binding, with one of its parameters.
#[derive(Debug)]
pub struct Invocation<'h, E> {
    /// The policy.
    pub policy: &'h Policy<E>,
    /// The binding.
    pub binding: &'h Binding,
    /// The version in which it sees objects.
    pub form: Form,
    /// The parameter; `None` is null.
    pub param: Option<Param>,
}

/// A policy or a binding of which nobody knows what it says of a request.
#[derive(Debug)]
pub struct Misconfigured<'h, E> {
    /// The policy.
    pub policy: &'h Policy<E>,
    /// The binding, if it is at fault.
    pub binding: Option<&'h Binding>,
    /// The reason, in upstream's words.
    pub message: String,
}

impl<'h, E> Invocation<'h, E> {
    /// `params`; `None` is null.
    ///
    /// # Errors
    /// That the binding's parameter cannot be had in the version that the policy wants.
    pub async fn params(&self) -> Result<Option<Value>, Misconfigured<'h, E>> {
        let Some(param) = &self.param else { return Ok(None) };
        let (policy, binding) = (self.policy, Some(self.binding));
        let wrong =
            |why| Misconfigured { policy, binding, message: format!("failed to configure binding: {why}") };
        param.value().await.map(Some).map_err(wrong)
    }
}

impl<E> Misconfigured<'_, E> {
    /// `true` if the request is refused because of it.
    pub fn counts(&self) -> bool {
        self.policy.failure_policy == FailurePolicy::Fail
    }
}

/// The result of comparing.
pub type Found<'h, E> = Result<Invocation<'h, E>, Misconfigured<'h, E>>;

/// Each policy by name, each of its bindings by name, each parameter by name: those that the request concerns. Those that
/// are not understood, and whose failures count, are told of in their place.
pub fn invocations<'h, E>(
    hooks: &'h [Hook<E>],
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> VecDeque<Found<'h, E>> {
    let matching = Matching::new(attributes, object);
    let mut found = VecDeque::new();
    for hook in hooks {
        of_policy(hook, attributes, &matching, &mut found);
    }
    found.retain(|one| one.as_ref().err().is_none_or(Misconfigured::counts));
    found
}

/// Parameters, as long as there are not too many with what was found before.
fn bounded(found: usize, params: Vec<Param>) -> Result<Vec<Option<Param>>, ConfigureError> {
    if found.saturating_add(params.len()) > INVOCATIONS_MAX {
        return Err(ConfigureError::TooMany);
    }
    Ok(params.into_iter().map(Some).collect())
}

fn of_policy<'h, E>(
    hook: &'h Hook<E>,
    attributes: &Attributes<'_>,
    matching: &Matching<'_>,
    found: &mut VecDeque<Found<'h, E>>,
) {
    let policy = &*hook.policy;
    let wrong = |binding: Option<&'h Binding>, why: ConfigureError| {
        let what = if binding.is_some() { "binding" } else { "policy" };
        Err(Misconfigured { policy, binding, message: format!("failed to configure {what}: {why}") })
    };
    let form = match matching.form(&policy.constraints) {
        Ok(Some(form)) => form,
        Ok(None) => return,
        Err(why) => return found.push_back(wrong(None, why.into())),
    };
    let wanted = policy.param_kind.as_ref();
    let kind = match wanted.map(|wanted| params::kind(attributes.kinds, wanted)).transpose() {
        Ok(kind) => kind.zip(wanted),
        Err(why) => return found.push_back(wrong(None, why)),
    };
    for binding in &hook.bindings {
        match binding.constraints.as_ref().map(|constraints| matching.form(constraints)).transpose() {
            Ok(Some(None)) => continue,
            Ok(_) => {}
            Err(why) => {
                found.push_back(wrong(Some(binding), why.into()));
                continue;
            }
        }
        let params = match kind.zip(binding.param_ref.as_ref()) {
            Some((kind, reference)) => {
                let params = params::find(kind, reference, attributes.namespace);
                params.and_then(|params| bounded(found.len(), params))
            }
            // A policy without parameters ignores a reference, and one without a reference sees null.
            None => Ok(vec![None]),
        };
        match params {
            Ok(params) => found.extend(
                params.into_iter().map(|param| Ok(Invocation { policy, binding, form: form.clone(), param })),
            ),
            Err(why) => found.push_back(wrong(Some(binding), why)),
        }
    }
}
