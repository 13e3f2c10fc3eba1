//! `pods/eviction`: a DELETE that a PodDisruptionBudget can refuse.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go`.

use http::StatusCode;
use machinery::labels;
use machinery::metadata::Metadata;
use serde_json::{Value, json};

use crate::admission::{served, text};
use crate::api::Api;
use crate::kinds::Kind;
use crate::status::{Error, Result, success};
use crate::verbs::options::DeleteOptions;
use crate::verbs::{Answer, Request, current, decode, delete};

/// Evicts a Pod.
///
/// # Errors
/// 429 when a budget does not allow it now.
pub async fn evict(api: &Api, request: &Request) -> Result<Answer> {
    let eviction = decode::body_of(request, "policy/v1", "Eviction")?;
    let pod = request.kind.value(&*current(api, request, &request.key()).await?);
    crate::admission::node_restriction::validate_posted(request, &eviction, Some(&pod))?;
    let phase = text(&pod, "/status/phase");
    let is_finished =
        matches!(phase, "Succeeded" | "Failed" | "Pending") || Metadata::of(&pod).is_terminating();
    if !is_finished {
        check_budgets(api, request, &pod)?;
    }
    let given = eviction.get("deleteOptions").cloned().unwrap_or_default();
    let options = DeleteOptions {
        grace_period_seconds: given.get("gracePeriodSeconds").and_then(Value::as_i64),
        uid: given.pointer("/preconditions/uid").and_then(Value::as_str).map(str::to_owned),
        is_dry_run: request.is_dry_run(),
        ..DeleteOptions::default()
    };
    delete::delete_object(api, request, &options).await?;
    Ok(Answer::Value { code: StatusCode::CREATED, value: success(Value::Null), warnings: Vec::new() })
}

fn check_budgets(api: &Api, request: &Request, pod: &Value) -> Result<()> {
    let Some(kind) = Kind::find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    let namespace = &request.resource.namespace;
    let budgets = kind.cache(api).list(&kind.collection(namespace), 0);
    for budget in budgets.objects.iter().map(|object| served(kind, object)) {
        let Ok(selector) = labels::Selector::from_label_selector(budget.pointer("/spec/selector")) else {
            continue;
        };
        if !selector.matches(Metadata::of(pod).labels()) {
            continue;
        }
        let allowed = budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0);
        if allowed > 0 {
            continue;
        }
        let name = Metadata::of(&budget).name().to_owned();
        let needed = budget.pointer("/status/desiredHealthy").and_then(Value::as_i64).unwrap_or(0);
        let healthy = budget.pointer("/status/currentHealthy").and_then(Value::as_i64).unwrap_or(0);
        let mut error =
            Error::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10);
        error.details["causes"] = json!([{
            "reason": "DisruptionBudget",
            "message": format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"),
        }]);
        return Err(error);
    }
    Ok(())
}
