//! A row per rule of a workload.

#![expect(clippy::too_many_lines, reason = "a table has as many rows as there are rules")]

use expect_test::expect;

use super::{check_each, check_each_status, check_each_update};

const TEMPLATE: &str = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";

fn workload(extra: &str) -> String {
    format!("{{metadata: {{name: w, namespace: d}}, spec: {{{TEMPLATE}{extra}}}}}")
}

#[test]
fn deployments() {
    let kind = ("apps/v1", "deployments");
    check_each(
        kind,
        &workload(""),
        &[
            ("no selector", "/spec/selector", "null"),
            ("an empty selector", "/spec/selector", "{}"),
            (
                "a bad selector",
                "/spec/selector",
                "{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In}, {key: a, operator: X}]}",
            ),
            ("no template", "/spec/template", "null"),
            ("a bad strategy", "/spec/strategy", "{type: X}"),
            ("rolling and recreating", "/spec/strategy", "{type: Recreate, rollingUpdate: {}}"),
            ("bad shares", "/spec/strategy", "{rollingUpdate: {maxSurge: x, maxUnavailable: 101%}}"),
            ("negative numbers", "/spec/revisionHistoryLimit", "-1"),
            ("a short deadline", "/spec/minReadySeconds", "600"),
            ("Pods that end", "/spec/template/spec/restartPolicy", "Never"),
            ("Pods with a deadline", "/spec/template/spec/activeDeadlineSeconds", "5"),
            ("ephemeral containers", "/spec/template/spec/ephemeralContainers", "[{name: e, image: i}]"),
            ("bad labels of Pods", "/spec/template/metadata/annotations", "{'a b': c}"),
        ],
        expect![[r#"
            no selector
              spec.selector: Required value
              spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`
            an empty selector
              spec.selector: Invalid value: {}: empty selector is invalid for deployment
            a bad selector
              spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
              spec.selector.matchExpressions[1].operator: Invalid value: "X": not a valid selector operator
            no template
              spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
              spec.template.spec.containers: Required value
            a bad strategy
              spec.strategy: Unsupported value: {"Type":"X","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate"
            rolling and recreating
              spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'
            bad shares
              spec.strategy.rollingUpdate.maxSurge: Invalid value: "x": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')
              spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%
            negative numbers
              spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0
            a short deadline
              spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds
            Pods that end
              spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"
            Pods with a deadline
              spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported
            ephemeral containers
              spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template
            bad labels of Pods
              spec.template.annotations: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
    check_each_update(
        kind,
        &workload(""),
        &[("another selector", "/spec/selector", "{matchLabels: {a: b, c: d}}")],
        expect![[r#"
            another selector
              spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`
              spec.selector: Invalid value: {"matchLabels":{"a":"b","c":"d"}}: field is immutable"#]],
    );
    check_each_status(
        kind,
        &workload("").replace("spec:", "status: {replicas: 1, collisionCount: 2}, spec:"),
        &[
            (
                "more parts than the whole",
                "/status",
                "{replicas: 1, readyReplicas: 2, availableReplicas: 3, collisionCount: 2}",
            ),
            ("fewer collisions", "/status/collisionCount", "1"),
            ("negative numbers", "/status/unavailableReplicas", "-1"),
        ],
        expect![[r#"
            more parts than the whole
              status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas
              status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas
              status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas
            fewer collisions
              status.collisionCount: Invalid value: 1: cannot be decremented
            negative numbers
              status.unavailableReplicas: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn stateful_sets() {
    let kind = ("apps/v1", "statefulsets");
    let good = workload(
        ", serviceName: s, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]",
    );
    check_each(
        kind,
        &good,
        &[
            ("a name that is no host name", "/metadata/name", "a.b"),
            (
                "a mount of a claim",
                "/spec/template/spec/containers/0/volumeMounts",
                "[{name: data, mountPath: /d}]",
            ),
            (
                "an unknown mount",
                "/spec/template/spec/containers/0/volumeMounts",
                "[{name: x, mountPath: /d}]",
            ),
            ("a bad management policy", "/spec/podManagementPolicy", "X"),
            ("a bad update strategy", "/spec/updateStrategy", "{type: X}"),
            ("rolling on delete", "/spec/updateStrategy", "{type: OnDelete, rollingUpdate: {}}"),
            ("a bad share", "/spec/updateStrategy", "{rollingUpdate: {partition: -1, maxUnavailable: 0}}"),
            ("a bad retention policy", "/spec/persistentVolumeClaimRetentionPolicy", "{whenDeleted: X}"),
            ("a negative start", "/spec/ordinals", "{start: -1}"),
            ("all revisions kept", "/spec/revisionHistoryLimit", "-1"),
        ],
        expect![[r#"
            a name that is no host name
              metadata.name: Invalid value: "a.b": must not contain dots
            a mount of a claim
            an unknown mount
              spec.template.spec.containers[0].volumeMounts[0].name: Not found: "x"
            a bad management policy
              spec.podManagementPolicy: Invalid value: "X": must be 'OrderedReady' or 'Parallel'
            a bad update strategy
              spec.updateStrategy: Invalid value: {"Type":"X","RollingUpdate":null}: must be 'RollingUpdate' or 'OnDelete'
            rolling on delete
              spec.updateStrategy.rollingUpdate: Invalid value: {"Partition":0,"MaxUnavailable":null}: only allowed for updateStrategy 'RollingUpdate'
            a bad share
              spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0
            a bad retention policy
              spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: "X": supported values: "Retain", "Delete"
            a negative start
              spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0
            all revisions kept"#]],
    );
    check_each_update(
        kind,
        &good,
        &[
            ("other replicas", "/spec/replicas", "3"),
            ("another service", "/spec/serviceName", "t"),
            ("other claims", "/spec/volumeClaimTemplates", "[]"),
        ],
        expect![[r#"
            other replicas
            another service
              spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden
            other claims
              spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"#]],
    );
}

#[test]
fn daemon_sets_and_replica_sets() {
    check_each(
        ("apps/v1", "daemonsets"),
        &workload(""),
        &[
            ("an empty selector", "/spec/selector", "{}"),
            ("a bad strategy", "/spec/updateStrategy", "{type: X}"),
            ("surge and unavailable", "/spec/updateStrategy", "{rollingUpdate: {maxSurge: 1}}"),
            ("neither", "/spec/updateStrategy", "{rollingUpdate: {maxUnavailable: 0}}"),
        ],
        expect![[r#"
            an empty selector
              spec.selector: Invalid value: {}: empty selector is invalid for daemonset
            a bad strategy
              spec.updateStrategy: Unsupported value: {"Type":"X","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete"
            surge and unavailable
              spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero
            neither
              spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"#]],
    );
    check_each(
        ("apps/v1", "replicasets"),
        &workload(""),
        &[("negative replicas", "/spec/replicas", "-1"), ("no selector", "/spec/selector", "null")],
        expect![[r#"
            negative replicas
              spec.replicas: Invalid value: -1: must be greater than or equal to 0
            no selector
              spec.selector: Required value
              spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#]],
    );
    check_each(
        ("v1", "replicationcontrollers"),
        "{metadata: {name: w, namespace: d}, spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}",
        &[
            ("another selector", "/spec/selector", "{a: c}"),
            ("an empty selector", "/spec/selector", "{}"),
            ("no template", "/spec/template", "null"),
        ],
        expect![[r#"
            another selector
              spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`
            an empty selector
              spec.selector: Required value
            no template
              spec.template: Required value"#]],
    );
}

#[test]
fn controller_revisions() {
    let good = "{metadata: {name: r, namespace: d}, data: {a: 1}, revision: 1}";
    check_each(
        ("apps/v1", "controllerrevisions"),
        good,
        &[
            ("no data", "/data", "null"),
            ("a list", "/data", "[1]"),
            ("a text", "/data", "x"),
            ("a negative revision", "/revision", "-1"),
        ],
        expect![[r#"
            no data
              data: Required value: data is mandatory
            a list
              data: Required value: data must be a valid JSON object
            a text
              data: Required value: data must be a valid JSON object
            a negative revision
              revision: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    check_each_update(
        ("apps/v1", "controllerrevisions"),
        good,
        &[("another revision", "/revision", "2"), ("other data", "/data", "{a: 2}")],
        expect![[r#"
            another revision
            other data
              data: Invalid value: {"a":2}: field is immutable"#]],
    );
}
