//! The disruption controller: how many Pods of each PodDisruptionBudget may be evicted now.
//!
//! How many Pods a controller wants is known of built-in ones; others are asked for their subresource `scale`
//! (`disruption/scale.rs`).
//! Source: `pkg/controller/disruption`, `policy/v1`.

mod scale;
pub mod stale;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{controller_of, is_deleting, key, name, namespace, time};
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Plan, Question, Source};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::int_or_percent::{Rounding, resolve};
use crate::pod::is_ready;
use crate::scale::ScaleError;
use controller::selector::selects;

/// How long an eviction counts although its Pod is not seen to go.
const EVICTION_SEEN_WITHIN: SignedDuration = SignedDuration::from_mins(2);
const CONDITION: &str = "DisruptionAllowed";
/// When to ask again for a scale that could not be had.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The controller's row. Keys are budgets.
pub const CONTROLLER: Controller = Controller {
    name: "disruption-controller",
    queue: "disruption",
    sources: |_| {
        vec![
            Source::itself::<PodDisruptionBudget>(),
            Source::of::<Pod>(budgets_of_pod),
            // How many Pods are expected follows from these.
            Source::of::<ReplicaSet>(|change, informers| in_namespace_of(&change.key, informers)),
            Source::of::<Deployment>(|change, informers| in_namespace_of(&change.key, informers)),
            Source::of::<StatefulSet>(|change, informers| in_namespace_of(&change.key, informers)),
            Source::of::<ReplicationController>(|change, informers| in_namespace_of(&change.key, informers)),
        ]
    },
    reconcile: |informers, key, now| {
        gather(informers, key, now).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// The input of a decision about one budget.
pub struct Snapshot {
    /// The budget.
    pub budget: Arc<PodDisruptionBudget>,
    /// The Pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The number of Pods that each of their controllers wants, by uid; `None` where the controller is not there, and
    /// why where it cannot be known. Filled in where it matters.
    pub scales: BTreeMap<String, Result<Option<i32>, ScaleError>>,
    /// The questions that the server has to be asked before.
    pub questions: Vec<Question>,
}

fn selector(budget: &PodDisruptionBudget) -> Option<&LabelSelector> {
    budget.spec.as_ref()?.selector.as_ref()
}

fn in_namespace_of(changed: &str, informers: &Informers) -> Vec<String> {
    let namespace = changed.split_once('/').map_or("", |(namespace, _)| namespace);
    let budgets = informers.informer::<PodDisruptionBudget>().in_namespace(namespace);
    budgets.iter().map(|budget| key(&budget.metadata)).collect()
}

/// A Pod wakes the budgets that select it, or did.
fn budgets_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    fn facts(pod: &Pod) -> impl PartialEq + '_ {
        (is_ready(pod), is_deleting(&pod.metadata), pod.metadata.labels.as_ref())
    }
    let Some(pod) = change.object() else { return Vec::new() };
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && facts(old) == facts(new)
    {
        return Vec::new();
    }
    let versions = [&change.old, &change.new];
    let is_about = |budget: &PodDisruptionBudget| {
        let labels = versions.iter().filter_map(|pod| pod.as_ref().map(|pod| pod.metadata.labels.as_ref()));
        selector(budget).is_some_and(|selector| labels.into_iter().any(|labels| selects(selector, labels)))
    };
    let budgets = informers.informer::<PodDisruptionBudget>().in_namespace(namespace(&pod.metadata));
    budgets.iter().filter(|budget| is_about(budget)).map(|budget| key(&budget.metadata)).collect()
}

fn gather(informers: &Informers, key: &str, now: Timestamp) -> Option<Snapshot> {
    let budget = informers.informer::<PodDisruptionBudget>().get(key)?;
    let place = namespace(&budget.metadata).to_owned();
    let mut pods = informers.informer::<Pod>().in_namespace(&place);
    let chosen = selector(&budget);
    pods.retain(|pod| chosen.is_some_and(|selector| selects(selector, pod.metadata.labels.as_ref())));
    let (mut scales, mut questions) = (BTreeMap::new(), Vec::new());
    let owners = pods.iter().filter(|_| is_relative(&budget)).filter_map(|pod| controller_of(&pod.metadata));
    for owner in owners {
        if scales.contains_key(&owner.uid) {
            continue;
        }
        match scale::of(informers, owner, &place, now) {
            Ok(known) => {
                scales.insert(owner.uid.clone(), known);
            }
            Err(question) if !questions.contains(&*question) => questions.push(*question),
            Err(_) => {}
        }
    }
    Some(Snapshot { budget, pods, scales, questions })
}

/// Whether the budget depends on how many Pods there should be.
fn is_relative(budget: &PodDisruptionBudget) -> bool {
    budget.spec.as_ref().is_some_and(|spec| {
        spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
    })
}

/// Decides what the budget's status says.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let budget = &*snapshot.budget;
    if is_deleting(&budget.metadata) {
        return plan;
    }
    if !snapshot.questions.is_empty() {
        plan.questions.clone_from(&snapshot.questions);
        return plan;
    }
    let (disrupted, look_again) = disrupted(snapshot, now);
    plan.push_step(told_of_pods(snapshot, &disrupted));
    let counted = expected(snapshot);
    let healthy = snapshot.pods.iter().filter(|pod| {
        !is_deleting(&pod.metadata) && !disrupted.contains_key(name(&pod.metadata)) && is_ready(pod)
    });
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let old = budget.status.clone().unwrap_or_default();
    let condition = |status: &str, reason: &str, message: String| Condition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: budget.metadata.generation,
        last_transition_time: time(now),
    };
    let (status, condition) = match counted {
        Ok((expected_pods, desired_healthy)) => {
            let allowed = if expected_pods <= 0 { 0 } else { (healthy - desired_healthy).max(0) };
            let status = PodDisruptionBudgetStatus {
                current_healthy: healthy,
                desired_healthy,
                expected_pods,
                disruptions_allowed: allowed,
                disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
                observed_generation: budget.metadata.generation,
                conditions: None,
            };
            let is_allowed =
                if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            (status, condition(is_allowed.0, is_allowed.1, String::new()))
        }
        Err(why) => {
            plan.push(Action::event(
                budget,
                EventType::Warning,
                "CalculateExpectedPodCountFailed",
                format!("Failed to calculate the number of expected pods: {why}"),
            ));
            let status = PodDisruptionBudgetStatus {
                disruptions_allowed: 0,
                observed_generation: budget.metadata.generation,
                ..old.clone()
            };
            (status, condition("False", "SyncFailed", why.to_string()))
        }
    };
    let conditions = with_condition(&old, condition);
    let status = PodDisruptionBudgetStatus { conditions: Some(conditions), ..status };
    if snapshot.pods.is_empty() && status != old {
        plan.push(Action::event(budget, EventType::Normal, "NoPods", "No matching pods found"));
    }
    if status != old {
        plan.push(Action::update_status(&PodDisruptionBudget { status: Some(status), ..budget.clone() }));
    }
    plan.requeue_after = look_again;
    if snapshot.scales.values().any(Result::is_err) {
        plan.requeue(LOOK_AGAIN);
    }
    plan
}

/// What is to be told of Pods that were evicted and stay, and of those that nobody says how many there should be of.
fn told_of_pods(snapshot: &Snapshot, disrupted: &BTreeMap<String, Time>) -> Vec<Action> {
    let budget = &*snapshot.budget;
    let recorded = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let was_expected_to_go = |pod: &&Arc<Pod>| {
        let name = name(&pod.metadata);
        let was_evicted = recorded.is_some_and(|all| all.contains_key(name)) && !disrupted.contains_key(name);
        was_evicted && !is_deleting(&pod.metadata)
    };
    // Upstream says the namespace twice.
    let place = namespace(&budget.metadata);
    let message = format!("Pod was expected by PDB {place}/{place} to be deleted but it wasn't");
    let staying = snapshot.pods.iter().filter(was_expected_to_go);
    let mut told: Vec<Action> =
        staying.map(|pod| Action::event(&**pod, EventType::Warning, "NotDeleted", message.clone())).collect();
    let is_unmanaged = |pod: &Arc<Pod>| controller_of(&pod.metadata).is_none();
    if is_relative(budget) && snapshot.pods.iter().any(is_unmanaged) {
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
             the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
             set \".spec.minAvailable\" field of the PDB to an integer value.",
            selector(budget).map(as_go_shows).unwrap_or_default()
        );
        told.push(Action::event(budget, EventType::Warning, "UnmanagedPods", message));
    }
    told
}

fn as_go_shows(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

/// The evictions whose Pods are still there and not yet going; and when the first of them is forgotten.
fn disrupted(snapshot: &Snapshot, now: Timestamp) -> (BTreeMap<String, Time>, Option<Duration>) {
    let recorded = snapshot.budget.status.as_ref().and_then(|status| status.disrupted_pods.clone());
    let mut kept = BTreeMap::new();
    let mut look_again: Option<Duration> = None;
    for (pod, at) in recorded.unwrap_or_default() {
        let is_there =
            snapshot.pods.iter().any(|one| name(&one.metadata) == pod && !is_deleting(&one.metadata));
        let left = at.0.duration_since(now).saturating_add(EVICTION_SEEN_WITHIN);
        let Ok(left) = Duration::try_from(left) else { continue };
        if is_there && !left.is_zero() {
            look_again = Some(look_again.map_or(left, |earlier| earlier.min(left)));
            kept.insert(pod, at);
        }
    }
    (kept, look_again)
}

/// How many Pods there should be, and how many of them healthy.
fn expected(snapshot: &Snapshot) -> Result<(i32, i32), ScaleError> {
    let Some(spec) = &snapshot.budget.spec else { return Ok((0, 0)) };
    let present = i32::try_from(snapshot.pods.len()).unwrap_or(i32::MAX);
    if let Some(unavailable) = &spec.max_unavailable {
        let wanted = wanted(snapshot)?;
        return Ok((wanted, (wanted - resolve(unavailable, wanted, Rounding::Up)).max(0)));
    }
    match &spec.min_available {
        Some(IntOrString::Int(count)) => Ok((present, *count)),
        Some(percent) => {
            let wanted = wanted(snapshot)?;
            Ok((wanted, resolve(percent, wanted, Rounding::Up)))
        }
        None => Ok((present, 0)),
    }
}

/// How many Pods the controllers want together; Pods without one count for nothing.
fn wanted(snapshot: &Snapshot) -> Result<i32, ScaleError> {
    let mut total = 0_i32;
    for (uid, scale) in &snapshot.scales {
        match scale {
            Ok(Some(scale)) => total = total.saturating_add(*scale),
            Err(why) => return Err(why.clone()),
            Ok(None) => {
                let is_of =
                    |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == *uid);
                let pod = snapshot.pods.iter().find(is_of).map_or("", |pod| name(&pod.metadata));
                return Err(ScaleError::NoController(pod.to_owned()));
            }
        }
    }
    Ok(total)
}

/// The conditions with a new one in its place, which has stood for as long as its status has.
fn with_condition(old: &PodDisruptionBudgetStatus, mut new: Condition) -> Vec<Condition> {
    let mut all = old.conditions.clone().unwrap_or_default();
    match all.iter_mut().find(|one| one.type_ == new.type_) {
        Some(one) => {
            if one.status == new.status {
                new.last_transition_time = one.last_transition_time.clone();
            }
            *one = new;
        }
        None => all.push(new),
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{list, noon, parse, unanswered};

    fn check(name: &str, spec: &str, status: &str, scale: Option<i32>, expect: &str) {
        check_with(name, (spec, status), Ok(scale), expect);
    }

    fn check_with(
        name: &str,
        (spec, status): (&str, &str),
        scale: Result<Option<i32>, ScaleError>,
        expect: &str,
    ) {
        let budget = format!("{{metadata: {{name: b, generation: 3}}, spec: {spec}, status: {status}}}");
        let pod = |name: &str, more: &str, ready: &str| {
            format!(
                "{{metadata: {{name: {name}{more}, ownerReferences: [{{uid: r, kind: ReplicaSet, name: r, apiVersion: apps/v1, \
                 controller: true}}]}}, spec: {{containers: []}}, status: {{conditions: [{{type: Ready, status: '{ready}'}}]}}}}"
            )
        };
        let pods = format!(
            "[{}, {}, {}, {}]",
            pod("a", "", "True"),
            pod("b", "", "True"),
            pod("c", "", "False"),
            pod("d", ", deletionTimestamp: '2026-01-01T11:00:00Z'", "True")
        );
        let snapshot = Snapshot {
            budget: Arc::new(parse(&budget)),
            pods: list(&pods),
            scales: [("r".to_owned(), scale)].into(),
            questions: Vec::new(),
        };
        let plan = plan(&snapshot, noon());
        let written = plan.actions().find_map(|action| match action {
            Action::Request(request) => Some(request.body["status"].clone()),
            _ => None,
        });
        let status = written.unwrap_or_default();
        let shown = format!(
            "{}/{}/{}/{} {} {} {:?}",
            status["currentHealthy"],
            status["desiredHealthy"],
            status["expectedPods"],
            status["disruptionsAllowed"],
            status["conditions"][0]["reason"].as_str().unwrap_or_default(),
            status["disruptedPods"],
            plan.requeue_after,
        );
        assert_eq!(shown, expect, "{name}");
    }

    #[test]
    fn budgets_count_ready_pods() {
        check("min", "{minAvailable: 1}", "{}", Some(4), "2/1/4/1 SufficientPods null None");
        check("min percent", "{minAvailable: 50%}", "{}", Some(3), "2/2/3/0 InsufficientPods null None");
        check("max", "{maxUnavailable: 2}", "{}", Some(3), "2/1/3/1 SufficientPods null None");
        check("max percent", "{maxUnavailable: 34%}", "{}", Some(3), "2/1/3/1 SufficientPods null None");
        check("nothing wanted", "{maxUnavailable: 1}", "{}", Some(0), "2/0/0/0 InsufficientPods null None");
        check("unknown owner", "{maxUnavailable: 1}", "{}", None, "0/0/0/0 SyncFailed null None");
        let away = || Err(unanswered("away").into());
        check_with(
            "scale not told",
            ("{maxUnavailable: 1}", "{}"),
            away(),
            "0/0/0/0 SyncFailed null Some(30s)",
        );
    }

    #[test]
    fn what_is_odd_about_pods_is_told() {
        let check = |spec: &str, status: &str, pods: &str, expect: &[&str]| {
            let budget =
                format!("{{metadata: {{name: b, namespace: shop}}, spec: {spec}, status: {status}}}");
            let budget = Arc::new(parse(&budget));
            let snapshot =
                Snapshot { budget, pods: list(pods), scales: BTreeMap::new(), questions: Vec::new() };
            let plan = plan(&snapshot, noon());
            let told = plan.actions().filter_map(|action| match action {
                Action::Event(event) => Some(format!("{} {}", event.reason, event.message)),
                Action::Request(_) | Action::Count(_) | Action::Operation(_) => None,
            });
            assert_eq!(told.collect::<Vec<_>>(), expect, "{spec} {status} {pods}");
        };
        let (absolute, pod) =
            ("{minAvailable: 1, selector: {matchLabels: {a: b}}}", "[{metadata: {name: a}}]");
        check(absolute, "{}", pod, &[]);
        let unmanaged = "UnmanagedPods Pods selected by this PodDisruptionBudget (selector: \
                         &LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}) \
                         were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may \
                         result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the \
                         PDB to an integer value.";
        check(&absolute.replace('1', "50%"), "{}", pod, &[unmanaged]);
        let late = "{disruptedPods: {a: '2026-01-01T11:00:00Z', gone: '2026-01-01T11:00:00Z'}}";
        let stays = "NotDeleted Pod was expected by PDB shop/shop to be deleted but it wasn't";
        check(absolute, late, pod, &[stays]);
        check(absolute, &late.replace("11:00", "11:59"), pod, &[]);
        check(absolute, &late.replace("2026", "9999"), pod, &[]);
        check(absolute, late, "[{metadata: {name: a, deletionTimestamp: '2026-01-01T11:00:00Z'}}]", &[]);
    }

    #[test]
    fn an_eviction_counts_until_its_pod_goes_or_two_minutes_pass() {
        check(
            "evicted",
            "{minAvailable: 1}",
            "{disruptedPods: {a: '2026-01-01T11:59:00Z', b: '2026-01-01T11:00:00Z', d: '2026-01-01T11:59:00Z'}}",
            Some(4),
            "1/1/4/0 InsufficientPods {\"a\":\"2026-01-01T11:59:00Z\"} Some(60s)",
        );
    }
}
