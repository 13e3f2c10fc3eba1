//! `pods/eviction`: a DELETE that a PodDisruptionBudget can refuse.
//!
//! Before it goes, the Pod's status says that it was evicted.
//!
//! What a budget allows is taken from its status before the Pod goes, so that two evictions never share one
//! allowance; the disruption controller counts anew once the Pod is seen to go.
//! Source: `pkg/registry/core/pod/storage/eviction.go`.

use http::StatusCode;
use machinery::labels;
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};

use crate::admission::unstored;
use crate::answer::Answer;
use crate::api::Api;
use crate::kinds::Part;
use crate::request::Authorized;
use crate::request_info::{ResourceInfo, Verb};
use crate::status::{Error, Result, Subject, success};
use crate::tree::text;
use crate::write::Ownership;
use crate::write::change::current;
use crate::write::change::{change, change_owned};
use crate::write::options::DeleteOptions;
use crate::write::{CONFLICT_RETRIES_MAX, Decoded, decoding, delete};

/// The condition of a Pod that somebody lets go.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// How many evictions may wait for the controller to see them.
const DISRUPTED_PODS_MAX: usize = 2000;

/// Evicts a Pod.
///
/// # Errors
/// 429 when a budget does not allow it now, 500 when several budgets are about the Pod.
pub async fn evict(api: &Api, request: &Authorized) -> Result<Answer> {
    let eviction = decoding::body_of(request, "policy/v1", "Eviction")?;
    if Metadata::of(&eviction).name() != request.resource.name {
        return Err(Error::bad_request("name in URL does not match name in Eviction object"));
    }
    let eviction = unstored::post(api, request, eviction).await?;
    let given = eviction.get("deleteOptions").cloned().unwrap_or_default();
    let is_dry_run = request.is_dry_run()
        || given
            .get("dryRun")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|one| one == "All"));
    let text_of = |pointer: &str| given.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let options = DeleteOptions {
        grace_period_seconds: given.get("gracePeriodSeconds").and_then(Value::as_i64),
        uid: text_of("/preconditions/uid"),
        resource_version: text_of("/preconditions/resourceVersion"),
        is_dry_run,
        ..DeleteOptions::default()
    };
    for _ in 0..CONFLICT_RETRIES_MAX {
        let pod = request.kind.value(&*current(api, request, &request.key()).await?);
        crate::admission::node_restriction::validate_posted(request, &eviction, Some(&pod))?;
        options.check(request, &pod)?;
        let leave = if is_finished(&pod) {
            Leave::of_finished(&pod)
        } else {
            charge(api, request, &pod, is_dry_run).await?
        };
        let mut given = options.clone();
        if leave != Leave::Granted && given.resource_version.is_none() {
            given.resource_version = Some(Metadata::of(&pod).resource_version().to_owned());
        }
        match (mark_and_delete(api, request, given).await, leave) {
            (Err(error), _) if error.reason != "Conflict" || options.resource_version.is_some() => {
                return Err(error);
            }
            (Err(_), Leave::WhilePending) => {}
            (Err(_), Leave::WhileUnhealthy { budget }) => return Err(changed_meanwhile(&budget)),
            (Err(error), Leave::Granted) => return Err(error),
            (Ok(()), _) => {
                return Ok(Answer::Value { code: StatusCode::CREATED, value: success(Value::Null) });
            }
        }
    }
    Err(Error::modified(request.subject(), &request.resource.name))
}

/// Why a Pod may go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leave {
    /// No budget is about it, or one has allowed it.
    Granted,
    /// It has not started: only as long as it has not.
    WhilePending,
    /// It does not count for its budget as it is not ready: only as long as it is not.
    WhileUnhealthy {
        /// The budget's name.
        budget: String,
    },
}

impl Leave {
    fn of_finished(pod: &Value) -> Self {
        let is_pending = text(pod, "/status/phase") == "Pending" && !Metadata::of(pod).is_terminating();
        if is_pending { Self::WhilePending } else { Self::Granted }
    }
}

/// 429: the Pod became ready, or anything else, after it was found unhealthy.
fn changed_meanwhile(budget: &str) -> Error {
    let mut error = Error::too_many_requests(REFUSED, 10);
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    error.details["causes"] = json!([{"reason": "DisruptionBudget", "message": why}]);
    error
}

/// Says in the Pod's status why it goes, then deletes it.
async fn mark_and_delete(api: &Api, request: &Authorized, mut options: DeleteOptions) -> Result<()> {
    if !options.is_dry_run {
        let status = ResourceInfo {
            verb: Verb::Update,
            subresource: "status".to_owned(),
            ..(*request.resource).clone()
        };
        let marking = request.with_resource(&request.kind, status)?.as_server();
        let now = metadata::time(api.clock.now());
        let marked = change_owned(api, &marking, Part::Status, Ownership::Applied, |pod| {
            options.check(request, pod)?;
            let mut new = pod.clone();
            metadata::remove(&mut new, "resourceVersion");
            mark(&mut new, &now);
            Ok(Decoded::of_server(new))
        });
        let marked = marked.await?;
        if options.resource_version.is_some() {
            options.resource_version = Some(marked.revision.to_string());
        }
    }
    delete::delete(api, request, &options).await.map(drop)
}

/// Sets the condition `DisruptionTarget`, by which a Job's failure policy knows an eviction from a failure.
fn mark(pod: &mut Value, now: &str) {
    let Some(conditions) = conditions_mut(pod) else { return };
    let mut condition = json!({
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": Value::Null,
        "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|one| text(one, "/type") == DISRUPTION_TARGET) {
        Some(existing) => {
            if text(existing, "/status") == "True"
                && let Some(since) = existing.get("lastTransitionTime")
            {
                condition["lastTransitionTime"] = since.clone();
            }
            *existing = condition;
        }
        None => conditions.push(condition),
    }
}

fn conditions_mut(pod: &mut Value) -> Option<&mut Vec<Value>> {
    let status = pod.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    status.as_object_mut()?.entry("conditions").or_insert_with(|| json!([])).as_array_mut()
}

/// Whether the Pod's end is no disruption.
fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed" | "Pending")
        || Metadata::of(pod).is_terminating()
}

/// Takes one disruption from the budget that is about the Pod, if there is one.
async fn charge(api: &Api, request: &Authorized, pod: &Value, is_dry_run: bool) -> Result<Leave> {
    let Some(kind) = api.kind("policy", "v1", "poddisruptionbudgets") else { return Ok(Leave::Granted) };
    let namespace = &request.resource.namespace;
    let all = kind.cache().list(&kind.collection(namespace), 0).objects;
    let is_about = |budget: &Value| {
        let selector = labels::Selector::from_label_selector(budget.pointer("/spec/selector"));
        selector.is_ok_and(|selector| selector.matches(Metadata::of(pod).labels()))
    };
    let budgets: Vec<Value> = all.iter().map(|object| kind.value(object)).filter(is_about).collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(Leave::Granted),
        [one] => one,
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Error { message: why.to_owned(), ..Error::internal("") });
        }
    };
    if !is_ready(pod) && lets_unhealthy_go(budget) {
        return Ok(Leave::WhileUnhealthy { budget: Metadata::of(budget).name().to_owned() });
    }
    let resource = ResourceInfo {
        verb: Verb::Update,
        group: "policy".to_owned(),
        version: "v1".to_owned(),
        scope: request.resource.scope,
        namespace: namespace.clone(),
        resource: "poddisruptionbudgets".to_owned(),
        subresource: "status".to_owned(),
        name: Metadata::of(budget).name().to_owned(),
        rest: String::new(),
    };
    // The allowance is taken by the server: whoever may evict need not be allowed to write budgets.
    let taking = request.with_resource(kind, resource)?.as_server();
    let (name, now) = (request.resource.name.as_str(), metadata::time(api.clock.now()));
    if is_dry_run {
        return decrement(budget, name, &now).map(|_| Leave::Granted);
    }
    change(api, &taking, Part::Status, |budget| decrement(budget, name, &now).map(Decoded::of_server))
        .await
        .map(|_| Leave::Granted)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True")
}

fn number(budget: &Value, field: &str) -> i64 {
    budget.pointer(&format!("/status/{field}")).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a Pod that is not ready may go without an allowance. Source: KEP-3017.
fn lets_unhealthy_go(budget: &Value) -> bool {
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow" || (healthy >= desired && desired > 0)
}

/// The budget with one disruption less, which it remembers by the Pod's name.
fn decrement(budget: &Value, pod: &str, now: &str) -> Result<Value> {
    let name = Metadata::of(budget).name();
    let refuse = |retry_after: Option<u32>, why: String| {
        let mut error = Error::too_many_requests(REFUSED, 0);
        error.details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
        if let Some(seconds) = retry_after {
            error.details["retryAfterSeconds"] = seconds.into();
        }
        Err(error)
    };
    let forbid = |why: &str| {
        Err(Error::forbidden(Subject { group: "policy", resource: "poddisruptionbudget" }, name, why))
    };
    if number(budget, "observedGeneration") < Metadata::of(budget).generation() {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return refuse(Some(10), why);
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return forbid("pdb disruptions allowed is negative");
    }
    let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        let (needed, healthy) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
        let why = match failure(budget) {
            Some(failure) => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {failure}"
            ),
            None => format!(
                "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            ),
        };
        return refuse(None, why);
    }
    let mut new = budget.clone();
    metadata::remove(&mut new, "resourceVersion");
    let status = &mut new["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    if !status.get("disruptedPods").is_some_and(Value::is_object) {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][pod] = now.into();
    if allowed == 1 {
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter(|one| text(one, "/type") == "DisruptionAllowed") {
            if text(condition, "/status") != "False" {
                condition["lastTransitionTime"] = now.into();
            }
            condition["status"] = "False".into();
            condition["reason"] = "InsufficientPods".into();
        }
    }
    Ok(new)
}

/// Why the controller could not count, if it could not.
fn failure(budget: &Value) -> Option<&str> {
    let conditions = budget.pointer("/status/conditions")?.as_array()?;
    let one = conditions.iter().find(|one| text(one, "/type") == "DisruptionAllowed")?;
    (text(one, "/reason") == "SyncFailed").then(|| text(one, "/message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: &str, expect: Result<&str, &str>) {
        let budget: Value =
            serde_saphyr::from_str(&format!("{{metadata: {{name: b, generation: 2}}, status: {status}}}"))
                .unwrap();
        let taken = decrement(&budget, "web-1", "2026-01-01T00:00:00Z");
        let shown = taken.map(|budget| budget["status"].to_string()).map_err(|error| {
            let cause = error.details.pointer("/causes/0/message").and_then(Value::as_str);
            cause.map_or(error.message.clone(), str::to_owned)
        });
        assert_eq!(shown.as_deref().map_err(String::as_str), expect);
    }

    #[test]
    fn an_allowance_is_taken_once() {
        check(
            "{observedGeneration: 2, disruptionsAllowed: 1, conditions: [{type: DisruptionAllowed, status: 'True', reason: SufficientPods}]}",
            Ok(
                r#"{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","reason":"InsufficientPods","status":"False","type":"DisruptionAllowed"}],"disruptedPods":{"web-1":"2026-01-01T00:00:00Z"},"disruptionsAllowed":0,"observedGeneration":2}"#,
            ),
        );
        check(
            "{observedGeneration: 2, desiredHealthy: 2, currentHealthy: 1}",
            Err("The disruption budget b needs 2 healthy pods and has 1 currently"),
        );
        check(
            "{observedGeneration: 1, disruptionsAllowed: 1}",
            Err("The disruption budget b is still being processed by the server."),
        );
    }

    #[test]
    fn unhealthy_pods_may_go_when_the_budget_is_met_or_says_so() {
        let rows = [
            (json!({"status": {"currentHealthy": 2, "desiredHealthy": 2}}), true),
            (json!({"status": {"currentHealthy": 1, "desiredHealthy": 2}}), false),
            (json!({"status": {"currentHealthy": 0, "desiredHealthy": 0}}), false),
            (json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}), true),
        ];
        for (budget, expect) in rows {
            assert_eq!(lets_unhealthy_go(&budget), expect, "{budget}");
        }
    }
}
