//! The metrics of autoscalers, in upstream's names. Source: `pkg/controller/podautoscaler/monitor`.

use std::cmp::Ordering;

use controller::Action;
use controller::counter::{Buckets, CounterRow, Increment, Labels, Measured, SecondsRow};

static RECONCILIATIONS: CounterRow = CounterRow {
    name: "horizontal_pod_autoscaler_controller_reconciliations",
    help: "Number of reconciliations of HPA controller, by what was done and what was wrong",
};
static SECONDS: SecondsRow = SecondsRow {
    name: "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    help: "The time in seconds that it takes to carry out what was decided about an HPA",
    buckets: Buckets::Exponential(0.001, 2.0, 15),
};
static COMPUTATIONS: CounterRow = CounterRow {
    name: "horizontal_pod_autoscaler_controller_metric_computation",
    help: "Number of metric computations, by what each asks for, what was wrong, and the type of the metric",
};

/// What is wrong with a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Nothing.
    #[default]
    None,
    /// What the autoscaler asks for.
    Spec,
    /// Something else.
    Internal,
}

impl Wrong {
    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }
}

fn labels(change: Ordering, wrong: Wrong) -> Labels {
    let action = match change {
        Ordering::Less => "scale_down",
        Ordering::Equal => "none",
        Ordering::Greater => "scale_up",
    };
    vec![("action", action.to_owned()), ("error", wrong.label().to_owned())]
}

/// What is counted of a decision which changes the number of Pods so. What was wrong first is told.
pub(super) fn decision(change: Ordering, wrong: Wrong) -> Measured {
    let refused = if wrong == Wrong::None { Wrong::Internal } else { wrong };
    let (done, failed) = (labels(change, wrong), labels(Ordering::Equal, refused));
    Measured { counter: &RECONCILIATIONS, seconds: &SECONDS, done, failed }
}

/// What is counted of a metric of a type which asks for so many more Pods, or fewer; or cannot be computed.
pub(super) fn metric(type_: &str, found: Result<Ordering, Wrong>) -> Action {
    let mut labels =
        found.map_or_else(|wrong| labels(Ordering::Equal, wrong), |change| labels(change, Wrong::None));
    labels.push(("metric_type", type_.to_owned()));
    Action::Count(Increment { counter: &COMPUTATIONS, labels, by: 1 })
}
