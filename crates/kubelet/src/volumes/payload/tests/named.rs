//! Which objects a Pod needs: `TestPodSecrets` and `TestPodConfigmaps` of upstream's `pkg/api/v1/pod/util_test.go`, and
//! what its tokens are told apart by.

use super::super::{references, token_keys};
use super::yaml;

/// Names of ConfigMaps, then of Secrets.
fn named(spec: &str) -> String {
    let (maps, secrets) = references(&yaml(&format!("{{spec: {{{spec}}}}}")));
    let joined = |names: std::collections::BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
    format!("{} | {}", joined(maps), joined(secrets))
}

#[test]
fn whatever_a_pod_names_is_looked_at() {
    let env = "envFrom: [{configMapRef: {name: m1}}, {secretRef: {name: s1}}], env: [{name: A, value: s3}, \
               {name: B, valueFrom: {configMapKeyRef: {name: m2, key: k}}}, \
               {name: C, valueFrom: {secretKeyRef: {name: s2, key: k}}}, \
               {name: D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]";
    for (name, spec, expect) in [
        ("nothing", "containers: []".to_owned(), " | "),
        ("by a container", format!("containers: [{{name: c, {env}}}]"), "m1 m2 | s1 s2"),
        ("by an init container", format!("initContainers: [{{name: c, {env}}}], containers: []"), "m1 m2 | s1 s2"),
        (
            "by an ephemeral container",
            format!("ephemeralContainers: [{{name: c, {env}}}], containers: []"),
            "m1 m2 | s1 s2",
        ),
        (
            "one by all",
            format!("ephemeralContainers: [{{name: e, {env}}}], initContainers: [{{name: i, {env}}}], containers: [{{name: c, {env}}}]"),
            "m1 m2 | s1 s2",
        ),
        (
            "by volumes",
            "containers: [], volumes: [{name: a, configMap: {name: m1}}, {name: b, secret: {secretName: s1}}, \
             {name: c, emptyDir: {}}]"
                .into(),
            "m1 | s1",
        ),
        (
            "by projected volumes",
            "containers: [], volumes: [{name: a, projected: {sources: [{configMap: {name: m1}}, \
             {secret: {name: s1}}, {configMap: {name: m2}}, {serviceAccountToken: {path: token}}, \
             {downwardAPI: {items: []}}]}}]"
                .into(),
            "m1 m2 | s1",
        ),
        (
            "an optional one is looked at: it may come",
            "containers: [], volumes: [{name: a, configMap: {name: m1, optional: true}}, \
             {name: b, secret: {secretName: s1, optional: true}}]"
                .into(),
            "m1 | s1",
        ),
        (
            "a map and a secret of one name",
            "containers: [], volumes: [{name: a, configMap: {name: x}}, {name: b, secret: {secretName: x}}]".into(),
            "x | x",
        ),
        // Of these, who mounts or pulls asks.
        (
            "secrets of drivers and of registries are not among these",
            "imagePullSecrets: [{name: s1}], containers: [], volumes: \
             [{name: a, csi: {driver: d, nodePublishSecretRef: {name: s2}}}]"
                .into(),
            " | ",
        ),
        (
            "no name is no object",
            "containers: [{name: c, envFrom: [{configMapRef: {name: ''}}, {secretRef: {name: ''}}, {prefix: P_}]}], \
             volumes: [{name: a, configMap: {}}, {name: b, secret: {}}, {name: c, projected: {}}]"
                .into(),
            " | ",
        ),
    ] {
        assert_eq!(named(&spec), expect, "{name}");
    }
    assert_eq!(references(&yaml("{metadata: {name: empty}}")), Default::default());
}

#[test]
fn a_token_is_asked_for_once_for_its_audience_and_lifetime() {
    let token = |fields: &str| format!("{{serviceAccountToken: {{path: token{fields}}}}}");
    let volume =
        |sources: &[String]| format!("{{name: v, projected: {{sources: [{}]}}}}", sources.join(", "));
    let shown = |volumes: &[String]| {
        let pod = yaml(&format!("{{spec: {{containers: [], volumes: [{}]}}}}", volumes.join(", ")));
        let all = token_keys(&pod).into_iter().map(|(audience, seconds)| format!("{audience}:{seconds}"));
        all.collect::<Vec<_>>().join(" ")
    };
    let plain = token("");
    for (name, volumes, expect) in [
        ("none", vec![], ""),
        ("without sources", vec![volume(&[])], ""),
        ("another source", vec![volume(&["{configMap: {name: m}}".into()])], ""),
        ("the API server's own, for an hour", vec![volume(std::slice::from_ref(&plain))], ":3600"),
        ("an empty audience is the same", vec![volume(&[plain.clone(), token(", audience: ''")])], ":3600"),
        ("twice in one volume", vec![volume(&[plain.clone(), plain.clone()])], ":3600"),
        (
            "in two volumes",
            vec![volume(std::slice::from_ref(&plain)), volume(std::slice::from_ref(&plain))],
            ":3600",
        ),
        ("another lifetime", vec![volume(&[plain.clone(), token(", expirationSeconds: 600")])], ":600 :3600"),
        (
            "another audience",
            vec![volume(&[
                token(", audience: vault"),
                token(", audience: vault, expirationSeconds: 600"),
                plain,
            ])],
            ":3600 vault:600 vault:3600",
        ),
    ] {
        assert_eq!(shown(&volumes), expect, "{name}");
    }
}
