//! Cases of the rules of devices' taints. Source: `TestValidateDeviceTaint`, `TestValidateDeviceTaintUpdate` and the taints
//! of `TestValidateResourceSlice`.

use super::*;

const RULE: Kind = ("resource.k8s.io", "devicetaintrules");

/// A rule with `selector` and `taint`.
fn rule(selector: &str, taint: &str) -> String {
    format!("{{spec: {{deviceSelector: {selector}, taint: {taint}}}}}")
}

#[test]
fn a_rule_selects_by_names_and_has_a_taint() {
    const GOOD: &str = "{key: example.com/taint, value: tainted, effect: NoSchedule}";
    let all = "{driver: test.example.com, pool: foo, device: foo}";
    for (selector, taint) in [
        (all, GOOD),
        ("null", GOOD),
        ("{}", GOOD),
        ("{pool: foo/bar.example.com}", GOOD),
        ("{}", "{key: foo, value: foo, effect: NoExecute}"),
        ("{}", "{key: foo, effect: None}"),
    ] {
        check(RULE, &rule(selector, taint), expect![""]);
    }
    check(
        RULE,
        &rule("{driver: '!', pool: '!', device: '!'}", GOOD),
        expect![[r#"
            spec.deviceSelector.driver: Invalid value: "!": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.deviceSelector.pool: Invalid value: "!": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.deviceSelector.device: Invalid value: "!": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]],
    );
    check(
        RULE,
        &rule("{pool: ''}", "{key: foo, value: foo}"),
        expect![[r#"
        spec.deviceSelector.pool: Required value
        spec.taint.effect: Required value"#]],
    );
    check(
        RULE,
        &rule("{}", "{key: foo, value: foo, effect: some-other-effect}"),
        expect![[
            r#"spec.taint.effect: Unsupported value: "some-other-effect": supported values: "NoExecute", "NoSchedule", "None""#
        ]],
    );
}

#[test]
fn an_effect_that_a_rule_has_may_stay() {
    let (known, unknown) =
        (rule("{}", "{key: a, effect: NoSchedule}"), rule("{}", "{key: a, effect: some-other-effect}"));
    check_update(RULE, &known, &known, expect![""]);
    check_update(RULE, &unknown, &rule("{}", "{key: b, effect: some-other-effect}"), expect![""]);
    check_update(
        RULE,
        &known,
        &unknown,
        expect![[
            r#"spec.taint.effect: Unsupported value: "some-other-effect": supported values: "NoExecute", "NoSchedule", "None""#
        ]],
    );
}

#[test]
fn a_rules_status_has_a_few_good_conditions() {
    let row = row(RULE);
    let of = |types: &[&str]| {
        let condition = |kind: &&str| {
            format!("{{type: {kind}, status: 'True', reason: R, lastTransitionTime: '2026-01-01T00:00:00Z'}}")
        };
        let list = types.iter().map(condition).collect::<Vec<_>>().join(", ");
        named(RULE, parse(&format!("{{spec: {{}}, status: {{conditions: [{list}]}}}}")))
    };
    let eight = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let nine = [&eight[..], &["i"]].concat();
    for (types, expect) in [
        (&eight[..], ""),
        (&nine[..], "status.conditions: Too many: 9: must have at most 8 items"),
        (&["a", "a"], "status.conditions[1].type: Duplicate value: \"a\""),
    ] {
        let errors = shown(row.validate_status_update(&of(types), &of(&[])));
        assert_eq!(errors, expect, "{types:?}");
    }
}

/// A slice of one device, `d`.
fn slice(taints: &str) -> String {
    format!(
        "{{spec: {{driver: d.example, nodeName: worker, pool: {{name: p, resourceSliceCount: 1}}, \
         devices: [{{name: d, taints: [{taints}]}}]}}}}"
    )
}

const WRONG: &str = "{}, {key: '!', value: '!', effect: some-other-effect}";

#[test]
fn a_device_has_taints_of_known_effects_and_not_too_many() {
    let full = "{key: taint, value: tainted, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}";
    check(DEVICES, &slice(&format!("{{key: example.com/taint, effect: NoExecute}}, {full}")), expect![""]);
    check(
        DEVICES,
        &slice(WRONG),
        expect![[r#"
            spec.devices[0].taints[0].key: Invalid value: "": name part must be non-empty
            spec.devices[0].taints[0].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.devices[0].taints[0].effect: Required value
            spec.devices[0].taints[1].key: Invalid value: "!": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.devices[0].taints[1].value: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            spec.devices[0].taints[1].effect: Unsupported value: "some-other-effect": supported values: "NoExecute", "NoSchedule", "None""#]],
    );
    let seventeen = "{key: a, effect: NoSchedule},".repeat(17);
    check(
        DEVICES,
        &slice(&seventeen),
        expect!["spec.devices[0].taints: Too many: 17: must have at most 16 items"],
    );
}

#[test]
fn taints_that_a_device_has_may_stay() {
    check_update(DEVICES, &slice(WRONG), &slice(WRONG), expect![""]);
    let one = slice("{key: a, effect: some-other-effect}");
    check_update(
        DEVICES,
        &slice(WRONG),
        &one,
        expect![[
            r#"spec.devices[0].taints[0].effect: Unsupported value: "some-other-effect": supported values: "NoExecute", "NoSchedule", "None""#
        ]],
    );
    let renamed = slice("{key: a, effect: some-other-effect}").replace("name: d,", "name: e,");
    check_update(
        DEVICES,
        &one,
        &renamed,
        expect![[
            r#"spec.devices[0].taints[0].effect: Unsupported value: "some-other-effect": supported values: "NoExecute", "NoSchedule", "None""#
        ]],
    );
}

#[test]
fn claims_tolerate_by_operators() {
    let of = |tolerations: &str| {
        format!(
            "{{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c, allocationMode: All, \
             tolerations: [{tolerations}]}}}}]}}}}}}"
        )
    };
    let many = "{operator: Exists},".repeat(20);
    for good in [
        "{key: valid-key, operator: Exists, effect: NoSchedule}",
        "{operator: Exists}",
        "{key: a, operator: Equal, value: b, effect: None, tolerationSeconds: -1}",
        "{key: a, operator: Equal}",
        // Upstream says how many there may be, and does not count them.
        &many,
    ] {
        check(CLAIM, &of(good), expect![""]);
    }
    check(
        CLAIM,
        &of(
            "{key: a/b/c, operator: Exists}, {}, {operator: Exists, value: v}, {operator: Equal, value: '!'}, \
             {operator: InvalidOp, effect: PreferNoSchedule}",
        ),
        expect![[r#"
            spec.devices.requests[0].exactly.tolerations[0].key: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
            spec.devices.requests[0].exactly.tolerations[1].operator: Required value
            spec.devices.requests[0].exactly.tolerations[2].value: Invalid value: "v": must be empty for operator `Exists`
            spec.devices.requests[0].exactly.tolerations[3].value: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            spec.devices.requests[0].exactly.tolerations[4].operator: Unsupported value: "InvalidOp": supported values: "Equal", "Exists"
            spec.devices.requests[0].exactly.tolerations[4].effect: Unsupported value: "PreferNoSchedule": supported values: "NoExecute", "NoSchedule", "None""#]],
    );
}
