//! A row per rule of a new Pod.

#![expect(clippy::too_many_lines, reason = "a table has as many rows as there are rules")]

use expect_test::expect;

use super::{Change, check_each};

const POD: (&str, &str) = ("v1", "pods");
const GOOD: &str = "
metadata: {name: web, namespace: default}
spec:
  serviceAccountName: default
  volumes: [{name: v}]
  resourceClaims: [{name: gpu, resourceClaimName: g}]
  initContainers: [{name: i, image: i}]
  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]
";

fn each(changes: &[Change<'_>], expect: expect_test::Expect) {
    check_each(POD, GOOD, changes, expect);
}

#[test]
fn containers() {
    let c = |field: &'static str| format!("/spec/containers/0/{field}");
    each(
        &[
            ("an image with a space", &c("image"), "' i'"),
            ("a name that an init container has", "/spec/initContainers/0/name", "c"),
            ("two names alike", "/spec/containers/1", "{name: c, image: i}"),
            ("an unknown message policy", &c("terminationMessagePolicy"), "X"),
            ("ports of one name", &c("ports"), "[{name: a, containerPort: 1}, {name: a, containerPort: 2}]"),
            ("a bad port name", &c("ports"), "[{name: A_, containerPort: 1}]"),
            ("no port number", &c("ports"), "[{containerPort: 0}]"),
            (
                "a host port twice",
                &c("ports"),
                "[{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]",
            ),
            (
                "a resize policy twice",
                &c("resizePolicy"),
                "[{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: X}]",
            ),
            (
                "restart rules without a policy",
                &c("restartPolicyRules"),
                "[{action: Restart, exitCodes: {operator: In, values: [1]}}]",
            ),
            (
                "a bad restart rule",
                &c("restartPolicyRules"),
                "[{action: Stop}, {action: Restart, exitCodes: {operator: X}}]",
            ),
            ("an own restart policy", &c("restartPolicy"), "Sometimes"),
            (
                "a hook of an init container",
                "/spec/initContainers/0/lifecycle",
                "{preStop: {exec: {command: [a]}}}",
            ),
            (
                "a probe of an init container",
                "/spec/initContainers/0/livenessProbe",
                "{exec: {command: [a]}}",
            ),
            (
                "an ephemeral container",
                "/spec/ephemeralContainers",
                "[{name: e, image: i, ports: [{containerPort: 1}]}]",
            ),
        ],
        expect![[r#"
            an image with a space
              spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace
            a name that an init container has
              spec.initContainers[0].name: Duplicate value: "c"
            two names alike
              spec.containers[1].name: Duplicate value: "c"
            an unknown message policy
              spec.containers[0].terminationMessagePolicy: Unsupported value: "X": supported values: "File", "FallbackToLogsOnError"
            ports of one name
              spec.containers[0].ports[1].name: Duplicate value: "a"
            a bad port name
              spec.containers[0].ports[0].name: Invalid value: "A_": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
              spec.containers[0].ports[0].name: Invalid value: "A_": must contain at least one letter (a-z)
            no port number
              spec.containers[0].ports[0].containerPort: Required value
            a host port twice
              spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//5"
            a resize policy twice
              spec.containers[0].resizePolicy[1]: Duplicate value: "cpu"
              spec.containers[0].resizePolicy: Unsupported value: "X": supported values: "NotRequired", "RestartContainer"
            restart rules without a policy
              spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used
            a bad restart rule
              spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used
              spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Stop": supported values: "Restart"
              spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified
              spec.containers[0].restartPolicyRules[1].exitCodes.operator: Unsupported value: "X": supported values: "In", "NotIn"
            an own restart policy
              spec.containers[0].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"
            a hook of an init container
              spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always
            a probe of an init container
              spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always
            an ephemeral container
              spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container
              spec.ephemeralContainers: Forbidden: cannot be set on create"#]],
    );
}

#[test]
fn probes_and_hooks() {
    let c = |field: &'static str| format!("/spec/containers/0/{field}");
    each(
        &[
            ("two handlers", &c("livenessProbe"), "{exec: {command: [a]}, tcpSocket: {port: 1}}"),
            ("no command", &c("livenessProbe"), "{exec: {}}"),
            ("a negative delay", &c("readinessProbe"), "{initialDelaySeconds: -1, grpc: {port: 1}}"),
            (
                "a grace period of a readiness probe",
                &c("readinessProbe"),
                "{terminationGracePeriodSeconds: 1, grpc: {port: 1}}",
            ),
            ("no grace", &c("livenessProbe"), "{terminationGracePeriodSeconds: 0, grpc: {port: 1}}"),
            ("a bad gRPC port", &c("startupProbe"), "{grpc: {port: 70000}}"),
            (
                "a bad scheme, header and port",
                &c("livenessProbe"),
                "{httpGet: {port: A_, scheme: FTP, httpHeaders: [{name: 'a b', value: x}]}}",
            ),
            ("a sleep that is too long", &c("lifecycle"), "{preStop: {sleep: {seconds: 31}}}"),
            ("a hook without a handler", &c("lifecycle"), "{postStart: {}}"),
            ("a stop signal of an unknown system", &c("lifecycle"), "{stopSignal: SIGTERM}"),
        ],
        expect![[r#"
            two handlers
              spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type
            no command
              spec.containers[0].livenessProbe.exec.command: Required value
            a negative delay
              spec.containers[0].readinessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0
            a grace period of a readiness probe
              spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes
            no grace
              spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0
            a bad gRPC port
              spec.containers[0].startupProbe.grpc.port: Invalid value: 70000: must be between 1 and 65535, inclusive
            a bad scheme, header and port
              spec.containers[0].livenessProbe.httpGet.port: Invalid value: "A_": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
              spec.containers[0].livenessProbe.httpGet.port: Invalid value: "A_": must contain at least one letter (a-z)
              spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"
              spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')
            a sleep that is too long
              spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)
            a hook without a handler
              spec.containers[0].lifecycle.postStart: Required value: must specify a handler type
            a stop signal of an unknown system"#]],
    );
}

#[test]
fn environment() {
    let env = "/spec/containers/0/env";
    each(
        &[
            ("no name", env, "[{name: ''}]"),
            ("value and source", env, "[{name: a, value: b, valueFrom: {secretKeyRef: {name: s, key: k}}}]"),
            (
                "two sources",
                env,
                "[{name: a, valueFrom: {secretKeyRef: {name: s, key: k}, configMapKeyRef: {name: s, key: k}}}]",
            ),
            ("a bad secret and key", env, "[{name: a, valueFrom: {secretKeyRef: {name: S_, key: 'a b'}}}]"),
            (
                "a field that is no variable",
                env,
                "[{name: a, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]",
            ),
            ("an unknown field", env, "[{name: a, valueFrom: {fieldRef: {fieldPath: spec.x}}}]"),
            (
                "a bad annotation key",
                env,
                "[{name: a, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['a b']\"}}}]",
            ),
            (
                "a subscript elsewhere",
                env,
                "[{name: a, valueFrom: {fieldRef: {fieldPath: \"metadata.name['a']\"}}}]",
            ),
            (
                "an unknown resource",
                env,
                "[{name: a, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]",
            ),
            (
                "a divisor that does not fit",
                env,
                "[{name: a, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}]",
            ),
            (
                "a file in an unknown volume",
                env,
                "[{name: a, valueFrom: {fileKeyRef: {volumeName: x, path: ../a, key: K}}}]",
            ),
            ("envFrom without a source", "/spec/containers/0/envFrom", "[{}]"),
            (
                "envFrom with two",
                "/spec/containers/0/envFrom",
                "[{prefix: a=, secretRef: {name: s}, configMapRef: {name: ''}}]",
            ),
        ],
        expect![[r#"
            no name
              spec.containers[0].env[0].name: Required value
            value and source
              spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty
            two sources
              spec.containers[0].env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time
            a bad secret and key
              spec.containers[0].env[0].valueFrom.secretKeyRef.name: Invalid value: "S_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              spec.containers[0].env[0].valueFrom.secretKeyRef.key: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            a field that is no variable
              spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"
            an unknown field
              spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: field label not supported: spec.x
            a bad annotation key
              spec.containers[0].env[0].valueFrom.fieldRef: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            a subscript elsewhere
              spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name['a']": error converting fieldPath: field label does not support subscript: metadata.name['a']
            an unknown resource
              spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"
            a divisor that does not fit
              spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource
            a file in an unknown volume
              spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "../a": must not contain '..'
              spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "x"
            envFrom without a source
              spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`
            envFrom with two
              spec.containers[0].envFrom[0].prefix: Invalid value: "a=": a valid environment variable name must consist only of printable ASCII characters other than '='
              spec.containers[0].envFrom[0].configMapRef.name: Required value
              spec.containers[0].envFrom: Invalid value: "": may not have more than one field specified at a time"#]],
    );
}

#[test]
fn mounts_and_devices() {
    let c = |field: &'static str| format!("/spec/containers/0/{field}");
    each(
        &[
            ("one path twice", &c("volumeMounts"), "[{name: v, mountPath: /a}, {name: v, mountPath: /a}]"),
            ("a step back", &c("volumeMounts"), "[{name: v, mountPath: /a, subPath: ../x}]"),
            ("both sub paths", &c("volumeMounts"), "[{name: v, mountPath: /a, subPath: x, subPathExpr: /y}]"),
            (
                "propagation without privilege",
                &c("volumeMounts"),
                "[{name: v, mountPath: /a, mountPropagation: Bidirectional}]",
            ),
            (
                "recursion without read only",
                &c("volumeMounts"),
                "[{name: v, mountPath: /a, recursiveReadOnly: Enabled, mountPropagation: HostToContainer}]",
            ),
            ("a device of a directory", &c("volumeDevices"), "[{name: v, devicePath: /v}]"),
            (
                "a device twice",
                &c("volumeDevices"),
                "[{name: x, devicePath: /../d}, {name: x, devicePath: ''}]",
            ),
        ],
        expect![[r#"
            one path twice
              spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique
            a step back
              spec.containers[0].volumeMounts.subPath: Invalid value: "../x": must not contain '..'
            both sub paths
              spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: "/y": subPathExpr and subPath are mutually exclusive
              spec.containers[0].volumeMounts.subPathExpr: Invalid value: "/y": must be a relative path
            propagation without privilege
              spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers
            recursion without read only
              spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true
              spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified
            a device of a directory
              spec.containers[0].volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices
              spec.containers[0].volumeMounts[0].mountPath: Invalid value: "/v": must not already exist as a path in volumeDevices
              spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode
              spec.containers[0].volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts
              spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/v": must not already exist as a path in volumeMounts
            a device twice
              spec.containers[0].volumeDevices[0].name: Not found: "x"
              spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/../d": can not contain backsteps ('..')
              spec.containers[0].volumeDevices[1].name: Invalid value: "x": must be unique
              spec.containers[0].volumeDevices[1].name: Not found: "x"
              spec.containers[0].volumeDevices[1].devicePath: Required value"#]],
    );
}

#[test]
fn resources() {
    let at = "/spec/containers/0/resources";
    each(
        &[
            ("an unknown resource", at, "{limits: {gpu: 1}}"),
            ("a part of a device", at, "{limits: {a.b/gpu: 500m}}"),
            ("a device without a limit", at, "{requests: {a.b/gpu: 1}}"),
            ("a device below its limit", at, "{requests: {a.b/gpu: 1}, limits: {a.b/gpu: 2}}"),
            ("huge pages alone", at, "{limits: {hugepages-2Mi: 3Mi}}"),
            ("an unknown claim", at, "{claims: [{name: x}, {name: gpu}, {name: gpu}]}"),
            (
                "requests above the Pod's",
                "/spec/resources",
                "{requests: {cpu: -1, storage: 1}, claims: [{name: gpu}]}",
            ),
            (
                "a claim with two sources",
                "/spec/resourceClaims",
                "[{name: gpu, resourceClaimName: a, resourceClaimTemplateName: b}, {name: gpu}, {name: ''}]",
            ),
            ("overhead that is no amount", "/spec/overhead", "{x: 1}"),
        ],
        expect![[r#"
            an unknown resource
              spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
              spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers
              spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified
              spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers
            a part of a device
              spec.containers[0].resources.limits[a.b/gpu]: Invalid value: "500m": must be an integer
              spec.containers[0].resources.requests[a.b/gpu]: Invalid value: "500m": must be an integer
            a device without a limit
              spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources
            a device below its limit
              spec.containers[0].resources.requests: Invalid value: "1": must be equal to a.b/gpu limit of 2
            huge pages alone
              spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi
              spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi
              spec.containers[0].resources: Forbidden: HugePages require cpu or memory
            an unknown claim
              spec.containers[0].resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims: gpu
              spec.containers[0].resources.claims[2]: Duplicate value: "gpu"
            requests above the Pod's
              spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level
              spec.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0
              spec.resources.requests[storage]: Unsupported value: "storage": supported values: "cpu", "hugepages-", "memory"
            a claim with two sources
              spec.resourceClaims[0]: Invalid value: {"Name":"gpu","ResourceClaimName":"a","ResourceClaimTemplateName":"b"}: at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified
              spec.resourceClaims[1].name: Duplicate value: "gpu"
              spec.resourceClaims[1]: Invalid value: {"Name":"gpu","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`
              spec.resourceClaims[2].name: Required value
              spec.resourceClaims[2]: Invalid value: {"Name":"","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`
            overhead that is no amount
              spec.overhead.limits[x]: Invalid value: "x": must be a standard resource type or fully qualified
              spec.overhead.limits[x]: Invalid value: "x": must be a standard resource for containers"#]],
    );
    check_each(
        POD,
        "{metadata: {name: web, namespace: d}, spec: {containers: [{name: a, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 4}}}], initContainers: [{name: s, image: i, restartPolicy: Always, resources: {requests: {cpu: 1}}}], resources: {requests: {cpu: 3}, limits: {cpu: 4}}}}",
        &[
            ("containers ask for more than the Pod", "/spec/resources/requests/cpu", "2500m"),
            ("a container may use more than the Pod", "/spec/resources/limits/cpu", "3"),
        ],
        expect![[r#"
            containers ask for more than the Pod
              spec.resources.requests[cpu]: Invalid value: "2500m": must be greater than or equal to aggregate container requests of 3
            a container may use more than the Pod
              spec.resources.containers[0][cpu].limits: Invalid value: "4": must be less than or equal to pod limits of 3"#]],
    );
}

#[test]
fn volumes() {
    let v = "/spec/volumes/0";
    each(
        &[
            ("two types", v, "{name: v, emptyDir: {}, hostPath: {path: /a}}"),
            ("a step back", v, "{name: v, hostPath: {path: /a/.., type: X}}"),
            ("a negative size", v, "{name: v, emptyDir: {sizeLimit: -1}}"),
            ("a bad mode", v, "{name: v, secret: {secretName: s, defaultMode: 512}}"),
            (
                "a bad item",
                v,
                "{name: v, configMap: {name: m, items: [{key: '', path: /a, mode: 512}, {key: k, path: ..a}]}}",
            ),
            ("a relative path", v, "{name: v, nfs: {server: s, path: a}}"),
            ("no claim", v, "{name: v, persistentVolumeClaim: {claimName: ''}}"),
            ("a bad driver", v, "{name: v, csi: {driver: a_b, nodePublishSecretRef: {}}}"),
            ("no claim template", v, "{name: v, ephemeral: {}}"),
            ("an unnamed image", v, "{name: v, image: {reference: ''}}"),
            (
                "a bad downward file",
                v,
                "{name: v, downwardAPI: {items: [{path: a}, {path: b, fieldRef: {fieldPath: spec.nodeName}}, {path: c, resourceFieldRef: {resource: limits.cpu}}]}}",
            ),
            ("a disk partition", v, "{name: v, gcePersistentDisk: {pdName: '', partition: 300}}"),
            ("a bad iSCSI name", v, "{name: v, iscsi: {targetPortal: p, iqn: x, lun: 300}}"),
            ("both Fibre Channel ids", v, "{name: v, fc: {targetWWNs: [a], wwids: [b]}}"),
        ],
        expect![[r#"
            two types
              spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a step back
              spec.volumes[0].hostPath.path: Invalid value: "/a/..": must not contain '..'
              spec.volumes[0].hostPath.type: Unsupported value: "X": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a negative size
              spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a bad mode
              spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a bad item
              spec.volumes[0].configMap.items[0].key: Required value
              spec.volumes[0].configMap.items[0].path: Invalid value: "/a": must be a relative path
              spec.volumes[0].configMap.items[0].mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive
              spec.volumes[0].configMap.items[1].path: Invalid value: "..a": must not start with '..'
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a relative path
              spec.volumes[0].nfs.path: Invalid value: "a": must be an absolute path
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            no claim
              spec.volumes[0].persistentVolumeClaim.claimName: Required value
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a bad driver
              spec.volumes[0].csi.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              spec.volumes[0].csi.nodePublishSecretRef.name: Required value
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            no claim template
              spec.volumes[0].ephemeral.volumeClaimTemplate: Required value
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            an unnamed image
              spec.volumes[0].image.reference: Required value
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a bad downward file
              spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required
              spec.volumes[0].downwardAPI.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"
              spec.volumes[0].downwardAPI.resourceFieldRef.containerName: Required value
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a disk partition
              spec.volumes[0].persistentDisk.pdName: Required value
              spec.volumes[0].persistentDisk.partition: Invalid value: 300: must be between 1 and 255, inclusive
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a bad iSCSI name
              spec.volumes[0].iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa
              spec.volumes[0].iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            both Fibre Channel ids
              spec.volumes[0].fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously
              spec.volumes[0].fc.lun: Required value: lun is required if targetWWNs is specified
              spec.containers[0].volumeMounts[0].name: Not found: "v""#]],
    );
}

#[test]
fn projected_volumes() {
    let v = "/spec/volumes/0/projected/sources";
    each(
        &[
            ("two kinds in one", v, "[{secret: {name: s}, configMap: {name: m}}]"),
            (
                "one path twice",
                v,
                "[{secret: {name: s, items: [{key: a, path: p}]}}, {configMap: {name: m, items: [{key: a, path: p}]}}]",
            ),
            ("a short token", v, "[{serviceAccountToken: {path: '', expirationSeconds: 1}}]"),
            ("a bundle without a name", v, "[{clusterTrustBundle: {path: a}}]"),
            ("a bundle with both", v, "[{clusterTrustBundle: {path: a, name: b1, signerName: a.b/c}}]"),
            ("a bundle's bad signer", v, "[{clusterTrustBundle: {path: a, signerName: a}}]"),
            (
                "a certificate without a path",
                v,
                "[{podCertificate: {signerName: a.b/c, keyType: X, maxExpirationSeconds: 1}}]",
            ),
        ],
        expect![[r#"
            two kinds in one
              spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type per source
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            one path twice
              spec.volumes[0].projected: Invalid value: "m": conflicting duplicate paths
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a short token
              spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes
              spec.volumes[0].projected.path: Required value
              spec.containers[0].volumeMounts[0].name: Not found: "v"
            a bundle without a name
            a bundle with both
            a bundle's bad signer
            a certificate without a path"#]],
    );
    check_each(
        POD,
        "{metadata: {name: web, namespace: d}, spec: {containers: [{name: a, image: i}]}}",
        &[(
            "a token without an account",
            "/spec/volumes",
            "[{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]",
        )],
        expect![[r#"
            a token without an account
              spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"#]],
    );
}

#[test]
fn security() {
    each(
        &[
            (
                "a bad user",
                "/spec/securityContext",
                "{runAsUser: -1, supplementalGroups: [-1], fsGroupChangePolicy: X}",
            ),
            (
                "profiles without a file",
                "/spec/securityContext",
                "{seccompProfile: {type: Localhost}, appArmorProfile: {type: Localhost}}",
            ),
            (
                "profiles with a file too many",
                "/spec/securityContext",
                "{seccompProfile: {type: RuntimeDefault, localhostProfile: a}, appArmorProfile: {type: Unconfined, localhostProfile: a}}",
            ),
            (
                "no type of profile",
                "/spec/securityContext",
                "{seccompProfile: {type: ''}, appArmorProfile: {type: X}}",
            ),
            (
                "bad sysctls",
                "/spec/securityContext",
                "{sysctls: [{name: A, value: b}, {name: a.b, value: c}, {name: a.b, value: c}, {name: '', value: d}]}",
            ),
            (
                "escalation of the privileged",
                "/spec/containers/0/securityContext",
                "{privileged: true, allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}",
            ),
            (
                "unmasked /proc of the host's users",
                "/spec/containers/0/securityContext",
                "{procMount: Unmasked}",
            ),
            (
                "host process containers",
                "/spec/securityContext",
                "{windowsOptions: {hostProcess: true, runAsUserName: ''}}",
            ),
            ("an unknown system", "/spec/os", "{name: beos}"),
            (
                "windows options on linux",
                "/spec",
                "{os: {name: linux}, securityContext: {windowsOptions: {}}, containers: [{name: a, image: i, securityContext: {windowsOptions: {}}}]}",
            ),
            (
                "linux options on windows",
                "/spec",
                "{os: {name: windows}, hostPID: true, shareProcessNamespace: true, securityContext: {runAsUser: 1, sysctls: [{name: a, value: b}]}, containers: [{name: a, image: i, securityContext: {privileged: true}}]}",
            ),
            (
                "own users on the host's network",
                "/spec",
                "{hostUsers: false, hostNetwork: true, hostPID: true, containers: [{name: a, image: i}]}",
            ),
            (
                "the host's sysctls",
                "/spec",
                "{hostNetwork: true, securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: '1'}]}, containers: [{name: a, image: i}]}",
            ),
        ],
        expect![[r#"
            a bad user
              spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive
              spec.securityContext.supplementalGroups[0]: Invalid value: -1: must be between 0 and 2147483647, inclusive
              spec.securityContext.fsGroupChangePolicy: Unsupported value: "X": supported values: "Always", "OnRootMismatch"
            profiles without a file
              spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost
              spec.securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost
            profiles with a file too many
              spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"localhostProfile":"a","type":"RuntimeDefault"}: can only be set when seccomp type is Localhost
              spec.securityContext.appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost
            no type of profile
              spec.securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set
              spec.securityContext.appArmorProfile.type: Unsupported value: "X": supported values: "Localhost", "RuntimeDefault", "Unconfined"
            bad sysctls
              spec.securityContext.sysctls[0].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
              spec.securityContext.sysctls[2].name: Duplicate value: "a.b"
              spec.securityContext.sysctls[3].name: Required value
            escalation of the privileged
              spec.containers[0].securityContext: Invalid value: {"allowPrivilegeEscalation":false,"capabilities":{"add":["CAP_SYS_ADMIN"]},"privileged":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true
              spec.containers[0].securityContext: Invalid value: {"allowPrivilegeEscalation":false,"capabilities":{"add":["CAP_SYS_ADMIN"]},"privileged":true}: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN
            unmasked /proc of the host's users
              spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`
            host process containers
              spec.securityContext.windowsOptions.runAsUserName: Invalid value: "": runAsUserName cannot be an empty string
              spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers
            an unknown system
              spec.os: Unsupported value: "beos": supported values: "linux", "windows"
            windows options on linux
              spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod
              spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod
            linux options on windows
              spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled
              spec.hostPID: Forbidden: cannot be set for a windows pod
              spec.securityContext.sysctls: Forbidden: cannot be set for a windows pod
              spec.shareProcessNamespace: Forbidden: cannot be set for a windows pod
              spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod
              spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod
            own users on the host's network
              spec.hostNetwork: Forbidden: when `hostUsers` is false
              spec.HostPID: Forbidden: when `hostUsers` is false
            the host's sysctls
              spec.securityContext.sysctls[0].name: Invalid value: "net.ipv4.ip_forward": may not be specified when 'hostNetwork' is true"#]],
    );
}

#[test]
fn scheduling() {
    each(
        &[
            ("a bad label of nodes", "/spec/nodeSelector", "{a: 'b c'}"),
            (
                "no node terms",
                "/spec/affinity",
                "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
            ),
            (
                "bad node rules",
                "/spec/affinity",
                "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: 'a b', operator: In}, {key: a, operator: Gt, values: [x, y]}, {key: a, operator: X}], matchFields: [{key: a, operator: In, values: [x]}, {key: metadata.name, operator: Exists}]}]}}}",
            ),
            (
                "a bad weight",
                "/spec/affinity",
                "{nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}",
            ),
            (
                "a Pod term without topology",
                "/spec/affinity",
                "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: '', matchLabelKeys: [a], namespaces: [A_]}]}}",
            ),
            (
                "keys that are in both lists",
                "/spec/affinity",
                "{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}, matchLabelKeys: [a], mismatchLabelKeys: [a]}]}}",
            ),
            (
                "bad spread constraints",
                "/spec/topologySpreadConstraints",
                "[{maxSkew: 0, topologyKey: '', whenUnsatisfiable: X, minDomains: 0, nodeTaintsPolicy: X, matchLabelKeys: [a]}]",
            ),
            (
                "the same constraint twice",
                "/spec/topologySpreadConstraints",
                "[{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}, matchLabelKeys: [a]}, {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]",
            ),
            (
                "bad tolerations",
                "/spec/tolerations",
                "[{key: a, operator: Equal, value: 'a b'}, {key: a, operator: Exists, value: b}, {key: a, operator: X, effect: Y, tolerationSeconds: 1}]",
            ),
            ("a gate twice", "/spec/schedulingGates", "[{name: a}, {name: a}, {name: 'a b'}]"),
            (
                "a node in spite of a gate",
                "/spec",
                "{nodeName: node-1, schedulingGates: [{name: a}], containers: [{name: a, image: i}]}",
            ),
        ],
        expect![[r#"
            a bad label of nodes
              spec.nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            no node terms
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term
            bad node rules
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].operator: Invalid value: "X": not a valid selector operator
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: Invalid value: "a": not a valid field selector key
              spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].operator: Invalid value: "Exists": not a valid selector operator
            a bad weight
              spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100
            a Pod term without topology
              spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace: Invalid value: "A_": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
              spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set
              spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty
              spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must be non-empty
              spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            keys that are in both lists
              spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[0]: Invalid value: "a": exists in both matchLabelKeys and mismatchLabelKeys
            bad spread constraints
              spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero
              spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty
              spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "X": supported values: "DoNotSchedule", "ScheduleAnyway"
              spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero
              spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not X
              spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "X": supported values: "Honor", "Ignore"
              spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set
            the same constraint twice
              spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{a, ScheduleAnyway}"
              spec.topologySpreadConstraints[0][0]: Invalid value: "a": exists in both matchLabelKeys and labelSelector
            bad tolerations
              spec.tolerations[0].operator: Invalid value: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
              spec.tolerations[1].operator: Invalid value: {"Key":"a","Operator":"Exists","Value":"b","Effect":"","TolerationSeconds":null}: value must be empty when `operator` is 'Exists'
              spec.tolerations[2].effect: Invalid value: "": effect must be 'NoExecute' when `tolerationSeconds` is set
              spec.tolerations[2].operator: Unsupported value: "X": supported values: "Equal", "Exists"
            a gate twice
              spec.schedulingGates[1]: Duplicate value: "a"
              spec.schedulingGates[2]: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            a node in spite of a gate
              spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"#]],
    );
}

#[test]
fn the_rest_of_the_spec() {
    each(
        &[
            ("a bad restart policy", "/spec/restartPolicy", "X"),
            ("a bad DNS policy", "/spec/dnsPolicy", "X"),
            ("no nameserver", "/spec", "{dnsPolicy: None, dnsConfig: {}, containers: [{name: a, image: i}]}"),
            (
                "too much DNS",
                "/spec/dnsConfig",
                "{nameservers: [a, 1.1.1.1, 1.1.1.2, 1.1.1.3], searches: [A, a_b.c., .], options: [{}]}",
            ),
            ("a bad deadline", "/spec/activeDeadlineSeconds", "0"),
            (
                "bad names",
                "/spec",
                "{hostname: a.b, subdomain: A, nodeName: A, priorityClassName: A, runtimeClassName: '', serviceAccountName: A, containers: [{name: a, image: i}]}",
            ),
            ("bad host aliases", "/spec/hostAliases", "[{ip: a, hostnames: [A]}]"),
            ("a bad preemption policy", "/spec/preemptionPolicy", "X"),
            (
                "a host name of the host",
                "/spec",
                "{hostNetwork: true, hostnameOverride: A, containers: [{name: a, image: i}]}",
            ),
            (
                "a port of the host",
                "/spec",
                "{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 2}]}]}",
            ),
            (
                "shared processes of the host",
                "/spec",
                "{hostPID: true, shareProcessNamespace: true, containers: [{name: a, image: i}]}",
            ),
            ("no containers", "/spec/containers", "[]"),
            ("a bad readiness gate", "/spec/readinessGates", "[{conditionType: ''}]"),
        ],
        expect![[r#"
            a bad restart policy
              spec.restartPolicy: Unsupported value: "X": supported values: "Always", "OnFailure", "Never"
            a bad DNS policy
              spec.dnsPolicy: Unsupported value: "X": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"
            no nameserver
              spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None
            too much DNS
              spec.dnsConfig.nameservers: Invalid value: ["a","1.1.1.1","1.1.1.2","1.1.1.3"]: must not have more than 3 nameservers
              spec.dnsConfig.nameservers[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
              spec.dnsConfig.searches[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9_]([-_a-z0-9]*[a-z0-9])?(\.[a-z0-9_]([-_a-z0-9]*[a-z0-9])?)*')
              spec.dnsConfig.options[0]: Required value: must not be empty
            a bad deadline
              spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive
            bad names
              spec.serviceAccountName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              spec.nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              spec.hostname: Invalid value: "a.b": must not contain dots
              spec.subdomain: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
              spec.priorityClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              spec.runtimeClassName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            bad host aliases
              spec.hostAliases[0].ip: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
              spec.hostAliases[0].hostnames[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            a bad preemption policy
              spec.preemptionPolicy: Unsupported value: "X": supported values: "PreemptLowerPriority", "Never"
            a host name of the host
              spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true
              spec.hostnameOverride: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            a port of the host
              spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true
            shared processes of the host
              spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled
            no containers
              spec.containers: Required value
            a bad readiness gate
              spec.readinessGates[0].conditionType: Invalid value: "": name part must be non-empty
              spec.readinessGates[0].conditionType: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
}

#[test]
fn annotations() {
    each(
        &[
            ("a mirror without a node", "/metadata/annotations", "{kubernetes.io/config.mirror: x}"),
            (
                "a bad deletion cost",
                "/metadata/annotations",
                "{controller.kubernetes.io/pod-deletion-cost: '01'}",
            ),
            (
                "an unknown container's profile",
                "/metadata/annotations",
                "{container.apparmor.security.beta.kubernetes.io/x: y}",
            ),
            (
                "a bad seccomp profile",
                "/metadata/annotations",
                "{seccomp.security.alpha.kubernetes.io/pod: x}",
            ),
        ],
        expect![[r#"
            a mirror without a node
              metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set
              []: Forbidden: static pods do not support resource claims
            a bad deletion cost
              metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "01": must be a 32bit integer
            an unknown container's profile
              metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "x": container not found
            a bad seccomp profile
              metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "x": must be a valid seccomp profile"#]],
    );
}
