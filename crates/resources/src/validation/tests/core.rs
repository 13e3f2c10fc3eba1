//! A row per rule of the other kinds of the core group, and of Events.

use expect_test::expect;

use super::{check_each, check_each_status, check_each_update};

#[test]
fn nodes() {
    let good = "{metadata: {name: node}, spec: {podCIDRs: [10.42.0.0/24], providerID: a}, status: {addresses: [{type: InternalIP, address: 1.1.1.1}]}}";
    check_each(
        ("v1", "nodes"),
        good,
        &[
            (
                "bad taints",
                "/spec/taints",
                "[{key: '', value: 'b c', effect: X}, {key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]",
            ),
            ("bad ranges", "/spec/podCIDRs", "[x, 10.0.0.0/24, 10.0.0.0/24]"),
            ("bad amounts", "/status/capacity", "{cpu: -1, a.b/c: 500m}"),
        ],
        expect![[r#"
            bad taints
              metadata.taints[0].key: Invalid value: "": name part must be non-empty
              metadata.taints[0].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              metadata.taints[0].value: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
              metadata.taints[0].effect: Unsupported value: "X": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
              metadata.taints[2]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair
            bad ranges
              spec.podCIDRs[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
              spec.podCIDRs: Invalid value: ["x","10.0.0.0/24","10.0.0.0/24"]: may specify no more than one CIDR for each IP family
              spec.podCIDRs[2]: Duplicate value: "10.0.0.0/24"
            bad amounts
              status.capacity.a.b/c: Invalid value: "500m": must be an integer
              status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0
              status.allocatable.a.b/c: Invalid value: "500m": must be an integer
              status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
    check_each_update(
        ("v1", "nodes"),
        good,
        &[
            ("another range", "/spec/podCIDRs", "[10.43.0.0/24]"),
            ("another provider", "/spec/providerID", "b"),
            ("another external id", "/spec/externalID", "b"),
            (
                "a configuration",
                "/spec/configSource",
                "{configMap: {name: a, namespace: b, kubeletConfigKey: '', uid: u}}",
            ),
            ("a cordon", "/spec/unschedulable", "true"),
        ],
        expect![[r#"
            another range
              spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid
            another provider
              spec.providerID: Forbidden: node updates may not change providerID except from "" to valid
            another external id
              spec.externalID: Forbidden: may not be updated
            a configuration
              spec.configSource.configMap.uid: Forbidden: uid must not be set in spec
              spec.configSource.configMap.kubeletConfigKey: Required value
            a cordon"#]],
    );
    check_each_status(
        ("v1", "nodes"),
        good,
        &[("an address twice", "/status/addresses/1", "{type: InternalIP, address: 1.1.1.1}")],
        expect![[r#"
            an address twice
              status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"1.1.1.1"}"#]],
    );
}

#[test]
fn events() {
    check_each(
        ("v1", "events"),
        "{metadata: {name: A_b, namespace: d}, involvedObject: {namespace: d}, reason: r}",
        &[
            ("another namespace", "/involvedObject/namespace", "x"),
            ("a new event without a reporter", "/eventTime", "'2026-01-01T00:00:00.000000Z'"),
        ],
        expect![[r#"
            another namespace
              involvedObject.namespace: Invalid value: "x": does not match event.namespace
            a new event without a reporter
              reportingController: Required value
              reportingController: Invalid value: "": name part must be non-empty
              reportingController: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              reportingInstance: Required value
              action: Required value"#]],
    );
    let events = ("events.k8s.io/v1", "events");
    let good = "{metadata: {name: e, namespace: d}, eventTime: '2026-01-01T00:00:00.000000Z', reportingController: a.b/c, reportingInstance: i, action: a, reason: r, type: Normal, regarding: {namespace: d}, note: text}";
    check_each(
        events,
        good,
        &[
            ("no time", "/eventTime", "null"),
            ("a bad type", "/type", "X"),
            ("a bad controller", "/reportingController", "'a b'"),
            ("no action", "/action", "''"),
            ("a short series", "/series", "{count: 1}"),
            ("old fields", "/deprecatedCount", "1"),
        ],
        expect![[r#"
            no time
              eventTime: Required value
            a bad type
              type: Invalid value: "": has invalid value: X
            a bad controller
              reportingController: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            no action
              action: Required value
            a short series
              series.count: Invalid value: "": should be at least 2
              series.lastObservedTime: Required value
            old fields
              count: Invalid value: "": needs to be unset"#]],
    );
    check_each_update(
        events,
        good,
        &[
            ("another note", "/note", "m"),
            ("a series", "/series", "{count: 2, lastObservedTime: '2026-01-01T00:00:00.000000Z'}"),
        ],
        expect![[r#"
            another note
              message: Invalid value: "m": field is immutable
            a series"#]],
    );
}

#[test]
fn endpoints() {
    check_each(
        ("v1", "endpoints"),
        "{metadata: {name: e, namespace: d}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}",
        &[
            ("no address", "/subsets/0/addresses", "[]"),
            ("bad addresses", "/subsets/0/addresses", "[{ip: x}, {ip: 127.0.0.1, hostname: A, nodeName: B}]"),
            (
                "ports without names",
                "/subsets/0/ports",
                "[{port: 80}, {port: 0, name: A, protocol: X, appProtocol: 'a b'}]",
            ),
        ],
        expect![[r#"
            no address
              subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`
            bad addresses
              subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
              subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address
              subsets[0].addresses[1].hostname: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
              subsets[0].addresses[1].nodeName: Invalid value: "B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
              subsets[0].addresses[1].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            ports without names
              subsets[0].ports[0].name: Required value
              subsets[0].ports[1].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
              subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive
              subsets[0].ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"
              subsets[0].ports[1].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
}

#[test]
fn limit_ranges() {
    check_each(
        ("v1", "limitranges"),
        "{metadata: {name: l, namespace: d}, spec: {limits: [{type: Container}]}}",
        &[
            ("an unknown type", "/spec/limits/0/type", "X"),
            ("a type twice", "/spec/limits/1", "{type: Container}"),
            (
                "defaults of Pods",
                "/spec/limits/0",
                "{type: Pod, default: {cpu: 1}, defaultRequest: {cpu: 1}}",
            ),
            ("claims without bounds", "/spec/limits/0", "{type: PersistentVolumeClaim}"),
            (
                "bounds that do not fit",
                "/spec/limits/0",
                "{type: Container, min: {cpu: 5}, max: {cpu: 1}, default: {cpu: 3}, defaultRequest: {cpu: 4}, maxLimitRequestRatio: {cpu: 500m}}",
            ),
            (
                "a ratio above the bounds",
                "/spec/limits/0",
                "{type: Container, min: {cpu: 1}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 3}}",
            ),
            (
                "devices that differ",
                "/spec/limits/0",
                "{type: Container, default: {a.b/c: 2}, defaultRequest: {a.b/c: 1}}",
            ),
            ("an unknown resource", "/spec/limits/0", "{type: Container, max: {storage: 2}}"),
        ],
        expect![[r#"
            an unknown type
              spec.limits[0].type: Invalid value: "X": must be a standard limit type or fully qualified
            a type twice
              spec.limits[1].type: Duplicate value: "Container"
            defaults of Pods
              spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'
              spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'
            claims without bounds
              spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided
            bounds that do not fit
              spec.limits[0].min[cpu]: Invalid value: "5": min value 5 is greater than max value 1
              spec.limits[0].defaultRequest[cpu]: Invalid value: "4": min value 5 is greater than default request value 4
              spec.limits[0].defaultRequest[cpu]: Invalid value: "4": default request value 4 is greater than max value 1
              spec.limits[0].defaultRequest[cpu]: Invalid value: "4": default request value 4 is greater than default limit value 3
              spec.limits[0].default[cpu]: Invalid value: "5": min value 5 is greater than default value 3
              spec.limits[0].default[cpu]: Invalid value: "1": default value 3 is greater than max value 1
              spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1
              spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is greater than max/min = 0.200000
            a ratio above the bounds
              spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000
            devices that differ
              spec.limits[0].defaultRequest[a.b/c]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in a.b/c
            an unknown resource
              spec.limits[0].max[storage]: Invalid value: "storage": must be a standard resource for containers
              spec.limits[0].default[storage]: Invalid value: "storage": must be a standard resource for containers
              spec.limits[0].defaultRequest[storage]: Invalid value: "storage": must be a standard resource for containers"#]],
    );
}

#[test]
fn resource_quotas() {
    let good = "{metadata: {name: q, namespace: d}, spec: {hard: {pods: 1}, scopes: [BestEffort]}}";
    check_each(
        ("v1", "resourcequotas"),
        good,
        &[
            ("bad amounts", "/spec/hard", "{pods: 500m, x: 1, count/deployments.apps: -1}"),
            ("scopes that do not fit", "/spec/hard", "{secrets: 1}"),
            ("bad scopes", "/spec/scopes", "[BestEffort, NotBestEffort, X]"),
            (
                "bad selectors",
                "/spec/scopeSelector",
                "{matchExpressions: [{scopeName: Terminating, operator: In}, {scopeName: PriorityClass, operator: Exists, values: [a]}, {scopeName: X, operator: Y}]}",
            ),
            (
                "a selector that does not fit",
                "/spec/scopeSelector",
                "{matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [a]}]}",
            ),
        ],
        expect![[r#"
            bad amounts
              spec.hard[count/deployments.apps]: Invalid value: "-1": must be greater than or equal to 0
              spec.hard[pods]: Invalid value: "500m": must be an integer
              spec.hard[x]: Invalid value: "x": must be a standard resource type or fully qualified
              spec.hard[x]: Invalid value: "x": must be a standard resource for quota
            scopes that do not fit
              spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource
            bad scopes
              spec.scopes: Invalid value: ["BestEffort","NotBestEffort","X"]: unsupported scope
              spec.scopes: Invalid value: ["BestEffort","NotBestEffort","X"]: conflicting scopes
            bad selectors
              spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity
              spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
              spec.scopeSelector.matchExpressions.values: Invalid value: ["a"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector
              spec.scopeSelector.matchExpressions.scopeName: Invalid value: "X": unsupported scope
              spec.scopeSelector.matchExpressions.operator: Invalid value: "": not a valid selector operator
            a selector that does not fit
              spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"VolumeAttributesClass","Operator":"In","Values":["a"]}]}: unsupported scope applied to resource"#]],
    );
    check_each_update(
        ("v1", "resourcequotas"),
        good,
        &[("other scopes", "/spec/scopes", "[NotBestEffort]"), ("other amounts", "/spec/hard/pods", "2")],
        expect![[r#"
            other scopes
              spec.scopes: Invalid value: ["NotBestEffort"]: field is immutable
            other amounts"#]],
    );
    check_each_status(
        ("v1", "resourcequotas"),
        good,
        &[("bad amounts", "/status/used", "{pods: -1}")],
        expect![[r#"
            bad amounts
              status.used[pods]: Invalid value: "-1": must be greater than or equal to 0"#]],
    );
}

#[test]
fn namespaces_and_templates() {
    check_each(
        ("v1", "namespaces"),
        "{metadata: {name: space}}",
        &[("a bad finalizer", "/spec/finalizers", "[x, 'a b']")],
        expect![[r#"
            a bad finalizer
              spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified
              spec.finalizers: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
              spec.finalizers: Invalid value: "a b": name is neither a standard finalizer name nor is it fully qualified"#]],
    );
    check_each(
        ("v1", "podtemplates"),
        "{metadata: {name: t, namespace: d}, template: {spec: {containers: [{name: c, image: i}]}}}",
        &[
            ("a bad label", "/template/metadata/labels", "{a: 'b c'}"),
            ("no image", "/template/spec/containers/0/image", "''"),
        ],
        expect![[r#"
            a bad label
              template.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            no image
              template.spec.containers[0].image: Required value"#]],
    );
    check_each(
        ("v1", "bindings"),
        "{metadata: {name: b, namespace: d}, target: {kind: Node, name: node}}",
        &[("another kind", "/target/kind", "Pod"), ("no name", "/target/name", "''")],
        expect![[r#"
            another kind
              target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"
            no name
              target.name: Required value"#]],
    );
}
