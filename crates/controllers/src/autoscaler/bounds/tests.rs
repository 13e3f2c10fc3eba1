//! The cases of upstream's limits and stabilization, by its numbers. Source: `pkg/controller/podautoscaler/horizontal_test.go`,
//! `TestScalingWithRules`, `TestNormalizeDesiredReplicasWithBehavior` and its kin.

use super::*;
use crate::fixture::{noon, parse};

const DEFAULT_UP: &str = "{stabilizationWindowSeconds: 0, selectPolicy: Max, policies: \
     [{type: Pods, value: 4, periodSeconds: 15}, {type: Percent, value: 100, periodSeconds: 15}]}";
const DEFAULT_DOWN: &str = "{selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}";

/// `P/S` allows P Pods in S seconds, `P%/S` so many percent; `w S` is the stabilization window.
fn rules(text: &str, default: &str) -> String {
    if text == "-" {
        return default.to_owned();
    }
    let (mut window, mut policies) = (String::new(), Vec::new());
    for word in text.split(' ') {
        match word.split_once('/') {
            None => window = format!("stabilizationWindowSeconds: {word}, "),
            Some((value, seconds)) => {
                let kind = if value.ends_with('%') { "Percent" } else { "Pods" };
                let value = value.trim_end_matches('%');
                policies.push(format!("{{type: {kind}, value: {value}, periodSeconds: {seconds}}}"));
            }
        }
    }
    format!("{{{window}selectPolicy: Max, policies: [{}]}}", policies.join(", "))
}

fn ago(seconds: i64) -> Timestamp {
    noon() - SignedDuration::from_secs(seconds)
}

/// Changes that were made in the last two minutes, each in the middle of its part of them.
fn spread(changes: &str, sign: i32, history: &mut History) {
    let all: Vec<i32> = changes.split(' ').filter_map(|word| word.parse().ok()).collect();
    let part = 120.0 / all.len().max(1) as f64;
    for (index, change) in all.iter().enumerate() {
        let seconds = 120.0 - part * (index + 1) as f64 + part / 2.0;
        history.changed(ago(seconds as i64), sign * change);
    }
}

/// A case: its name; the bounds; how many there are and are wanted; the rules up and down; changes that were made, up and down; and
/// what is granted and said.
fn check_rate(row: &str) {
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, bounds, wish, up, down, ups, downs, expect] = columns[..] else { panic!("{row}") };
    let pair = |text: &str| {
        let (first, second) = text.split_once(' ').unwrap();
        (first.parse::<i32>().unwrap(), second.parse::<i32>().unwrap())
    };
    let ((min, max), (current, wanted)) = (pair(bounds), pair(wish));
    let behavior =
        format!("{{scaleUp: {}, scaleDown: {}}}", rules(up, DEFAULT_UP), rules(down, DEFAULT_DOWN));
    let behavior: HorizontalPodAutoscalerBehavior = parse(&behavior);
    let mut history = History::default();
    spread(ups, 1, &mut history);
    spread(downs, -1, &mut history);
    let stabilization = SignedDuration::from_mins(5);
    let wish = Wish { current, wanted, min, max, behavior: Some(&behavior), stabilization };
    let Grant { replicas, limited, .. } = grant(&wish, &mut history, noon());
    assert_eq!(format!("{replicas} {}", limited.1), expect, "{row}");
}

const UP: &str = "\
within range | 3 8 | 5 7 | - | - | | | 7 DesiredWithinRange
below the minimum | 2 8 | 3 1 | - | - | | | 2 TooFewReplicas
none where there may be none | 0 10 | 1 0 | - | - | | | 0 DesiredWithinRange
the maximum is less than the rate | 1 10 | 20 1000 | - | - | | | 10 TooManyReplicas
above the maximum | 100 150 | 100 1000 | - | - | | | 150 TooManyReplicas
the rate is less than the maximum | 1 2000 | 3 1000 | 0 1%/60 | - | | | 4 ScaleUpLimit
default behavior | 1 1000 | 10 50 | - | - | | | 20 ScaleUpLimit
pods policy larger than percent policy | 1 1000 | 10 500 | 0 100/60 100%/60 | - | | | 110 ScaleUpLimit
percent policy larger than pods policy | 1 1000 | 10 500 | 0 2/60 100%/60 | - | | | 20 ScaleUpLimit
large pods policy | 1 1000 | 10 50 | 0 100/60 | - | | | 50 DesiredWithinRange
larger pods policy | 1 1000 | 10 50 | 0 10000/60 | - | | | 50 DesiredWithinRange
pods policy | 1 1000 | 10 50 | 0 30/60 | - | | | 40 ScaleUpLimit
percent policy | 1 1000 | 10 50 | 0 200%/60 | - | | | 30 ScaleUpLimit
large pods policy and changes | 1 200 | 100 500 | 0 300/60 | - | 1 5 9 | | 200 TooManyReplicas
large percent policy and changes | 1 200 | 100 500 | 0 10000%/60 | - | 1 5 9 | | 200 TooManyReplicas
more was done than may be | 1 1000 | 100 500 | 0 5/120 | - | 1 5 9 | | 100 ScaleUpLimit
pods policy and changes | 1 1000 | 100 500 | 0 150/120 | - | 1 5 9 | | 235 ScaleUpLimit
percent policy and changes | 1 1000 | 100 500 | 0 200%/120 | - | 1 5 9 | | 255 ScaleUpLimit
percent policy and changes both ways | 1 1000 | 6 24 | 0 300%/300 | - | 4 | 2 | 16 ScaleUpLimit
changes that are over, one policy | 1 1000 | 100 200 | 0 1000/60 | - | 8 12 9 11 | | 200 DesiredWithinRange
changes that count for one of two policies | 1 1000 | 100 200 | 0 1000/120 100%/60 | - | 8 12 9 11 | | 200 DesiredWithinRange
changes that are over for both policies | 1 1000 | 100 200 | 0 1000/30 100%/60 | - | 8 12 9 11 | | 200 DesiredWithinRange";

const DOWN: &str = "\
the rate is more than the minimum | 3 2000 | 1000 3 | - | 0 20/60 | | | 980 ScaleDownLimit
pods policy larger than percent policy | 1 1000 | 100 2 | - | 300 20/60 1%/60 | | | 80 ScaleDownLimit
percent policy less than pods policy | 1 1000 | 100 2 | - | 300 2/60 1%/60 | | | 98 ScaleDownLimit
large pods policy | 1 1000 | 10 0 | - | 300 100/60 | | | 1 TooFewReplicas
large percent policy | 5 1000 | 10 2 | - | 300 100%/60 | | | 5 TooFewReplicas
pods policy | 1 1000 | 10 2 | - | 300 5/60 | | | 5 ScaleDownLimit
percent policy | 1 1000 | 10 5 | - | 300 50%/60 | | | 5 DesiredWithinRange
default policy and changes | 1 1000 | 10 5 | - | - | | 1 5 9 | 5 DesiredWithinRange
large pods policy and changes | 1 1000 | 100 0 | - | 300 115/120 | | 1 5 9 | 1 TooFewReplicas
larger pods policy and changes | 5 1000 | 100 0 | - | 300 130/120 | | 1 5 9 | 5 TooFewReplicas
large percent policy and changes | 5 1000 | 100 2 | - | 300 100%/120 | | 1 5 9 | 5 TooFewReplicas
pods policy and changes | 1 1000 | 100 2 | - | 300 5/120 | | 1 5 9 | 100 ScaleDownLimit
percent policy and changes | 1 1000 | 100 0 | - | 300 50%/120 | | 2 4 6 | 56 ScaleDownLimit
percent policy and changes both ways | 1 1000 | 10 1 | - | 0 50%/180 | 2 | 4 | 6 ScaleDownLimit
more was done than may be | 1 1000 | 100 0 | - | 300 10%/120 | | 10 10 10 | 100 ScaleDownLimit
more may be done than there are | 1 1000 | 10 5 | - | 300 1000%/120 | | 10 10 10 | 5 DesiredWithinRange
changes that are over, one policy | 1 1000 | 100 5 | - | 300 1000/60 | | 8 12 9 11 | 5 DesiredWithinRange
changes that count for one of two policies | 1 1000 | 100 5 | - | 300 1000/120 100%/60 | | 8 12 9 11 | 5 DesiredWithinRange
changes that are over for both policies | 1 1000 | 100 5 | - | 300 1000/30 100%/60 | | 8 12 9 11 | 5 DesiredWithinRange";

#[test]
fn more_pods_come_as_fast_as_they_may() {
    UP.lines().for_each(check_rate);
}

#[test]
fn pods_go_as_fast_as_they_may() {
    DOWN.lines().for_each(check_rate);
}

/// What becomes of a wish: the windows up and down in seconds, what was recommended how many minutes ago, how many there are and
/// are wanted, and what is recommended then.
fn check_window(row: &str) {
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, windows, past, wish, expect] = columns[..] else { panic!("{row}") };
    let (up, down) = windows.split_once(' ').unwrap();
    let all = "policies: [{type: Percent, value: 100000, periodSeconds: 15}]";
    let behavior: HorizontalPodAutoscalerBehavior = parse(&format!(
        "{{scaleUp: {{stabilizationWindowSeconds: {up}, {all}}}, scaleDown: {{stabilizationWindowSeconds: {down}, {all}}}}}"
    ));
    let mut history = History::default();
    for one in past.split(' ').filter(|one| !one.is_empty()) {
        let (replicas, minutes) = one.split_once('@').unwrap();
        history.recommended(ago(minutes.parse::<i64>().unwrap() * 60), replicas.parse().unwrap());
    }
    let (current, wanted) = wish.split_once(' ').unwrap();
    let (current, wanted) = (current.parse().unwrap(), wanted.parse().unwrap());
    let stabilization = SignedDuration::from_mins(5);
    let wish = Wish { current, wanted, min: 1, max: 1000, behavior: Some(&behavior), stabilization };
    assert_eq!(grant(&wish, &mut history, noon()).replicas.to_string(), expect, "{row}");
}

const WINDOWS: &str = "\
nothing was recommended | 0 0 | | 100 5 | 5
down | 0 180 | 4@2 5@1 | 100 3 | 5
up | 300 0 | 4@2 5@1 | 1 7 | 4
no window down | 300 0 | 1@2 2@1 | 100 3 | 3
no window up | 0 300 | 4@2 5@1 | 1 3 | 3
old ones down | 0 0 | 10@10 9@9 | 100 3 | 3
old ones up | 0 0 | 10@10 9@9 | 1 100 | 100
old ones among others down | 0 180 | 10@10 4@1 5@2 9@9 | 100 3 | 5
old ones among others up | 300 0 | 10@100 6@1 5@2 9@3 | 1 100 | 5
not up when less is wanted | 300 300 | 2@100 3@3 | 2 1 | 2
not down when more is wanted | 300 300 | 2@100 1@3 | 2 3 | 2";

#[test]
fn what_was_recommended_holds_changes_back_as_long_as_its_window() {
    WINDOWS.lines().for_each(check_window);
}

/// The smaller of two policies counts if that is asked for. Source: `TestCalculateScaleUpLimitWithScalingRules`,
/// `TestCalculateScaleDownLimitWithBehaviors`.
#[test]
fn the_least_of_policies_counts_where_it_is_selected() {
    let least = "selectPolicy: Min, policies: [{type: Pods, value: 2, periodSeconds: 60}, {type: Percent, value: 50, periodSeconds: 60}]";
    let behavior: HorizontalPodAutoscalerBehavior =
        parse(&format!("{{scaleUp: {{{least}}}, scaleDown: {{{least}}}}}"));
    for (current, wanted, expect) in [(1, 9, 2), (5, 1, 3)] {
        let stabilization = SignedDuration::from_mins(5);
        let wish = Wish { current, wanted, min: 1, max: 10, behavior: Some(&behavior), stabilization };
        assert_eq!(grant(&wish, &mut History::default(), noon()).replicas, expect);
    }
}
