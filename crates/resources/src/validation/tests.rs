use expect_test::{Expect, expect};

use super::*;

mod batch;
mod core;
mod gates;
mod pod;
mod pod_update;
mod policy;
mod service;
mod warnings;
mod workloads;

/// Checks `object` (YAML) as a new object of the kind.
fn check((group, plural): (&str, &str), object: &str, expect: Expect) {
    let row = crate::find(group, "v1", plural).unwrap();
    expect.assert_eq(&shown(row.validate_create(&defaulted(row, object))));
}

fn defaulted(row: &Resource, yaml: &str) -> Value {
    let mut object: Value = serde_saphyr::from_str(yaml).unwrap();
    fill_in(row, &mut object);
    object
}

fn check_update((group, plural): (&str, &str), old: &str, new: &str, expect: Expect) {
    let row = crate::find(group, "v1", plural).unwrap();
    let (new, old) = (defaulted(row, new), defaulted(row, old));
    expect.assert_eq(&shown(row.validate_update(&new, &old)));
}

/// A sentence that says what is changed, where (as a JSON pointer; its parents are made), and to what (YAML).
type Change<'a> = (&'a str, &'a str, &'a str);

fn changed(mut object: Value, pointer: &str, yaml: &str) -> Value {
    let value: Value = serde_saphyr::from_str(yaml).unwrap();
    let mut slot = &mut object;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/");
        slot = match slot {
            Value::Array(list) => {
                let index: usize = step.parse().unwrap();
                if list.len() == index {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            other => {
                if !other.is_object() {
                    *other = Value::Object(serde_json::Map::new());
                }
                other.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
            }
        };
    }
    *slot = value;
    object
}

/// Checks each change of an object that is good without it, as a new object.
fn check_each((api, plural): (&str, &str), good: &str, changes: &[Change<'_>], expect: Expect) {
    let row = row(api, plural);
    let base: Value = serde_saphyr::from_str(good).unwrap();
    let run = |mut object: Value| {
        fill_in(row, &mut object);
        row.strategy.begin_create(&mut object);
        row.validate_create(&object)
    };
    assert_eq!(*run(base.clone()), [], "without a change");
    let lines = changes.iter().map(|(name, at, to)| (*name, run(changed(base.clone(), at, to))));
    expect.assert_eq(&listed(lines));
}

/// Checks each change as an update.
fn check_each_update((api, plural): (&str, &str), good: &str, changes: &[Change<'_>], expect: Expect) {
    let row = row(api, plural);
    let base: Value = serde_saphyr::from_str(good).unwrap();
    let run = |mut new: Value| {
        let mut old = base.clone();
        fill_in(row, &mut old);
        fill_in(row, &mut new);
        row.strategy.begin_update(&mut new, &old);
        row.validate_update(&new, &old)
    };
    assert_eq!(*run(base.clone()), [], "without a change");
    let lines = changes.iter().map(|(name, at, to)| (*name, run(changed(base.clone(), at, to))));
    expect.assert_eq(&listed(lines));
}

/// Checks each change as a write to `/status`.
fn check_each_status((api, plural): (&str, &str), good: &str, changes: &[Change<'_>], expect: Expect) {
    let row = row(api, plural);
    let base: Value = serde_saphyr::from_str(good).unwrap();
    let run = |mut new: Value| {
        let mut old = base.clone();
        fill_in(row, &mut old);
        fill_in(row, &mut new);
        row.strategy.begin_status_update(&mut new, &old, jiff::Timestamp::UNIX_EPOCH);
        row.validate_status_update(&new, &old)
    };
    assert_eq!(*run(base.clone()), [], "without a change");
    let lines = changes.iter().map(|(name, at, to)| (*name, run(changed(base.clone(), at, to))));
    expect.assert_eq(&listed(lines));
}

fn listed<'a>(lines: impl Iterator<Item = (&'a str, FieldErrors)>) -> String {
    let shown = |(name, errors): (&str, FieldErrors)| {
        let errors: Vec<_> = errors.iter().map(|error| format!("\n  {error}")).collect();
        format!("{name}{}", errors.concat())
    };
    lines.map(shown).collect::<Vec<_>>().join("\n")
}

/// The row of `group/version` or `version`, and a plural.
fn row(api: &str, plural: &str) -> &'static Resource {
    let (group, version) = api.rsplit_once('/').unwrap_or(("", api));
    crate::find(group, version, plural).unwrap()
}

fn fill_in(row: &Resource, object: &mut Value) {
    let schemas = schema::builtin();
    let schema = schemas.kind(&row.group, &row.version, &row.kind).unwrap();
    schema::walk::default::Defaults::new(schemas, crate::defaults::rows()).apply(schema, object);
}

fn shown(errors: FieldErrors) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

const POD: (&str, &str) = ("", "pods");
const DEPLOYMENT: (&str, &str) = ("apps", "deployments");
const SERVICE: (&str, &str) = ("", "services");

const GOOD_POD: &str = "
metadata: {name: web, namespace: default}
spec:
  restartPolicy: Always
  containers: [{name: c, image: i, imagePullPolicy: Always, terminationMessagePolicy: File}]
";

#[test]
fn a_plain_pod_breaks_no_rule() {
    check(POD, GOOD_POD, expect![[""]]);
}

#[test]
fn every_broken_field_of_a_pod_is_named() {
    check(
        POD,
        "
metadata: {name: Web_, labels: {a: 'b c'}}
spec:
  restartPolicy: Sometimes
  volumes: [{name: v}, {name: v, emptyDir: {}}]
  tolerations: [{operator: Equal}]
  containers:
  - name: C
    image: ''
    imagePullPolicy: Always
    terminationMessagePolicy: File
    ports: [{containerPort: 70000, protocol: X}]
    env: [{name: 'a=b'}, {name: x, valueFrom: {}}]
    volumeMounts: [{name: nope, mountPath: /x}]
    resources: {requests: {cpu: '2'}, limits: {cpu: '1', memory: '-1'}}
    livenessProbe: {successThreshold: 2}
",
        expect![[r#"
            metadata.name: Invalid value: "Web_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            metadata.namespace: Required value
            metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            spec.volumes[1].name: Duplicate value: "v"
            spec.containers[0].name: Invalid value: "C": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.containers[0].image: Required value
            spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive
            spec.containers[0].ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"
            spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='
            spec.containers[0].env[1].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`
            spec.containers[0].volumeMounts[0].name: Not found: "nope"
            spec.containers[0].resources.limits[memory]: Invalid value: "-1": must be greater than or equal to 0
            spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
            spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0
            spec.containers[0].livenessProbe: Required value: must specify a handler type
            spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
            spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"
            spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#]],
    );
}

#[test]
fn a_running_pod_may_change_its_image_but_not_its_command() {
    check_update(POD, GOOD_POD, &GOOD_POD.replace("image: i,", "image: j,"), expect![[""]]);
    check_update(
        POD,
        GOOD_POD,
        &GOOD_POD.replace("restartPolicy: Always", "restartPolicy: Always\n  hostname: h"),
        expect![[r#"
            spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            @@ -64,7 +64,7 @@
               "SELinuxChangePolicy": null
              },
              "ImagePullSecrets": null,
            - "Hostname": "",
            + "Hostname": "h",
              "Subdomain": "",
              "SetHostnameAsFQDN": null,
              "Affinity": null,
        "#]],
    );
}

const GOOD_DEPLOYMENT: &str = "
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: web}}
    spec:
      restartPolicy: Always
      containers: [{name: c, image: i, imagePullPolicy: Always, terminationMessagePolicy: File}]
";

#[test]
fn a_deployment_must_select_its_own_pods() {
    check(DEPLOYMENT, GOOD_DEPLOYMENT, expect![[""]]);
    check(
        DEPLOYMENT,
        &GOOD_DEPLOYMENT
            .replace("matchLabels: {app: web}", "matchLabels: {app: other}")
            .replace("replicas: 1", "replicas: -1")
            .replace("25%", "0"),
        expect![[r#"
            spec.replicas: Invalid value: -1: must be greater than or equal to 0
            spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`
            spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"#]],
    );
}

#[test]
fn a_deployments_selector_is_immutable() {
    check_update(
        DEPLOYMENT,
        GOOD_DEPLOYMENT,
        &GOOD_DEPLOYMENT.replace("app: web", "app: other"),
        expect![[r#"spec.selector: Invalid value: {"matchLabels":{"app":"other"}}: field is immutable"#]],
    );
}

#[test]
fn a_services_ports_are_checked() {
    check(
        SERVICE,
        "{metadata: {name: 1a, namespace: d}, spec: {type: ClusterIP, sessionAffinity: None, ports: [{port: 0, protocol: TCP, targetPort: 80, nodePort: 30000}]}}",
        expect![[r#"
            metadata.name: Invalid value: "1a": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"#]],
    );
}

#[test]
fn immutable_config_maps_stay() {
    check_update(
        ("", "configmaps"),
        "{metadata: {name: a, namespace: d}, immutable: true, data: {a: b}}",
        "{metadata: {name: a, namespace: d}, data: {a: c, 'x y': d}}",
        expect![[r#"
            immutable: Forbidden: field is immutable when `immutable` is set
            data: Forbidden: field is immutable when `immutable` is set
            data[x y]: Invalid value: "x y": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#]],
    );
}

#[test]
fn secrets_have_what_their_type_needs() {
    check(
        ("", "secrets"),
        "{metadata: {name: a, namespace: d}, type: kubernetes.io/tls, data: {tls.crt: ''}}",
        expect!["data[tls.key]: Required value"],
    );
}

#[test]
fn a_binding_keeps_its_role() {
    let binding = "{metadata: {name: 'a:b', namespace: d}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: ServiceAccount, name: s}]}";
    let rbac = ("rbac.authorization.k8s.io", "rolebindings");
    check(rbac, binding, expect![[""]]);
    check_update(
        rbac,
        binding,
        &binding.replace("name: r}", "name: q}"),
        expect![[
            r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"q"}: cannot change roleRef"#
        ]],
    );
}

#[test]
fn metadata_of_an_update_must_fit_the_old_one() {
    check_update(
        ("", "configmaps"),
        "{metadata: {name: a, namespace: d, uid: u, deletionTimestamp: t, finalizers: [a/b]}}",
        "{metadata: {name: a, namespace: d, uid: w, deletionTimestamp: t, finalizers: [a/c]}}",
        expect![[r#"
            metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a/c"}
            metadata.uid: Invalid value: "w": field is immutable"#]],
    );
}

#[test]
fn cluster_scoped_kinds_have_no_namespace() {
    check(
        ("", "namespaces"),
        "{metadata: {name: a.b, namespace: d}}",
        expect![[r#"
            metadata.name: Invalid value: "a.b": must not contain dots
            metadata.namespace: Forbidden: not allowed on this type"#]],
    );
}
