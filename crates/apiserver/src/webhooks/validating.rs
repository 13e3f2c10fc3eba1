//! Asks validating webhooks, all at the same time: none of them sees what another says.
//!
//! Source: `plugin/webhook/validating/dispatcher.go`.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::attributes::{Attributes, Form};
use super::call::{Call, Environment, Failure};
use super::hooks::{FailurePolicy, Hook};
use super::matching;
use super::review::{Duty, Shown};
use crate::status::{Error, Result};

const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";
/// How many webhooks one request asks at a time.
const ASKED_MAX: usize = 32;

/// An object in one version, as all webhooks that want this version see it.
struct View {
    form: Form,
    object: Option<Value>,
    old: Option<Value>,
}

/// Asks all webhooks that the request concerns.
///
/// # Errors
/// What the first one to refuse says, or that one could not be asked.
pub async fn validate(
    environment: &Environment<'_>,
    hooks: &[Arc<Hook>],
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<()> {
    if attributes.is_exempt() {
        return Ok(());
    }
    let mut views: Vec<View> = Vec::new();
    let mut asked: Vec<(&Hook, usize)> = Vec::new();
    for hook in hooks {
        let Some(form) = matching::form(hook, attributes, object)? else { continue };
        let call = Call { environment, hook, duty: Duty::Validating, attributes, form: &form };
        if !call.meets_conditions(object).await? {
            continue;
        }
        let known = views.iter().position(|view| view.form.0.is(&form.0));
        let view = match known {
            Some(view) => view,
            None => {
                let shown = attributes.shown_if_any(object, &form).await?;
                let old = attributes.shown_if_any(attributes.old, &form).await?;
                views.push(View { form, object: shown, old });
                views.len() - 1
            }
        };
        asked.push((hook, view));
    }
    if asked.is_empty() {
        return Ok(());
    }
    environment.check_time()?;
    let places = Semaphore::new(ASKED_MAX);
    let mut calls: FuturesUnordered<_> = asked
        .iter()
        .enumerate()
        .filter_map(|(index, (hook, view))| Some((index, *hook, views.get(*view)?)))
        .map(|(index, hook, view)| {
            let places = &places;
            async move {
                // Nobody closes it.
                let _place = places.acquire().await;
                let form = &view.form;
                let call = Call { environment, hook, duty: Duty::Validating, attributes, form };
                ask(call, index, view).await
            }
        })
        .collect();
    let mut refusal: Option<Error> = None;
    while let Some(outcome) = calls.next().await {
        if let Err(error) = outcome {
            refusal.get_or_insert(error);
        }
    }
    refusal.map_or(Ok(()), Err)
}

async fn ask(call: Call<'_>, index: usize, view: &View) -> Result<()> {
    let Call { environment, hook, .. } = call;
    let shown = Shown { object: view.object.as_ref(), old: view.old.as_ref() };
    let begun = Instant::now();
    let outcome = call.ask(shown).await;
    call.count(begun.elapsed(), &outcome);
    match outcome {
        Ok(_) => Ok(()),
        Err(Failure::Calling(failure)) if hook.failure_policy == FailurePolicy::Ignore => {
            tracing::warn!(webhook = hook.name, %failure, "a webhook could not be asked: the request goes on");
            environment.metrics.failed_open(call.about());
            environment.notes.annotate(&format!("{FAILED_OPEN}round_0_index_{index}"), &hook.name);
            Ok(())
        }
        Err(failure) => Err(failure.into_error(hook)),
    }
}
