//! Cases of the rules of admission.

use super::*;

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
            webhooks[0].admissionReviewVersions[2]: Invalid value: "V": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
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
        spec.paramKind.kind: Invalid value: "K!": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.matchConstraints.resourceRules: Required value
        spec.variables[0].name: Invalid value: "if": name is not a valid CEL identifier
        spec.variables[0].expression: Required value: expression is not specified
        spec.validations[0].expression: Required value: expression is not specified
        spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified
        spec.validations[0].message: Invalid value: "a\nb": message must not contain line breaks
        spec.validations[0].reason: Unsupported value: "Bad": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"
        spec.auditAnnotations[0].key: Invalid value: "a/a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
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
