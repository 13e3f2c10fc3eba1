//! The number of Pods that a metric asks for.
//!
//! Pods that are not ready, or of which nothing is known, count in the direction that changes least.
//! Source: `pkg/controller/podautoscaler/replica_calculator.go`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::metadata::{is_deleting, name};
use controller::pod::{Container, Pod};
use jiff::{SignedDuration, Timestamp};
use machinery::quantity::Quantity;

use super::error::MetricError;
use super::metrics::Readings;
use crate::options::{Options, signed};
use crate::pod::{condition, is_ready, phase};

/// What a metric is held against.
pub(super) struct Scope<'a> {
    /// The Pods that are scaled.
    pub pods: &'a [Arc<Pod>],
    /// The number of Pods that there are to be now.
    pub wanted: i32,
    /// The number of Pods that there are now.
    pub existing: i32,
    pub tolerances: Tolerances,
    pub options: &'a Options,
    pub now: Timestamp,
}

/// By how much a metric may be off before something is done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub down: f64,
    pub up: f64,
}

impl Tolerances {
    fn contain(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// What a metric asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub replicas: i32,
    /// The current usage, in thousandths: on average, or all in all where that is asked for.
    pub usage: i64,
    /// The same as percentage of what was requested, where that is asked for.
    pub utilization: Option<i32>,
}

/// A resource held against a share of what Pods request.
pub(super) fn by_utilization(
    scope: &Scope<'_>,
    readings: &Readings,
    resource: &str,
    container: Option<&str>,
    target: i32,
) -> Result<Proposal, MetricError> {
    let groups = Groups::of(scope, readings, Some(resource))?;
    let request = |pod: &'_ Arc<Pod>| requested(pod, resource, container);
    let names = scope.pods.iter().map(|pod| name(&pod.metadata));
    let requests: BTreeMap<&str, i64> = names
        .zip(scope.pods)
        .map(|(name, pod)| Ok((name, request(pod)?)))
        .collect::<Result<_, MetricError>>()?;
    let usage = |uses: &BTreeMap<&str, i64>| {
        let known = uses.iter().filter_map(|(pod, used)| Some((used, requests.get(pod)?)));
        let (used, requested, count) =
            known.fold((0_i128, 0_i128, 0_i128), |(used, requested, count), (one, of)| {
                (used + i128::from(*one), requested + i128::from(*of), count + 1)
            });
        if requested == 0 {
            return Err(MetricError::OtherPods);
        }
        let percent = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
        let average = i64::try_from(used / count).unwrap_or(i64::MAX);
        Ok(Usage { ratio: f64::from(percent) / f64::from(target), average, percent: Some(percent) })
    };
    let full = |pod: &str| {
        requests.get(pod).map_or(0, |request| request.saturating_mul(target.max(100).into()) / 100)
    };
    groups.proposal(scope, usage, full)
}

/// A metric of Pods held against what each may use on average.
pub(super) fn by_average(
    scope: &Scope<'_>,
    readings: &Readings,
    resource: Option<&str>,
    target: i64,
) -> Result<Proposal, MetricError> {
    let usage = |uses: &BTreeMap<&str, i64>| {
        let total: i128 = uses.values().copied().map(i128::from).sum();
        let average = i64::try_from(total / uses.len().max(1) as i128).unwrap_or(i64::MAX);
        Ok(Usage { ratio: average as f64 / target as f64, average, percent: None })
    };
    Groups::of(scope, readings, resource)?.proposal(scope, usage, |_| target)
}

/// One number held against another: so many times as many Pods as are ready.
pub(super) fn by_value(scope: &Scope<'_>, total: i64, target: i64) -> Result<Proposal, MetricError> {
    let ratio = total as f64 / target as f64;
    let replicas = if scope.wanted == 0 {
        ceil(ratio)
    } else if scope.tolerances.contain(ratio) {
        scope.wanted
    } else if scope.pods.is_empty() {
        return Err(MetricError::NoReadyPods);
    } else {
        let ready = scope.pods.iter().filter(|pod| phase(pod) == "Running" && is_ready(pod)).count();
        ceil(ratio * ready as f64)
    };
    Ok(Proposal { replicas, usage: total, utilization: None })
}

/// One number held against what each Pod may have of it.
pub(super) fn by_share(scope: &Scope<'_>, total: i64, target: i64) -> Proposal {
    let (total_share, existing) = (total as f64, f64::from(scope.existing));
    let is_near = scope.tolerances.contain(total_share / (target as f64 * existing));
    let replicas = if is_near { scope.existing } else { ceil(total_share / target as f64) };
    // Where there are no Pods, nobody has a share.
    Proposal { replicas, usage: (total_share / existing.max(1.0)).ceil() as i64, utilization: None }
}

/// The next whole number; what is too large is the largest, and what is none is nothing.
fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}

struct Usage {
    /// Of what is used to what is wanted.
    ratio: f64,
    average: i64,
    percent: Option<i32>,
}

/// Pods by what is known of them.
struct Groups<'a> {
    /// What those use that count.
    uses: BTreeMap<&'a str, i64>,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    fn of(scope: &Scope<'a>, readings: &Readings, resource: Option<&str>) -> Result<Self, MetricError> {
        if scope.pods.is_empty() {
            return Err(MetricError::NoPods);
        }
        let mut groups = Self { uses: BTreeMap::new(), unready: BTreeSet::new(), missing: BTreeSet::new() };
        for pod in scope.pods {
            let name = name(&pod.metadata);
            if is_deleting(&pod.metadata) || phase(pod) == "Failed" {
                continue;
            }
            if phase(pod) == "Pending" {
                groups.unready.insert(name);
                continue;
            }
            let Some(reading) = readings.get(name) else {
                groups.missing.insert(name);
                continue;
            };
            let counts = resource != Some("cpu") || is_past_its_start(pod, reading.at, reading.window, scope);
            if counts {
                groups.uses.insert(name, reading.value);
            } else {
                groups.unready.insert(name);
            }
        }
        if groups.uses.is_empty() {
            return Err(MetricError::Unready);
        }
        Ok(groups)
    }

    /// What is asked for. Those of whom nothing is known are taken to use nothing when there are to be more Pods, and
    /// what `when_fewer` says when there are to be fewer.
    fn proposal(
        mut self,
        scope: &Scope<'_>,
        usage: impl Fn(&BTreeMap<&str, i64>) -> Result<Usage, MetricError>,
        when_fewer: impl Fn(&str) -> i64,
    ) -> Result<Proposal, MetricError> {
        let Usage { ratio, average, percent } = usage(&self.uses)?;
        let propose = |replicas| Ok(Proposal { replicas, usage: average, utilization: percent });
        let grows_past_unready = !self.unready.is_empty() && ratio > 1.0;
        if !grows_past_unready && self.missing.is_empty() {
            let is_near = scope.tolerances.contain(ratio);
            return propose(if is_near { scope.wanted } else { ceil(ratio * self.uses.len() as f64) });
        }
        if ratio < 1.0 {
            self.uses.extend(self.missing.iter().map(|pod| (*pod, when_fewer(pod))));
        } else if ratio > 1.0 {
            self.uses.extend(self.missing.iter().map(|pod| (*pod, 0)));
        }
        if grows_past_unready {
            self.uses.extend(self.unready.iter().map(|pod| (*pod, 0)));
        }
        let then = usage(&self.uses)?.ratio;
        let turns = (ratio < 1.0 && then > 1.0) || (ratio > 1.0 && then < 1.0);
        if scope.tolerances.contain(then) || turns {
            return propose(scope.wanted);
        }
        let replicas = ceil(then * self.uses.len() as f64);
        let turns = (then < 1.0 && replicas > scope.wanted) || (then > 1.0 && replicas < scope.wanted);
        propose(if turns { scope.wanted } else { replicas })
    }
}

/// Whether the Pod's use of CPU says what it will use: while it starts, it does not.
fn is_past_its_start(pod: &Pod, measured: Timestamp, window: SignedDuration, scope: &Scope<'_>) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(started)) = (condition(pod, "Ready"), started) else { return false };
    let changed = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let is_unready = ready.status == "False";
    let since = scope.now.duration_since(started.0);
    if since < signed(scope.options.horizontal_pod_autoscaler_cpu_initialization_period) {
        !is_unready && measured >= changed + window
    } else {
        // Who became unready so early has never been ready.
        let early = signed(scope.options.horizontal_pod_autoscaler_initial_readiness_delay);
        !(is_unready && changed.duration_since(started.0) < early)
    }
}

/// What a Pod, or one of its containers, asks for, in thousandths.
fn requested(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, MetricError> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    let pod_name = name(&pod.metadata);
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let of_pod = own.and_then(|own| own.get(resource)?.0.parse().ok()).map(Quantity::milli_value);
    if let (None, Some(request)) = (container, of_pod) {
        return Ok(request);
    }
    let restarts = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(restarts);
    let mut chosen = spec
        .containers
        .iter()
        .chain(sidecars)
        .filter(|one| container.is_none_or(|name| one.name == name))
        .peekable();
    if let (Some(container), true) = (container, chosen.peek().is_none()) {
        return Err(MetricError::NoContainer { container: container.to_owned(), pod: pod_name.to_owned() });
    }
    chosen.try_fold(0_i64, |sum, one| {
        let requests = one.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let request =
            requests.and_then(|requests| requests.get(resource)?.0.parse().ok()).map(Quantity::milli_value);
        let missing = || MetricError::NoRequest {
            resource: resource.to_owned(),
            container: one.name.clone(),
            pod: pod_name.to_owned(),
        };
        Ok(sum.saturating_add(request.ok_or_else(missing)?))
    })
}
