//! A row per rule of autoscaling, policy, scheduling, node and coordination kinds.

#![expect(clippy::too_many_lines, reason = "a table has as many rows as there are rules")]

use expect_test::expect;

use super::{check_each, check_each_status, check_each_update};

#[test]
fn autoscalers() {
    let kind = ("autoscaling/v2", "horizontalpodautoscalers");
    let good = "{metadata: {name: h, namespace: d}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: w}}}";
    check_each(
        kind,
        good,
        &[
            ("no replicas", "/spec/minReplicas", "0"),
            ("fewer at most than at least", "/spec/minReplicas", "5"),
            ("no maximum", "/spec/maxReplicas", "0"),
            ("no target", "/spec/scaleTargetRef", "{kind: a/b}"),
            ("no type of metric", "/spec/metrics", "[{}]"),
            ("no source", "/spec/metrics", "[{type: Pods}]"),
            (
                "two sources",
                "/spec/metrics",
                "[{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 1}}, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 1}}}]",
            ),
            (
                "bad targets",
                "/spec/metrics",
                "[{type: Resource, resource: {target: {type: X, averageUtilization: 0, averageValue: 0}}}, {type: Object, object: {describedObject: {}, metric: {}, target: {type: Value}}}, {type: External, external: {metric: {name: a}, target: {type: Value, value: 1, averageValue: 1}}}, {type: ContainerResource, containerResource: {name: cpu, target: {type: Utilization}}}]",
            ),
            (
                "bad behavior",
                "/spec/behavior",
                "{scaleUp: {stabilizationWindowSeconds: 3601, selectPolicy: X, policies: [{type: X, value: 0, periodSeconds: 1801}], tolerance: -1}}",
            ),
        ],
        expect![[r#"
            no replicas
              spec.minReplicas: Invalid value: 0: must be greater than or equal to 1
              spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas
            fewer at most than at least
              spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`
            no maximum
              spec.maxReplicas: Invalid value: 0: must be greater than 0
              spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`
            no target
              spec.scaleTargetRef.kind: Invalid value: "a/b": may not contain '/'
              spec.scaleTargetRef.name: Required value
              spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group
            no type of metric
              spec.metrics[0].type: Required value: must specify a metric source type
              spec.metrics[0].type: Unsupported value: "": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"
            no source
              spec.metrics[0].pods: Required value: must populate information for the given metric source
            two sources
              spec.metrics[0].pods: Forbidden: must populate the given metric source only
            bad targets
              spec.metrics[0].resource.name: Required value: must specify a resource name
              spec.metrics[0].resource.target.type: Invalid value: "X": must be either Utilization, Value, or AverageValue
              spec.metrics[0].resource.target.averageValue: Invalid value: "0": must be positive
              spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0
              spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization
              spec.metrics[1].object.describedObject.kind: Required value
              spec.metrics[1].object.describedObject.name: Required value
              spec.metrics[1].object.metric.name: Required value: must specify a metric name
              spec.metrics[1].object.target.averageValue: Required value: must set either a target value or averageValue
              spec.metrics[2].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target
              spec.metrics[3].containerResource.container: Required value: must specify a container
              spec.metrics[3].containerResource.target.averageUtilization: Required value: must set either a target raw value or a target utilization
            bad behavior
              spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600
              spec.behavior.scaleUp.selectPolicy: Unsupported value: "X": supported values: "Disabled", "Max", "Min"
              spec.behavior.scaleUp.policies[0].type: Unsupported value: "X": supported values: "Percent", "Pods"
              spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero
              spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800
              spec.behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
    check_each(
        ("autoscaling/v1", "horizontalpodautoscalers"),
        "{apiVersion: autoscaling/v1, metadata: {name: h, namespace: d}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: w}}}",
        &[("a bad percentage", "/spec/targetCPUUtilizationPercentage", "0")],
        expect![[r#"
            a bad percentage
              spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"#]],
    );
}

#[test]
fn a_target_of_an_autoscaler_has_a_group() {
    let of = |target: &str| {
        format!("{{metadata: {{name: h, namespace: d}}, spec: {{maxReplicas: 3, scaleTargetRef: {target}}}}}")
    };
    let check_update = |old: &str, new: &str, expect| {
        super::check_update(("autoscaling", "horizontalpodautoscalers"), &of(old), &of(new), expect);
    };
    let old = "{kind: Deployment, name: w}";
    check_update(old, "{kind: Deployment, name: other}", expect![""]);
    check_update(old, "{kind: ReplicationController, name: w, apiVersion: v1}", expect![""]);
    check_update(
        old,
        "{kind: StatefulSet, name: w, apiVersion: v1}",
        expect![[
            r#"spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group"#
        ]],
    );
    check_update(
        old,
        "{kind: Deployment, name: w, apiVersion: a/b/c}",
        expect![[
            r#"spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#
        ]],
    );
}

#[test]
fn disruption_budgets() {
    let kind = ("policy/v1", "poddisruptionbudgets");
    let good =
        "{metadata: {name: p, namespace: d}, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}";
    check_each(
        kind,
        good,
        &[
            ("both bounds", "/spec/maxUnavailable", "1"),
            ("a bad percentage", "/spec/minAvailable", "x%"),
            ("more than all", "/spec/minAvailable", "101%"),
            ("a negative number", "/spec/minAvailable", "-1"),
            ("a bad policy", "/spec/unhealthyPodEvictionPolicy", "X"),
        ],
        expect![[r#"
            both bounds
              spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set
            a bad percentage
              spec.minAvailable: Invalid value: "x%": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')
            more than all
              spec.minAvailable: Invalid value: "101%": must not be greater than 100%
            a negative number
              spec.minAvailable: Invalid value: -1: must be greater than or equal to 0
            a bad policy
              spec.unhealthyPodEvictionPolicy: Unsupported value: "X": supported values: "AlwaysAllow", "IfHealthyBudget""#]],
    );
    check_each_status(
        kind,
        good,
        &[
            ("a negative number", "/status/currentHealthy", "-1"),
            (
                "bad conditions",
                "/status/conditions",
                "[{type: '', status: X, reason: '1'}, {type: '', status: 'True', reason: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]",
            ),
        ],
        expect![[r#"
            a negative number
              status.currentHealthy: Invalid value: -1: must be greater than or equal to 0
            bad conditions
              status.conditions[0].type: Invalid value: "": name part must be non-empty
              status.conditions[0].type: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              status.conditions[0].status: Unsupported value: "X": supported values: "False", "True", "Unknown"
              status.conditions[0].lastTransitionTime: Required value: must be set
              status.conditions[0].reason: Invalid value: "1": a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')
              status.conditions[1].type: Duplicate value: ""
              status.conditions[1].type: Invalid value: "": name part must be non-empty
              status.conditions[1].type: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              status.conditions[1].reason: Required value: must be set"#]],
    );
}

#[test]
fn classes() {
    let priority = ("scheduling.k8s.io/v1", "priorityclasses");
    let good = "{metadata: {name: p}, value: 5}";
    check_each(
        priority,
        good,
        &[
            ("a system name", "/metadata/name", "system-x"),
            ("a system class of another value", "/metadata/name", "system-node-critical"),
            ("too high", "/value", "1000000001"),
            ("a bad policy", "/preemptionPolicy", "X"),
        ],
        expect![[r#"
            a system name
              metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class
            a system class of another value
              metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000
            too high
              value: Forbidden: maximum allowed value of a user defined priority is 1000000000
            a bad policy
              preemptionPolicy: Unsupported value: "X": supported values: "PreemptLowerPriority", "Never""#]],
    );
    check_each_update(
        priority,
        good,
        &[
            ("another value", "/value", "6"),
            ("another policy", "/preemptionPolicy", "Never"),
            ("the default", "/globalDefault", "true"),
        ],
        expect![[r#"
            another value
              value: Forbidden: may not be changed in an update.
            another policy
              preemptionPolicy: Invalid value: "Never": field is immutable
            the default"#]],
    );
    let runtime = ("node.k8s.io/v1", "runtimeclasses");
    let good = "{metadata: {name: r}, handler: runc}";
    check_each(
        runtime,
        good,
        &[
            ("no handler", "/handler", "''"),
            ("bad overhead", "/overhead", "{podFixed: {x: -1}}"),
            ("bad scheduling", "/scheduling", "{nodeSelector: {a: 'b c'}, tolerations: [{operator: Equal}]}"),
        ],
        expect![[r#"
            no handler
              handler: Invalid value: "": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            bad overhead
              overhead.limits[x]: Invalid value: "x": must be a standard resource type or fully qualified
              overhead.limits[x]: Invalid value: "x": must be a standard resource for containers
              overhead.limits[x]: Invalid value: "-1": must be greater than or equal to 0
            bad scheduling
              scheduling.nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
              scheduling.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#]],
    );
    check_each_update(
        runtime,
        good,
        &[("another handler", "/handler", "x")],
        expect![[r#"
        another handler
          handler: Invalid value: "x": field is immutable"#]],
    );
}

#[test]
fn leases() {
    check_each(
        ("coordination.k8s.io/v1", "leases"),
        "{metadata: {name: l, namespace: d}, spec: {}}",
        &[
            ("no duration", "/spec/leaseDurationSeconds", "0"),
            ("negative transitions", "/spec/leaseTransitions", "-1"),
            ("an unknown strategy", "/spec/strategy", "X"),
            ("a bad strategy", "/spec/strategy", "a/"),
            ("a wish without a strategy", "/spec/preferredHolder", "x"),
        ],
        expect![[r#"
            no duration
              spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0
            negative transitions
              spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0
            an unknown strategy
            a bad strategy
            a wish without a strategy"#]],
    );
    let candidate = ("coordination.k8s.io/v1beta1", "leasecandidates");
    let good = "{metadata: {name: A_b, namespace: d}, spec: {leaseName: l, binaryVersion: 1.35.0, emulationVersion: 1.34.0, strategy: OldestEmulationVersion}}";
    check_each(
        candidate,
        good,
        &[
            ("no lease", "/spec/leaseName", "''"),
            ("no version", "/spec/binaryVersion", "''"),
            ("bad versions", "/spec/emulationVersion", "1.x"),
            ("a newer emulation", "/spec/emulationVersion", "1.36.0"),
            ("no emulation", "/spec/emulationVersion", "''"),
            ("no strategy", "/spec/strategy", "''"),
        ],
        expect![[r#"
            no lease
              spec.leaseName: Required value
            no version
              spec.binaryVersion: Required value
            bad versions
              spec.emulationVersion: Invalid value: "1.x": must be a valid semantic version
              spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'
            a newer emulation
              spec.binaryVersion: Invalid value: "1.35.0": must be greater than or equal to `emulationVersion`
            no emulation
              spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'
            no strategy
              spec.strategy: Required value"#]],
    );
    check_each_update(
        candidate,
        good,
        &[("another lease", "/spec/leaseName", "m")],
        expect![[r#"
        another lease
          spec.leaseName: Invalid value: "m": field is immutable"#]],
    );
}

#[test]
fn workloads() {
    let kind = ("scheduling.k8s.io/v1alpha1", "workloads");
    let good = "{metadata: {name: w, namespace: d}, spec: {podGroups: [{name: a, policy: {basic: {}}}]}}";
    check_each(
        kind,
        good,
        &[
            ("no groups", "/spec/podGroups", "[]"),
            ("a group twice", "/spec/podGroups/1", "{name: a, policy: {gang: {minCount: -1}}}"),
            ("no policy", "/spec/podGroups/0/policy", "{}"),
            ("both policies", "/spec/podGroups/0/policy", "{basic: {}, gang: {minCount: 1}}"),
            ("a bad controller", "/spec/controllerRef", "{kind: '', name: a/b, apiGroup: A}"),
        ],
        expect![[r#"
            no groups
              spec.podGroups: Required value: must have at least one item
            a group twice
              spec.podGroups[1]: Duplicate value: {"name":"a","policy":{"gang":{"minCount":-1}}}
              spec.podGroups[1].policy.gang.minCount: Invalid value: -1: must be greater than zero
            no policy
              spec.podGroups[0].policy: Invalid value: "": must specify one of: `basic`, `gang`
            both policies
              spec.podGroups[0].policy: Invalid value: "{`basic`, `gang`}": exactly one of `basic`, `gang` is required, but multiple fields are set
            a bad controller
              spec.controllerRef.apiGroup: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              spec.controllerRef.kind: Required value
              spec.controllerRef.name: Invalid value: "a/b": may not contain '/'"#]],
    );
    check_each_update(
        kind,
        good,
        &[("other groups", "/spec/podGroups/0/name", "b")],
        expect![[r#"
        other groups
          spec.podGroups: Invalid value: [{"name":"b","policy":{"basic":{}}}]: field is immutable"#]],
    );
}
