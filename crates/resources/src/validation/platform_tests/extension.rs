//! Cases of the rules of definitions, API services and their stored versions.

use super::*;

const WIDGETS: &str = "{metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, conversion: {strategy: None}, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}, status: {storedVersions: [v1]}}";

#[test]
fn a_definition_names_itself() {
    check(CRD, WIDGETS, expect![[""]]);
    check(
        CRD,
        &WIDGETS.replace("group: example.com", "group: k8s.io").replace("plural: widgets", "plural: Wid"),
        expect![[r#"
        metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group
        spec.names.plural: Invalid value: "Wid": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
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
            spec.validation.openAPIV3Schema.properties[list].x-kubernetes-list-map-keys: Invalid value: ["k","j"]: entries must all be names of item properties
            spec.validation.openAPIV3Schema.properties[list].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"#]],
    );
    check(
        CRD,
        &with(
            "{type: object, properties: {a: {type: string, pattern: '(', uniqueItems: true}, b: {type: whole}, c: {type: object, anyOf: [{properties: {x: {type: string}}}]}, d: {type: string, x-kubernetes-validations: [{rule: ''}], $ref: x}, e: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}}",
        ),
        expect![[r#"
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
        spec.version: Invalid value: "V1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
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
fn a_migration_names_a_resource() {
    check(
        ("storagemigration.k8s.io", "storageversionmigrations"),
        "{spec: {resource: {group: 'A B'}}}",
        expect![[r#"
        spec.resource.resource: Required value: resource is required to be set
        spec.resource.group: Invalid value: "A B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

const VERSION: Kind = ("internal.apiserver.k8s.io", "storageversions");

#[test]
fn a_storage_version_is_named_after_a_group_and_a_resource() {
    check(VERSION, "{metadata: {name: apps.example.com.deployments}, spec: {}}", expect![""]);
    check(
        VERSION,
        "{spec: {}}",
        expect![[r#"metadata.name: Invalid value: "a": name must be in the form of <group>.<resource>"#]],
    );
    check(
        VERSION,
        "{metadata: {name: A.1}, spec: {}}",
        expect![[r#"
        metadata.name: Invalid value: "A.1": the group segment a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        metadata.name: Invalid value: "A.1": the resource segment a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#]],
    );
}

/// The rules that a status breaks: the beginning of each, or nothing.
fn check_version_status(what: &str, status: &str, expect: &[&str]) {
    let new = named(
        VERSION,
        parse(&format!(
            "{{metadata: {{name: g.r, resourceVersion: '1'}}, spec: {{}}, status: {{{status}}}}}"
        )),
    );
    let told = shown(row(VERSION).validate_status_update(&new, &new));
    let told: Vec<&str> = told.lines().collect();
    let is_told =
        told.len() == expect.len() && told.iter().zip(expect).all(|(told, expect)| told.starts_with(expect));
    assert!(is_told, "{what}: {told:#?}");
}

const ENTRY: &str = "status.storageVersions[0]";

/// The status of one server.
fn one_server(server: &str, encoding: &str, decodable: &str, served: &str) -> String {
    format!(
        "storageVersions: [{{apiServerID: {server}, encodingVersion: {encoding}, decodableVersions: [{decodable}], \
         servedVersions: [{served}]}}], commonEncodingVersion: {encoding}"
    )
}

/// Source: `TestValidateServerStorageVersion`.
#[test]
fn what_a_server_stores_and_serves_it_can_read() {
    let decodable = format!(
        "{ENTRY}.decodableVersions: Invalid value: [\"v1beta1\",\"v1\"]: decodableVersions must include"
    );
    for (status, expect) in [
        (one_server("fea", "v1alpha1", "v1alpha1, v1", "v1alpha1, v1"), String::new()),
        (one_server("fea", "v1alpha1", "v1alpha1", ""), String::new()),
        (
            one_server("fea", "mygroup.com/v2", "v1alpha1, v1, mygroup.com/v2", "v1, mygroup.com/v2"),
            String::new(),
        ),
        (one_server("-fea", "v1", "v1", "v1"), format!("{ENTRY}.apiServerID: Invalid value: \"-fea\"")),
        (one_server("fea", "v1alpha1", "v1beta1, v1", "v1"), format!("{decodable} encodingVersion v1alpha1")),
        (
            one_server("fea", "v1alpha1", "v1alpha1, v1", "v2"),
            format!(
                "{ENTRY}.servedVersions[0]: Invalid value: \"v2\": individual served version : v2 must be included in \
                 decodableVersions : [v1alpha1 v1]"
            ),
        ),
    ] {
        check_version_status(&status, &status, &expect.lines().collect::<Vec<_>>());
    }
}

/// Source: the same.
#[test]
fn a_storage_version_names_versions() {
    let (no_group, no_version) = ("group part: must be non-empty", "version part: must be non-empty");
    for (version, why) in [
        ("-fea", "version part: a DNS-1035 label must consist"),
        ("/v3", no_group),
        ("mygroup.com/", no_version),
        ("mygroup_com/v2", "group part: a lowercase RFC 1123 subdomain must consist"),
        ("mygroup.com/v2_", "version part: a DNS-1035 label must consist"),
        ("mygroup.com/v2/myresource", "an apiVersion is a DNS-1035 label, which must consist"),
    ] {
        let told = |list: &str| format!("{ENTRY}.{list}: Invalid value: \"{version}\": {why}");
        let (decodable, served) = (told("decodableVersions[1]"), told("servedVersions[0]"));
        let known = one_server("fea", "v1", &format!("v1, {version}"), version);
        check_version_status(version, &known, &[&decodable, &served]);
        let individual =
            format!("{ENTRY}.servedVersions[0]: Invalid value: \"{version}\": individual served version");
        check_version_status(version, &one_server("fea", "v1", "v1", version), &[&served, &individual]);
        let (encoding, decodable) = (told("encodingVersion"), told("decodableVersions[0]"));
        check_version_status(version, &one_server("fea", version, version, ""), &[&encoding, &decodable]);
    }
}

/// Source: `TestValidateStorageVersionStatus`, `TestValidateCommonVersion`.
#[test]
fn the_common_version_is_what_servers_agree_on() {
    let two = |one: &str, other: &str, more: &str| {
        let entry = |server: &str, version: &str| {
            format!("{{apiServerID: '{server}', encodingVersion: {version}, decodableVersions: [{version}]}}")
        };
        let (server, version) = other.split_once(' ').unwrap();
        format!("storageVersions: [{}, {}], {more}", entry("1", one), entry(server, version))
    };
    let at = "status.commonEncodingVersion: Invalid value: ";
    for (status, expect) in [
        (two("v1", "2 v1", "commonEncodingVersion: v1"), String::new()),
        (two("v1", "2 v2", ""), String::new()),
        (String::new(), String::new()),
        (
            two("v1", "1 v1", "commonEncodingVersion: v1"),
            "status.storageVersions[1].apiServerID: Duplicate value: \"1\"".to_owned(),
        ),
        (
            two("v1", "2 v2", "commonEncodingVersion: v1"),
            format!("{at}\"v1\": should be nil if servers do not agree"),
        ),
        (
            "commonEncodingVersion: v1".to_owned(),
            format!("{at}\"v1\": should be nil if servers do not agree"),
        ),
        (two("v1", "2 v1", ""), format!("{at}null: the common encoding version is v1")),
        (
            two("v1", "2 v1", "commonEncodingVersion: v2"),
            format!("{at}\"v2\": the actual common encoding version is v1"),
        ),
    ] {
        let expect: Vec<&str> = expect.lines().collect();
        check_version_status(&status, &status, &expect);
    }
}

/// Source: `TestValidateStorageVersionCondition`.
#[test]
fn conditions_of_a_storage_version_are_whole_and_of_one_type_each() {
    let one = |kind: &str, status: &str, reason: &str, message: &str| {
        format!("{{type: {kind}, status: '{status}', reason: '{reason}', message: '{message}'}}")
    };
    let whole = one("fea", "True", "unknown", "unknown");
    for (conditions, expect) in [
        (whole.clone(), ""),
        (one("-fea", "True", "unknown", "unknown"), "status[0].type: Invalid value: \"-fea\""),
        (one("fea", "-True", "unknown", "unknown"), "status[0].status: Invalid value: \"-True\""),
        (one("fea", "True", "", "unknown"), "status[0].reason: Required value"),
        (one("fea", "True", "unknown", ""), "status[0].message: Required value"),
        (
            format!("{whole}, {whole}"),
            "status[1].type: Invalid value: \"fea\": the type of the condition is not unique, it also appears in conditions[0]",
        ),
    ] {
        let expect: Vec<&str> = expect.lines().collect();
        check_version_status(&conditions, &format!("conditions: [{conditions}]"), &expect);
    }
}
