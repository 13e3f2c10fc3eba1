//! Asks mutating webhooks, one after the other, each about what the one before it has made.
//!
//! Source: `plugin/webhook/mutating/dispatcher.go`.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::attributes::Attributes;
use super::call::{Call, Calling, Environment, Failure};
use super::hooks::{FailurePolicy, Hook};
use super::matching;
use super::review::{Duty, Shown, Verdict};
use crate::codec::FieldValidation;
use crate::reinvocation::{Phase, Reinvocation};
use crate::status::{Error, Result};

const PATCHED: &str = "patch.webhook.admission.k8s.io/";
const MUTATED: &str = "mutation.webhook.admission.k8s.io/";

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
        let Some(form) = matching::form(hook, attributes, object.as_ref())? else { continue };
        let call = Call { environment, hook, duty: Duty::Mutating, attributes, form: &form };
        if !call.meets_conditions(object.as_ref()).await? || rounds.skips(Phase::Webhooks, &hook.uid) {
            continue;
        }
        let place = format!("round_{}_index_{index}", u8::from(rounds.is_second()));
        let asked = Asked { call, place: &place };
        let begun = Instant::now();
        let outcome = asked.ask(object).await;
        call.count(begun.elapsed(), &outcome);
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
                environment.metrics.failed_open(call.about());
                environment.notes.annotate(&format!("failed-open.{MUTATED}{place}"), &hook.name);
                environment.check_time()?;
            }
            Err(failure) => return Err(failure.into_error(hook)),
        }
    }
    rounds.end(Phase::Webhooks, object.as_ref());
    Ok(())
}

/// A call, and its place among all of the request.
struct Asked<'a> {
    call: Call<'a>,
    place: &'a str,
}

impl Asked<'_> {
    /// Asks; says whether the object has changed.
    async fn ask(&self, object: &mut Option<Value>) -> Result<bool, Failure> {
        let changed = self.ask_and_apply(object).await;
        let is_changed = matches!(changed, Ok(true));
        let said = json!({
            "configuration": &*self.call.hook.configuration,
            "webhook": self.call.hook.name,
            "mutated": is_changed,
        });
        self.call.environment.notes.annotate(&format!("{MUTATED}{}", self.place), &said.to_string());
        changed
    }

    async fn ask_and_apply(&self, object: &mut Option<Value>) -> Result<bool, Failure> {
        let Call { environment, attributes, hook, form, .. } = self.call;
        let shown = attributes.shown_if_any(object.as_ref(), form).await.map_err(Failure::Internal)?;
        let old = attributes.shown_if_any(attributes.old, form).await.map_err(Failure::Internal)?;
        let verdict = self.call.ask(Shown { object: shown.as_ref(), old: old.as_ref() }).await?;
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
            return Err(Failure::Calling(Calling::other(format!(
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
            Failure::Calling(Calling::other(format!("received undecodable patch in webhook response: {why}")))
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
