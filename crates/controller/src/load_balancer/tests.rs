//! The cases of upstream's `Test_stableNodeSetPredicates`-like tables, `pkg/controllers/service` of `cloud-provider`.

use super::*;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

/// Nodes; whether they may be behind load balancers, whether they are about to go, and whether they are ready.
const NODES: &[(&str, &str, (bool, bool, bool))] = &[
    ("that says nothing", "{}", (true, false, false)),
    ("that is ready", "{status: {conditions: [{type: Ready, status: 'True'}]}}", (true, false, true)),
    ("that is not", "{status: {conditions: [{type: Ready, status: 'False'}]}}", (true, false, false)),
    (
        "of which nobody knows",
        "{status: {conditions: [{type: Ready, status: Unknown}]}}",
        (true, false, false),
    ),
    (
        "with other conditions",
        "{status: {conditions: [{type: Other, status: 'True'}]}}",
        (true, false, false),
    ),
    ("that is cordoned", "{spec: {unschedulable: true}}", (true, false, false)),
    (
        "of the control plane",
        "{metadata: {labels: {node-role.kubernetes.io/control-plane: ''}}}",
        (true, false, false),
    ),
    (
        "that is kept out",
        "{metadata: {labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''}}}",
        (false, false, false),
    ),
    (
        "that is kept out, whatever the label says",
        "{metadata: {labels: {node.kubernetes.io/exclude-from-external-load-balancers: 'false'}}}",
        (false, false, false),
    ),
    (
        "with an annotation of that name",
        "{metadata: {annotations: {node.kubernetes.io/exclude-from-external-load-balancers: ''}}}",
        (true, false, false),
    ),
    (
        "that the autoscaler is about to delete",
        "{spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}}",
        (false, true, false),
    ),
    (
        "that the autoscaler would like to delete",
        "{spec: {taints: [{key: DeletionCandidateOfClusterAutoscaler, effect: PreferNoSchedule}]}}",
        (true, false, false),
    ),
    ("that is deleted", "{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}", (false, true, false)),
    (
        "that is deleted and ready",
        "{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}, status: {conditions: [{type: Ready, status: 'True'}]}}",
        (false, true, true),
    ),
];

#[test]
fn nodes_are_behind_load_balancers_as_upstream_has_them() {
    for (name, node, expect) in NODES {
        let node: Node = parse(node);
        assert_eq!((is_candidate(&node), is_going(&node), is_ready(&node)), *expect, "a Node {name}");
    }
}

#[test]
fn a_service_says_by_its_condition_what_it_was_given() {
    let service =
        |conditions: &str| -> Service { parse(&format!("{{status: {{conditions: [{conditions}]}}}}")) };
    let since = "lastTransitionTime: '2026-01-01T00:00:00Z', message: ''";
    for (name, conditions, expect) in [
        ("nothing", String::new(), false),
        (
            "an address of the pool",
            format!("{{type: {CONDITION}, status: 'True', reason: {POOL_ADDRESS}, {since}}}"),
            true,
        ),
        (
            "not yet",
            format!("{{type: {CONDITION}, status: 'False', reason: {POOL_ADDRESS}, {since}}}"),
            false,
        ),
        (
            "of Nodes",
            format!("{{type: {CONDITION}, status: 'True', reason: {NODE_ADDRESSES}, {since}}}"),
            false,
        ),
        ("it waits", format!("{{type: {CONDITION}, status: 'False', reason: {WAITING}, {since}}}"), false),
        (
            "somebody else's",
            format!("{{type: Other, status: 'True', reason: {POOL_ADDRESS}, {since}}}"),
            false,
        ),
    ] {
        assert_eq!(has_pool_address(&service(&conditions)), expect, "{name}");
    }
    assert!(condition(&parse("{}")).is_none() && !has_pool_address(&parse("{status: {}}")));
}
