//! The status and events of an autoscaler.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go`, `computeStatusFor...` and `setStatus`.

use std::cmp::Ordering;

use controller::metadata::time;
use controller::plan::FAILURE;
use controller::{Action, EventType, Plan};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricStatus,
    ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery::quantity::{Format, Quantity};

use super::counting::{self, Wrong};
use super::error::MetricError;
use super::metrics::{Measured, Readings};
use super::replicas::{Proposal, Scope, by_average, by_share, by_utilization, by_value};

const UNKNOWN_TYPE: &str = "InvalidMetricSourceType";

/// What is going to be said.
pub(super) struct Report<'a> {
    autoscaler: &'a HorizontalPodAutoscaler,
    status: HorizontalPodAutoscalerStatus,
    events: Vec<Action>,
    /// What was wrong first.
    wrong: Wrong,
    now: Timestamp,
}

impl<'a> Report<'a> {
    pub(super) fn of(autoscaler: &'a HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let (status, events) = (autoscaler.status.clone().unwrap_or_default(), Vec::new());
        Self { autoscaler, status, events, wrong: Wrong::None, now }
    }

    pub(super) fn wrong(&mut self, wrong: Wrong) {
        if self.wrong == Wrong::None {
            self.wrong = wrong;
        }
    }

    /// Counts a metric of a type, and what it asks for.
    pub(super) fn counted(&mut self, type_: &str, found: Result<Ordering, Wrong>) {
        self.events.push(counting::metric(type_, found));
    }

    pub(super) fn warn(&mut self, reason: &str, message: String) {
        self.events.push(Action::event(self.autoscaler, EventType::Warning, reason, message));
    }

    pub(super) fn condition(&mut self, type_: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let all = self.status.conditions.get_or_insert_default();
        let since = all.iter().find(|one| one.type_ == type_ && one.status == status);
        let since = since.map_or_else(|| Some(time(self.now)), |one| one.last_transition_time.clone());
        let new = HorizontalPodAutoscalerCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_transition_time: since,
        };
        match all.iter_mut().find(|one| one.type_ == type_) {
            Some(one) => *one = new,
            None => all.push(new),
        }
    }

    /// How many Pods there are to be now; what was measured before counts no more.
    pub(super) fn current(&mut self, replicas: i32) {
        self.status.current_replicas = Some(replicas);
        self.status.current_metrics = None;
    }

    pub(super) fn measured(&mut self, metric: MetricStatus) {
        self.status.current_metrics.get_or_insert_default().push(metric);
    }

    pub(super) fn desired(&mut self, replicas: i32) {
        self.status.desired_replicas = replicas;
    }

    /// Says it, as far as it was not said before.
    pub(super) fn plan(self) -> Plan {
        let measured = Some(counting::decision(Ordering::Equal, self.wrong));
        let mut plan = Plan { measured, ..Plan::default() };
        plan.push_step(self.events);
        if self.autoscaler.status.as_ref() != Some(&self.status) {
            plan.push(write(self.autoscaler, self.status));
        }
        plan
    }

    /// Changes the target's scale, and says so; or says why it could not be changed.
    pub(super) fn rescaled(mut self, action: Action, current: i32, replicas: i32, why: &str) -> Plan {
        let measured = Some(counting::decision(replicas.cmp(&current), self.wrong));
        let mut plan = Plan { measured, ..Plan::default() };
        plan.push_step(std::mem::take(&mut self.events));
        plan.on_failure_in = Some(plan.steps.len()..plan.steps.len() + 1);
        plan.push(action);
        let message = format!("New size: {replicas}; reason: {why}");
        plan.push(Action::event(self.autoscaler, EventType::Normal, "SuccessfulRescale", message.as_str()));
        let mut failed = Report { status: self.status.clone(), events: Vec::new(), ..self };
        let refused = format!("the HPA controller was unable to update the target scale: {FAILURE}");
        failed.condition("AbleToScale", false, "FailedUpdateScale", refused);
        failed.warn("FailedRescale", format!("{message}; error: {FAILURE}"));
        plan.on_failure = failed.plan().steps.into_iter().flatten().collect();
        let done = format!("the HPA controller was able to update the target scale to {replicas}");
        self.condition("AbleToScale", true, "SucceededRescale", done);
        self.status.desired_replicas = replicas;
        self.status.last_scale_time = Some(time(self.now));
        plan.push(write(self.autoscaler, self.status));
        plan
    }
}

fn write(autoscaler: &HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus) -> Action {
    Action::update_status(&HorizontalPodAutoscaler { status: Some(status), ..autoscaler.clone() })
}

/// What a metric asks for, and how it is told.
pub(super) struct Proposed {
    pub replicas: i32,
    pub name: String,
    pub status: MetricStatus,
}

/// Why a metric asks for nothing.
pub(super) struct Failure {
    pub reason: &'static str,
    /// As its event and the condition have it.
    pub message: String,
    /// As the event about all metrics has it.
    pub told: String,
}

impl Failure {
    pub(super) fn wrong(&self) -> Wrong {
        if self.reason == UNKNOWN_TYPE { Wrong::Spec } else { Wrong::Internal }
    }
}

impl MetricError {
    /// The failure of a metric of this name.
    fn failure(&self, reason: &'static str, name: &str) -> Failure {
        let message = self.to_string();
        Failure { reason, told: format!("failed to get {name} metric value: {message}"), message }
    }
}

/// What one metric asks for.
pub(super) fn propose(
    metric: &MetricSpec,
    measured: Result<Measured, MetricError>,
    scope: &Scope<'_>,
) -> Result<Proposed, Failure> {
    match (&metric.resource, &metric.container_resource, &metric.pods, &metric.object, &metric.external) {
        (Some(of), ..) => {
            let proposal = by_resource(&of.name, None, &of.target, measured, scope).map_err(|error| {
                error.failure("FailedGetResourceMetric", &format!("{} resource", of.name))
            })?;
            let current = resource_status(&of.name, &proposal);
            let status = ResourceMetricStatus { name: of.name.clone(), current };
            let name = resource_title(&of.name, &proposal, "resource");
            Ok(told(metric, name, &proposal, |all| all.resource = Some(status)))
        }
        (_, Some(of), ..) => {
            let (resource, container) = (&of.name, &of.container);
            let proposal =
                by_resource(resource, Some(container), &of.target, measured, scope).map_err(|error| {
                    error.failure("FailedGetContainerResourceMetric", &format!("{container} container"))
                })?;
            let (name, container) = (resource.clone(), container.clone());
            let current = resource_status(resource, &proposal);
            let status = ContainerResourceMetricStatus { name, container, current };
            let name = resource_title(resource, &proposal, "container resource");
            Ok(told(metric, name, &proposal, |all| all.container_resource = Some(status)))
        }
        (_, _, Some(of), ..) => {
            let name = &of.metric.name;
            let readings =
                readings(measured).map_err(|error| error.while_(format!("unable to get metric {name}")));
            let target = milli(of.target.average_value.as_ref());
            let proposal = readings
                .and_then(|all| by_average(scope, &all, None, target))
                .map_err(|error| error.failure("FailedGetPodsMetric", "pods"))?;
            let status = PodsMetricStatus { metric: of.metric.clone(), current: average(&proposal) };
            Ok(told(metric, format!("pods metric {name}"), &proposal, |all| all.pods = Some(status)))
        }
        (_, _, _, Some(of), _) => by_object(metric, of, measured, scope),
        (_, _, _, _, Some(of)) => by_external(metric, of, measured, scope),
        _ => {
            let message = format!("unknown metric source type {:?}", metric.type_);
            Err(Failure { reason: UNKNOWN_TYPE, told: message.clone(), message })
        }
    }
}

fn by_object(
    metric: &MetricSpec,
    of: &ObjectMetricSource,
    measured: Result<Measured, MetricError>,
    scope: &Scope<'_>,
) -> Result<Proposed, Failure> {
    let object = &of.described_object;
    let where_ = format!("{} metric {}", object.kind, of.metric.name);
    let total = total(measured).map_err(|error| MetricError::Step {
        doing: format!("unable to get metric {}", of.metric.name),
        source: Box::new(error),
        of: format!(" on {} {}", object.kind, object.name),
    });
    let (proposal, title) = by_number(total, &of.target, scope, where_, &of.metric)
        .map_err(|error| error.failure("FailedGetObjectMetric", "object"))?;
    let (described_object, metric_) = (object.clone(), of.metric.clone());
    let current = number_status(&of.target, &proposal);
    let status = ObjectMetricStatus { current, described_object, metric: metric_ };
    Ok(told(metric, title, &proposal, |all| all.object = Some(status)))
}

fn by_external(
    metric: &MetricSpec,
    of: &ExternalMetricSource,
    measured: Result<Measured, MetricError>,
    scope: &Scope<'_>,
) -> Result<Proposed, Failure> {
    let name = &of.metric.name;
    let selector = go(of.metric.selector.as_ref());
    let fails = format!("unable to get external metric {name}/{selector}");
    let total = total(measured).map_err(|error| error.while_(fails));
    let title = external_title(&of.metric);
    let (proposal, title) = by_number(total, &of.target, scope, title, &of.metric)
        .map_err(|error| error.failure("FailedGetExternalMetric", &format!("{name} external")))?;
    let current = number_status(&of.target, &proposal);
    let status = ExternalMetricStatus { current, metric: of.metric.clone() };
    Ok(told(metric, title, &proposal, |all| all.external = Some(status)))
}

fn told(
    metric: &MetricSpec,
    name: String,
    proposal: &Proposal,
    fill: impl FnOnce(&mut MetricStatus),
) -> Proposed {
    let mut status = MetricStatus { type_: metric.type_.clone(), ..MetricStatus::default() };
    fill(&mut status);
    Proposed { replicas: proposal.replicas, name, status }
}

fn by_resource(
    resource: &str,
    container: Option<&str>,
    target: &MetricTarget,
    measured: Result<Measured, MetricError>,
    scope: &Scope<'_>,
) -> Result<Proposal, MetricError> {
    let fails = format!("unable to get metrics for resource {resource}");
    let readings = readings(measured).map_err(|error| error.while_(fails));
    if let Some(value) = &target.average_value {
        let proposal = readings.and_then(|all| by_average(scope, &all, Some(resource), milli(Some(value))));
        return proposal.map_err(|error| error.while_(format!("failed to get {resource} usage")));
    }
    let Some(percent) = target.average_utilization else { return Err(MetricError::NoResourceTarget) };
    let proposal = readings.and_then(|all| by_utilization(scope, &all, resource, container, percent));
    proposal.map_err(|error| error.while_(format!("failed to get {resource} utilization")))
}

/// One number against a value or a share of each Pod, and how the metric is told.
fn by_number(
    total: Result<i64, MetricError>,
    target: &MetricTarget,
    scope: &Scope<'_>,
    title: String,
    metric: &MetricIdentifier,
) -> Result<(Proposal, String), MetricError> {
    let total = total?;
    if let (Some(value), true) = (&target.value, target.average_value.is_none()) {
        return Ok((by_value(scope, total, milli(Some(value)))?, title));
    }
    let Some(value) = &target.average_value else { return Err(MetricError::NoTarget) };
    Ok((by_share(scope, total, milli(Some(value))), external_title(metric)))
}

fn readings(measured: Result<Measured, MetricError>) -> Result<Readings, MetricError> {
    match measured? {
        Measured::Pods(readings) => Ok(readings),
        Measured::Total(_) => Ok(Readings::new()),
    }
}

fn total(measured: Result<Measured, MetricError>) -> Result<i64, MetricError> {
    match measured? {
        Measured::Total(total) => Ok(total),
        Measured::Pods(_) => Ok(0),
    }
}

fn resource_title(resource: &str, proposal: &Proposal, what: &str) -> String {
    if proposal.utilization.is_none() {
        return format!("{resource} resource");
    }
    format!("{resource} {what} utilization (percentage of request)")
}

fn external_title(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, go(metric.selector.as_ref()))
}

fn resource_status(resource: &str, proposal: &Proposal) -> MetricValueStatus {
    let format = if resource == "memory" { Format::BinarySi } else { Format::DecimalSi };
    let quantity = Quantity::from_milli(proposal.usage);
    let quantity = if quantity.is_whole() { Quantity::new(quantity.value(), format) } else { quantity };
    MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(resource::Quantity(quantity.to_string())),
        value: None,
    }
}

fn number_status(target: &MetricTarget, proposal: &Proposal) -> MetricValueStatus {
    if target.average_value.is_some() {
        return average(proposal);
    }
    MetricValueStatus { value: average(proposal).average_value, ..MetricValueStatus::default() }
}

fn average(proposal: &Proposal) -> MetricValueStatus {
    let quantity = Quantity::from_milli(proposal.usage).to_string();
    MetricValueStatus { average_value: Some(resource::Quantity(quantity)), ..MetricValueStatus::default() }
}

fn milli(quantity: Option<&resource::Quantity>) -> i64 {
    quantity.and_then(|quantity| quantity.0.parse().ok()).map_or(0, Quantity::milli_value)
}

/// A selector as Go prints it.
fn go(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions: String = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|one| {
            let values = one.values.as_deref().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                one.key, one.operator
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
