//! One case per rule of the kinds that workloads stand on; the objects are as they are after defaulting.

use expect_test::{Expect, expect};

use super::*;

type Kind = (&'static str, &'static str);

fn row((group, plural): Kind) -> &'static Resource {
    crate::table().iter().find(|row| (row.group, row.plural) == (group, plural)).unwrap()
}

fn parse(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

fn shown(errors: FieldErrors) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks an object as a new one of the kind, with its metadata filled in.
fn check(kind: Kind, object: &str, expect: Expect) {
    expect.assert_eq(&shown(row(kind).validate_create(&named(kind, parse(object)))));
}

fn check_update(kind: Kind, old: &str, new: &str, expect: Expect) {
    let (old, new) = (named(kind, parse(old)), named(kind, parse(new)));
    expect.assert_eq(&shown(row(kind).validate_update(&new, &old)));
}

fn named(kind: Kind, mut object: Value) -> Value {
    let map = object.as_object_mut().unwrap();
    let metadata = map.entry("metadata").or_insert_with(|| serde_json::json!({}));
    let metadata = metadata.as_object_mut().unwrap();
    metadata.entry("name").or_insert_with(|| "a".into());
    if row(kind).is_namespaced() {
        metadata.insert("namespace".into(), "default".into());
    }
    object
}

const PV: Kind = ("", "persistentvolumes");
const PVC: Kind = ("", "persistentvolumeclaims");
const CLASS: Kind = ("storage.k8s.io", "storageclasses");
const DRIVER: Kind = ("storage.k8s.io", "csidrivers");
const NODE: Kind = ("storage.k8s.io", "csinodes");
const ATTACHMENT: Kind = ("storage.k8s.io", "volumeattachments");
const ATTRIBUTES: Kind = ("storage.k8s.io", "volumeattributesclasses");
const INGRESS: Kind = ("networking.k8s.io", "ingresses");
const INGRESS_CLASS: Kind = ("networking.k8s.io", "ingressclasses");
const POLICY: Kind = ("networking.k8s.io", "networkpolicies");
const IP: Kind = ("networking.k8s.io", "ipaddresses");
const CIDR: Kind = ("networking.k8s.io", "servicecidrs");
const SLICE: Kind = ("discovery.k8s.io", "endpointslices");
const CSR: Kind = ("certificates.k8s.io", "certificatesigningrequests");
const BUNDLE: Kind = ("certificates.k8s.io", "clustertrustbundles");
const WEBHOOK: Kind = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
const VAP: Kind = ("admissionregistration.k8s.io", "validatingadmissionpolicies");
const BINDING: Kind = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings");
const CRD: Kind = ("apiextensions.k8s.io", "customresourcedefinitions");
const API_SERVICE: Kind = ("apiregistration.k8s.io", "apiservices");
const FLOW: Kind = ("flowcontrol.apiserver.k8s.io", "flowschemas");
const LEVEL: Kind = ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations");
const CLAIM: Kind = ("resource.k8s.io", "resourceclaims");
const DEVICES: Kind = ("resource.k8s.io", "resourceslices");

const VOLUME: &str = "{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem, hostPath: {path: /data}}}";

#[test]
fn a_volume_has_one_source_an_amount_and_modes() {
    check(PV, VOLUME, expect![[""]]);
    check(
        PV,
        "{spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany, Sometimes], capacity: {storage: '0', cpu: '1'}, persistentVolumeReclaimPolicy: Keep, volumeMode: Tape, local: {path: ../x}, csi: {driver: d}, storageClassName: 'A B', volumeAttributesClassName: ''}}",
        expect![[r#"
            spec.accessModes: Unsupported value: "Sometimes": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
            spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes
            spec.capacity: Unsupported value: {"cpu":"1","storage":"0"}: supported values: "storage"
            spec.capacity[storage]: Invalid value: "0": must be greater than zero
            spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Recycle", "Retain"
            spec.local.path: Invalid value: "../x": must not contain '..'
            spec.csi: Forbidden: may not specify more than 1 volume type
            spec.nodeAffinity: Required value: Local volume requires node affinity
            spec.storageClassName: Invalid value: "A B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"
            spec.volumeAttributesClassName: Required value: an empty string is disallowed"#]],
    );
    check(
        PV,
        "{spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, csi: {driver: Dr_}}}",
        expect![[r#"
        spec.csi.driver: Invalid value: "Dr_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.csi.volumeHandle: Required value"#]],
    );
}

#[test]
fn where_a_volume_is_stays() {
    check_update(
        PV,
        VOLUME,
        &VOLUME.replace("/data", "/other"),
        expect![
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
        ],
    );
    check_update(
        PV,
        VOLUME,
        &VOLUME.replace("volumeMode: Filesystem", "volumeMode: Block"),
        expect![[r#"volumeMode: Invalid value: "Block": field is immutable"#]],
    );
    check_update(PV, VOLUME, &VOLUME.replace("Retain", "Delete"), expect![[""]]);
}

const CLAIMED: &str = "{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}, volumeMode: Filesystem, volumeName: v}, status: {phase: Bound, capacity: {storage: 2Gi}}}";

#[test]
fn a_claim_asks_for_an_amount() {
    check(
        PVC,
        "{spec: {accessModes: [], resources: {requests: {}}, dataSource: {kind: Disk, name: ''}, dataSourceRef: {kind: Disk, name: x}}}",
        expect![[r#"
            spec.accessModes: Required value: at least 1 access mode is required
            spec.resources[storage]: Required value
            spec.dataSource.name: Required value
            spec.dataSource: Invalid value: "Disk": must be 'PersistentVolumeClaim' when referencing the default apiGroup
            spec.dataSourceRef: Invalid value: "Disk": must be 'PersistentVolumeClaim' when referencing the default apiGroup
            spec: Invalid value: "spec.dataSource": must match dataSourceRef"#]],
    );
}

#[test]
fn a_bound_claim_can_grow_but_not_change() {
    check_update(
        PVC,
        CLAIMED,
        &CLAIMED.replace("requests: {storage: 2Gi}", "requests: {storage: 3Gi}"),
        expect![[""]],
    );
    check_update(
        PVC,
        CLAIMED,
        &CLAIMED.replace("requests: {storage: 2Gi}", "requests: {storage: 1Gi}"),
        expect!["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
    );
    check_update(
        PVC,
        CLAIMED,
        &CLAIMED.replace("volumeName: v", "volumeName: w"),
        expect![
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        ],
    );
    check_update(PVC, &CLAIMED.replace(", volumeName: v", ""), CLAIMED, expect![[""]]);
    check_update(
        PVC,
        &CLAIMED.replace("Bound", "Pending"),
        &CLAIMED.replace("Bound", "Pending").replace("requests: {storage: 2Gi}", "requests: {storage: 3Gi}"),
        expect![
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        ],
    );
}

#[test]
fn a_storage_class_cannot_be_changed() {
    let class = "{provisioner: example.com/p, reclaimPolicy: Delete, volumeBindingMode: Immediate, parameters: {a: b}}";
    check(CLASS, class, expect![[""]]);
    check(
        CLASS,
        "{reclaimPolicy: Recycle, volumeBindingMode: Soon, parameters: {'': b}, allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a, a]}, {key: zone, values: []}]}]}",
        expect![[r#"
        provisioner: Required value
        parameters: Invalid value: "": field can not be empty.
        reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"
        volumeBindingMode: Unsupported value: "Soon": supported values: "Immediate", "WaitForFirstConsumer"
        allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"
        allowedTopologies[0].matchLabelExpressions[1].values: Required value
        allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "zone""#]],
    );
    check_update(
        CLASS,
        class,
        "{provisioner: example.com/q, reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer, parameters: {a: c}}",
        expect![[r#"
            parameters: Forbidden: updates to parameters are forbidden.
            provisioner: Forbidden: updates to provisioner are forbidden.
            reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.
            volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable"#]],
    );
    check(
        ATTRIBUTES,
        "{driverName: d, parameters: {}}",
        expect!["parameters: Required value: must contain at least one key/value pair"],
    );
    check_update(
        ATTRIBUTES,
        "{driverName: d, parameters: {a: b}}",
        "{driverName: e, parameters: {a: c}}",
        expect![[r#"
        driverName: Forbidden: updates to driverName are forbidden.
        parameters: Forbidden: updates to parameters are forbidden."#]],
    );
}

#[test]
fn drivers_nodes_and_attachments_are_checked() {
    check(
        DRIVER,
        "{spec: {attachRequired: true, podInfoOnMount: true, storageCapacity: true, seLinuxMount: false, fsGroupPolicy: X, volumeLifecycleModes: [Later], tokenRequests: [{audience: a, expirationSeconds: 5}, {audience: a}], nodeAllocatableUpdatePeriodSeconds: 1}}",
        expect![[r#"
            spec.fsGroupPolicy: Unsupported value: "X": supported values: "File", "None", "ReadWriteOnceWithFSType"
            spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes
            spec.tokenRequests[1].audience: Duplicate value: "a"
            spec.volumeLifecycleModes: Unsupported value: "Later": supported values: "Persistent", "Ephemeral"
            spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 1: must be greater than or equal to 10 seconds"#]],
    );
    let driver =
        "{spec: {attachRequired: true, podInfoOnMount: true, storageCapacity: true, seLinuxMount: false}}";
    check_update(
        DRIVER,
        driver,
        &driver.replace("attachRequired: true", "attachRequired: false"),
        expect!["spec.attachedRequired: Invalid value: false: field is immutable"],
    );
    check(
        NODE,
        "{spec: {drivers: [{name: d, nodeID: ''}, {name: d, nodeID: x, topologyKeys: [z, z, ''], allocatable: {count: -1}}]}}",
        expect![[r#"
        spec.drivers[0].nodeID: Required value
        spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0
        spec.drivers[1].name: Duplicate value: "d"
        spec.drivers[1]: Duplicate value: "z"
        spec.drivers[1]: Required value
        spec.drivers[1]: Invalid value: "": name part must be non-empty
        spec.drivers[1]: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
    check(
        ATTACHMENT,
        "{spec: {attacher: D_, nodeName: 'N x', source: {persistentVolumeName: v, inlineVolumeSpec: {}}}}",
        expect![[r#"
        spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName
        spec.nodeName: Invalid value: "N x": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.attacher: Invalid value: "D_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
    check_update(
        ATTACHMENT,
        "{spec: {attacher: d, nodeName: m, source: {persistentVolumeName: v}}}",
        "{spec: {attacher: d, nodeName: m, source: {persistentVolumeName: w}}}",
        expect![[
            r#"spec: Invalid value: {"attacher":"d","nodeName":"m","source":{"persistentVolumeName":"w"}}: field is immutable"#
        ]],
    );
}

#[test]
fn an_ingress_says_where_paths_lead() {
    check(
        INGRESS,
        "{metadata: {annotations: {kubernetes.io/ingress.class: a}}, spec: {ingressClassName: b, rules: [{host: 1.2.3.4}, {host: '*.x'}, {host: 'a*'}, {http: {paths: [{path: x, backend: {service: {name: s, port: {number: 80}}}}, {path: /a//b/.., pathType: Exact, backend: {}}, {path: x, pathType: Odd, backend: {service: {name: S, port: {}}}}, {path: x, pathType: ImplementationSpecific, backend: {resource: {kind: '', name: ''}}}]}}], tls: [{hosts: [a_b], secretName: A}]}}",
        expect![[r#"
            spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
            spec.rules[2].host: Invalid value: "a*": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.rules[3].http.paths[0].pathType: Required value: pathType must be specified
            spec.rules[3].http.paths[1].path: Invalid value: "/a//b/..": must not contain '//'
            spec.rules[3].http.paths[1].path: Invalid value: "/a//b/..": cannot end with '/..'
            spec.rules[3].http.paths[1].backend: Invalid value: "": resource or service backend is required
            spec.rules[3].http.paths[2].pathType: Unsupported value: "Odd": supported values: "Exact", "ImplementationSpecific", "Prefix"
            spec.rules[3].http.paths[2].backend.service.name: Invalid value: "S": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.rules[3].http.paths[2].backend: Required value: port name or number is required
            spec.rules[3].http.paths[3].path: Invalid value: "x": must be an absolute path
            spec.rules[3].http.paths[3].backend.resource.kind: Required value: kind is required
            spec.rules[3].http.paths[3].backend.resource.name: Required value: name is required
            spec.tls[0].hosts[0]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.tls[0].secretName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            annotations.kubernetes.io/ingress.class: Invalid value: "a": must match `ingressClassName` when both are specified"#]],
    );
    check(
        INGRESS,
        "{spec: {}}",
        expect![[r#"spec: Invalid value: "null": either `defaultBackend` or `rules` must be specified"#]],
    );
    check(
        INGRESS_CLASS,
        "{spec: {controller: nowhere, parameters: {kind: k, name: x, scope: Namespace}}}",
        expect![[r#"
        spec.controller: Invalid value: "nowhere": must be a domain-prefixed path (such as "acme.io/foo")
        spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"#]],
    );
    check_update(
        INGRESS_CLASS,
        "{spec: {controller: a.b/c}}",
        "{spec: {controller: a.b/d}}",
        expect![[r#"spec.controller: Invalid value: "a.b/d": field is immutable"#]],
    );
}

#[test]
fn a_network_policy_names_peers_and_ports() {
    check(
        POLICY,
        "{spec: {podSelector: {}, policyTypes: [Sideways], ingress: [{ports: [{port: 80, endPort: 79, protocol: X}, {port: http, endPort: 80}, {endPort: 80}], from: [{}, {podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16, nothing]}}, {ipBlock: {cidr: ''}}]}]}}",
        expect![[r#"
            spec.ingress[0].ports[0].protocol: Unsupported value: "X": supported values: "TCP", "UDP", "SCTP"
            spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`
            spec.ingress[0].ports[1].endPort: Invalid value: 80: may not be specified when `port` is non-numeric
            spec.ingress[0].ports[2].endPort: Invalid value: 80: may not be specified when `port` is not specified
            spec.ingress[0].from[0]: Required value: must specify a peer
            spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer
            spec.ingress[0].from[2].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`
            spec.ingress[0].from[2].ipBlock.except[1]: Invalid value: "nothing": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
            spec.ingress[0].from[3].ipBlock.cidr: Required value
            spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress""#]],
    );
    let policy = parse("{spec: {ingress: [{from: [{ipBlock: {cidr: 10.1.2.3/8}}]}]}}");
    expect![[r#"spec.ingress[0].from[0].ipBlock.cidr: CIDR value "10.1.2.3/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.1.2.3/32"?)"#]].assert_eq(&network_policy::warnings(&policy).join("\n"));
}

#[test]
fn addresses_and_ranges_are_strict() {
    check(
        IP,
        "{metadata: {name: 10.0.0.1}, spec: {parentRef: {resource: services, name: s}}}",
        expect![[""]],
    );
    check(
        IP,
        "{metadata: {name: 010.0.0.1}, spec: {parentRef: {}}}",
        expect![[r#"
        metadata.name: Invalid value: "010.0.0.1": must not have leading 0s
        spec.parentRef.resource: Required value
        spec.parentRef.name: Required value"#]],
    );
    check(
        IP,
        "{metadata: {name: 'FD00::1'}, spec: {}}",
        expect![[r#"
        metadata.name: Invalid value: "FD00::1": must be in canonical form ("fd00::1")
        spec.parentRef: Required value"#]],
    );
    check(
        CIDR,
        "{spec: {cidrs: [10.0.0.0/8, 11.0.0.0/8]}}",
        expect![[
            r#"spec.cidrs: Invalid value: {"cidrs":["10.0.0.0/8","11.0.0.0/8"]}: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#
        ]],
    );
    check(
        CIDR,
        "{spec: {cidrs: [10.0.0.1/8, 'FD00::/64']}}",
        expect![[r#"
        spec.cidrs[0]: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length
        spec.cidrs[1]: Invalid value: "FD00::/64": must be in canonical form ("fd00::/64")"#]],
    );
    check_update(
        CIDR,
        "{spec: {cidrs: [10.0.0.0/8]}}",
        "{spec: {cidrs: [10.0.0.0/9]}}",
        expect![[r#"spec.cidrs: Invalid value: ["10.0.0.0/9"]: field is immutable"#]],
    );
}

#[test]
fn an_endpoint_can_be_sent_traffic() {
    check(
        SLICE,
        "{addressType: IPv4, ports: [{name: P, protocol: X, port: 0}, {name: P, protocol: TCP, appProtocol: 'a b'}], endpoints: [{addresses: []}, {addresses: [127.0.0.1, 169.254.0.1, 'fd00::1'], nodeName: N_, hostname: a.b, hints: {forZones: [{name: z}, {name: z}], forNodes: [{name: N_}]}}]}",
        expect![[r#"
            endpoints[0].addresses: Required value: must contain at least 1 address
            endpoints[1].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            endpoints[1].addresses[1]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)
            endpoints[1].addresses[2]: Invalid value: "fd00::1": must be an IPv4 address
            endpoints[1].nodeName: Invalid value: "N_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            endpoints[1].hostname: Invalid value: "a.b": must not contain dots
            endpoints[1].hints.forZones[1].name: Duplicate value: "z"
            endpoints[1].hints.forNodes[0].name: Invalid value: "N_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            ports[0].name: Invalid value: "P": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"
            ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            ports[1].name: Invalid value: "P": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            ports[1].name: Duplicate value: "P"
            ports[1].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
    check(
        SLICE,
        "{addressType: FQDN, endpoints: [{addresses: [host, 'a.b.']}]}",
        expect![[
            r#"endpoints[0].addresses[0]: Invalid value: "host": should be a domain with at least two segments separated by dots"#
        ]],
    );
    check_update(
        SLICE,
        "{addressType: IPv4}",
        "{addressType: IPv6}",
        expect![[r#"addressType: Invalid value: "IPv6": field is immutable"#]],
    );
}

#[test]
fn a_signing_request_is_one() {
    check(
        CSR,
        "{spec: {request: bm8=, usages: [signing, signing, flying], signerName: kubernetes.io/legacy-unknown, expirationSeconds: 5}, status: {conditions: [{type: Approved, status: 'False'}, {type: Denied, status: 'True'}, {type: '', status: ''}]}}",
        expect![[r#"
        spec.request: Invalid value: "bm8=": PEM block type must be CERTIFICATE REQUEST
        spec.usages[2]: Unsupported value: "flying": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
        spec.usages[1]: Duplicate value: "signing"
        spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version
        spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)
        status.conditions[0].status: Unsupported value: "False": supported values: "True"
        status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive
        status.conditions[2].type: Required value
        status.conditions[2].status: Required value"#]],
    );
    let denied = "{spec: {}, status: {conditions: [{type: Denied, status: 'True'}], certificate: YQ==}}";
    check_update(
        CSR,
        denied,
        "{spec: {}, status: {certificate: Yg==}}",
        expect![[r#"
        spec.request: Invalid value: "": PEM block type must be CERTIFICATE REQUEST
        spec.usages: Required value
        spec.signerName: Required value
        spec.signerName: Invalid value: "": must be a fully qualified domain and path of the form 'example.com/signer-name'
        status.conditions: Forbidden: updates may not remove a condition of type "Denied"
        status.certificate: Forbidden: updates may not set certificate content"#]],
    );
    check(
        BUNDLE,
        "{metadata: {name: 'b:c'}, spec: {signerName: example.com/s, trustBundle: x}}",
        expect![[r#"
        metadata.name: Invalid value: "b:c": ClusterTrustBundle for signerName example.com/s must be named with prefix example.com:s:
        spec.trustBundle: Invalid value: "<value omitted>": at least one trust anchor must be provided"#]],
    );
}

#[test]
fn a_webhook_says_where_it_is_and_what_it_is_for() {
    check(
        WEBHOOK,
        "{webhooks: [{name: w, failurePolicy: Maybe, matchPolicy: Kind, sideEffects: Some, timeoutSeconds: 31, admissionReviewVersions: [v1, v1, V], clientConfig: {url: 'http://u@h/p?q#f'}, rules: [{operations: ['*', LOOK], apiGroups: ['*', a], apiVersions: [], resources: ['*/*', pods, pods/*, pods/log, ''], scope: X}], matchConditions: [{name: '', expression: ' '}]}, {name: a.b.c, clientConfig: {service: {name: '', namespace: d, port: 0, path: //x}}, admissionReviewVersions: [v2]}, {name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {}}]}",
        expect![[r#"
            webhooks[0].name: Invalid value: "w": should be a domain with at least three segments separated by dots
            webhooks[0].rules[0].operations: Invalid value: ["*","LOOK"]: if '*' is present, must not specify other operations
            webhooks[0].rules[0].operations[1]: Unsupported value: "LOOK": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"
            webhooks[0].rules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups
            webhooks[0].rules[0].apiVersions: Required value
            webhooks[0].rules[0].resources[2]: Invalid value: "pods/*": if '*/*' is present, must not specify pods/*
            webhooks[0].rules[0].resources[3]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log
            webhooks[0].rules[0].resources[4]: Required value
            webhooks[0].rules[0].resources: Invalid value: ["*/*","pods","pods/*","pods/log",""]: if '*/*' is present, must not specify other resources
            webhooks[0].rules[0].scope: Unsupported value: "X": supported values: "*", "Cluster", "Namespaced"
            webhooks[0].failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"
            webhooks[0].matchPolicy: Unsupported value: "Kind": supported values: "Equivalent", "Exact"
            webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"
            webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds
            webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
            webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL
            webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL
            webhooks[0].clientConfig.url: Invalid value: "q": query parameters are not permitted in the URL
            webhooks[0].matchConditions[0].expression: Required value
            webhooks[0].matchConditions[0].name: Required value
            webhooks[0].admissionReviewVersions[1]: Invalid value: "v1": duplicate version
            webhooks[0].admissionReviewVersions[2]: Invalid value: "V": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            webhooks[1].sideEffects: Required value: must specify one of None, NoneOnDryRun
            webhooks[1].clientConfig.service.namespace: Required value
            webhooks[1].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive
            webhooks[1].clientConfig.service.path: Invalid value: "//x": segment[0] may not be empty
            webhooks[1].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1
            webhooks[2].clientConfig: Required value: exactly one of url or service is required
            webhooks[2].name: Duplicate value: "a.b.c""#]],
    );
}

#[test]
fn an_admission_policy_checks_something() {
    check(
        VAP,
        "{spec: {failurePolicy: Fail, paramKind: {apiVersion: a/b/c, kind: 'K!'}, matchConstraints: {matchPolicy: Exact, namespaceSelector: {}, objectSelector: {}}, variables: [{name: if, expression: ''}], validations: [{expression: '', message: \"a\\nb\", reason: Bad, messageExpression: ' '}], auditAnnotations: [{key: 'a b', valueExpression: ''}]}}",
        expect![[r#"
        spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c
        spec.paramKind.kind: Invalid value: "K!": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.matchConstraints.resourceRules: Required value
        spec.variables[0].name: Invalid value: "if": name is not a valid CEL identifier
        spec.variables[0].expression: Required value: expression is not specified
        spec.validations[0].expression: Required value: expression is not specified
        spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified
        spec.validations[0].message: Invalid value: "a\nb": message must not contain line breaks
        spec.validations[0].reason: Unsupported value: "Bad": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"
        spec.auditAnnotations[0].key: Invalid value: "a/a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified"#]],
    );
    check(
        BINDING,
        "{spec: {policyName: '', validationActions: [Deny, Warn, Warn, Shout], paramRef: {name: a, selector: {}}}}",
        expect![[r#"
        spec.policyName: Required value
        spec.paramRef.name: Forbidden: name and selector are mutually exclusive
        spec.paramRef.selector: Forbidden: name and selector are mutually exclusive
        spec.paramRef.parameterNotFoundAction: Required value
        spec.validationActions[2]: Duplicate value: "Warn"
        spec.validationActions[3]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn"
        spec.validationActions: Invalid value: ["Deny","Warn","Warn","Shout"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#]],
    );
}

const WIDGETS: &str = "{metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, conversion: {strategy: None}, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}, status: {storedVersions: [v1]}}";

#[test]
fn a_definition_names_itself() {
    check(CRD, WIDGETS, expect![[""]]);
    check(
        CRD,
        &WIDGETS.replace("group: example.com", "group: k8s.io").replace("plural: widgets", "plural: Wid"),
        expect![[r#"
        metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group
        spec.names.plural: Invalid value: "Wid": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#]],
    );
    check(
        CRD,
        &WIDGETS
            .replace("storage: true", "storage: false")
            .replace("listKind: WidgetList", "listKind: Widget")
            .replace("scope: Namespaced", "scope: Everywhere"),
        expect![[r#"
        spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"
        spec.versions: Invalid value: [{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"size":{"type":"integer"}},"type":"object"}},"type":"object"}},"served":true,"storage":false}]: must have exactly one version marked as storage version
        spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same"#]],
    );
    check(
        CRD,
        &WIDGETS.replace("strategy: None", "strategy: Webhook, webhook: {clientConfig: {}}"),
        expect![[r#"
        spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required
        spec.conversion.conversionReviewVersions: Required value"#]],
    );
    check_update(
        CRD,
        &WIDGETS.replace(
            "storedVersions: [v1]",
            "storedVersions: [v1], conditions: [{type: Established, status: 'True'}]",
        ),
        &WIDGETS.replace("kind: Widget,", "kind: Gadget,"),
        expect![[r#"spec.names.kind: Invalid value: "Gadget": field is immutable"#]],
    );
}

#[test]
fn a_definitions_schema_is_structural() {
    let with = |schema: &str| {
        WIDGETS.replace(
            "{type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}",
            schema,
        )
    };
    check(
        CRD,
        &with("{properties: {spec: {properties: {a: {type: array}}}}}"),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified
        spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields
        spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"#]],
    );
    check(
        CRD,
        &with(
            "{type: object, nullable: true, additionalProperties: true, properties: {metadata: {type: object, properties: {labels: {type: object}}}, list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k, j], items: {type: object, properties: {k: {type: string}}}}}}",
        ),
        expect![[r#"
        spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root
        spec.validation.openAPIV3Schema.additionalProperties: Forbidden: must not be used at the root
        spec.validation.openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified
        spec.validation.openAPIV3Schema.properties[list].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property
        spec.validation.openAPIV3Schema.properties[list].x-kubernetes-list-map-keys: Invalid value: ["k","j"]: entries must all be names of item properties"#]],
    );
    check(
        CRD,
        &with(
            "{type: object, properties: {a: {type: string, pattern: '(', uniqueItems: true}, b: {type: whole}, c: {type: object, anyOf: [{properties: {x: {type: string}}}]}, d: {type: string, x-kubernetes-validations: [{rule: ''}], $ref: x}, e: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}}",
        ),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`
        spec.validation.openAPIV3Schema.properties[c].anyOf[0].properties[x].type: Forbidden: must be empty to be structural
        spec.validation.openAPIV3Schema.properties[c].properties[x]: Required value: because it is defined in spec.validation.openAPIV3Schema.properties[c].anyOf[0].properties[x]
        spec.validation.openAPIV3Schema.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic
        spec.validation.openAPIV3Schema.properties[b].type: Unsupported value: "whole": supported values: "array", "boolean", "integer", "number", "object", "string"
        spec.validation.openAPIV3Schema.properties[d].$ref: Forbidden: $ref is not supported
        spec.validation.openAPIV3Schema.properties[d].x-kubernetes-validations[0].rule: Required value: rule is not specified"#]],
    );
}

#[test]
fn an_api_service_is_named_after_what_it_serves() {
    check(
        API_SERVICE,
        "{spec: {group: example.com, version: V1, groupPriorityMinimum: 0, versionPriority: 1001, insecureSkipTLSVerify: true, caBundle: YWJj}}",
        expect![[r#"
        metadata.name: Invalid value: "a": must be `spec.version+"."+spec.group`: "V1.example.com"
        spec.version: Invalid value: "V1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000
        spec.versionPriority: Invalid value: 1001: must be positive and less than 1000
        spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle
        spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"#]],
    );
    check(
        API_SERVICE,
        "{metadata: {name: v1.example.com}, spec: {group: example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {}}}",
        expect![[r#"
        spec.service.namespace: Required value
        spec.service.name: Required value
        spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"#]],
    );
}

#[test]
fn flow_control_is_checked_and_the_mandatory_stays() {
    check(
        FLOW,
        "{spec: {matchingPrecedence: 1, distinguisherMethod: {type: ByLuck}, priorityLevelConfiguration: {name: ''}, rules: [{subjects: [{kind: User, group: {name: g}}, {kind: Dog}, {kind: ServiceAccount, serviceAccount: {name: '*', namespace: ''}}], resourceRules: [{verbs: ['*', get], apiGroups: [], resources: ['*', a], namespaces: []}], nonResourceRules: [{verbs: [jump], nonResourceURLs: [x, /a*]}]}]}}",
        expect![[r#"
        spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1
        spec.distinguisherMethod.type: Unsupported value: {"type":"ByLuck"}: supported values: "ByNamespace", "ByUser"
        spec.priorityLevelConfiguration.name: Required value: must reference a priority level
        spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'
        spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'
        spec.rules[0].subjects[1].kind: Unsupported value: "Dog": supported values: "Group", "ServiceAccount", "User"
        spec.rules[0].subjects[2].serviceAccount.namespace: Required value: must specify namespace for service account
        spec.rules[0].resourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs
        spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group
        spec.rules[0].resourceRules[0].resources: Invalid value: ["*","a"]: if '*' is present, must not specify other resources
        spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace
        spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["jump"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"
        spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "x": must start with slash
        spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a*": wildcard can only do suffix matching"#]],
    );
    check(
        FLOW,
        "{metadata: {name: exempt}, spec: {matchingPrecedence: 1, priorityLevelConfiguration: {name: exempt}, rules: []}}",
        expect![[
            r#"spec: Invalid value: {"matchingPrecedence":1,"priorityLevelConfiguration":{"name":"exempt"},"rules":[]}: spec of 'exempt' must equal the fixed value"#
        ]],
    );
    check(
        LEVEL,
        "{spec: {type: Limited, limited: {nominalConcurrencyShares: -1, lendablePercent: 101, limitResponse: {type: Queue, queuing: {queues: 512, handSize: 10, queueLengthLimit: 0}}}}}",
        expect![[r#"
        spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer
        spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: 0: must be positive
        spec.limited.limitResponse.queuing.handSize: Invalid value: 10: required entropy bits of deckSize 512 and handSize 10 should not be greater than 60
        spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"#]],
    );
    check(
        LEVEL,
        "{metadata: {name: exempt}, spec: {type: Limited}}",
        expect![[r#"
        spec.type: Invalid value: "Limited": type must be 'Exempt' if and only if name is 'exempt'
        spec.limited: Required value: must not be empty when type is Limited
        spec: Invalid value: {"type":"Limited"}: spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"#]],
    );
    for object in crate::flow_control::flow_schemas() {
        assert_eq!(shown(row(FLOW).validate_create(object)), "");
    }
    for object in crate::flow_control::priority_levels() {
        assert_eq!(shown(row(LEVEL).validate_create(object)), "");
    }
}

#[test]
fn a_resource_claim_asks_for_devices() {
    check(
        CLAIM,
        "{spec: {devices: {requests: [{name: r}, {name: r, exactly: {deviceClassName: '', allocationMode: Some, tolerations: [{operator: Exists, value: v}]}}], constraints: [{requests: [q], matchAttribute: model}, {}], config: [{requests: [r/x]}]}}}",
        expect![[r#"
        spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required
        spec.devices.requests[1].exactly.deviceClassName: Required value
        spec.devices.requests[1].exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"
        spec.devices.requests[1].exactly.tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`
        spec.devices.requests[1]: Duplicate value: "r"
        spec.devices.constraints[0].requests[0]: Invalid value: "q": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
        spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash
        spec.devices.constraints[1].matchAttribute: Required value
        spec.devices.config[0].requests[0]: Invalid value: "r/x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
        spec.devices.config[0].opaque: Required value"#]],
    );
    check_update(
        CLAIM,
        "{spec: {devices: {}}}",
        "{spec: {devices: {requests: []}}}",
        expect![[r#"spec: Invalid value: {"devices":{"requests":[]}}: field is immutable"#]],
    );
    check(
        DEVICES,
        "{spec: {driver: d, nodeName: '', allNodes: true, perDeviceNodeSelection: true, pool: {name: 'a//b', resourceSliceCount: 0, generation: -1}, devices: [{name: D, attributes: {a/b/c: {int: 1, bool: true}, x: {version: '1.0'}}}, {name: D, attributes: {y: {}}}]}}",
        expect![[r#"
        spec.pool.name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero
        spec.pool.generation: Invalid value: -1: must be greater than or equal to zero
        spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string
        spec: Invalid value: "{`allNodes`, `perDeviceNodeSelection`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set
        spec.devices[0].name: Invalid value: "D": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.devices[0].attributes[a/b/c]: Invalid value: "a/b/c": must not contain more than one slash
        spec.devices[0].attributes[a/b/c]: Invalid value: {"bool":true,"int":1}: exactly one value must be specified
        spec.devices[0].attributes[x].version: Invalid value: "1.0": must be a string compatible with semver.org spec 2.0.0
        spec.devices[1].name: Invalid value: "D": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
        spec.devices[1].attributes[y]: Invalid value: "": exactly one value must be specified
        spec.devices[1]: Duplicate value: "D""#]],
    );
}

#[test]
fn a_question_about_access_is_about_one_thing() {
    const REVIEWS: &str = "authorization.k8s.io";
    check_review(
        "subjectaccessreviews",
        "{spec: {}}",
        expect![[r#"
        spec.resourceAttributes: Invalid value: "null": exactly one of nonResourceAttributes or resourceAttributes must be specified
        spec.user: Invalid value: "": at least one of user or group must be specified"#]],
    );
    check_review(
        "selfsubjectaccessreviews",
        "{metadata: {name: a}, spec: {resourceAttributes: {}, nonResourceAttributes: {}}}",
        expect![[r#"
        spec.nonResourceAttributes: Invalid value: {}: cannot be specified in combination with resourceAttributes
        metadata: Invalid value: {"name":"a"}: must be empty"#]],
    );
    check_review(
        "localsubjectaccessreviews",
        "{metadata: {namespace: a}, spec: {user: u, resourceAttributes: {namespace: b}}}",
        expect![[r#"spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace"#]],
    );

    fn check_review(plural: &'static str, object: &str, expect: Expect) {
        expect.assert_eq(&shown(row((REVIEWS, plural)).validate_create(&parse(object))));
    }
}

#[test]
fn a_migration_names_a_resource() {
    check(
        ("storagemigration.k8s.io", "storageversionmigrations"),
        "{spec: {resource: {group: 'A B'}}}",
        expect![[r#"
        spec.resource.resource: Required value: resource is required to be set
        spec.resource.group: Invalid value: "A B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}
