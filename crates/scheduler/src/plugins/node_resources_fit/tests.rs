mod upstream;

use std::sync::Arc;

use controller::pod::Pod;
use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::node_info::Snapshot;
use crate::profile::{Profile, Profiles};

/// What a Node with 10 CPUs, 4 of them in use, and 10 GiB, 8 of them in use, is worth to a Pod of 1 CPU and 1 GiB.
fn score_of(strategy: Strategy, resources: &[(&str, i64)]) -> i64 {
    let resources = resources.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    let mut snapshot = Snapshot::default();
    let mut profile = Profile::default();
    profile.arguments.fit = Fit { strategy, resources, ..Fit::default() };
    snapshot.profiles = Profiles::new(profile, Vec::new());
    let node = "{metadata: {name: n}, status: {allocatable: {cpu: '10', memory: 10Gi, pods: 9, example.com/gpu: '4'}}}";
    snapshot.set_node(Arc::new(serde_saphyr::from_str::<Node>(node).expect("a node")));
    let pod = |name: &str, requests: &str| -> Pod {
        let text = format!(
            "{{metadata: {{name: {name}, uid: {name}}}, spec: {{containers: [{{name: c, resources: {{requests: {requests}}}}}]}}}}"
        );
        serde_saphyr::from_str(&text).expect("a pod")
    };
    snapshot.place(&Arc::new(pod("there", "{cpu: '4', memory: 8Gi, example.com/gpu: '1'}")), "n");
    let wants = pod("new", "{cpu: '1', memory: 1Gi, example.com/gpu: '1'}");
    let candidate = Candidate::new(&wants, None, &snapshot);
    let node = snapshot.node("n").expect("the node");
    score(&candidate, node)
}

#[test]
fn each_strategy_scores_as_upstream() {
    let both: &[_] = &[("cpu", 1), ("memory", 1)];
    assert_eq!(score_of(Strategy::LeastAllocated, both), (50 + 10) / 2);
    assert_eq!(score_of(Strategy::MostAllocated, both), (50 + 90) / 2);
    assert_eq!(score_of(Strategy::MostAllocated, &[("cpu", 3), ("memory", 1)]), (150 + 90) / 4);
    assert_eq!(score_of(Strategy::MostAllocated, &[("example.com/gpu", 1)]), 50);
    assert_eq!(score_of(Strategy::MostAllocated, &[("example.com/other", 1)]), 0, "nobody asks for it");
    let ratio = |line: &[(i64, i64)]| Strategy::RequestedToCapacityRatio(line.to_vec());
    assert_eq!(score_of(ratio(&[(0, 0), (100, 100)]), both), 70);
    assert_eq!(score_of(ratio(&[(0, 100), (100, 0)]), both), 30);
    // 90 % is worth nothing, and does not count.
    assert_eq!(score_of(ratio(&[(0, 100), (60, 40), (90, 0)]), both), 50);
}

#[test]
fn a_line_is_level_beyond_its_ends() {
    let line = [(20, 10), (40, 30), (80, 30), (90, 0)];
    for (at, expect) in [(0, 10), (20, 10), (30, 20), (40, 30), (60, 30), (85, 15), (90, 0), (100, 0)] {
        assert_eq!(on_line(&line, at), expect, "at {at} %");
    }
    assert_eq!(on_line(&[], 50), 0);
    assert_eq!(on_line(&[(50, 1), (50, 9)], 50), 1, "two points at one place are no division by nothing");
}

#[test]
fn only_extended_resources_are_ignored() {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
    let fit = Fit {
        ignored: texts(&["example.com/gpu", "cpu", "hugepages-2Mi"]),
        ignored_groups: texts(&["example.org"]),
        ..Fit::default()
    };
    for (name, expect) in [
        ("example.com/gpu", true),
        ("example.com/other", false),
        ("example.org/other", true),
        ("hugepages-2Mi", false),
    ] {
        assert_eq!(is_ignored(&fit, name), expect, "{name}");
    }
}
