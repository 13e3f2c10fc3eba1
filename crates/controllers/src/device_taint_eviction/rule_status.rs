//! The status of a DeviceTaintRule: the condition EvictionInProgress.
//!
//! It is written at once when the rule has changed, and then at most every ten seconds while Pods leave because of it. Of a rule
//! of the effect None it is written once, and tells what NoExecute would do.
//! Source: `maybeUpdateRuleStatus` of `pkg/controller/devicetainteviction`.

use std::time::Duration;

use controller::device_taint::NO_EXECUTE;
use controller::metadata::{name, time, uid};
use controller::{Action, Patch, Plan};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use super::taints::{Pending, Selected};
use crate::pod::since_until;

/// The shortest time between two writes of a status. Source: `ruleStatusPeriod`.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
const IN_PROGRESS: &str = "EvictionInProgress";

/// The effect of a rule's taint, as far as it makes a difference to its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    NoExecute,
    None,
    Other,
}

impl Effect {
    pub(super) fn of(rule: &DeviceTaintRule) -> Self {
        match rule.spec.taint.effect.as_str() {
            NO_EXECUTE => Self::NoExecute,
            "None" => Self::None,
            _ => Self::Other,
        }
    }
}

/// What a rule does, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The devices that it is about.
    pub(super) selected: Selected,
    /// The Pods that have to leave, or would have to.
    pub(super) pending: Pending,
    /// The Pods that have left.
    pub(super) evicted: usize,
}

/// How long a status that has just been written for this generation is left alone yet.
pub(super) fn rests(rule: &DeviceTaintRule, now: Timestamp) -> Option<Duration> {
    let written = existing(rule).filter(|one| one.observed_generation == rule.metadata.generation)?;
    let left = PERIOD.saturating_sub(since_until(written.last_transition_time.0, now));
    (!left.is_zero()).then_some(left)
}

/// Writes the condition if it says something new.
pub(super) fn plan(rule: &DeviceTaintRule, counts: &Counts, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let (is_true, reason, message) = told(Effect::of(rule), counts);
    let mut new = Condition {
        type_: IN_PROGRESS.to_owned(),
        status: if is_true { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: rule.metadata.generation,
        last_transition_time: time(now),
    };
    if let Some(old) = existing(rule) {
        // The time alone is no news.
        new.last_transition_time = old.last_transition_time.clone();
        if new == *old {
            return plan;
        }
        new.last_transition_time = time(now);
    }
    let patch = json!({"metadata": {"uid": uid(&rule.metadata)}, "status": {"conditions": [new]}});
    plan.push(Action::patch_status::<DeviceTaintRule>("", name(&rule.metadata), Patch::Strategic(patch)));
    plan
}

fn existing(rule: &DeviceTaintRule) -> Option<&Condition> {
    let conditions = rule.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == IN_PROGRESS)
}

/// Whether Pods have to leave, the reason and the message.
fn told(effect: Effect, counts: &Counts) -> (bool, &'static str, String) {
    let Counts { selected, pending, evicted } = counts;
    let (reason, mut parts) = match effect {
        Effect::NoExecute if pending.pods > 0 => {
            let pods = counted(pending.pods, "pod needs", "pods need");
            let namespaces = counted(pending.namespaces, "namespace", "different namespaces");
            ("PodsPendingEviction", vec![format!("{pods} to be evicted in {namespaces}.")])
        }
        Effect::NoExecute if *evicted > 0 => ("Completed", Vec::new()),
        Effect::NoExecute => ("NotStarted", Vec::new()),
        Effect::None => ("NoEffect", preview(selected, pending)),
        Effect::Other => ("OtherEffect", vec!["Eviction only happens for the NoExecute effect.".to_owned()]),
    };
    if *evicted > 0 {
        parts.push(format!("{} evicted since starting the controller.", counted(*evicted, "pod", "pods")));
    }
    (reason == "PodsPendingEviction", reason, parts.join(" "))
}

fn preview(selected: &Selected, pending: &Pending) -> Vec<String> {
    let published = counted(selected.published, "published device", "published devices");
    let allocated = counted(selected.allocated, "allocated device", "allocated devices");
    let pods = counted(pending.pods, "pod", "pods");
    let namespaces = counted(pending.namespaces, "namespace", "different namespaces");
    vec![
        format!("{published} selected."),
        format!("{allocated} selected."),
        format!("{pods} would be evicted in {namespaces} if the effect was NoExecute."),
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
            .to_owned(),
    ]
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
