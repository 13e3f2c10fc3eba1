//! The effects of a configuration on decisions.

use std::sync::Arc;

use controller::pod::Pod;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Configuration;
use crate::decide::{Decision, decide, explain};
use crate::diagnosis::Diagnosis;
use crate::node_info::Snapshot;
use crate::plugins::AboutClaims;
use crate::preemption::preempt;

/// Two Nodes in zones of their own: `a` has a Pod `web` of 2 CPUs, `b` is empty.
fn check(profile: &str, pod: &str, expect: &str) {
    let text = format!(
        "{{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: [{{{profile}}}]}}"
    );
    let parsed = Configuration::parse(&text, &|_| Err(std::io::Error::other("there is no file")))
        .expect("a configuration");
    let mut snapshot = Snapshot::new(parsed.profiles);
    for (name, zone) in [("a", "x"), ("b", "y")] {
        let node = format!(
            "{{metadata: {{name: {name}, labels: {{zone: {zone}}}}}, status: {{allocatable: {{cpu: '4', memory: 4Gi, pods: 9}}}}}}"
        );
        snapshot.set_node(Arc::new(serde_saphyr::from_str::<Node>(&node).expect("a node")));
    }
    let web = "{metadata: {name: w, uid: w, namespace: d, labels: {app: web}}, spec: {containers: [{name: c, resources: \
               {requests: {cpu: '2', memory: 1Gi}}}], affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
               [{topologyKey: zone, labelSelector: {matchLabels: {app: friend}}}]}}}}";
    snapshot.place(&Arc::new(serde_saphyr::from_str::<Pod>(web).expect("a pod")), "a");
    let pod: Pod = serde_saphyr::from_str(pod).expect("a pod");
    let default_selector: LabelSelector =
        serde_saphyr::from_str("{matchLabels: {app: web}}").expect("a selector");
    let default_selector = Some(&default_selector).filter(|_| pod.metadata.name.as_deref() == Some("served"));
    let text = match decide(&pod, default_selector, &snapshot, 0, &mut Diagnosis::default()) {
        Decision::Bind(choice) => choice.node,
        Decision::Unschedulable(why) => {
            let preemption = preempt(&pod, &mut snapshot, &[], 0);
            let profile = snapshot.profiles.of(&pod).clone();
            let heeds = profile.asks("DynamicResources", crate::profile::Point::PostFilter);
            let about = if heeds { AboutClaims::Nothing } else { AboutClaims::NotAsked };
            explain(&why, &about, &preemption, snapshot.len())
        }
        Decision::Failed(why) | Decision::Unheard(why) => why,
    };
    assert_eq!(text, expect, "{profile}");
}

const SMALL: &str = "{metadata: {name: p, namespace: d}, spec: {containers: [{name: c, resources: {requests: {cpu: '1', memory: 512Mi}}}]}}";
const LARGE: &str = "{metadata: {name: p, namespace: d}, spec: {priority: 9, containers: [{name: c, resources: {requests: {cpu: '9'}}}]}}";

/// A score of one plugin alone, with these arguments.
fn only(plugin: &str, args: &str) -> String {
    format!(
        "plugins: {{score: {{disabled: [{{name: '*'}}], enabled: [{{name: {plugin}}}]}}}}, pluginConfig: [{{name: {plugin}, args: {{{args}}}}}]"
    )
}

#[test]
fn nodes_are_filled_or_spared() {
    check("", SMALL, "b");
    check(&only("NodeResourcesFit", "scoringStrategy: {type: MostAllocated}"), SMALL, "a");
    let line = |points: &str| {
        format!(
            "scoringStrategy: {{type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape: [{points}]}}}}"
        )
    };
    let rising = line("{utilization: 0, score: 0}, {utilization: 100, score: 10}");
    check(&only("NodeResourcesFit", &rising), SMALL, "a");
    let falling = line("{utilization: 0, score: 10}, {utilization: 100, score: 0}");
    check(&only("NodeResourcesFit", &falling), SMALL, "b");
}

#[test]
fn who_is_wanted_near_counts_as_much_as_is_said() {
    let friend =
        "{metadata: {name: p, namespace: d, labels: {app: friend}}, spec: {containers: [{name: c}]}}";
    check(&only("InterPodAffinity", ""), friend, "a");
    for args in ["hardPodAffinityWeight: 0", "ignorePreferredTermsOfExistingPods: true"] {
        let emptier = only("InterPodAffinity", args)
            .replace("enabled: [{name: Inter", "enabled: [{name: NodeResourcesFit}, {name: Inter");
        check(&emptier, friend, "b");
    }
}

#[test]
fn every_pod_is_held_to_what_the_profile_adds() {
    let added = |zone: &str| {
        let term = format!("{{matchExpressions: [{{key: zone, operator: In, values: [{zone}]}}]}}");
        format!(
            "pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}}}]"
        )
    };
    check(&added("x"), SMALL, "a");
    check(
        &added("z"),
        SMALL,
        "0/2 nodes are available: 2 node(s) didn't match scheduler-enforced node affinity. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    );
    let preferred = "pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: zone, operator: In, values: [x]}]}}]}}}]";
    check(
        &format!("plugins: {{score: {{enabled: [{{name: NodeAffinity, weight: 50}}]}}}}, {preferred}"),
        SMALL,
        "a",
    );
}

#[test]
fn pods_without_constraints_are_spread_as_the_list_says() {
    let served = "{metadata: {name: served, namespace: d, labels: {app: web}}, spec: {nodeSelector: {zone: x}, containers: [{name: c}]}}";
    let spread = |max_skew: i32, action: &str| {
        format!(
            "pluginConfig: [{{name: PodTopologySpread, args: {{defaultingType: List, defaultConstraints: [{{maxSkew: {max_skew}, topologyKey: zone, whenUnsatisfiable: {action}, nodeAffinityPolicy: Ignore}}]}}}}]"
        )
    };
    check("", served, "a");
    check(&spread(1, "ScheduleAnyway"), served, "a");
    check(&spread(2, "DoNotSchedule"), served, "a");
    check(
        &spread(1, "DoNotSchedule"),
        served,
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod topology \
         spread constraints. no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found \
         for incoming pod, 1 Preemption is not helpful for scheduling.",
    );
    check("plugins: {multiPoint: {disabled: [{name: PodTopologySpread}]}}", served, "a");
}

#[test]
fn plugins_that_are_off_say_nothing() {
    let nobody_goes = "plugins: {postFilter: {disabled: [{name: '*'}]}}";
    check(nobody_goes, LARGE, "0/2 nodes are available: 2 Insufficient cpu.");
    let nobody_preempts = "plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}";
    let claims = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate";
    check(nobody_preempts, LARGE, claims);
    let all_fit = "plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}";
    check(all_fit, LARGE, "a");
}
