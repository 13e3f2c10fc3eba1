//! The cases of upstream's calculator, by its numbers. Source: `pkg/controller/podautoscaler/replica_calculator_test.go`.

use jiff::SignedDuration;

use super::*;
use crate::autoscaler::metrics::Reading;
use crate::fixture::{noon, parse};

/// By how much a metric may be off, down and up, where nothing else is said.
const TOLERANCE: f64 = 0.1;
/// Metrics and conditions are as old as can be: a Pod that has just started is judged by its start alone.
const LONG_AGO: &str = "2000-01-01T00:00:00Z";

/// A Pod that is ready or not (`R`, `U`), has started a minute ago (`H`, `h`), has failed, waits for a Node or is going (`F`,
/// `P`, `D`). Its two containers ask for `asked` each.
fn pod(index: usize, code: char, (resource, asked): (&str, Option<i64>)) -> Arc<Pod> {
    let phase = match code {
        'F' => "Failed",
        'P' => "Pending",
        _ => "Running",
    };
    let started = if matches!(code, 'H' | 'h') { "2026-01-01T11:59:00Z" } else { LONG_AGO };
    let ready = if matches!(code, 'R' | 'H') { "True" } else { "False" };
    let going = if code == 'D' { ", deletionTimestamp: '2026-01-01T11:59:00Z'" } else { "" };
    let asked =
        asked.map(|asked| format!(", resources: {{requests: {{{resource}: {asked}m}}}}")).unwrap_or_default();
    Arc::new(parse(&format!(
        "{{metadata: {{name: p{index}, namespace: team{going}}}, spec: {{containers: [{{name: container1{asked}}}, \
         {{name: container2{asked}}}]}}, status: {{phase: {phase}, startTime: '{started}', conditions: [{{type: Ready, \
         status: '{ready}', lastTransitionTime: '{LONG_AGO}'}}]}}}}"
    )))
}

/// A case: its name; how many replicas there are, the Pods, and what their containers ask for, a whole one if nothing is said;
/// what is measured: a resource in percent of requests, or of those of one container, what Pods use on average, one value for
/// all, or one of which each Pod has its share; the amounts, `-` where nothing is known of a Pod; the target, with tolerances
/// down and up; and what is asked for then: replicas, the percentage where there is one, and the use.
fn check(row: &str) {
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, pods, of, measured, target, expect] = columns[..] else { panic!("{row}") };
    let found = proposed(pods, of, &measured.split_whitespace().collect::<Vec<_>>(), target);
    let found = found.replace(&i64::MAX.to_string(), "MAX");
    assert!(found.starts_with(expect), "{row}: {found}");
}

fn proposed(pods: &str, of: &str, measured: &[&str], target: &str) -> String {
    let number = |text: &str| if text == "MAX" { i64::MAX } else { text.parse().unwrap() };
    let mut words = pods.split(' ');
    let (replicas, codes) = (words.next().unwrap().parse().unwrap(), words.next().unwrap());
    let asked: Vec<&str> = words.collect();
    let asked = |index: usize| if asked.is_empty() { Some(1000) } else { asked[index].parse().ok() };
    let resource = of.split(' ').next().unwrap();
    let pods = codes.chars().enumerate().map(|(index, code)| pod(index, code, (resource, asked(index))));
    let pods: Vec<_> = pods.collect();
    let mut words = target.split(' ');
    let target = number(words.next().unwrap());
    let mut tolerance = || words.next().map_or(TOLERANCE, |word| word.parse().unwrap());
    let (tolerances, options) = (Tolerances { down: tolerance(), up: tolerance() }, Options::default());
    let scope = Scope {
        pods: &pods,
        wanted: replicas,
        existing: replicas,
        tolerances,
        options: &options,
        now: noon(),
    };
    let (at, window) = (LONG_AGO.parse().unwrap(), SignedDuration::from_mins(1));
    let known = measured.iter().enumerate().filter(|(_, value)| **value != "-");
    let readings = known
        .map(|(index, value)| (format!("p{index}"), Reading { value: number(value), at, window }))
        .collect();
    let percent = i32::try_from(target).unwrap_or(i32::MAX);
    let proposal = match of.split_once(" of ") {
        Some((resource, container)) => by_utilization(&scope, &readings, resource, Some(container), percent),
        None if of == "pods" => by_average(&scope, &readings, None, target),
        None if of == "value" => by_value(&scope, number(measured[0]), target),
        None if of == "share" => Ok(by_share(&scope, number(measured[0]), target)),
        None => by_utilization(&scope, &readings, of, None, percent),
    };
    match proposal {
        Ok(Proposal { replicas, usage, utilization: Some(percent) }) => {
            format!("{replicas} at {percent}%, {usage}")
        }
        Ok(Proposal { replicas, usage, utilization: None }) => format!("{replicas}, {usage}"),
        Err(why) => format!("error: {why}"),
    }
}

const MORE: &str = "\
scale up | 3 RRR | cpu | 600 1000 1400 | 30 | 5 at 50%, 1000
container scale up | 3 RRR | cpu of container2 | 300 500 700 | 30 | 5 at 50%, 500
scale up unready less scale | 3 URR | cpu | 600 1000 1400 | 30 | 4 at 60%, 1200
scale up overflow | 3 RRR | value | MAX | 1 | 2147483647, MAX
scale up container hot cpu less scale | 3 HRR | cpu of container2 | 300 500 700 | 30 | 4 at 60%, 600
scale up hot cpu less scale | 3 HRR | cpu | 600 1000 1400 | 30 | 4 at 60%, 1200
scale up unready no scale | 3 RUU | cpu | 800 1000 1400 | 30 | 3 at 40%, 800
external per pod metric replica overflow | 1 R | share | MAX | 1 | 2147483647, MAX
external per pod metric usage overflow | 1 R | share | MAX | MAX | 1, MAX
scale hot cpu no scale | 3 Rhh | cpu | 800 1000 1400 | 30 | 3 at 40%, 800
scale up without failed pods | 2 RRFF | cpu | 1000 1400 | 30 | 4 at 60%, 1200
missing container metric scale up without failed pods | 2 RRFF | cpu of container2 | 500 700 - - | 30 | 4 at 60%, 600
scale up container without failed pods | 2 RRFF | cpu of container2 | 500 700 | 30 | 4 at 60%, 600
scale up without deletion pods | 2 RRDD | cpu | 1000 1400 | 30 | 4 at 60%, 1200
scale up container without deletion pods | 2 RRDD | cpu of container1 | 500 700 | 30 | 4 at 60%, 600
scale up by custom metric | 3 RRR | pods | 20000 10000 30000 | 15000 | 4, 20000
scale up by custom metric unready hot cpu no less scale | 3 RRh | pods | 50000 10000 30000 | 15000 | 6, 30000
scale up by custom metric object | 3 RRR | value | 20000 | 15000 | 4, 20000
scale up by custom metric per pod object | 3 RRR | share | 20000 | 5000 | 4, 6667
scale up by custom metric object without unready pods | 3 URU | value | 50000 | 10000 | 5, 50000
scale up by custom metric external | 1 R | pods | 8600 | 4400 | 2, 8600
scale up by custom metric external without unready pods | 3 URU | value | 8600 | 4400 | 2, 8600
scale up per pod by custom metric external | 3 RRR | share | 8600 | 2150 | 4, 2867
external metric usage overflow | 3 RRR | value | MAX | MAX | 3, MAX";

const FEWER: &str = "\
scale up by custom metric unready hot cpu scale would scale down | 3 hRh | pods | 50000 15000 30000 | 15000 | 7, 31666
scale down | 5 RRRRR | cpu | 200 600 1000 500 500 | 50 | 3 at 28%, 560
container scale down | 5 RRRRR | cpu of container2 | 100 300 500 250 250 | 50 | 3 at 28%, 280
scale down by custom metric | 5 RRRRR | pods | 12000 12000 12000 12000 12000 | 20000 | 3, 12000
scale down per pod by custom metric object | 5 RRRRR | share | 6000 | 2000 | 3, 1200
scale down by custom metric object | 5 RRRRR | value | 12000 | 20000 | 3, 12000
scale down by custom metric external | 5 RRRRR | value | 8600 | 14334 | 3, 8600
scale down per pod by custom metric external | 5 RRRRR | share | 8600 | 2867 | 3, 1720
scale down without unready pods | 5 RRRUU | cpu | 200 600 1000 500 500 | 50 | 2 at 30%, 600
scale down container without unready pods | 5 RRRUU | cpu of container2 | 100 300 500 250 250 | 50 | 2 at 30%, 300
scale down without unscheduled pods | 5 RPPPP | cpu | 200 | 50 | 1 at 10%, 200
scale down container without unscheduled pods | 5 RPPPP | cpu of container2 | 100 300 500 250 250 | 50 | 1 at 10%, 100
scale down without hot cpu pods | 5 RRRHH | cpu | 200 600 1000 500 500 | 50 | 2 at 30%, 600
scale down container without hot cpu pods | 5 RRRHH | cpu of container2 | 100 300 500 1000 1000 | 50 | 2 at 30%, 300
scale down without failed pods | 5 RRRRRFF | cpu | 200 600 1000 500 500 | 50 | 3 at 28%, 560
scale down container without failed pods | 5 RRRRRFF | cpu of container2 | 100 300 500 250 250 | 50 | 3 at 28%, 280
scale down without deletion pods | 5 RRRRRDD | cpu | 200 600 1000 500 500 | 50 | 3 at 28%, 560
scale down without deletion pods that still run | 5 RRRRRDD | cpu of container2 | 100 300 500 250 250 | 50 | 3 at 28%, 280
during rolling update with max surge | 2 RRR | cpu | 200 200 | 50 | 2 at 10%, 200
during rolling update with max surge by custom metric | 2 RRR | pods | 10000 10000 | 17000 | 2, 10000";

const NEAR: &str = "\
tolerance | 3 RRR 900 1000 1100 | cpu | 2020 2060 2040 | 100 | 3 at 102%, 2040
tolerance by custom metric | 3 RRR | pods | 20000 21000 21000 | 20000 | 3, 20666
tolerance by custom metric object | 3 RRR | value | 20666 | 20000 | 3, 20666
tolerance per pod by custom metric object | 4 RRRR | share | 20166 | 5000 | 4, 5042
tolerance by custom metric external | 3 RRR | value | 8600 | 8888 | 3, 8600
tolerance per pod by custom metric external | 3 RRR | share | 8600 | 2900 | 3, 2867
configurable tolerance by custom metric | 3 RRR | pods | 20000 21000 21000 | 20000 0.1 0.01 | 4, 20666
configurable tolerance by custom metric object | 3 RRR | value | 20666 | 20000 0.1 0.01 | 4, 20666
configurable tolerance per pod by custom metric object | 4 RRRR | share | 20208 | 5000 0.1 0.01 | 5, 5052
configurable tolerance by custom metric external | 3 RRR | value | 8900 | 8800 0.1 0.01 | 4, 8900
configurable tolerance per pod by custom metric external | 3 RRR | share | 8600 | 2800 0.1 0.01 | 4, 2867
tolerance outside 0% | 3 RRR 900 1000 1100 | cpu | 1818 2020 2222 | 100 0.0 0.0 | 4 at 101%, 2020
tolerance within 200% up | 3 RRR 900 1000 1100 | cpu | 3780 3820 3800 | 100 0.1 2.0 | 3 at 190%, 3800
tolerance outside 8% up | 3 RRR 900 1000 1100 | cpu | 2200 2160 2180 | 100 2.0 0.08 | 4 at 109%, 2180
tolerance within 36% down | 3 RRR 900 1000 1100 | cpu | 1320 1280 1300 | 100 0.36 0.1 | 3 at 65%, 1300
computed tolerance is left | 10 RRRRRRRRRR 400 200 310 290 302 298 301 299 300 300 | cpu | 300 300 300 300 300 300 300 300 300 300 | 56 | 9 at 50%, 300
computed tolerance is just kept | 10 RRRRRRRRRR 400 200 310 290 302 298 301 299 300 300 | cpu | 300 300 300 300 300 300 300 300 300 300 | 55 | 10 at 50%, 300
tolerance outside 34% down | 3 RRR 900 1000 1100 | cpu | 1320 1280 1300 | 100 0.34 0.1 | 2 at 65%, 1300";

const UNKNOWN: &str = "\
superfluous metrics | 4 RRRR | cpu | 8000 19000 6000 14000 6400 4000 | 100 | 24 at 587%, 11750
missing metrics | 4 RRRR | cpu | 800 190 | 100 | 3 at 24%, 495
empty cpu request | 1 R none | cpu | 400 | 100 | error: missing request for
pods metric, missing metrics no change at the target | 5 RRRRR | pods | 20000 19000 21000 | 20000 | 5, 20000
missing metrics no change at the target | 2 RR | cpu | 2000 | 100 | 2 at 100%, 2000
missing metrics no change above | 2 RR | cpu | 3800 | 100 | 2 at 190%, 3800
missing metrics no change below | 2 RR | cpu | 1200 | 100 | 2 at 60%, 1200
missing metrics unready change | 3 URR | cpu | 200 900 | 50 | 3 at 45%, 900
missing metrics hot cpu no change | 3 HRR | cpu | 200 900 | 50 | 3 at 45%, 900
missing metrics unready scale up | 3 URR | cpu | 200 4000 | 50 | 4 at 200%, 4000
missing metrics hot cpu scale up | 3 hRR | cpu | 200 4000 | 50 | 4 at 200%, 4000
missing metrics unready scale down | 4 URRR | cpu | 200 200 200 | 50 | 3 at 10%, 200
missing metrics scale down with a target over 100% | 4 URRR 1000 1000 2000 2000 | cpu | 400 200 200 | 300 | 2 at 6%, 200
metrics of another pod | 1 R | cpu | - 200 | 100 | error: did not receive metrics for targeted pods";

#[test]
fn more_pods_are_asked_for_by_those_that_count() {
    MORE.lines().for_each(check);
}

#[test]
fn fewer_pods_are_asked_for_by_those_that_count() {
    FEWER.lines().for_each(check);
}

#[test]
fn what_is_near_enough_changes_nothing() {
    NEAR.lines().for_each(check);
}

#[test]
fn what_is_not_known_changes_least() {
    UNKNOWN.lines().for_each(check);
}

/// Where a Pod of that status belongs that was measured so many seconds before noon, over so many; very long ago and at once if
/// that is not said. Source: `TestGroupPods`.
fn group(resource: &str, status: &str, reading: Option<(i64, i64)>, expect: &str) {
    let measured: Arc<Pod> = Arc::new(parse(&format!("{{metadata: {{name: a}}, status: {{{status}}}}}")));
    // Without somebody who counts nothing is known at all.
    let (pods, options) = ([measured, pod(9, 'R', ("cpu", None))], Options::default());
    let tolerances = Tolerances { down: TOLERANCE, up: TOLERANCE };
    let scope = Scope { pods: &pods, wanted: 1, existing: 1, tolerances, options: &options, now: noon() };
    let of = |(ago, window)| Reading {
        value: 1,
        at: noon() - SignedDuration::from_secs(ago),
        window: SignedDuration::from_secs(window),
    };
    let mut readings: Readings = reading.map(|reading| ("a".to_owned(), of(reading))).into_iter().collect();
    readings.insert("p9".to_owned(), of((0, 60)));
    let groups = Groups::of(&scope, &readings, Some(resource)).unwrap();
    let found = match () {
        () if groups.uses.contains_key("a") => "counts",
        () if groups.unready.contains("a") => "unready",
        () if groups.missing.contains("a") => "missing",
        () => "ignored",
    };
    assert_eq!(found, expect, "{resource} of {status}");
}

#[test]
fn pods_count_when_what_they_use_says_something() {
    let status = |started: &str, ready: Option<(&str, &str)>| {
        let ready = ready.map_or_else(String::new, |(is, since)| {
            format!(
                ", conditions: [{{type: Ready, status: '{is}', lastTransitionTime: '2026-01-01T{since}Z'}}]"
            )
        });
        format!("phase: Succeeded, startTime: '2026-01-01T{started}Z'{ready}")
    };
    let long_ago = Some((9_999, 0));
    group("memory", "phase: Succeeded", Some((0, 60)), "counts");
    group("cpu", &status("12:00:00", None), long_ago, "unready");
    group("cpu", &status("11:59:00", Some(("True", "11:59:30"))), Some((0, 30)), "counts");
    group("cpu", &status("11:59:00", Some(("True", "11:59:30"))), Some((0, 60)), "unready");
    group("cpu", &status("11:50:00", Some(("False", "11:50:06"))), long_ago, "unready");
    group("cpu", &status("11:57:00", Some(("True", "11:57:00"))), Some((120, 60)), "counts");
    group("cpu", &status("11:50:00", Some(("False", "11:51:00"))), long_ago, "counts");
    group("cpu", &status("11:50:00", Some(("False", "11:50:10"))), long_ago, "unready");
    group("cpu", &status("11:57:00", None), None, "missing");
    group("cpu", "phase: Pending", None, "unready");
    group("cpu", "phase: Failed", long_ago, "ignored");
}

/// What Pods and containers ask for. Source: `TestCalculateRequests`.
#[test]
fn a_pod_asks_for_what_it_says_as_a_whole_or_else_for_all_of_its_containers() {
    let cpu =
        |name: &str, milli: i64| format!("{{name: {name}, resources: {{requests: {{cpu: {milli}m}}}}}}");
    let (one, two) = (cpu("container1", 100), cpu("container2", 50));
    let whole = ", resources: {requests: {cpu: 800m}}";
    let sidecar = cpu("sidecar", 50).replace("name: sidecar", "name: sidecar, restartPolicy: Always");
    let check = |containers: &str, more: &str, container: Option<&str>, expect: Result<i64, &str>| {
        let pod: Pod =
            parse(&format!("{{metadata: {{name: p}}, spec: {{containers: [{containers}]{more}}}}}"));
        let found = requested(&pod, "cpu", container).map_err(|error| error.to_string());
        assert_eq!(found, expect.map_err(str::to_owned), "{containers}{more}");
    };
    let both = format!("{one}, {two}");
    let half = format!("{{name: container1}}, {two}");
    check(&both, "", None, Ok(150));
    check(&both, whole, None, Ok(800));
    check(&half, "", None, Err("missing request for cpu in container container1 of Pod p"));
    check(&half, whole, None, Ok(800));
    check(&both, "", Some("container1"), Ok(100));
    check(&both, whole, Some("container1"), Ok(100));
    check(&both, "", Some("other"), Err("container other not found in Pod p"));
    check(&one, &format!(", initContainers: [{}, {sidecar}]", cpu("init", 20)), None, Ok(150));
    check(&one, &format!(", initContainers: [{sidecar}]"), Some("sidecar"), Ok(50));
}
