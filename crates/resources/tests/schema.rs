//! The table, the defaults and the schema name the same things.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use resources::{defaults, find, table};
use schema::walk::default::Defaults;
use serde_json::Value;

#[test]
fn every_row_has_a_schema_of_the_name_it_gives() {
    let missing: Vec<_> = table()
        .iter()
        .filter(|row| {
            schema::builtin()
                .kind(&row.group, &row.version, &row.kind)
                .map(|s| s.message_name().to_owned())
                .as_deref()
                != Some(&*row.message)
        })
        .map(|row| &row.message)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_default_belongs_to_a_message() {
    let missing: Vec<_> = defaults::rows()
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| schema::builtin().message(name).is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What the API server does with a new object: defaults, preparation, rules.
fn created(group: &str, plural: &str, yaml: &str) -> (Value, Vec<String>) {
    let row = find(group, "v1", plural).unwrap();
    let mut object: Value = serde_saphyr::from_str(yaml).unwrap();
    let schema = schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap();
    Defaults::new(schema::builtin(), defaults::rows()).apply(schema, &mut object);
    row.strategy.begin_create(&mut object);
    let errors = row.validate_create(&object).iter().map(ToString::to_string).collect();
    (object, errors)
}

#[test]
fn minimal_objects_are_defaulted_into_valid_ones() {
    let template = "template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}";
    let selector = "selector: {matchLabels: {app: a}}";
    let cases = [
        ("", "pods", "{metadata: {name: a, namespace: d}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}}], volumes: [{name: v}]}}".to_owned()),
        ("apps", "deployments", format!("{{metadata: {{name: a, namespace: d}}, spec: {{{selector}, {template}}}}}")),
        ("apps", "replicasets", format!("{{metadata: {{name: a, namespace: d}}, spec: {{{selector}, {template}}}}}")),
        ("apps", "statefulsets", format!("{{metadata: {{name: a, namespace: d}}, spec: {{{selector}, {template}}}}}")),
        ("apps", "daemonsets", format!("{{metadata: {{name: a, namespace: d}}, spec: {{{selector}, {template}}}}}")),
        ("", "services", "{metadata: {name: a, namespace: d}, spec: {ports: [{port: 80}], selector: {app: a}}}".to_owned()),
        ("", "namespaces", "{metadata: {name: a}}".to_owned()),
        ("", "configmaps", "{metadata: {name: a, namespace: d}, data: {a: b}}".to_owned()),
        ("", "secrets", "{metadata: {name: a, namespace: d}, stringData: {a: b}}".to_owned()),
        ("", "serviceaccounts", "{metadata: {name: a, namespace: d}}".to_owned()),
        ("", "nodes", "{metadata: {name: a}}".to_owned()),
        ("batch", "jobs", "{metadata: {name: a, namespace: d, uid: u}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}".to_owned()),
        ("coordination.k8s.io", "leases", "{metadata: {name: a, namespace: d}, spec: {leaseDurationSeconds: 40}}".to_owned()),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "{metadata: {name: 'system:a'}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: Group, name: g}]}".to_owned()),
        ("rbac.authorization.k8s.io", "clusterroles", "{metadata: {name: 'system:a'}, rules: [{verbs: [get], nonResourceURLs: ['/healthz']}]}".to_owned()),
        ("discovery.k8s.io", "endpointslices", "{metadata: {name: a, namespace: d}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.0.1]}]}".to_owned()),
    ];
    for (group, plural, yaml) in cases {
        let (object, errors) = created(group, plural, &yaml);
        assert!(errors.is_empty(), "{plural}: {errors:?}\n{object}");
    }
}

#[test]
fn an_update_with_nothing_changed_is_valid_and_keeps_the_generation() {
    let (old, _) = created(
        "",
        "pods",
        "{metadata: {name: a, namespace: d, uid: u}, spec: {containers: [{name: c, image: i}]}}",
    );
    let row = find("", "v1", "pods").unwrap();
    let mut new = old.clone();
    row.strategy.begin_update(&mut new, &old);
    assert_eq!(new, old);
    assert!(row.validate_update(&new, &old).is_empty());
    let mut status = old.clone();
    status["status"]["phase"] = "Running".into();
    row.strategy.begin_status_update(&mut status, &old, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(status["status"]["phase"], "Running");
    assert!(row.validate_status_update(&status, &old).is_empty());
}
