//! Rules that came with the features of the newest versions.

use expect_test::expect;

use super::{Change, check_each, check_each_update};

const POD: (&str, &str) = ("v1", "pods");

const GOOD: &str = "
metadata: {name: web, namespace: default}
spec:
  volumes: [{name: v}, {name: files, emptyDir: {}}, {name: disk, persistentVolumeClaim: {claimName: d}}]
  initContainers: [{name: i, image: i}]
  containers: [{name: c, image: i}]
";

fn each(changes: &[Change<'_>], expect: expect_test::Expect) {
    check_each(POD, GOOD, changes, expect);
}

#[test]
fn variables_are_read_from_files_in_empty_directories() {
    let env = "/spec/containers/0/env";
    each(
        &[
            ("a file", env, "[{name: a, valueFrom: {fileKeyRef: {volumeName: files, path: env, key: K}}}]"),
            (
                "another volume",
                env,
                "[{name: a, valueFrom: {fileKeyRef: {volumeName: disk, path: env, key: K}}}]",
            ),
            ("no volume", env, "[{name: a, valueFrom: {fileKeyRef: {volumeName: x, path: /env, key: K}}}]"),
        ],
        expect![[r#"
            a file
            another volume
              spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "disk": referenced volume must be of type emptyDir
            no volume
              spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "x""#]],
    );
}

#[test]
fn a_sidecar_has_no_rules_for_restarts() {
    let rules = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
    let init = |policy: &str| format!("[{{name: i, image: i, restartPolicy: {policy}, {rules}}}]");
    each(
        &[
            ("always", "/spec/initContainers", &init("Always")),
            ("on failure", "/spec/initContainers", &init("OnFailure")),
        ],
        expect![[r#"
            always
              spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always
            on failure"#]],
    );
}

#[test]
fn own_users_need_files_of_their_own() {
    let device = "volumeDevices: [{name: disk, devicePath: /dev/x}]";
    let spec = |more: &str| {
        format!(
            "{{hostUsers: false, volumes: [{{name: disk, persistentVolumeClaim: {{claimName: d}}}}], \
             containers: [{{name: c, image: i, {device}}}]{more}}}"
        )
    };
    each(
        &[
            ("a device", "/spec", &spec("")),
            ("the host's network", "/spec", &spec(", hostNetwork: true")),
            ("another way to label", "/spec/securityContext", "{seLinuxChangePolicy: MountOption}"),
        ],
        expect![[r#"
            a device
              spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false
            the host's network
              spec.hostNetwork: Forbidden: when `hostUsers` is false
              spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false
            another way to label
              spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": supported values: "Recursive""#]],
    );
}

#[test]
fn a_pod_of_a_file_has_no_devices() {
    let mirror = GOOD
        .replace("namespace: default", "namespace: default, annotations: {kubernetes.io/config.mirror: x}");
    let mirror = mirror.replace("spec:", "spec:\n  nodeName: node-1");
    check_each(
        POD,
        &mirror,
        &[("a claim", "/spec/resourceClaims", "[{name: gpu, resourceClaimName: g}]")],
        expect![[r#"
            a claim
              []: Forbidden: static pods do not support resource claims"#]],
    );
}

#[test]
fn what_a_whole_pod_may_use() {
    each(
        &[
            ("claims", "/spec/resources", "{claims: [{name: a}], requests: {cpu: 1}}"),
            (
                "on windows",
                "/spec",
                "{os: {name: windows}, resources: {limits: {cpu: 1}}, containers: [{name: c, image: i}]}",
            ),
            (
                "less than its containers",
                "/spec",
                "{resources: {limits: {cpu: 1}, requests: {cpu: 1}}, \
              containers: [{name: c, image: i, resources: {requests: {cpu: 2}}}]}",
            ),
            (
                "what its containers ask for",
                "/spec",
                "{resources: {limits: {cpu: 4}}, \
              containers: [{name: c, image: i, resources: {requests: {cpu: 2, memory: 1Gi}}}]}",
            ),
            ("its host's name", "/spec/hostnameOverride", "web_1"),
            (
                "its host's name twice",
                "/spec",
                "{hostnameOverride: web, setHostnameAsFQDN: true, hostNetwork: true, containers: [{name: c, image: i}]}",
            ),
        ],
        expect![[r#"
            claims
              spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level
              spec.resources.claims[0]: Not found: "a": must be one of the names in pod.spec.resourceClaims which is empty
            on windows
              spec.resources: Forbidden: may not be set for a windows pod
            less than its containers
              spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2
            what its containers ask for
            its host's name
              spec.hostnameOverride: Invalid value: "web_1": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            its host's name twice
              spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true
              spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true"#]],
    );
}

#[test]
fn a_node_has_swap_or_none() {
    check_each(
        ("v1", "nodes"),
        "{metadata: {name: node-1}}",
        &[("none of it", "/status", "{nodeInfo: {swap: {capacity: 0}}}")],
        expect![[r#"
            none of it
              metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"#]],
    );
}

#[test]
fn a_namespaces_finalizers_are_not_looked_at_again() {
    check_each_update(
        ("v1", "namespaces"),
        "{metadata: {name: ns-1}, spec: {finalizers: [odd]}}",
        &[("a label", "/metadata/labels", "{a: b}")],
        expect!["a label"],
    );
}
