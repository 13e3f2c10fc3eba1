//! A row per rule of a Pod that changes.

use expect_test::expect;

use super::{check_each_status, check_each_update};

const POD: (&str, &str) = ("v1", "pods");
const GOOD: &str = "
metadata: {name: web, namespace: default, annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}}
spec:
  activeDeadlineSeconds: 10
  tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
  containers: [{name: c, image: i}]
";
const GATED: &str = "
metadata: {name: web, namespace: default}
spec:
  schedulingGates: [{name: a}]
  nodeSelector: {a: b}
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
  containers: [{name: c, image: i}]
";

#[test]
fn a_pod_keeps_what_it_runs() {
    check_each_update(
        POD,
        GOOD,
        &[
            ("another image", "/spec/containers/0/image", "j"),
            ("no image", "/spec/containers/0/image", "''"),
            ("another container", "/spec/containers/1", "{name: d, image: i}"),
            ("a shorter deadline", "/spec/activeDeadlineSeconds", "5"),
            ("a longer deadline", "/spec/activeDeadlineSeconds", "15"),
            ("no deadline", "/spec/activeDeadlineSeconds", "null"),
            ("other seconds", "/spec/tolerations/0/tolerationSeconds", "6"),
            ("one more toleration", "/spec/tolerations/1", "{operator: Exists}"),
            ("another toleration", "/spec/tolerations/0/key", "b"),
            ("a new gate", "/spec/schedulingGates", "[{name: a}]"),
            ("another host name", "/spec/hostname", "h"),
            (
                "another profile",
                "/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1c",
                "runtime/default",
            ),
        ],
        expect![[r#"
            another image
            no image
              spec.containers[0].image: Required value
              spec.containers[0].image: Required value
              spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            @@ -27,7 +27,7 @@
                "Lifecycle": null,
                "TerminationMessagePath": "/dev/termination-log",
                "TerminationMessagePolicy": "File",
            -   "ImagePullPolicy": "Always",
            +   "ImagePullPolicy": "IfNotPresent",
                "SecurityContext": null,
                "Stdin": false,
                "StdinOnce": false,

            another container
              spec.containers: Forbidden: pod updates may not add or remove containers
            a shorter deadline
            a longer deadline
              spec.activeDeadlineSeconds: Invalid value: 15: must be less than or equal to previous value
            no deadline
              spec.activeDeadlineSeconds: Invalid value: "null": must not update from a positive integer to nil value
            other seconds
            one more toleration
            another toleration
              spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds
            a new gate
              spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a'
            another host name
              spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            @@ -64,7 +64,7 @@
               "SELinuxChangePolicy": null
              },
              "ImagePullSecrets": null,
            - "Hostname": "",
            + "Hostname": "h",
              "Subdomain": "",
              "SetHostnameAsFQDN": null,
              "Affinity": null,

            another profile
              metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may not remove or update AppArmor annotations"#]],
    );
}

#[test]
fn a_gated_pod_can_still_be_directed() {
    check_each_update(
        POD,
        GATED,
        &[
            ("no gate", "/spec/schedulingGates", "null"),
            ("one more label", "/spec/nodeSelector/c", "d"),
            ("another label", "/spec/nodeSelector/a", "c"),
            (
                "one more rule",
                "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/1",
                "{key: b, operator: Exists}",
            ),
            (
                "another rule",
                "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/key",
                "b",
            ),
            (
                "one more term",
                "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/1",
                "{}",
            ),
        ],
        expect![[r#"
            no gate
            one more label
            another label
              spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)
            one more rule
            another rule
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"MatchExpressions":[{"Key":"b","Operator":"Exists","Values":null}],"MatchFields":null}: only additions are allowed (no mutations or deletions)
            one more term
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: [{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null},{"MatchExpressions":null,"MatchFields":null}]: no additions/deletions to non-empty NodeSelectorTerms list are allowed"#]],
    );
}

#[test]
fn a_status_goes_forward() {
    check_each_status(
        POD,
        "
metadata: {name: web, namespace: default}
spec: {restartPolicy: Never, resourceClaims: [{name: a, resourceClaimName: b}], containers: [{name: c, image: i}]}
status:
  qosClass: BestEffort
  hostIP: 10.0.0.1
  hostIPs: [{ip: 10.0.0.1}]
  containerStatuses: [{name: c, state: {terminated: {exitCode: 0}}}]
",
        &[
            ("another quality of service", "/status/qosClass", "Burstable"),
            ("a container that runs again", "/status/containerStatuses/0/state", "{running: {}}"),
            ("a bad nominated node", "/status/nominatedNodeName", "A"),
            ("an unknown claim", "/status/resourceClaimStatuses", "[{name: x}]"),
            ("bad addresses", "/status/podIPs", "[{ip: a}, {ip: 1.1.1.1}, {ip: 1.1.1.1}]"),
            ("another host's address", "/status/hostIPs", "[{ip: 10.0.0.2}]"),
            ("a bad condition", "/status/conditions", "[{type: 'a b', status: 'True'}]"),
            ("a bad user", "/status/containerStatuses/0/user", "{linux: {uid: -1, gid: 0}}"),
            ("an unknown device", "/status/containerStatuses/0/allocatedResourcesStatus", "[{name: x, resources: [{resourceID: a, health: X}, {resourceID: a, health: Healthy}]}]"),
        ],
        expect![[r#"
            another quality of service
              status.qosClass: Invalid value: "Burstable": field is immutable
            a container that runs again
              status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state
            a bad nominated node
              status.nominatedNodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            an unknown claim
              status.resourceClaimStatuses[0].name: Invalid value: "x": must match the name of an entry in `spec.resourceClaims`
            bad addresses
              status.podIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
              status.podIPs: Invalid value: [{"ip":"a"},{"ip":"1.1.1.1"},{"ip":"1.1.1.1"}]: may specify no more than one IP for each IP family
              status.podIPs[2]: Duplicate value: {"ip":"1.1.1.1"}
            another host's address
              status.hostIPs[0].ip: Invalid value: "10.0.0.2": must be equal to `hostIP`
            a bad condition
              metadata.conditions[0].Type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            a bad user
              status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive
            an unknown device"#]],
    );
}

#[test]
fn a_container_runs_again_where_its_rules_say_so() {
    let pod = |policy: &str, containers: &str, code: i32| {
        format!(
            "{{metadata: {{name: web, namespace: default}}, spec: {{nodeName: node-1, restartPolicy: {policy}, {containers}}}, \
             status: {{containerStatuses: [{{name: c, state: {{terminated: {{exitCode: {code}}}}}}}]}}}}"
        )
    };
    let rules = "containers: [{name: c, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: \
                 {operator: In, values: [42]}}]}]";
    let never = "containers: [{name: c, restartPolicy: Never}]";
    let runs = &[("it runs", "/status/containerStatuses/0/state", "{running: {}}")];
    check_each_status(POD, &pod("Never", rules, 42), runs, expect!["it runs"]);
    check_each_status(
        POD,
        &pod("Always", never, 1),
        runs,
        expect![[r#"
            it runs
              status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"#]],
    );
    check_each_status(
        POD,
        &pod("Never", rules, 1),
        runs,
        expect![[r#"
            it runs
              status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"#]],
    );
    check_each_status(POD, &pod("OnFailure", "containers: [{name: c}]", 1), runs, expect!["it runs"]);
    check_each_status(
        POD,
        &pod("Always", "containers: [{name: c}]", 0),
        &[("nominated though bound", "/status/nominatedNodeName", "node-2")],
        expect![[r#"
            nominated though bound
              status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"#]],
    );
}
