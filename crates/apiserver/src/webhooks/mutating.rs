//! Asks mutating webhooks, one after the other, each about what the one before it has made.
//!
//! Source: `plugin/webhook/mutating/dispatcher.go`.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::attributes::{Attributes, Form};
use super::call::{self, Environment, Failure};
use super::hooks::{FailurePolicy, Hook};
use super::matching;
use super::metrics::About;
use super::review::{Duty, Verdict};
use crate::codec::FieldValidation;
use crate::reinvocation::{Phase, Reinvocation};
use crate::status::{Error, Result};

const PATCHED: &str = "patch.webhook.admission.k8s.io/";
const MUTATED: &str = "mutation.webhook.admission.k8s.io/";
const STEP: &str = "admit";

/// Asks all webhooks that the request concerns, and changes the object as they say.
///
/// # Errors
/// What the first one that refuses says, or that one could not be asked.
pub async fn admit(
    environment: &Environment<'_>,
    hooks: &[std::sync::Arc<Hook>],
    attributes: &Attributes<'_>,
    object: &mut Option<Value>,
    rounds: &mut Reinvocation,
) -> Result<()> {
    if attributes.is_exempt() {
        return Ok(());
    }
    rounds.begin(Phase::Webhooks, object.as_ref());
    for (index, hook) in hooks.iter().enumerate() {
        let about = About { name: &hook.name, step: STEP, operation: attributes.operation.as_str() };
        let Some(form) = matching::form(hook, attributes, object.as_ref())? else { continue };
        let object_of_form = (&form, object.as_ref());
        if !call::meets_conditions(environment, (hook, about), attributes, object_of_form).await?
            || rounds.skips(Phase::Webhooks, &hook.uid)
        {
            continue;
        }
        let place = format!("round_{}_index_{index}", u8::from(rounds.is_second()));
        let asked = Asked { environment, attributes, hook, form: &form, place: &place };
        let begun = Instant::now();
        let outcome = asked.ask(object).await;
        call::count(environment, about, hook, begun.elapsed(), &outcome);
        if matches!(outcome, Ok(true)) {
            rounds.changed(Phase::Webhooks);
        }
        if hook.is_reinvoked {
            rounds.asked(Phase::Webhooks, hook.uid.clone());
        }
        match outcome {
            Ok(_) => {}
            Err(Failure::Calling(failure)) if hook.failure_policy == FailurePolicy::Ignore => {
                tracing::warn!(webhook = hook.name, %failure, "a webhook could not be asked: the request goes on");
                environment.metrics.failed_open(about);
                environment.notes.annotate(&format!("failed-open.{MUTATED}{place}"), &hook.name);
                environment.check_time()?;
            }
            Err(failure) => return Err(failure.into_error(hook)),
        }
    }
    rounds.end(Phase::Webhooks, object.as_ref());
    Ok(())
}

/// One webhook and what it is asked about.
struct Asked<'a> {
    environment: &'a Environment<'a>,
    attributes: &'a Attributes<'a>,
    hook: &'a Hook,
    form: &'a Form,
    place: &'a str,
}

impl Asked<'_> {
    /// Asks; says whether the object has changed.
    async fn ask(&self, object: &mut Option<Value>) -> Result<bool, Failure> {
        let changed = self.ask_and_apply(object).await;
        let is_changed = matches!(changed, Ok(true));
        let said = json!({
            "configuration": &*self.hook.configuration,
            "webhook": self.hook.name,
            "mutated": is_changed,
        });
        self.environment.notes.annotate(&format!("{MUTATED}{}", self.place), &said.to_string());
        changed
    }

    async fn ask_and_apply(&self, object: &mut Option<Value>) -> Result<bool, Failure> {
        let Self { environment, attributes, hook, form, .. } = self;
        let shown = attributes.shown_if_any(object.as_ref(), form).await.map_err(Failure::Internal)?;
        let old = attributes.shown_if_any(attributes.old, form).await.map_err(Failure::Internal)?;
        let verdict = call::ask(
            environment,
            (hook, Duty::Mutating),
            attributes,
            form,
            super::review::Shown { object: shown.as_ref(), old: old.as_ref() },
        )
        .await?;
        if verdict.patch.is_empty() {
            return Ok(false);
        }
        let operations = self.operations(&verdict)?;
        if operations.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let Some(shown) = shown.filter(|_| object.is_some()) else {
            let name = &hook.name;
            return Err(Failure::Internal(Error::internal(format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            ))));
        };
        if verdict.patch_type != "JSONPatch" {
            return Err(Failure::Calling(call::Calling::other(format!(
                "unsupported patch type {:?}",
                verdict.patch_type
            ))));
        }
        let patched = crate::codec::json_patch(shown, &verdict.patch)
            .map_err(|why| Failure::Internal(Error::internal(why)))?;
        let taken = attributes.taken(patched, form, FieldValidation::Ignore).await;
        let taken = taken.map_err(Failure::Internal)?;
        let said = json!({
            "configuration": &*hook.configuration,
            "webhook": hook.name,
            "patch": operations,
            "patchType": "JSONPatch",
        });
        environment.notes.annotate_request(&format!("{PATCHED}{}", self.place), &said.to_string());
        let is_changed = object.as_ref() != Some(&taken);
        *object = Some(taken);
        Ok(is_changed)
    }

    /// The operations of a patch.
    fn operations(&self, verdict: &Verdict) -> Result<Value, Failure> {
        let undecodable = |why: String| {
            Failure::Calling(call::Calling::other(format!(
                "received undecodable patch in webhook response: {why}"
            )))
        };
        let operations = crate::codec::decode(crate::negotiate::Format::Json, &verdict.patch);
        let operations = operations.map_err(|failure| undecodable(failure.message))?;
        match operations.is_array() {
            true => Ok(operations),
            false => {
                Err(undecodable("json: cannot unmarshal into Go value of type jsonpatch.Patch".to_owned()))
            }
        }
    }
}
