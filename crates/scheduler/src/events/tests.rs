//! The cases of upstream's `framework/events_test.go`: what a change is called, by what of it a Pod may gain.

use serde::de::DeserializeOwned;

use super::*;
use crate::transform::parse;

fn turn<K: DeserializeOwned + 'static>(old: &str, new: &str) -> Turn<K> {
    let object = |text: &str| (!text.is_empty()).then(|| Arc::new(parse::<K>(text)));
    Turn { old: object(old), new: object(new) }
}

/// A Node before and after.
const NODES: &[(&str, &str, &str, &str)] = &[
    ("come", "", "{metadata: {name: n}}", "NodeAdd"),
    ("gone", "{metadata: {name: n}}", "", "NodeDelete"),
    ("nothing", "{metadata: {name: n}}", "{metadata: {name: n, resourceVersion: '2'}}", "NodeUpdate"),
    ("cordoned", "{spec: {unschedulable: false}}", "{spec: {unschedulable: true}}", "NodeUpdateNodeTaint"),
    (
        "room",
        "{status: {allocatable: {cpu: 1, memory: 100m, example.com/foo: 1}}}",
        "{status: {allocatable: {cpu: 1, memory: 100m, example.com/foo: 2}}}",
        "NodeUpdateNodeAllocatable",
    ),
    (
        "a resource",
        "{status: {allocatable: {cpu: 1}}}",
        "{status: {allocatable: {cpu: 1, example.com/foo: 1}}}",
        "NodeUpdateNodeAllocatable",
    ),
    (
        "a label",
        "{metadata: {labels: {foo: bar}}}",
        "{metadata: {labels: {foo: baz}}}",
        "NodeUpdateNodeLabel",
    ),
    ("a label more", "{metadata: {}}", "{metadata: {labels: {foo: baz}}}", "NodeUpdateNodeLabel"),
    (
        "a taint",
        "{spec: {taints: [{key: k, value: v1, effect: NoSchedule}]}}",
        "{spec: {taints: [{key: k, value: v2, effect: NoSchedule}]}}",
        "NodeUpdateNodeTaint",
    ),
    ("an annotation", "{metadata: {annotations: {a: b}}}", "{metadata: {annotations: {a: c}}}", "NodeUpdate"),
    (
        "of a label and room the room is told",
        "{metadata: {labels: {a: b}}, status: {allocatable: {cpu: 1}}}",
        "{metadata: {labels: {a: c}}, status: {allocatable: {cpu: 2}}}",
        "NodeUpdateNodeAllocatable",
    ),
];

#[test]
fn a_change_of_a_node_is_called_by_what_of_it_helps() {
    for (name, old, new, expect) in NODES {
        assert_eq!(Event::Node(turn(old, new)).label(), *expect, "{name}");
    }
}

const SMALL: &str = "containers: [{name: c, resources: {requests: {cpu: 100m}}}]";
const LARGE: &str = "containers: [{name: c, resources: {requests: {cpu: 101m}}}]";

/// A Pod before and after; what it is called on a Node, and without one.
const PODS: &[(&str, &str, &str, &str, &str)] = &[
    ("nothing", "{spec: {SMALL}}", "{spec: {SMALL}}", "", ""),
    (
        "a label",
        "{metadata: {labels: {foo: bar}}}",
        "{metadata: {labels: {foo: bar2}}}",
        "PodLabel",
        "PodLabel",
    ),
    ("less is asked for", "{spec: {LARGE}}", "{spec: {SMALL}}", "PodScaleDown", "PodScaleDown"),
    ("more is asked for", "{spec: {SMALL}}", "{spec: {LARGE}}", "", ""),
    (
        "of a label and less the label is told",
        "{metadata: {labels: {foo: bar}}, spec: {LARGE}}",
        "{metadata: {labels: {foo: bar2}}, spec: {SMALL}}",
        "PodLabel",
        "PodLabel",
    ),
    (
        "a device less",
        "{spec: {containers: [{name: c, resources: {requests: {example.com/gpu: 2}}}]}}",
        "{spec: {containers: [{name: c, resources: {requests: {example.com/gpu: 1}}}]}}",
        "PodScaleDown",
        "PodScaleDown",
    ),
    (
        "no device any more",
        "{spec: {containers: [{name: c, resources: {requests: {example.com/gpu: 2}}}]}}",
        "{spec: {containers: [{name: c}]}}",
        "PodScaleDown",
        "PodScaleDown",
    ),
    (
        "less of one and more of another",
        "{spec: {containers: [{name: c, resources: {requests: {cpu: 2, memory: 1Gi}}}]}}",
        "{spec: {containers: [{name: c, resources: {requests: {cpu: 1, memory: 2Gi}}}]}}",
        "PodScaleDown",
        "PodScaleDown",
    ),
    (
        "from one container to the other",
        "{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b}]}}",
        "{spec: {containers: [{name: a}, {name: b, resources: {requests: {cpu: 1}}}]}}",
        "",
        "",
    ),
    (
        "what it has been given back",
        "{spec: {SMALL}, status: {containerStatuses: [{name: c, image: i, imageID: i, ready: true, restartCount: 0, resources: {requests: {cpu: 2}}}]}}",
        "{spec: {SMALL}, status: {containerStatuses: [{name: c, image: i, imageID: i, ready: true, restartCount: 0, resources: {requests: {cpu: 100m}}}]}}",
        "PodScaleDown",
        "PodScaleDown",
    ),
    (
        "a toleration",
        "{spec: {SMALL}}",
        "{spec: {SMALL, tolerations: [{key: key1, value: value1}]}}",
        "",
        "PodToleration",
    ),
    (
        "a claim that was made",
        "{spec: {SMALL}}",
        "{spec: {SMALL}, status: {resourceClaimStatuses: [{name: foo, resourceClaimName: bar}]}}",
        "",
        "PodGeneratedResourceClaim",
    ),
    (
        "claims in another order",
        "{spec: {SMALL}, status: {resourceClaimStatuses: [{name: a, resourceClaimName: x}, {name: b}]}}",
        "{spec: {SMALL}, status: {resourceClaimStatuses: [{name: b}, {name: a, resourceClaimName: x}]}}",
        "",
        "PodGeneratedResourceClaim",
    ),
];

#[test]
fn a_change_of_a_pod_is_called_by_what_of_it_helps() {
    for (name, old, new, placed, waiting) in PODS {
        let filled = |text: &str| text.replace("SMALL", SMALL).replace("LARGE", LARGE);
        let turn: Turn<Pod> = turn(&filled(old), &filled(new));
        let found = (Event::Pod(turn.clone()).label(), Event::Wish(turn).label());
        let expect = (format!("AssignedPodUpdate{placed}"), format!("UnschedulablePodUpdate{waiting}"));
        assert_eq!((found.0.to_owned(), found.1.to_owned()), expect, "{name}");
    }
    let come: Turn<Pod> = turn("", "{metadata: {name: p}}");
    let gone: Turn<Pod> = turn("{metadata: {name: p}}", "");
    assert_eq!((Event::Pod(come).label(), Event::Pod(gone).label()), ("AssignedPodAdd", "AssignedPodDelete"));
}
