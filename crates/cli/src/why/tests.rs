mod cases;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn check(subject: Value, others: &[Value], events: &[Value], expected: Expect) {
    let snapshot =
        Snapshot { subject, others: others.to_vec(), events: events.to_vec(), ..Snapshot::default() };
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
fn a_node_is_told_with_the_way_to_its_kubelet() {
    let check = |has_tunnel, failure: Option<&str>, expected: Expect| {
        let reach = Some(Reach { has_tunnel, failure: failure.map(str::to_owned) });
        let snapshot = Snapshot { subject: node(), reach, ..Snapshot::default() };
        expected.assert_eq(&explain(&snapshot).to_string());
    };
    check(Some(true), None, expect![["node/n1 is ready, and its tunnel stands\n"]]);
    check(Some(false), None, expect![["node/n1 is ready\n"]]);
    check(None, None, expect![["node/n1 is ready\n"]]);
    let timeout = Some("dial tcp 192.0.2.7:10250: connect: i/o timeout");
    check(
        Some(false),
        timeout,
        expect![[r#"
            node/n1 is ready, but not well
              because  the API server does not reach its kubelet, and no tunnel of the node stands: dial tcp 192.0.2.7:10250: connect: i/o timeout
              fix      if there is no way from the API server to the node's host, see there with `knarr status` why its tunnel does not stand
        "#]],
    );
    check(
        Some(true),
        Some("dial tcp 192.0.2.7:10250: connect: connection refused"),
        expect![[r#"
            node/n1 is ready, but not well
              because  the API server does not reach its kubelet through the node's tunnel: dial tcp 192.0.2.7:10250: connect: connection refused
              fix      look at the kubelet and its log on the node's host
        "#]],
    );
}

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
                  message: '0/1 nodes are available: 1 Insufficient cpu. \
                  no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful.'}]}";
    check(
        pod("web-1", "rs", "{}", status),
        &[node()],
        &[],
        expect![[r#"
            pod/web-1 is not running
              because  no node fits: 0/1 nodes are available: 1 Insufficient cpu.
              fix      lower the requests of its containers, remove other Pods, or add a node
              because  it asks for 0 of cpu; n1 has 0 of 0 free
        "#]],
    );
    check(
        pod("web-1", "rs", "{schedulerName: mine}", "{phase: Pending}"),
        &[node()],
        &[],
        expect![[r#"
            pod/web-1 is not running
              because  no scheduler has looked at it yet; it waits for mine
              fix      see that a scheduler of that name runs
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
              because  container c waits, ImagePullBackOff: Back-off pulling image "nope"
              fix      check the image's name and the Pod's imagePullSecrets, or bring it to the node with `knarr image import`
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
              because  container c waits, CrashLoopBackOff: back-off 10s; it ended with exit code 3 (Error)
              fix      see `kubectl logs web-1 -c c --previous`
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
              because  FailedMount: configmap "settings" not found
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
          because  FailedDecoding: kubelet cannot decode this object
          fix      write it anew without what is named; the next version is read
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
              because  its node n1 does not exist
              fix      delete the Pod, or let the node join
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
              because  Ready is Unknown: Kubelet stopped posting node status.
        "#]],
    );
    let lost = yaml(
        "{kind: Node, metadata: {name: n1}, status: {conditions: [{type: Ready, status: 'True'}, \
         {type: NetworkUnavailable, status: 'True', reason: NoRouteCreated, message: no route to the Pods of n0}]}}",
    );
    check(
        lost,
        &[],
        &[],
        expect![[r#"
            node/n1 is ready, but not well
              because  NetworkUnavailable is True: no route to the Pods of n0
              fix      give the node an address on the network of the others (`--node-ip`), or start the servers with a network that crosses routers (`--network-backend vxlan`)
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
                because  container c waits, CreateContainerConfigError: secret "key" not found
                fix      make the ConfigMap, Secret or key that the message names
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
              because  its controller has not looked at it since it was changed
              fix      see that the controllers run: `knarr status`
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
              because  FailedCreate: pods is forbidden: quota
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
              because  no Pod has the labels app=other
              fix      compare with `kubectl get pods --show-labels`; `kubectl get pods -l app=other` is empty
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
    for (name, expected) in [
        ("deploy", "Deployment"),
        ("pods", "Pod"),
        ("RS", "ReplicaSet"),
        ("deployments.apps", "Deployment"),
        ("hpa", "HorizontalPodAutoscaler"),
    ] {
        assert_eq!(Kind::find(name).map(|kind| kind.name), Some(expected), "{name}");
    }
    assert_eq!(Kind::find(""), None);
    assert_eq!(Kind::find("secret"), None);
}

#[test]
fn kinds_on_which_a_part_acts_are_not_said_to_lack_one() {
    let check = |subject: &str, (group, plural): (&str, &str), expected: Expect| {
        let resource = (group.to_owned(), plural.to_owned());
        let snapshot = Snapshot { subject: yaml(subject), resource, ..Snapshot::default() };
        expected.assert_eq(&explain(&snapshot).to_string());
    };
    check(
        "{kind: NetworkPolicy, metadata: {name: deny}}",
        ("networking.k8s.io", "networkpolicies"),
        expect![[r#"
            networkpolicy/deny is there, and nothing is said against it
        "#]],
    );
    check(
        "{kind: APIService, metadata: {name: v1.}, spec: {service: null}}",
        ("apiregistration.k8s.io", "apiservices"),
        expect![[r#"
            apiservice/v1. is there, and nothing is said against it
        "#]],
    );
    check(
        "{kind: Job, metadata: {name: j1, deletionTimestamp: x, finalizers: [orphan]}}",
        ("batch", "jobs"),
        expect![[r#"
            job/j1 has 0 successes
              because  is being deleted; it waits for orphan
        "#]],
    );
    check(
        "{kind: Namespace, metadata: {name: a, deletionTimestamp: x}, spec: {finalizers: [kubernetes]}, status: {conditions: \
         [{type: NamespaceContentRemaining, status: 'True', message: 'pods. has 1 resource instances'}, \
         {type: NamespaceDeletionContentFailure, status: 'False'}]}}",
        ("", "namespaces"),
        expect![[r#"
            namespace/a is being deleted
              because  finalizers keep it: kubernetes
              fix      whoever set them must remove them when its work is done
              because  NamespaceContentRemaining is True: pods. has 1 resource instances
        "#]],
    );
    check(
        "{kind: ConfigMap, metadata: {name: a}}",
        ("", "configmaps"),
        expect![[r#"
        configmap/a is there, and nothing is said against it
    "#]],
    );
}

#[test]
fn a_pod_that_is_deleted_or_being_made_is_said_to_be() {
    let mut ended = pod("web-1", "rs", ON_NODE, "{phase: Succeeded}");
    ended["metadata"]["deletionTimestamp"] = "x".into();
    ended["metadata"]["finalizers"] = json!(["example.com/hold"]);
    check(
        ended,
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is being deleted
          because  finalizers keep it: example.com/hold
          fix      whoever set them must remove them when its work is done
    "#]],
    );
    let status = waiting("ContainerCreating", "");
    let event = json!({ "type": "Normal", "reason": "Pulling", "message": "Pulling image \"big\"",
                        "involvedObject": { "uid": "web-1-uid" } });
    check(
        pod("web-1", "rs", ON_NODE, &status),
        &[node()],
        &[event],
        expect![[r#"
        pod/web-1 is not running
          because  the image "big" is being pulled
    "#]],
    );
    check(
        pod("web-1", "rs", ON_NODE, &status),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is not running
          because  the kubelet of node n1 is making its containers
    "#]],
    );
    let status =
        waiting("ErrImageNeverPull", "Container image \"x\" is not present with pull policy of Never");
    let event = json!({ "type": "Warning", "reason": "ErrImageNeverPull",
                        "message": "Container image \"x\" is not present with pull policy of Never",
                        "involvedObject": { "uid": "web-1-uid" } });
    check(
        pod("web-1", "rs", ON_NODE, &status),
        &[node()],
        &[event],
        expect![[r#"
        pod/web-1 is not running
          because  container c waits, ErrImageNeverPull: Container image "x" is not present with pull policy of Never
          fix      bring the image to the node with `knarr image import`, or change imagePullPolicy
    "#]],
    );
    let status = waiting("RunContainerError", "exec: \"nope\": executable file not found in $PATH");
    check(
        pod("web-1", "rs", ON_NODE, &status),
        &[node()],
        &[],
        expect![[r#"
        pod/web-1 is not running
          because  container c waits, RunContainerError: exec: "nope": executable file not found in $PATH
          fix      the image has no such program: correct the container's command
    "#]],
    );
}

#[test]
fn what_nodes_lack_is_named() {
    let node = yaml(
        "{kind: Node, metadata: {name: n1, labels: {disk: hdd}}, spec: {taints: [{key: gpu, value: a, effect: NoSchedule}]}, \
         status: {allocatable: {cpu: '2', memory: 1Gi}, conditions: [{type: Ready, status: 'True'}]}}",
    );
    let unscheduled = |message: &str| {
        format!(
            "{{phase: Pending, conditions: [{{type: PodScheduled, status: 'False', message: '{message}'}}]}}"
        )
    };
    let spec = "{containers: [{resources: {requests: {cpu: 64}}}], nodeSelector: {disk: ssd}, volumes: \
                [{name: v, persistentVolumeClaim: {claimName: data}}]}";
    let spec = spec.replace("cpu: 64", "cpu: '64'");
    let claim =
        yaml("{kind: PersistentVolumeClaim, metadata: {name: data, uid: c}, status: {phase: Pending}}");
    let event = json!({ "type": "Warning", "reason": "ProvisioningFailed", "involvedObject": { "uid": "c" },
                        "message": "storageclass.storage.k8s.io \"gp3\" not found" });
    let message = "1 Insufficient cpu, didn''t match Pod''s node affinity/selector, had untolerated taint, unbound immediate PersistentVolumeClaims";
    let placed =
        pod("other", "rs", "{nodeName: n1, containers: [{resources: {requests: {cpu: 200m}}}]}", READY);
    let snapshot = Snapshot {
        subject: pod("web-1", "rs", &spec, &unscheduled(message)),
        others: vec![node, claim],
        events: vec![event],
        placed: vec![placed],
        ..Snapshot::default()
    };
    expect![[r#"
        pod/web-1 is not running
          because  no node fits: 1 Insufficient cpu, didn't match Pod's node affinity/selector, had untolerated taint, unbound immediate PersistentVolumeClaims
          fix      lower the requests of its containers, remove other Pods, or add a node; add a toleration, or take the taint off (`kubectl taint nodes NODE KEY-`); label a node as its nodeSelector and affinity say, or change them; see to its claims first
          because  it asks for 64 of cpu; n1 has 1800m of 2 free
          because  no Node has the label disk=ssd of its nodeSelector
          because  n1 has the taint gpu=a:NoSchedule
          persistentvolumeclaim/data
            because  ProvisioningFailed: storageclass.storage.k8s.io "gp3" not found
            fix      name a class that there is (`kubectl get storageclass`), none for the default one, or make that one
    "#]].assert_eq(&explain(&snapshot).to_string());
    expect![[r#"
        pod/web-1 is not running
          because  no node fits: 1 Insufficient cpu, didn't match
                   Pod's node affinity/selector, had untolerated
                   taint, unbound immediate PersistentVolumeClaims
          fix      lower the requests of its containers, remove
                   other Pods, or add a node; add a toleration, or
                   take the taint off (`kubectl taint nodes NODE
                   KEY-`); label a node as its nodeSelector and
                   affinity say, or change them; see to its claims
                   first
          because  it asks for 64 of cpu; n1 has 1800m of 2 free
          because  no Node has the label disk=ssd of its
                   nodeSelector
          because  n1 has the taint gpu=a:NoSchedule
          persistentvolumeclaim/data
            because  ProvisioningFailed: storageclass.storage.k8s.io
                     "gp3" not found
            fix      name a class that there is (`kubectl get
                     storageclass`), none for the default one, or
                     make that one
    "#]]
    .assert_eq(&explain(&snapshot).render(60));
}

#[test]
fn services_and_daemon_sets_say_what_they_wait_for() {
    let balanced = "{kind: Service, metadata: {name: web}, spec: {type: LoadBalancer, selector: {app: web}, \
                    ports: [{targetPort: http, nodePort: 30123}]}}";
    let pods = [pod("web-1", "rs", ON_NODE, READY), pod("web-2", "rs", ON_NODE, READY)];
    check(
        yaml(balanced),
        &pods,
        &[],
        expect![[r#"
        service/web has 2 of 2 Pods ready
          because  its Pods have no port with the name http
          because  no load balancer has given it an address
          fix      use port 30123 of a node, or install what gives Services addresses, such as MetalLB
    "#]],
    );
    let set = "{kind: DaemonSet, metadata: {name: agent}, spec: {template: {spec: {nodeSelector: {gpu: a}}}}, \
               status: {desiredNumberScheduled: 0}}";
    check(
        yaml(set),
        &[node()],
        &[],
        expect![[r#"
        daemonset/agent wants no Pods
          because  no Node that it tolerates has the labels gpu=a of its nodeSelector
          fix      label a node (`kubectl label nodes NODE KEY=VALUE`), tolerate its taints, or change the selector
    "#]],
    );
}

#[test]
fn all_that_is_wrong_is_told_worst_first_and_once() {
    let plural = |kind: &str| Kind::find(kind).expect("known").resource();
    let with = |mut object: Value, namespace: &str| {
        object["metadata"]["namespace"] = namespace.into();
        let resource = plural(text(&object, "/kind"));
        (object, resource)
    };
    let status = waiting("ImagePullBackOff", "no");
    let deployment = yaml("{kind: Deployment, metadata: {name: web, uid: d}, spec: {replicas: 1}}");
    let set = yaml(
        "{kind: ReplicaSet, metadata: {name: web-r, uid: rs, ownerReferences: [{uid: d}]}, spec: {replicas: 1}}",
    );
    let service = yaml("{kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}");
    let ill =
        yaml("{kind: Node, metadata: {name: n2}, status: {conditions: [{type: Ready, status: Unknown}]}}");
    let objects = [
        (
            yaml("{kind: NetworkPolicy, metadata: {name: deny, namespace: a}}"),
            ("networking.k8s.io".to_owned(), "networkpolicies".to_owned()),
        ),
        with(service, "other"),
        with(deployment, "a"),
        with(set, "a"),
        with(pod("web-1", "rs", ON_NODE, &status), "a"),
        with(pod("alone", "gone", "{}", "{phase: Pending}"), "a"),
        with(node(), ""),
        with(ill, ""),
    ];
    expect![[r#"
        node/n2 is not ready
          because  Ready is Unknown:

        deployment/web has 0 of 1 Pods ready (in a)
          pod/web-1
            because  container c waits, ImagePullBackOff: no
            fix      check the image's name and the Pod's imagePullSecrets, or bring it to the node with `knarr image import`

        pod/alone is not running (in a)
          because  no scheduler has looked at it yet; it waits for default-scheduler
          fix      see that a scheduler of that name runs

        service/web has 0 of 0 Pods ready (in other)
          because  no Pod has the labels app=web
          fix      compare with `kubectl get pods --show-labels`; `kubectl get pods -l app=web` is empty
    "#]].assert_eq(&everything(&objects, &[], Timestamp::UNIX_EPOCH).render(usize::MAX));
    let well = [with(node(), ""), with(pod("web-1", "rs", ON_NODE, READY), "a")];
    expect![[r#"
        everything is well: 1 Node, 1 Pod
    "#]]
    .assert_eq(&everything(&well, &[], Timestamp::UNIX_EPOCH).render(usize::MAX));
}

fn check_batch(plural: &str, subject: &str, others: &[Value], expected: Expect) {
    let snapshot = Snapshot {
        subject: yaml(subject),
        resource: ("batch".to_owned(), plural.to_owned()),
        others: others.to_vec(),
        now: "2026-01-01T12:00:30Z".parse().expect("a time"),
        ..Snapshot::default()
    };
    expected.assert_eq(&explain(&snapshot).to_string());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table has as many rows as there are causes")]
fn a_job_says_how_far_it_is_and_what_it_waits_for() {
    let job = |spec: &str, status: &str| {
        format!("{{kind: Job, metadata: {{name: j, uid: j}}, spec: {{{spec}}}, status: {{{status}}}}}")
    };
    let check = |spec: &str, status: &str, pods: &[Value], expected: Expect| {
        check_batch("jobs", &job(spec, status), pods, expected);
    };
    let began = "startTime: '2026-01-01T12:00:00Z'";
    check(
        "",
        "conditions: [{type: Complete, status: 'True'}]",
        &[],
        expect![[r#"
        job/j is complete
    "#]],
    );
    check(
        "completions: 3",
        &format!("{began}, succeeded: 1"),
        &[pod("a", "j", ON_NODE, READY), node()],
        expect![[r#"
        job/j is at work: it has 1 of 3 completions
    "#]],
    );
    check(
        "completions: 3",
        "",
        &[],
        expect![[r#"
        job/j has 0 of 3 completions
          because  its controller has not looked at it yet
          fix      see that the controllers run: `knarr status`
    "#]],
    );
    check(
        "completions: 3, suspend: true",
        "",
        &[],
        expect![[r#"
        job/j has 0 of 3 completions
          because  is suspended
          fix      `kubectl patch job j -p '{"spec":{"suspend":false}}'`
    "#]],
    );
    check(
        "parallelism: 0, managedBy: example.com/queue",
        "",
        &[],
        expect![[r#"
        job/j has 0 successes
          because  spec.managedBy leaves it to example.com/queue
          fix      see that this controller is installed and runs
          because  has a parallelism of 0: no Pods are made
          fix      `kubectl patch job j -p '{"spec":{"parallelism":1}}'`
    "#]],
    );
    check(
        "completions: 1, backoffLimit: 4, managedBy: kubernetes.io/job-controller",
        &format!("{began}, failed: 2"),
        &[],
        expect![[r#"
        job/j has 0 of 1 completions
          because  2 of its Pods failed (backoffLimit 4): the next is made 10 s after the first failure, and after twice as long each time, 10 min at most
    "#]],
    );
    let failed =
        "conditions: [{type: FailureTarget, status: 'True', reason: DeadlineExceeded, message: too long}";
    check(
        "completions: 1",
        &format!("{failed}]"),
        &[],
        expect![[r#"
        job/j has 0 of 1 completions
          because  is about to fail, once its Pods have ended: DeadlineExceeded: too long
          fix      raise activeDeadlineSeconds, and make the Job anew
    "#]],
    );
    let failed =
        failed.replace("FailureTarget", "Failed").replace("DeadlineExceeded", "BackoffLimitExceeded");
    check(
        "completions: 1",
        &format!("{failed}]"),
        &[],
        expect![[r#"
        job/j has failed with 0 of 1 completions
          because  BackoffLimitExceeded: too long
          fix      read `kubectl logs job/j`; a Job that has failed is made anew, not started again
    "#]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table has as many rows as there are causes")]
fn a_cron_job_says_when_it_is_due_and_what_is_in_the_way() {
    let check = |spec: &str, status: &str, jobs: &[Value], expected: Expect| {
        let cron_job = format!(
            "{{kind: CronJob, metadata: {{name: c, uid: c}}, spec: {{{spec}}}, status: {{{status}}}}}"
        );
        check_batch("cronjobs", &cron_job, jobs, expected);
    };
    check(
        "schedule: '*/5 * * * *'",
        "",
        &[],
        expect![[r#"
        cronjob/c starts the next Job at 2026-01-01T12:05:00Z
    "#]],
    );
    check(
        "schedule: '0 13 * * *', timeZone: Europe/Paris",
        "",
        &[],
        expect![[r#"
        cronjob/c starts the next Job at 2026-01-02T12:00:00Z
    "#]],
    );
    check(
        "schedule: '*/5 * * * *', suspend: true",
        "",
        &[],
        expect![[r#"
        cronjob/c is suspended
          because  is suspended
          fix      `kubectl patch cronjob c -p '{"spec":{"suspend":false}}'`
    "#]],
    );
    check(
        "schedule: '0 0 31 2 *'",
        "",
        &[],
        expect![[r#"
        cronjob/c starts no Jobs
          because  its schedule "0 0 31 2 *" is not due within five years
    "#]],
    );
    check(
        "schedule: 'often', timeZone: Mars/Olympus",
        "",
        &[],
        expect![[r#"
        cronjob/c starts no Jobs
          because  nobody knows the time zone Mars/Olympus
    "#]],
    );
    let job = |name: &str, hour: u32, status: &str| {
        yaml(&format!(
            "{{kind: Job, metadata: {{name: {name}, uid: {name}, creationTimestamp: '2026-01-01T{hour}:00:00Z', \
             ownerReferences: [{{uid: c}}]}}, status: {{{status}}}}}"
        ))
    };
    let failed = "conditions: [{type: Failed, status: 'True', reason: PodFailurePolicy, message: 'no'}]";
    let done = "conditions: [{type: Complete, status: 'True'}]";
    check(
        "schedule: '*/5 * * * *', concurrencyPolicy: Forbid",
        "active: [{name: c-2}]",
        &[job("c-1", 10, failed), job("c-2", 11, "startTime: x")],
        expect![[r#"
        cronjob/c has a Job at work, and is due next at 2026-01-01T12:05:00Z
          because  concurrencyPolicy is Forbid, and job/c-2 is at work
    "#]],
    );
    check(
        "schedule: '*/5 * * * *'",
        "",
        &[job("c-1", 10, done), job("c-2", 11, failed)],
        expect![[r#"
        cronjob/c starts the next Job at 2026-01-01T12:05:00Z
          job/c-2
            because  PodFailurePolicy: no
            fix      read `kubectl logs job/c-2`, or change the rules of its podFailurePolicy
    "#]],
    );
    check(
        "schedule: '*/5 * * * *'",
        "",
        &[job("c-1", 10, failed), job("c-2", 11, done)],
        expect![[r#"
        cronjob/c starts the next Job at 2026-01-01T12:05:00Z
    "#]],
    );
}

#[test]
fn an_autoscaler_says_what_it_cannot_learn() {
    let check_conditions = |conditions: &str, expected: Expect| {
        let autoscaler = format!(
            "{{kind: HorizontalPodAutoscaler, metadata: {{name: h, uid: h}}, spec: {{minReplicas: 2, maxReplicas: 5, \
             scaleTargetRef: {{kind: Deployment, name: web}}}}, status: {{currentReplicas: 2, desiredReplicas: 2, \
             conditions: [{conditions}]}}}}"
        );
        check(yaml(&autoscaler), &[], &[], expected);
    };
    check_conditions(
        "",
        expect![[r#"
        horizontalpodautoscaler/h does not scale deployment/web as it should, which has 2 of 2 to 5 replicas
          because  its controller has not looked at it yet
          fix      see that the controllers run: `knarr status`
    "#]],
    );
    let well = "{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'True'}, ";
    check_conditions(
        &format!("{well} {{type: ScalingLimited, status: 'True', reason: TooFewReplicas}}"),
        expect![[r#"
        horizontalpodautoscaler/h keeps deployment/web at 2 of 2 to 5 replicas
    "#]],
    );
    check_conditions(
        &format!(
            "{well} {{type: ScalingLimited, status: 'True', reason: TooManyReplicas, message: too many}}"
        ),
        expect![[r#"
        horizontalpodautoscaler/h does not scale deployment/web as it should, which has 2 of 2 to 5 replicas
          because  TooManyReplicas: too many
          fix      raise spec.maxReplicas, if there is room for more
    "#]],
    );
    let lacks = "{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: FailedGetResourceMetric, message: 'the HPA was unable to compute the replica count: failed to get cpu utilization: missing request for cpu in container c of Pod web-1'}";
    check_conditions(
        lacks,
        expect![[r#"
        horizontalpodautoscaler/h does not scale deployment/web as it should, which has 2 of 2 to 5 replicas
          because  FailedGetResourceMetric: the HPA was unable to compute the replica count: failed to get cpu utilization: missing request for cpu in container c of Pod web-1
          fix      set resources.requests for each container of its Pods
    "#]],
    );
    check_conditions(
        "{type: ScalingActive, status: 'False', reason: ScalingDisabled, message: m}, {type: AbleToScale, status: 'False', reason: FailedGetScale, message: gone}",
        expect![[r#"
        horizontalpodautoscaler/h does not scale deployment/web as it should, which has 2 of 2 to 5 replicas
          because  ScalingDisabled: m
          fix      scale it to one replica or more: an autoscaler leaves what has none alone
          because  FailedGetScale: gone
          fix      name something that there is, and that can be scaled, in spec.scaleTargetRef
    "#]],
    );
}

#[test]
fn a_pod_is_told_what_its_scheduler_has_found_out() {
    let told = |spec: &str, status: &str, decision: &str| {
        let subject = pod("web-1", "rs", spec, status);
        let text = decision.trim_start_matches("waits ").to_owned();
        let decision = Some(Decision { seconds_ago: 12, waits: text != decision, text });
        let other = pod("web-2", "rs", spec, status);
        let snapshot = Snapshot { subject, others: vec![node(), other], decision, ..Snapshot::default() };
        explain(&snapshot).to_string()
    };
    expect![[r#"
        pod/web-1 is running and ready
          because  the scheduler chose node n1 12 s ago: n1: 350 = TaintToleration 300 + NodeResourcesFit 50
    "#]]
    .assert_eq(&told(ON_NODE, READY, "n1: 350 = TaintToleration 300 + NodeResourcesFit 50"));
    let unscheduled = "{phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/1 nodes are available: 1 Too many pods.'}]}";
    expect![[r#"
        pod/web-1 is not running
          because  no node fits: 0/1 nodes are available: 1 Too many pods.
          fix      remove other Pods, or add a node
          because  the scheduler found no node for it 12 s ago: NodeResourcesFit refuses n1: Too many pods
    "#]]
    .assert_eq(&told("{}", unscheduled, "NodeResourcesFit refuses n1: Too many pods"));
    expect![[r#"
        pod/web-1 is not running
          because  the scheduler had it wait 12 s ago: GangScheduling: waiting for minCount pods
    "#]]
    .assert_eq(&told("{}", "{phase: Pending}", "waits GangScheduling: waiting for minCount pods"));
}
