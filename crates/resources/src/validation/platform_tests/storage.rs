//! Cases of the rules of storage.

use super::*;

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
        expect![[r#"
            spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation
            @@ -2,7 +2,7 @@
              "GCEPersistentDisk": null,
              "AWSElasticBlockStore": null,
              "HostPath": {
            -  "Path": "/data",
            +  "Path": "/other",
               "Type": null
              },
              "Glusterfs": null,
        "#]],
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
        expect![[r#"
            spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims
            @@ -9,7 +9,7 @@
                "storage": "2Gi"
               }
              },
            - "VolumeName": "v",
            + "VolumeName": "w",
              "StorageClassName": null,
              "VolumeMode": "Filesystem",
              "DataSource": null,
        "#]],
    );
    check_update(PVC, &CLAIMED.replace(", volumeName: v", ""), CLAIMED, expect![[""]]);
    check_update(
        PVC,
        &CLAIMED.replace("Bound", "Pending"),
        &CLAIMED.replace("Bound", "Pending").replace("requests: {storage: 2Gi}", "requests: {storage: 3Gi}"),
        expect![[r#"
            spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims
            @@ -6,7 +6,7 @@
              "Resources": {
               "Limits": null,
               "Requests": {
            -   "storage": "2Gi"
            +   "storage": "3Gi"
               }
              },
              "VolumeName": "v",
        "#]],
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
        spec.drivers[1]: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
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
            r#"spec: Invalid value: {"Attacher":"d","Source":{"PersistentVolumeName":"w","InlineVolumeSpec":null},"NodeName":"m"}: field is immutable"#
        ]],
    );
}

#[test]
fn sources_of_volumes_are_checked_by_their_kind() {
    let volume = |source: &str| {
        format!("{{spec: {{accessModes: [ReadWriteOnce], capacity: {{storage: 1Gi}}, {source}}}}}")
    };
    for (source, broken) in [
        ("gcePersistentDisk: {}", expect!["spec.persistentDisk.pdName: Required value"]),
        (
            "glusterfs: {endpoints: e, path: p, endpointsNamespace: ''}",
            expect![[
                r#"spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it must be a valid namespace name"#
            ]],
        ),
        (
            "azureFile: {secretName: s, shareName: s, secretNamespace: ''}",
            expect!["spec.azureFile.secretNamespace: Required value"],
        ),
        (
            "storageos: {volumeName: v, secretRef: {name: s}}",
            expect!["spec.storageos.secretRef.namespace: Required value"],
        ),
        (
            "iscsi: {targetPortal: p, iqn: 'iqn.2001-04.com.example:a', lun: 0, secretRef: {}}",
            expect!["spec.iscsi.secretRef.name: Required value"],
        ),
        (
            "cinder: {volumeID: v, secretRef: {name: s}}",
            expect!["spec.cinder.secretRef.namespace: Required value"],
        ),
    ] {
        check(PV, &volume(source), broken);
    }
}

#[test]
fn where_a_volume_can_be_reached_changes_in_name_only() {
    let local = |key: &str| {
        format!(
            "{{spec: {{accessModes: [ReadWriteOnce], capacity: {{storage: 1Gi}}, volumeMode: Filesystem, local: {{path: /d}}, \
             nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: {key}, operator: In, values: [a]}}]}}]}}}}}}}}"
        )
    };
    let beta = local("failure-domain.beta.kubernetes.io/zone");
    check_update(PV, &beta, &local("topology.kubernetes.io/zone"), expect![[""]]);
    check_update(
        PV,
        &beta,
        &local("topology.kubernetes.io/region"),
        expect![[
            r#"nodeAffinity: Invalid value: {"Required":{"NodeSelectorTerms":[{"MatchExpressions":[{"Key":"topology.kubernetes.io/region","Operator":"In","Values":["a"]}],"MatchFields":null}]}}: field is immutable, except for updating from beta label to GA"#
        ]],
    );
}

#[test]
fn a_claims_attributes_change_once_it_is_bound_and_stay_once_applied() {
    let claim = |phase: &str, class: &str, applied: &str| {
        format!(
            "{{spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 2Gi}}}}, volumeMode: Filesystem{class}}}, \
             status: {{phase: {phase}{applied}}}}}"
        )
    };
    let gold = ", volumeAttributesClassName: gold";
    let applied = ", currentVolumeAttributesClassName: gold";
    check_update(PVC, &claim("Bound", "", ""), &claim("Bound", gold, ""), expect![[""]]);
    check_update(
        PVC,
        &claim("Pending", "", ""),
        &claim("Pending", gold, ""),
        expect![[r#"
            spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims
            @@ -14,5 +14,5 @@
              "VolumeMode": "Filesystem",
              "DataSource": null,
              "DataSourceRef": null,
            - "VolumeAttributesClassName": null
            + "VolumeAttributesClassName": "gold"
             }
        "#]],
    );
    check_update(PVC, &claim("Bound", gold, ""), &claim("Bound", "", ""), expect![[""]]);
    check_update(
        PVC,
        &claim("Bound", gold, applied),
        &claim("Bound", "", applied),
        expect![
            "spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"
        ],
    );
    check(
        PVC,
        "{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: '-1'}}}}",
        expect![[r#"spec.resources[storage]: Invalid value: "-1": must be greater than zero"#]],
    );
}
