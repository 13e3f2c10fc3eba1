//! Why a HorizontalPodAutoscaler does not scale, as its conditions say it. Source: `pkg/controller/podautoscaler`.

use serde_json::Value;

use super::{Found, Reason, Snapshot, condition, list, number, reference, text, warnings};

const ADAPTER: &str =
    "install an adapter that serves that metric (`kubectl get apiservices` lists those that there are)";

/// What to do, by a condition's reason and what its message has in it.
const ADVICE: &[(&str, &str, &str)] = &[
    ("FailedGetScale", "", "name something that there is, and that can be scaled, in spec.scaleTargetRef"),
    ("FailedGetResourceMetric", "missing request", "set resources.requests for each container of its Pods"),
    ("FailedGetContainerResourceMetric", "missing request", "set resources.requests for that container"),
    ("FailedGetResourceMetric", "", "see that its Pods run, and what they use: `kubectl top pods`"),
    (
        "FailedGetContainerResourceMetric",
        "",
        "see that its Pods run, and what they use: `kubectl top pods --containers`",
    ),
    ("FailedGetPodsMetric", "", ADAPTER),
    ("FailedGetObjectMetric", "", ADAPTER),
    ("FailedGetExternalMetric", "", ADAPTER),
    ("ScalingDisabled", "", "scale it to one replica or more: an autoscaler leaves what has none alone"),
    (
        "AmbiguousSelector",
        "",
        "give the Pods of each target labels of their own, or remove one of the autoscalers",
    ),
    ("TooManyReplicas", "", "raise spec.maxReplicas, if there is room for more"),
];

pub(super) fn explain(snapshot: &Snapshot, autoscaler: &Value) -> Found {
    let object = reference(autoscaler);
    let mut reasons: Vec<Reason> = list(autoscaler, "/status/conditions")
        .iter()
        .filter(|one| is_ill(one))
        .map(|one| told(&object, one))
        .collect();
    if list(autoscaler, "/status/conditions").is_empty() {
        let what = "its controller has not looked at it yet";
        reasons.push(Reason::new(&object, what).fix("see that the controllers run: `knarr status`"));
    }
    // The conditions say the same, and say it of now.
    if reasons.is_empty() && condition(autoscaler, "ScalingActive").is_none() {
        reasons.extend(warnings(snapshot, autoscaler).into_iter().map(|what| Reason::new(&object, what)));
    }
    let count = |path: &str| number(autoscaler, path).unwrap_or(0);
    let target = format!(
        "{}/{}",
        text(autoscaler, "/spec/scaleTargetRef/kind").to_lowercase(),
        text(autoscaler, "/spec/scaleTargetRef/name")
    );
    let (current, desired) = (count("/status/currentReplicas"), count("/status/desiredReplicas"));
    let bounds =
        format!("{} to {}", number(autoscaler, "/spec/minReplicas").unwrap_or(1), count("/spec/maxReplicas"));
    let summary = match reasons.is_empty() {
        true if current == desired => format!("keeps {target} at {current} of {bounds} replicas"),
        true => format!("takes {target} from {current} to {desired} replicas, of {bounds}"),
        false => format!("does not scale {target} as it should, which has {current} of {bounds} replicas"),
    };
    (reasons.is_empty(), summary, reasons)
}

/// One that has reached its minimum is as it should be.
fn is_ill(condition: &Value) -> bool {
    let [kind, status, reason] = ["/type", "/status", "/reason"].map(|path| text(condition, path));
    match kind {
        "ScalingLimited" => status == "True" && reason == "TooManyReplicas",
        _ => matches!(status, "False" | "Unknown"),
    }
}

fn told(object: &str, condition: &Value) -> Reason {
    let [reason, message] = ["/reason", "/message"].map(|path| text(condition, path));
    let told = Reason::new(object, format!("{reason}: {message}"));
    match ADVICE.iter().find(|(of, has, _)| *of == reason && message.contains(has)) {
        Some((.., fix)) => told.fix(*fix),
        None => told,
    }
}
