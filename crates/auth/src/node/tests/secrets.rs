//! Secrets that volumes name, for Pods and for PersistentVolumes.
//!
//! Source: `TestPodSecrets` of upstream's `pkg/api/v1/pod`, `TestPVSecrets` of `pkg/api/v1/persistentvolume`.

use super::*;

/// Sources of a PersistentVolume that is bound to a claim of `shop`, and the Secrets that its Pods' nodes read.
const OF_VOLUMES: &[(&str, &str, &[&str])] = &[
    ("azure, of the claim", r#"{"azureFile": {"shareName": "s", "secretName": "a"}}"#, &["shop/a"]),
    ("azure, elsewhere", r#"{"azureFile": {"secretName": "a", "secretNamespace": "vault"}}"#, &["vault/a"]),
    ("azure, nowhere", r#"{"azureFile": {"secretName": "a", "secretNamespace": ""}}"#, &["shop/a"]),
    ("azure, null", r#"{"azureFile": {"secretName": "a", "secretNamespace": null}}"#, &["shop/a"]),
    ("azure without a name", r#"{"azureFile": {"secretName": ""}}"#, &[]),
    ("ceph, of the claim", r#"{"cephfs": {"monitors": ["m"], "secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("ceph, elsewhere", r#"{"cephfs": {"secretRef": {"name": "a", "namespace": "vault"}}}"#, &["vault/a"]),
    ("ceph, by a file", r#"{"cephfs": {"secretFile": "/etc/secret"}}"#, &[]),
    (
        "cinder",
        r#"{"cinder": {"volumeID": "v", "secretRef": {"name": "a", "namespace": "vault"}}}"#,
        &["vault/a"],
    ),
    (
        "flex",
        r#"{"flexVolume": {"driver": "d", "secretRef": {"name": "a", "namespace": "vault"}}}"#,
        &["vault/a"],
    ),
    (
        "options of a driver are its own affair",
        r#"{"flexVolume": {"options": {"secretName": "a", "secretNamespace": "kube-system"}}}"#,
        &[],
    ),
    ("iscsi", r#"{"iscsi": {"iqn": "i", "secretRef": {"name": "a"}, "chapAuthSession": true}}"#, &["shop/a"]),
    ("rbd", r#"{"rbd": {"image": "i", "secretRef": {"name": "a", "namespace": "vault"}}}"#, &["vault/a"]),
    ("scale", r#"{"scaleIO": {"gateway": "g", "secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("storage os", r#"{"storageos": {"secretRef": {"name": "a", "namespace": "vault"}}}"#, &["vault/a"]),
    (
        "a driver, published",
        r#"{"csi": {"nodePublishSecretRef": {"name": "a", "namespace": "v"}}}"#,
        &["v/a"],
    ),
    ("a driver, staged", r#"{"csi": {"nodeStageSecretRef": {"name": "a", "namespace": "v"}}}"#, &["v/a"]),
    ("a driver, grown", r#"{"csi": {"nodeExpandSecretRef": {"name": "a", "namespace": "v"}}}"#, &["v/a"]),
    ("its controller", r#"{"csi": {"controllerPublishSecretRef": {"name": "a", "namespace": "v"}}}"#, &[]),
    (
        "its controller that grows",
        r#"{"csi": {"controllerExpandSecretRef": {"name": "a", "namespace": "v"}}}"#,
        &[],
    ),
    (
        "attributes of a driver are its own affair",
        r#"{"csi": {"volumeAttributes": {"secretName": "a", "secretNamespace": "v", "nodeStageSecretRef": "a"}}}"#,
        &[],
    ),
    (
        "all of a driver",
        r#"{"csi": {"nodeStageSecretRef": {"name": "a", "namespace": "v"}, "nodePublishSecretRef": {"name": "b", "namespace": "v"},
            "controllerPublishSecretRef": {"name": "c", "namespace": "v"}}}"#,
        &["v/a", "v/b"],
    ),
    ("no source", "{}", &[]),
    ("a source that is none", r#"{"csi": null, "azureFile": "a", "rbd": ["secretRef"]}"#, &[]),
    (
        "a reference that is none",
        r#"{"csi": {"nodeStageSecretRef": "a"}, "rbd": {"secretRef": {"name": 7}}}"#,
        &[],
    ),
];

#[test]
fn of_a_volumes_secrets_a_node_reads_those_that_kubelets_use() {
    let all: BTreeSet<&str> = OF_VOLUMES.iter().flat_map(|(_, _, secrets)| *secrets).copied().collect();
    let all: BTreeSet<&str> = all.into_iter().chain(["shop/a", "kube-system/a", "v/a", "v/c"]).collect();
    for (name, source, expect) in OF_VOLUMES {
        let mut spec: Value = serde_json::from_str(source).unwrap();
        spec["claimRef"] = json!({"namespace": "shop", "name": "claim"});
        let mut graph = graph();
        graph.remove_volume("pv");
        graph.insert_volume(
            &serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap(),
        );
        let read = |node: &str| -> Vec<&str> {
            let is_read = |key: &&&str| graph.reaches(node, "secrets", key);
            all.iter().filter(is_read).copied().collect()
        };
        assert_eq!(read("a"), *expect, "{name}");
        assert!(read("b").is_empty(), "{name}: the claim is of no Pod there");
    }
}

/// Volumes of a Pod of `shop`, and the Secrets that it names.
const OF_PODS: &[(&str, &str, &[&str])] = &[
    ("azure", r#"{"azureFile": {"shareName": "s", "secretName": "a"}}"#, &["shop/a"]),
    ("ceph", r#"{"cephfs": {"secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("cinder", r#"{"cinder": {"secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("flex", r#"{"flexVolume": {"driver": "d", "secretRef": {"name": "a"}}}"#, &["shop/a"]),
    (
        "projected",
        r#"{"projected": {"sources": [{"secret": {"name": "a"}}, {"secret": {"name": "b"}}]}}"#,
        &["shop/a", "shop/b"],
    ),
    ("rbd", r#"{"rbd": {"secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("a secret", r#"{"secret": {"secretName": "a"}}"#, &["shop/a"]),
    ("scale", r#"{"scaleIO": {"secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("iscsi", r#"{"iscsi": {"secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("storage os", r#"{"storageos": {"secretRef": {"name": "a"}}}"#, &["shop/a"]),
    ("a driver", r#"{"csi": {"driver": "d", "nodePublishSecretRef": {"name": "a"}}}"#, &["shop/a"]),
    (
        "what a driver is told",
        r#"{"csi": {"driver": "d", "volumeAttributes": {"secretName": "a", "secretNamespace": "kube-system"}}}"#,
        &[],
    ),
    (
        "a claim's annotations",
        r#"{"ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"secretName": "a"}}}}}"#,
        &[],
    ),
    ("a volume's name", r#"{"name": "secretName", "emptyDir": {}}"#, &[]),
];

#[test]
fn a_pods_secrets_are_those_that_its_volumes_name_as_secrets() {
    for (name, volume, expect) in OF_PODS {
        let volume: Value = serde_json::from_str(volume).unwrap();
        let pod = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"volumes": [volume]}});
        let found: Vec<String> = secrets_of(&serde_json::from_value(pod).unwrap()).into_iter().collect();
        assert_eq!(found, *expect, "{name}");
    }
}

#[test]
fn every_kind_of_container_is_looked_at() {
    let env = |name: &str| {
        json!([{"name": "c", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}],
            "envFrom": [{"secretRef": {"name": format!("{name}-all")}}, {"configMapRef": {"name": "m"}}]}])
    };
    let pod = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {
        "initContainers": env("first"), "containers": env("own"), "ephemeralContainers": env("late"),
        "imagePullSecrets": [{"name": "pull"}, {"name": ""}]}});
    let found: Vec<String> = secrets_of(&serde_json::from_value(pod).unwrap()).into_iter().collect();
    let names = ["first", "first-all", "late", "late-all", "own", "own-all", "pull"];
    assert_eq!(found, names.map(|name| format!("shop/{name}")));
}
