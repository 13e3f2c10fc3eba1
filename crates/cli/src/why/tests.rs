use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn check(subject: Value, others: &[Value], events: &[Value], expected: Expect) {
    let snapshot = Snapshot { subject, others: others.to_vec(), events: events.to_vec() };
    expected.assert_eq(&explain(&snapshot).to_string());
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn node() -> Value {
    yaml("{kind: Node, metadata: {name: n1}, status: {conditions: [{type: Ready, status: 'True'}]}}")
}

fn pod(name: &str, owner: &str, spec: &str, status: &str) -> Value {
    yaml(&format!(
        "{{kind: Pod, metadata: {{name: {name}, uid: {name}-uid, labels: {{app: web}}, \
         ownerReferences: [{{uid: {owner}}}]}}, spec: {spec}, status: {status}}}"
    ))
}

fn waiting(reason: &str, message: &str) -> String {
    format!(
        "{{phase: Pending, containerStatuses: [{{name: c, state: {{waiting: {{reason: {reason}, message: '{message}'}}}}}}]}}"
    )
}

const ON_NODE: &str = "{nodeName: n1}";
const READY: &str = "{phase: Running, conditions: [{type: Ready, status: 'True'}]}";

#[test]
fn what_runs_is_said_to_run() {
    check(
        pod("web-1", "rs", ON_NODE, READY),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is running and ready
    "#]],
    );
}

#[test]
fn an_unscheduled_pod_has_the_schedulers_message_and_advice() {
    let status = "{phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, \
                  message: '0/1 nodes are available: 1 Insufficient cpu.'}]}";
    check(
        pod("web-1", "rs", "{}", status),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is not running
          - no node fits: 0/1 nodes are available: 1 Insufficient cpu.
            lower the requests of its containers, remove other Pods, or add a node
    "#]],
    );
    check(
        pod("web-1", "rs", "{schedulerName: mine}", "{phase: Pending}"),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is not running
          - no scheduler has looked at it yet; it waits for mine
            see that a scheduler of that name runs
    "#]],
    );
}

#[test]
fn waiting_containers_say_what_for() {
    let status = waiting("ImagePullBackOff", "Back-off pulling image \"nope\"");
    check(
        pod("web-1", "rs", ON_NODE, &status),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is not running
          - container c waits, ImagePullBackOff: Back-off pulling image "nope"
            check the image's name and the Pod's imagePullSecrets, or bring it to the node with `knarr image import`
    "#]],
    );
    let status = "{phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff, \
                  message: back-off 10s}}, lastState: {terminated: {exitCode: 3, reason: Error}}}]}";
    check(
        pod("web-1", "rs", ON_NODE, status),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 runs, but is not ready
          - container c waits, CrashLoopBackOff: back-off 10s; it ended with exit code 3 (Error)
            see `kubectl logs web-1 -c c --previous`
    "#]],
    );
}

#[test]
fn events_tell_what_no_state_does() {
    let status = waiting("ContainerCreating", "");
    let event = |reason: &str, message: &str, time: &str| {
        json!({ "type": "Warning", "reason": reason, "message": message, "lastTimestamp": time,
                "involvedObject": { "uid": "web-1-uid" } })
    };
    let events = [
        event("FailedMount", "configmap \"old\" not found", "2026-01-01T00:00:00Z"),
        event("FailedMount", "configmap \"settings\" not found", "2026-01-01T00:00:09Z"),
    ];
    check(
        pod("web-1", "rs", ON_NODE, &status),
        &[node()],
        &events,
        expect![[r#"
        pod/web-1 is not running
          - FailedMount: configmap "settings" not found
    "#]],
    );
}

#[test]
fn an_object_that_a_part_cannot_read_says_so_however_well_it_is() {
    let mut claim =
        yaml("{kind: PersistentVolumeClaim, metadata: {name: c, uid: u}, status: {phase: Bound}}");
    let event = json!({ "type": "Warning", "reason": "FailedDecoding", "message": "kubelet cannot decode this object",
        "involvedObject": { "uid": "u" } });
    let told = expect![[r#"
        persistentvolumeclaim/c is bound
          - FailedDecoding: kubelet cannot decode this object
            write it anew without what is named; the next version is read
    "#]];
    check(claim.clone(), &[], std::slice::from_ref(&event), told);
    claim["metadata"]["uid"] = "other".into();
    check(
        claim,
        &[],
        &[event],
        expect![[r#"
        persistentvolumeclaim/c is bound
    "#]],
    );
}

#[test]
fn a_node_that_is_gone_or_ill_is_named() {
    check(
        pod("web-1", "rs", ON_NODE, "{phase: Pending}"),
        &[],
        &[],
        expect![[r#"
        pod/web-1 is not running
          - its node n1 does not exist
            delete the Pod, or let the node join
    "#]],
    );
    let ill = yaml(
        "{kind: Node, metadata: {name: n1}, status: {conditions: [{type: Ready, status: Unknown, \
         message: Kubelet stopped posting node status.}]}}",
    );
    check(
        ill,
        &[],
        &[],
        expect![[r#"
        node/n1 is not ready
          - Ready is Unknown: Kubelet stopped posting node status.
    "#]],
    );
}

#[test]
fn a_deployment_is_walked_down_to_its_pods_and_the_same_cause_is_told_once() {
    let deployment = yaml("{kind: Deployment, metadata: {name: web, uid: d}, spec: {replicas: 3}}");
    let set = yaml(
        "{kind: ReplicaSet, metadata: {name: web-r, uid: rs, ownerReferences: [{uid: d}]}, spec: {replicas: 3}}",
    );
    let status = waiting("CreateContainerConfigError", "secret \"key\" not found");
    let others = [
        node(),
        set,
        pod("web-1", "rs", ON_NODE, &status),
        pod("web-2", "rs", ON_NODE, READY),
        pod("web-3", "rs", ON_NODE, &status),
    ];
    check(
        deployment,
        &others,
        &[],
        expect![[r#"
        deployment/web has 1 of 3 Pods ready
          pod/web-1 and 1 more
            - container c waits, CreateContainerConfigError: secret "key" not found
              make the ConfigMap, Secret or key that the message names
    "#]],
    );
}

#[test]
fn pods_that_were_never_made_are_told_of() {
    let deployment =
        yaml("{kind: Deployment, metadata: {name: web, uid: d, generation: 1}, spec: {replicas: 1}}");
    check(
        deployment,
        &[],
        &[],
        expect![[r#"
        deployment/web has 0 of 1 Pods ready
          - its controller has not looked at it since it was changed
            see that the controllers run: `knarr status`
    "#]],
    );
    let set = yaml(
        "{kind: ReplicaSet, metadata: {name: r, uid: r}, spec: {replicas: 1}, status: {conditions: \
         [{type: ReplicaFailure, status: 'True', reason: FailedCreate, message: 'pods is forbidden: quota'}]}}",
    );
    check(
        set,
        &[],
        &[],
        expect![[r#"
        replicaset/r has 0 of 1 Pods ready
          - FailedCreate: pods is forbidden: quota
    "#]],
    );
}

#[test]
fn a_service_needs_ready_pods_with_its_labels() {
    let service = |app: &str| {
        yaml(&format!("{{kind: Service, metadata: {{name: web}}, spec: {{selector: {{app: {app}}}}}}}"))
    };
    check(
        service("other"),
        &[pod("web-1", "rs", ON_NODE, READY)],
        &[],
        expect![[r#"
        service/web has 0 of 0 Pods ready
          - no Pod has the labels app=other
            compare with `kubectl get pods --show-labels`; `kubectl get pods -l app=other` is empty
    "#]],
    );
    check(
        service("web"),
        &[pod("web-1", "rs", ON_NODE, READY)],
        &[],
        expect![[r#"
        service/web has 1 of 1 Pods ready
    "#]],
    );
}

#[test]
fn kinds_have_the_names_that_kubectl_takes() {
    for (name, expected) in
        [("deploy", "Deployment"), ("pods", "Pod"), ("RS", "ReplicaSet"), ("deployments.apps", "Deployment")]
    {
        assert_eq!(Kind::find(name).map(|kind| kind.name), Some(expected), "{name}");
    }
    assert_eq!(Kind::find(""), None);
    assert_eq!(Kind::find("secret"), None);
}
