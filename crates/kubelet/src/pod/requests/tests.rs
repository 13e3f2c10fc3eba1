//! What Pods ask for, by upstream's cases.

use super::*;
use crate::pod::quantity::whole;

/// Such as `1/2`: a request and a limit of CPU.
fn resources(word: &str) -> String {
    let (request, limit) = word.split_once('/').unwrap();
    let of = |name: &str, amount: &str| match amount {
        "-" => String::new(),
        amount => format!("{name}: {{cpu: '{amount}'}}, "),
    };
    format!("{{{}{}}}", of("requests", request), of("limits", limit))
}

fn spec(containers: &str, own: &str, overhead: &str) -> PodSpec {
    let (mut init, mut regular) = (Vec::new(), Vec::new());
    for (index, word) in containers.split(' ').enumerate() {
        let asks = word.trim_start_matches(['i', 's']);
        let policy = if word.starts_with('s') { ", restartPolicy: Always" } else { "" };
        let text = format!("{{name: c{index}, resources: {}{policy}}}", resources(asks));
        if word == asks { regular.push(text) } else { init.push(text) }
    }
    let own = if own == "-" { "-/-" } else { own };
    let text = format!(
        "{{resources: {}, overhead: {{cpu: '{overhead}'}}, initContainers: [{}], containers: [{}]}}",
        resources(own),
        init.join(", "),
        regular.join(", "),
    );
    serde_saphyr::from_str(&text).unwrap()
}

#[test]
fn what_a_pod_asks_for_and_may_have_is_as_upstream_sums_it() {
    for line in include_str!("tests/pods.txt").lines().filter(|line| !line.starts_with('#')) {
        let row: Vec<&str> = line.split(" | ").collect();
        let spec = spec(row[1], row[2], row[3]);
        let limit =
            pod_limit(&spec, "cpu", whole).map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        let found = format!("{} {limit}", pod_request(&spec, "cpu", whole));
        assert_eq!(found, row[4], "{}", row[0]);
        assert_eq!(pod_request(&spec, "memory", whole), 0, "{}: of something else", row[0]);
    }
}

/// Source: `TestIsPodLevelResourcesSet` of upstream's `component-helpers/resource`.
#[test]
fn a_pod_has_resources_of_its_own_if_they_are_of_a_kind_that_it_can_have() {
    for (resources, expect) in [
        ("{}", false),
        ("{requests: {}, limits: {}}", false),
        ("{requests: {cpu: '1'}}", true),
        ("{limits: {memory: 1Gi}}", true),
        ("{requests: {hugepages-2Mi: 2Mi}}", true),
        ("{requests: {ephemeral-storage: 1Gi}}", false),
        ("{limits: {example.com/gpu: '1'}}", false),
        ("{limits: {example.com/gpu: '1', cpu: '1'}}", true),
        ("{requests: {hugepages: 2Mi}}", false),
    ] {
        let spec: PodSpec =
            serde_saphyr::from_str(&format!("{{containers: [], resources: {resources}}}")).unwrap();
        assert_eq!(has_own_resources(&spec), expect, "{resources}");
    }
    assert!(!has_own_resources(&PodSpec::default()));
}

#[test]
fn sums_that_are_too_large_are_as_large_as_they_can_be() {
    let spec = spec("s9223372036854775807/- 9223372036854775807/-", "-", "1");
    assert_eq!(pod_request(&spec, "cpu", whole), i64::MAX);
    assert_eq!(at_once(&spec, |_| i64::MAX), i64::MAX);
}
