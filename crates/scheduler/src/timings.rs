//! How long the extension points of one decision took, how often their plugins were asked, and, of some decisions, how long
//! each plugin took.
//!
//! Source: `framework_extension_point_duration_seconds`, `plugin_evaluation_total` and `plugin_execution_duration_seconds`
//! of kube-scheduler, which looks at the plugins of one cycle in ten.

use std::collections::BTreeMap;
use std::time::Instant;

use base::Clock;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelValue;

use crate::profile::Point;

/// Of how many decisions one is looked at plugin by plugin. Source: `pluginMetricsSamplePercent`.
const SAMPLED: u64 = 10;

/// The result of an extension point or a plugin. Source: `Code` of kube-scheduler's framework.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub(crate) enum Code {
    Success,
    Error,
    Unschedulable,
    UnschedulableAndUnresolvable,
    Wait,
}

impl Code {
    /// Whether it went well.
    pub(crate) fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Success } else { Self::Error }
    }
}

/// The times of one decision. By default nothing is measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings {
    clock: Option<Clock>,
    is_sampled: bool,
    /// Extension point, result and seconds.
    pub(crate) points: Vec<(Point, Code, f64)>,
    /// Plugin, extension point, result and seconds, if this decision is one of those.
    pub(crate) plugins: Vec<(&'static str, Point, Code, f64)>,
    /// How often a plugin was asked at an extension point.
    pub(crate) evaluations: BTreeMap<(Point, &'static str), u64>,
}

impl Timings {
    /// Measures extension points by `clock`; `chance` (any number) says whether each plugin is looked at, too, by a monotonic one.
    pub(crate) fn by(clock: &Clock, chance: u64) -> Self {
        Self { clock: Some(clock.clone()), is_sampled: chance.is_multiple_of(SAMPLED), ..Self::default() }
    }

    /// When something begins; `None` where nothing is measured.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(Clock::now)
    }

    /// An extension point is over that began at `start`.
    pub(crate) fn point(&mut self, point: Point, code: Code, start: Option<Timestamp>) {
        self.points.extend(self.since(start).map(|seconds| (point, code, seconds)));
    }

    /// A plugin was asked so often.
    pub(crate) fn evaluated(&mut self, point: Point, plugin: &'static str, times: usize) {
        if self.clock.is_some() && times > 0 {
            *self.evaluations.entry((point, plugin)).or_default() += u64::try_from(times).unwrap_or(u64::MAX);
        }
    }

    /// What a plugin says; `code` says what that comes to.
    pub(crate) fn plugin<T>(
        &mut self,
        point: Point,
        plugin: &'static str,
        ask: impl FnOnce() -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T {
        if !self.is_sampled {
            return ask();
        }
        // Thousands of times in one decision: a wall clock would cost more than many a plugin.
        let start = Instant::now();
        let said = ask();
        self.plugins.push((plugin, point, code(&said), start.elapsed().as_secs_f64()));
        said
    }

    fn since(&self, start: Option<Timestamp>) -> Option<f64> {
        Some(self.start()?.duration_since(start?).as_secs_f64().max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decide::{Decision, decide};
    use crate::diagnosis::Diagnosis;
    use crate::node_info::Snapshot;
    use crate::transform::parse;

    /// The points and evaluations of a decision about `pod`, which lands on a Node or not.
    fn measure(pod: &str, chance: u64) -> (Vec<String>, Diagnosis) {
        let mut snapshot = Snapshot::default();
        for (name, rest) in [("a", ""), ("b", ""), ("c", ", spec: {unschedulable: true}")] {
            let node = format!(
                "{{metadata: {{name: {name}}}, status: {{allocatable: {{cpu: '2', pods: 9}}}}{rest}}}"
            );
            snapshot.set_node(Arc::new(serde_saphyr::from_str(&node).expect("a node")));
        }
        let mut told = Diagnosis::timed(Timings::by(&Clock::system(), chance));
        let decision = decide(&parse(pod), None, &snapshot, chance, &mut told);
        let points = told.timings.points.iter().map(|(point, code, _)| format!("{point:?} {code:?}"));
        let mut said: Vec<String> = points.collect();
        said.push(if matches!(decision, Decision::Bind(_)) { "bound" } else { "not bound" }.to_owned());
        (said, told)
    }

    const POD: &str =
        "{metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}";

    #[test]
    fn the_points_that_were_come_to_are_measured() {
        let all = ["PreFilter Success", "Filter Success", "PreScore Success", "Score Success", "bound"];
        assert_eq!(measure(POD, 1).0, all);
        let large = POD.replace("'1'", "'9'");
        assert_eq!(measure(&large, 1).0, ["PreFilter Success", "Filter Unschedulable", "not bound"]);
    }

    #[test]
    fn a_plugin_is_asked_about_what_those_before_it_let_through() {
        let (_, told) = measure(&POD.replace("'1'", "'9'"), 1);
        let asked = |point, plugin| told.timings.evaluations.get(&(point, plugin)).copied().unwrap_or(0);
        assert_eq!(asked(Point::Filter, "NodeUnschedulable"), 3);
        assert_eq!(asked(Point::Filter, "NodeResourcesFit"), 2);
        assert_eq!(asked(Point::PreFilter, "NodeResourcesFit"), 1);
        assert_eq!(asked(Point::Score, "NodeResourcesFit"), 0);
        let (_, told) = measure(POD, 1);
        assert_eq!(told.timings.evaluations.get(&(Point::Score, "NodeResourcesFit")), Some(&2));
    }

    #[test]
    fn plugins_are_measured_one_time_in_ten() {
        assert!((1..10).all(|chance| measure(POD, chance).1.timings.plugins.is_empty()));
        let (_, told) = measure(POD, 10);
        let of = |wanted: Point, name: &str, code: Code| {
            let same =
                |row: &&(&'static str, Point, Code, f64)| (row.0, row.1, row.2) == (name, wanted, code);
            told.timings.plugins.iter().filter(same).count()
        };
        assert_eq!(of(Point::Filter, "NodeUnschedulable", Code::UnschedulableAndUnresolvable), 1);
        assert_eq!(of(Point::Filter, "NodeResourcesFit", Code::Success), 2);
        assert_eq!(of(Point::Score, "NodeResourcesFit", Code::Success), 2);
    }

    #[test]
    fn nothing_is_measured_where_nobody_asks() {
        let mut timings = Timings::default();
        let start = timings.start();
        timings.point(Point::Filter, Code::Success, start);
        timings.evaluated(Point::Filter, "NodePorts", 1);
        assert_eq!(timings.plugin(Point::Filter, "NodePorts", || 7, |_| Code::Success), 7);
        assert!(timings.points.is_empty() && timings.plugins.is_empty() && timings.evaluations.is_empty());
    }
}
