//! The HorizontalPodAutoscaler controller: as many Pods as metrics ask for.
//!
//! Every sync period, and when an autoscaler changes, it asks for the target's scale, then for all metrics at once, and decides
//! from the answers. No informer knows metrics: they are measured, and nobody can watch them.
//! Source: `pkg/controller/podautoscaler`.

mod bounds;
mod counting;
mod error;
mod metrics;
mod replicas;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use controller::discovery::Watcher;
use controller::metadata::{key, namespace};
use controller::pod::Pod;
use controller::question::{Answer, Scale};
use controller::{Action, Answers, Controller, Informers, Plan, Question, ResourceRef, Source};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec};
use machinery::duration::GoDuration;
use machinery::labels::Selector;
use machinery::quantity::Quantity;
use parking_lot::Mutex;

use crate::options::{Options, signed};
use crate::scale::{self, ScaleError};
use bounds::{Grant, History, Wish, grant};
use counting::Wrong;
use error::MetricError;
use metrics::Measured;
use replicas::{Scope, Tolerances};
use status::Report;

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "horizontal-pod-autoscaler-controller",
    queue: "horizontalpodautoscaler",
    sources: |_| vec![Source::itself::<HorizontalPodAutoscaler>(), Source::of::<Pod>(|_, _| Vec::new())],
    reconcile,
};

/// The input of a decision about one autoscaler.
pub struct Snapshot {
    /// The autoscaler.
    pub autoscaler: Arc<HorizontalPodAutoscaler>,
    /// The target, and the number of Pods that it wants; or why that cannot be known.
    pub target: Result<(ResourceRef, Scale), ScaleError>,
    /// The Pods that the target's selector selects.
    pub pods: Vec<Arc<Pod>>,
    /// Other autoscalers of these Pods: namespace and name.
    pub rivals: Vec<String>,
    /// The measurements, in the order of the autoscaler's metrics.
    pub measured: Vec<Result<Measured, MetricError>>,
    /// The operators' options.
    pub options: Arc<Options>,
}

/// What is kept in mind of autoscalers, by key.
#[derive(Default)]
struct Memories(Mutex<HashMap<String, Memory>>);

#[derive(Clone, Default)]
struct Memory {
    /// What was decided about last.
    spec: Option<HorizontalPodAutoscalerSpec>,
    /// When the answers of this turn were asked for, at the earliest.
    since: Timestamp,
    is_decided: bool,
    history: History,
    /// By how many Pods the target was to change, and when that was decided; until the autoscaler's status has it.
    pending: Option<(Timestamp, i32)>,
    selector: Option<Selector>,
}

fn reconcile(informers: &Informers, key: &str, now: Timestamp) -> Plan {
    let memories = informers.setting_or(Memories::default);
    let Some(autoscaler) = informers.informer::<HorizontalPodAutoscaler>().get(key) else {
        memories.0.lock().remove(key);
        return Plan::nothing();
    };
    let mut memory = memories.0.lock().get(key).cloned().unwrap_or_default();
    let period = Options::of(informers).horizontal_pod_autoscaler_sync_period;
    if let Some(left) = memory.turn(&autoscaler, period, now) {
        return Plan { requeue_after: Some(left), ..Plan::default() };
    }
    let mut plan = match gather(informers, &autoscaler, &mut memory, &memories) {
        Err(questions) => Plan { questions, ..Plan::default() },
        Ok(seen) => {
            memory.is_decided = true;
            plan(&seen, &mut memory, now)
        }
    };
    plan.requeue(period.0);
    memories.0.lock().insert(key.to_owned(), memory);
    plan
}

impl Memory {
    /// Begins another turn if it is time; how long until then, if not.
    fn turn(
        &mut self,
        autoscaler: &HorizontalPodAutoscaler,
        period: GoDuration,
        now: Timestamp,
    ) -> Option<Duration> {
        let status = autoscaler.status.as_ref();
        let scaled = status.and_then(|status| status.last_scale_time.as_ref()).map(|time| time.0);
        let mut has_failed = false;
        if let (true, Some((at, by))) = (self.is_decided, self.pending.take()) {
            // The API has no fractions of seconds.
            if scaled.is_some_and(|scaled| scaled.as_second() >= at.as_second()) {
                self.history.changed(at, by);
            } else {
                has_failed = true;
            }
        }
        let passed = now.duration_since(self.since);
        let left = signed(period).saturating_sub(passed);
        let is_same = self.spec.as_ref() == autoscaler.spec.as_ref();
        if self.is_decided && is_same && !has_failed && left.is_positive() {
            return Duration::try_from(left).ok();
        }
        if self.is_decided || !is_same || left.is_negative() {
            self.since = now;
            self.is_decided = false;
            self.spec.clone_from(&autoscaler.spec);
        }
        None
    }
}

/// Everything that a decision needs, or what has to be asked before. What was measured is forgotten with that: it is as
/// large as whoever serves it likes, and old in the next turn.
fn gather(
    informers: &Informers,
    autoscaler: &Arc<HorizontalPodAutoscaler>,
    memory: &mut Memory,
    memories: &Memories,
) -> Result<Snapshot, Vec<Question>> {
    let (answers, served) = (Answers::of(informers), Watcher::of(informers).served());
    let place = namespace(&autoscaler.metadata);
    let mut seen = Snapshot {
        autoscaler: autoscaler.clone(),
        target: Err(ScaleError::Undiscovered(String::new())),
        pods: Vec::new(),
        rivals: Vec::new(),
        measured: Vec::new(),
        options: Options::of(informers),
    };
    let Some(spec) = &autoscaler.spec else { return Ok(seen) };
    let of = &spec.scale_target_ref;
    let target = scale::Target {
        api_version: of.api_version.as_deref().unwrap_or_default(),
        kind: &of.kind,
        namespace: place,
        name: &of.name,
    };
    seen.target = match scale::ask(&served, &answers, &target, memory.since) {
        Err(question) => return Err(vec![*question]),
        Ok(Ok((resource, Some(scale)))) => Ok((resource, scale)),
        Ok(Ok((resource, None))) => {
            Err(ScaleError::NotFound { resource: resource.full_name(), name: of.name.clone() })
        }
        Ok(Err(why)) => Err(why),
    };
    let Ok((_, scale)) = &seen.target else { return Ok(seen) };
    let Ok(selector) = Selector::parse(&scale.selector) else { return Ok(seen) };
    if scale.selector.is_empty() || is_off(spec, scale) {
        return Ok(seen);
    }
    let all = informers.informer::<Pod>().in_namespace(place);
    let is_selected = |pod: &Pod, by: &Selector| {
        by.matches_with(|label| Some(pod.metadata.labels.as_ref()?.get(label)?.as_str()))
    };
    seen.pods = all.into_iter().filter(|pod| is_selected(pod, &selector)).collect();
    memory.selector = Some(selector);
    seen.rivals = memories
        .rivals(&key(&autoscaler.metadata), place, |by| seen.pods.iter().any(|pod| is_selected(pod, by)));
    let (mut questions, mut answered) = (Vec::new(), Vec::new());
    for metric in spec.metrics.iter().flatten() {
        let measured = match metrics::question(metric, place, &scale.selector, &served) {
            Err(why) => Err(why),
            Ok(question) => {
                let answer = answers.get(&question, memory.since);
                if answer.is_some() { &mut answered } else { &mut questions }.push(question);
                match answer {
                    Some(Ok(Answer::Document(document))) => metrics::read(metric, &document),
                    Some(Ok(_)) => Err(MetricError::NoDocument),
                    Some(Err(error)) => Err(MetricError::Unanswered(api(metric), error)),
                    None => continue,
                }
            }
        };
        seen.measured.push(measured);
    }
    if questions.is_empty() {
        answered.iter().for_each(|question| answers.forget(question));
        Ok(seen)
    } else {
        // Of CPU and memory of the same Pods one list tells.
        questions.sort();
        questions.dedup();
        Err(questions)
    }
}

/// Whether somebody has scaled the target to zero, which then stays there: unless zero is among what the autoscaler may do.
fn is_off(spec: &HorizontalPodAutoscalerSpec, scale: &Scale) -> bool {
    scale.replicas == 0 && spec.min_replicas != Some(0)
}

/// Which of the three APIs has a metric.
fn api(metric: &MetricSpec) -> &'static str {
    match metric.type_.as_str() {
        "External" => "external",
        "Object" | "Pods" => "custom",
        _ => "resource",
    }
}

impl Memories {
    /// Other autoscalers in the namespace whose selectors select what this one's does; none if it is alone.
    fn rivals(&self, own: &str, place: &str, selects: impl Fn(&Selector) -> bool) -> Vec<String> {
        let all = self.0.lock();
        let mut others: Vec<String> = all
            .iter()
            .filter(|(key, memory)| {
                let is_near = key.split_once('/').is_some_and(|(namespace, _)| namespace == place);
                is_near && *key != own && memory.selector.as_ref().is_some_and(&selects)
            })
            .map(|(key, _)| key.clone())
            .collect();
        others.sort();
        others
    }
}

/// Decides how many Pods there are to be.
fn plan(snapshot: &Snapshot, memory: &mut Memory, now: Timestamp) -> Plan {
    let autoscaler = &*snapshot.autoscaler;
    let Some(spec) = &autoscaler.spec else { return Plan::nothing() };
    let mut report = Report::of(autoscaler, now);
    let (resource, scale) = match &snapshot.target {
        Ok(target) => target,
        Err(why) => {
            let is_unreadable =
                spec.scale_target_ref.api_version.iter().any(|version| version.matches('/').count() > 1);
            report.wrong(if is_unreadable { Wrong::Spec } else { Wrong::Internal });
            report.warn("FailedGetScale", why.to_string());
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            report.condition("AbleToScale", false, "FailedGetScale", message);
            return report.plan();
        }
    };
    let current = scale.replicas;
    report.condition(
        "AbleToScale",
        true,
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    );
    if memory.history.is_new() {
        memory.history.recommended(now, current);
    }
    report.current(current);
    let min = spec.min_replicas.unwrap_or(1);
    let (replicas, why) = if is_off(spec, scale) {
        let message = "scaling is disabled since the replica count of the target is zero";
        report.condition("ScalingActive", false, "ScalingDisabled", message);
        (0, String::new())
    } else if current > spec.max_replicas {
        (spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
    } else if current < min {
        (min, "Current number of replicas below Spec.MinReplicas".to_owned())
    } else {
        let Some((wanted, metric)) = by_metrics(snapshot, spec, scale, &mut report, now) else {
            return report.plan();
        };
        let wish = Wish {
            current,
            wanted,
            min,
            max: spec.max_replicas,
            behavior: spec.behavior.as_ref(),
            stabilization: signed(snapshot.options.horizontal_pod_autoscaler_downscale_stabilization),
        };
        let Grant { replicas, able, limited } = grant(&wish, &mut memory.history, now);
        report.condition("AbleToScale", true, able.0, able.1);
        report.condition("ScalingLimited", limited.0, limited.1, limited.2);
        let why = match wanted.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        (replicas, why)
    };
    if replicas == current {
        report.desired(current);
        return report.plan();
    }
    memory.pending = spec.behavior.is_some().then_some((now, replicas - current));
    let wanted = Scale { replicas, ..scale.clone() };
    let (place, name) = (namespace(&autoscaler.metadata), &spec.scale_target_ref.name);
    let action = Action::update_scale(resource.clone(), place, name, &wanted);
    report.rescaled(action, current, replicas, &why)
}

/// The highest number that any metric asks for, and which one; nothing where that cannot be said.
fn by_metrics(
    snapshot: &Snapshot,
    spec: &HorizontalPodAutoscalerSpec,
    scale: &Scale,
    report: &mut Report<'_>,
    now: Timestamp,
) -> Option<(i32, String)> {
    if let Some(why) = selector_problem(snapshot, scale, report) {
        report.wrong(Wrong::Internal);
        report.warn("FailedComputeMetricsReplicas", why);
        return None;
    }
    let tolerances = tolerances(spec, snapshot.options.horizontal_pod_autoscaler_tolerance);
    let scope = Scope {
        pods: &snapshot.pods,
        wanted: scale.replicas,
        existing: scale.status_replicas,
        tolerances,
        options: &snapshot.options,
        now,
    };
    let metrics = spec.metrics.as_deref().unwrap_or_default();
    let (mut highest, mut failed): (Option<(i32, String)>, Vec<status::Failure>) = (None, Vec::new());
    for (metric, measured) in metrics.iter().zip(&snapshot.measured) {
        match status::propose(metric, measured.clone(), &scope) {
            Ok(proposal) => {
                report.counted(&metric.type_, Ok(proposal.replicas.cmp(&scale.replicas)));
                report.measured(proposal.status);
                if highest.as_ref().is_none_or(|(most, _)| proposal.replicas > *most) {
                    highest = Some((proposal.replicas, proposal.name));
                }
            }
            Err(failure) => {
                report.wrong(failure.wrong());
                report.counted(&metric.type_, Err(failure.wrong()));
                report.measured(Default::default());
                report.warn(failure.reason, failure.message.clone());
                failed.push(failure);
            }
        }
    }
    let is_shrinking = highest.as_ref().is_none_or(|(most, _)| *most < scale.replicas);
    if let (Some(first), true) = (failed.first(), is_shrinking) {
        let message = format!("the HPA was unable to compute the replica count: {}", first.message);
        report.condition("ScalingActive", false, first.reason, message);
        let (invalid, all) = (failed.len(), metrics.len());
        let why = format!("invalid metrics ({invalid} invalid out of {all}), first error is: {}", first.told);
        report.warn("FailedComputeMetricsReplicas", why);
        return None;
    }
    let (replicas, metric) = highest?;
    let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
    report.condition("ScalingActive", true, "ValidMetricFound", message);
    Some((replicas, metric))
}

/// Why the target's selector does not tell which Pods are scaled.
fn selector_problem(snapshot: &Snapshot, scale: &Scale, report: &mut Report<'_>) -> Option<String> {
    let (reason, why, message) = if scale.selector.is_empty() {
        let message = "the HPA target's scale is missing a selector".to_owned();
        ("SelectorRequired", "selector is required".to_owned(), Some(message))
    } else if let Err(error) = Selector::parse(&scale.selector) {
        let why = format!("couldn't convert selector into a corresponding internal selector object: {error}");
        ("InvalidSelector", why, None)
    } else if !snapshot.rivals.is_empty() {
        let own = key(&snapshot.autoscaler.metadata);
        let all = snapshot.rivals.iter().chain([&own]).filter_map(|key| key.split_once('/'));
        let all: Vec<String> = all.map(|(namespace, name)| format!("{{{name} {namespace}}}")).collect();
        let (selector, all) = (&scale.selector, all.join(" "));
        let why = format!("pods by selector {selector} are controlled by multiple HPAs: [{all}]");
        ("AmbiguousSelector", why, None)
    } else {
        return None;
    };
    report.warn(reason, why.clone());
    let condition = if reason == "SelectorRequired" { "InvalidSelector" } else { reason };
    report.condition("ScalingActive", false, condition, message.unwrap_or_else(|| why.clone()));
    Some(why)
}

fn tolerances(spec: &HorizontalPodAutoscalerSpec, default: f64) -> Tolerances {
    let behavior = spec.behavior.as_ref();
    let of = |tolerance: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
        let own = tolerance.and_then(|quantity| quantity.0.parse::<Quantity>().ok());
        own.map_or(default, |own| own.to_nanos() as f64 / 1e9)
    };
    Tolerances {
        down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref()?.tolerance.as_ref())),
        up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref()?.tolerance.as_ref())),
    }
}
