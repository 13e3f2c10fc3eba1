//! Cases of the rules of flow control.

use super::*;

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
