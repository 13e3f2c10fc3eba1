//! The verdict of a Job's policy on a Pod that failed. Source: `JobSpec.podFailurePolicy`, batch/v1.

use controller::metadata::{name, namespace};
use controller::pod::{ContainerStatus, Pod};
use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::PodCondition;

/// What follows from the first rule that a Pod's end meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No rule is met: the failure counts.
    Unmatched,
    /// It counts.
    Count,
    /// It does not count.
    Ignore,
    /// It counts, and its index has failed.
    FailIndex,
    /// It counts, and the Job has failed, as this says.
    FailJob(String),
}

impl Verdict {
    /// Whether the failure counts towards the limits.
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignore
    }

    /// The action, as the API calls it; none where no rule is met.
    pub(super) fn action(&self) -> Option<&'static str> {
        match self {
            Self::Unmatched => None,
            Self::Count => Some("Count"),
            Self::Ignore => Some("Ignore"),
            Self::FailIndex => Some("FailIndex"),
            Self::FailJob(_) => Some("FailJob"),
        }
    }
}

/// Judges a failed Pod.
pub(super) fn judge(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Verdict {
    let rules = policy.iter().flat_map(|policy| &policy.rules).enumerate();
    rules.filter_map(|(index, rule)| apply(rule, index, pod)).next().unwrap_or(Verdict::Unmatched)
}

fn apply(rule: &PodFailurePolicyRule, index: usize, pod: &Pod) -> Option<Verdict> {
    let what = if let Some(wanted) = &rule.on_exit_codes {
        let (container, code) = exited(pod, wanted)?;
        let of = pod_of(pod);
        format!("Container {container} for pod {of} failed with exit code {code}")
    } else {
        let found = met(pod, rule.on_pod_conditions.as_deref().unwrap_or_default())?;
        format!("Pod {} has condition {}", pod_of(pod), found.type_)
    };
    match rule.action.as_str() {
        "Ignore" => Some(Verdict::Ignore),
        "FailIndex" => Some(Verdict::FailIndex),
        "Count" => Some(Verdict::Count),
        "FailJob" => Some(Verdict::FailJob(format!("{what} matching FailJob rule at index {index}"))),
        _ => None,
    }
}

fn pod_of(pod: &Pod) -> String {
    format!("{}/{}", namespace(&pod.metadata), name(&pod.metadata))
}

/// The first container that ended as wanted, and its exit code; ordinary ones come first.
fn exited<'a>(pod: &'a Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let ended = |container: &'a ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        let is_named = wanted.container_name.as_ref().is_none_or(|name| *name == container.name);
        let is_listed = wanted.values.contains(&code);
        let is_wanted = match wanted.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        };
        (is_named && code != 0 && is_wanted).then_some((container.name.as_str(), code))
    };
    let ordinary = status.container_statuses.iter().flatten();
    ordinary.chain(status.init_container_statuses.iter().flatten()).find_map(ended)
}

fn met<'a>(pod: &'a Pod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    conditions.iter().find(|condition| {
        // The API server fills the status of a pattern in.
        let is_met = |pattern: &PodFailurePolicyOnPodConditionsPattern| {
            pattern.type_ == condition.type_
                && pattern.status.as_deref().unwrap_or("True") == condition.status
        };
        patterns.iter().any(is_met)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    fn check(rules: &str, status: &str, expect: &Verdict) {
        let policy: PodFailurePolicy = parse(&format!("{{rules: [{rules}]}}"));
        let pod: Pod = parse(&format!("{{metadata: {{name: p, namespace: ns}}, status: {{{status}}}}}"));
        assert_eq!(judge(Some(&policy), &pod), *expect, "{rules} on {status}");
    }

    const EXITED: &str = "phase: Failed, containerStatuses: [{name: a, image: i, imageID: '', ready: false, restartCount: 0, \
                          state: {terminated: {exitCode: 0}}}, {name: b, image: i, imageID: '', ready: false, \
                          restartCount: 0, state: {terminated: {exitCode: 5}}}], initContainerStatuses: [{name: s, image: i, \
                          imageID: '', ready: false, restartCount: 0, state: {terminated: {exitCode: 7}}}]";
    const DISRUPTED: &str = "phase: Failed, conditions: [{type: DisruptionTarget, status: 'True'}]";

    #[test]
    fn the_first_rule_that_is_met_decides() {
        let fails = |text: &str| Verdict::FailJob(text.to_owned());
        for (rules, status, expect) in [
            ("", EXITED, Verdict::Unmatched),
            ("{action: Ignore, onExitCodes: {operator: In, values: [5]}}", EXITED, Verdict::Ignore),
            ("{action: Ignore, onExitCodes: {operator: In, values: [6]}}", EXITED, Verdict::Unmatched),
            ("{action: Ignore, onExitCodes: {operator: In, values: [0]}}", EXITED, Verdict::Unmatched),
            ("{action: FailIndex, onExitCodes: {operator: In, values: [7]}}", EXITED, Verdict::FailIndex),
            (
                "{action: FailJob, onExitCodes: {operator: NotIn, values: [6]}}",
                EXITED,
                fails("Container b for pod ns/p failed with exit code 5 matching FailJob rule at index 0"),
            ),
            (
                "{action: FailJob, onExitCodes: {containerName: s, operator: NotIn, values: [6]}}",
                EXITED,
                fails("Container s for pod ns/p failed with exit code 7 matching FailJob rule at index 0"),
            ),
            (
                "{action: Count, onExitCodes: {containerName: a, operator: NotIn, values: [6]}}",
                EXITED,
                Verdict::Unmatched,
            ),
            ("{action: Count, onExitCodes: {operator: Exists, values: [5]}}", EXITED, Verdict::Unmatched),
            (
                "{action: Count, onExitCodes: {operator: In, values: [5]}}, {action: Ignore, onExitCodes: {operator: In, values: [5]}}",
                EXITED,
                Verdict::Count,
            ),
            (
                "{action: Other, onExitCodes: {operator: In, values: [5]}}, {action: Ignore, onExitCodes: {operator: In, values: [5]}}",
                EXITED,
                Verdict::Ignore,
            ),
            (
                "{action: Count, onPodConditions: [{type: X, status: 'True'}]}, {action: FailJob, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}",
                DISRUPTED,
                fails("Pod ns/p has condition DisruptionTarget matching FailJob rule at index 1"),
            ),
            ("{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}", DISRUPTED, Verdict::Ignore),
            (
                "{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'False'}]}",
                DISRUPTED,
                Verdict::Unmatched,
            ),
            ("{action: Ignore}", DISRUPTED, Verdict::Unmatched),
            (
                "{action: Ignore, onExitCodes: {operator: NotIn, values: []}}",
                "phase: Failed",
                Verdict::Unmatched,
            ),
        ] {
            check(rules, status, &expect);
        }
    }
}
