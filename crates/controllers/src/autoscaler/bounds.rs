//! The limits of a change of the number of Pods: bounds, stabilisation windows, policies.
//!
//! What was recommended and done before is kept in memory only, as upstream does.
//! Source: `pkg/controller/podautoscaler/horizontal.go`, `normalizeDesiredReplicas...`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// Without a behaviour, Pods are doubled at most; a few may always be.
const GROWTH: i32 = 2;
const GROWTH_MIN: i32 = 4;
/// Recommendations and changes that are kept; at most one comes in each period of a second or longer, and no window is
/// longer than an hour.
const KEPT_MAX: usize = 4_096;

/// What was recommended and done before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct History {
    recommendations: Vec<(Timestamp, i32)>,
    /// By how many Pods, upwards if positive.
    changes: Vec<(Timestamp, i32)>,
}

impl History {
    pub(super) fn recommended(&mut self, at: Timestamp, replicas: i32) {
        keep(&mut self.recommendations, at, replicas);
    }

    pub(super) fn changed(&mut self, at: Timestamp, by: i32) {
        keep(&mut self.changes, at, by);
    }

    pub(super) fn is_new(&self) -> bool {
        self.recommendations.is_empty()
    }

    fn recommended_within(&self, window: SignedDuration, now: Timestamp) -> impl Iterator<Item = i32> {
        let recent = self.recommendations.iter().filter(move |(at, _)| now.duration_since(*at) < window);
        recent.map(|(_, replicas)| *replicas)
    }

    /// How many Pods there were before the period.
    fn before(&self, period: SignedDuration, now: Timestamp, current: i32) -> i32 {
        let recent = self.changes.iter().filter(|(at, _)| now.duration_since(*at) < period);
        current.saturating_sub(recent.fold(0, |sum: i32, (_, by)| sum.saturating_add(*by)))
    }
}

fn keep(list: &mut Vec<(Timestamp, i32)>, at: Timestamp, number: i32) {
    if list.len() >= KEPT_MAX {
        list.remove(0);
    }
    list.push((at, number));
}

/// What is asked, and within which bounds.
pub(super) struct Wish<'a> {
    pub current: i32,
    pub wanted: i32,
    pub min: i32,
    pub max: i32,
    pub behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    /// The time back to which recommendations count before there are less Pods, unless the behaviour says.
    pub stabilization: SignedDuration,
}

/// What is granted, and what is said of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub replicas: i32,
    /// `AbleToScale`: reason and message.
    pub able: (&'static str, &'static str),
    /// `ScalingLimited`: whether, reason and message.
    pub limited: (bool, &'static str, &'static str),
}

const MATCHES: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const HIGHER: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const LOWER: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

/// What of a wish is granted now; the wish is kept in mind.
pub(super) fn grant(wish: &Wish<'_>, history: &mut History, now: Timestamp) -> Grant {
    let (stable, why) = match wish.behavior {
        None => stabilized(wish, history, now),
        Some(behavior) => stabilized_by(wish, behavior, history, now),
    };
    let able = if stable == wish.wanted { MATCHES } else { why };
    history.recommended(now, wish.wanted);
    let (replicas, (reason, message)) = match wish.behavior {
        None => limited(wish, stable),
        Some(behavior) => limited_by(wish, stable, behavior, history, now),
    };
    Grant { replicas, able, limited: (replicas != stable, reason, message) }
}

type Said = (&'static str, &'static str);

fn stabilized(wish: &Wish<'_>, history: &History, now: Timestamp) -> (i32, Said) {
    let recent = history.recommended_within(wish.stabilization, now);
    (recent.fold(wish.wanted, i32::max), HIGHER)
}

fn stabilized_by(
    wish: &Wish<'_>,
    behavior: &HorizontalPodAutoscalerBehavior,
    history: &History,
    now: Timestamp,
) -> (i32, Said) {
    let window = |rules: &Option<HPAScalingRules>, default| {
        let seconds = rules.as_ref().and_then(|rules| rules.stabilization_window_seconds);
        seconds.map_or(default, |seconds| SignedDuration::from_secs(seconds.into()))
    };
    let up = window(&behavior.scale_up, SignedDuration::ZERO);
    let down = window(&behavior.scale_down, wish.stabilization);
    let lowest = history.recommended_within(up, now).fold(wish.wanted, i32::min);
    let highest = history.recommended_within(down, now).fold(wish.wanted, i32::max);
    let why = if wish.wanted >= wish.current { LOWER } else { HIGHER };
    (wish.current.max(lowest).min(highest), why)
}

fn limited(wish: &Wish<'_>, stable: i32) -> (i32, Said) {
    let reachable = wish.current.saturating_mul(GROWTH).max(GROWTH_MIN);
    let (highest, why) = if wish.max > reachable { (reachable, TOO_FAST_UP) } else { (wish.max, TOO_MANY) };
    if stable < wish.min {
        (wish.min, TOO_FEW)
    } else if stable > highest {
        (highest, why)
    } else {
        (stable, WITHIN)
    }
}

fn limited_by(
    wish: &Wish<'_>,
    stable: i32,
    behavior: &HorizontalPodAutoscalerBehavior,
    history: &History,
    now: Timestamp,
) -> (i32, Said) {
    let reach = |rules: &Option<HPAScalingRules>, direction| {
        rules.as_ref().map(|rules| reachable(rules, direction, wish.current, history, now))
    };
    if stable > wish.current {
        let reachable = reach(&behavior.scale_up, Direction::Up).unwrap_or(wish.max).max(wish.current);
        let (highest, why) =
            if wish.max > reachable { (reachable, TOO_FAST_UP) } else { (wish.max, TOO_MANY) };
        if stable > highest {
            return (highest, why);
        }
    } else if stable < wish.current {
        let reachable = reach(&behavior.scale_down, Direction::Down).unwrap_or(wish.min).min(wish.current);
        let (lowest, why) =
            if wish.min < reachable { (reachable, TOO_FAST_DOWN) } else { (wish.min, TOO_FEW) };
        if stable < lowest {
            return (lowest, why);
        }
    }
    (stable, WITHIN)
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Up,
    Down,
}

/// How far the policies let the number of Pods go.
fn reachable(
    rules: &HPAScalingRules,
    direction: Direction,
    current: i32,
    history: &History,
    now: Timestamp,
) -> i32 {
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let by_policy = rules.policies.iter().flatten().map(|policy| {
        let period = SignedDuration::from_secs(policy.period_seconds.into());
        let start = history.before(period, now, current);
        let percent = f64::from(policy.value) / 100.0;
        match (policy.type_.as_str(), direction) {
            ("Percent", Direction::Up) => (f64::from(start) * (1.0 + percent)).ceil() as i32,
            ("Percent", Direction::Down) => (f64::from(start) * (1.0 - percent)) as i32,
            (_, Direction::Up) => start.saturating_add(policy.value),
            (_, Direction::Down) => start.saturating_sub(policy.value),
        }
    });
    // The largest change is the highest number on the way up, and the lowest on the way down.
    let is_highest = (select == "Min") == (direction == Direction::Down);
    let reached = if is_highest { by_policy.max() } else { by_policy.min() };
    reached.unwrap_or(current)
}

#[cfg(test)]
mod tests;
