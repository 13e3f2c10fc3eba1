//! Pods from files: `common_test.go`, `file_linux_test.go`, `file_test.go` of upstream's `pkg/kubelet/config`.

use super::*;
use crate::pod::identity::{hash, is_mirror, is_static};

fn check(text: &str) -> Result<Pod, ManifestError> {
    parse(text, Path::new("/etc/pods/web.yaml"), "node1", Timestamp::UNIX_EPOCH)
}

const WEB: &str =
    "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: img}]}}";

#[test]
fn a_static_pod_has_names_defaults_and_a_hash() {
    let pod = check(WEB).unwrap();
    assert_eq!(namespaced_name(&pod), "default/web-node1");
    let spec = pod.spec.clone().unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node1"));
    assert_eq!(
        (spec.restart_policy.as_deref(), spec.termination_grace_period_seconds),
        (Some("Always"), Some(30))
    );
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
    assert!(is_static(&pod) && !is_mirror(&pod));
    assert_eq!(hash(&pod), pod.metadata.uid.as_deref());
    assert_eq!(hash(&pod).map(str::len), Some(32));
    assert_eq!(check(WEB).unwrap().metadata.uid, pod.metadata.uid, "the same file is the same pod");
    let json = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"},"spec":{"containers":[{"name":"a","image":"img"}]}}"#;
    assert_eq!(check(json).unwrap().metadata.uid, pod.metadata.uid, "JSON or YAML, in whatever order");
    assert_ne!(check(&WEB.replace("img", "other")).unwrap().metadata.uid, pod.metadata.uid);
}

#[test]
fn a_static_pod_stays_whatever_becomes_of_its_node() {
    let own = "{key: a, operator: Exists, effect: NoExecute}";
    let all = "{operator: Exists, effect: NoExecute}";
    for (given, expect) in
        [("", 1), (own, 2), (all, 1), ("{operator: Exists, effect: NoExecute, tolerationSeconds: 5}", 1)]
    {
        let text = WEB.replace("spec: {", &format!("spec: {{tolerations: [{given}], "));
        let tolerations = check(&text).unwrap().spec.unwrap().tolerations.unwrap();
        assert_eq!(tolerations.len(), expect, "{given}");
        assert!(tolerations.iter().all(|one| one.toleration_seconds.is_none()), "{given}");
    }
}

#[test]
fn modes_of_files_are_octal() {
    let volume =
        "volumes: [{name: v, projected: {defaultMode: 0644, sources: [{downwardAPI: {items: []}}]}}]";
    let pod = check(&WEB.replace("spec: {", &format!("spec: {{{volume}, "))).unwrap();
    let volumes = pod.spec.unwrap().volumes.unwrap();
    assert_eq!(volumes[0].projected.as_ref().and_then(|source| source.default_mode), Some(0o644));
}

#[test]
fn what_is_no_pod_or_needs_the_api_is_refused() {
    let with = |spec: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{containers: [{{name: a, image: i}}], {spec}}}}}"
        )
    };
    for (text, expect) in [
        (
            "{apiVersion: apps/v1, kind: Deployment}".to_owned(),
            "must be a Pod of v1, not kind \"Deployment\" of apiVersion \"apps/v1\"",
        ),
        ("{apiVersion: v1, kind: Pod, metadata: {}}".to_owned(), "metadata.name: Required value"),
        (with("restartPolicy: Sometimes"), "spec.restartPolicy"),
        (with("serviceAccountName: root"), "static pods may not reference serviceaccounts"),
        (with("volumes: [{name: v, secret: {secretName: s}}]"), "static pods may not reference secrets"),
        (
            with("volumes: [{name: v, projected: {sources: [{configMap: {name: c}}]}}]"),
            "static pods may not reference configmaps",
        ),
        (with("serviceAccount: root"), "static pods may not reference serviceaccounts"),
        (with("imagePullSecrets: [{name: s}]"), "static pods may not reference secrets"),
        (
            with(
                "volumes: [{name: v, iscsi: {targetPortal: t, iqn: iqn.2001-04.a:b, lun: 0, secretRef: {name: s}}}]",
            ),
            "static pods may not reference secrets",
        ),
        (
            with("volumes: [{name: v, csi: {driver: d.example.com, nodePublishSecretRef: {name: s}}}]"),
            "static pods may not reference secrets",
        ),
        (
            with("volumes: [{name: v, csi: {driver: d.example.com}}]"),
            "static pods may not reference csidrivers (via CSI volumes)",
        ),
        (
            with("volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]"),
            "static pods may not reference persistentvolumeclaims",
        ),
        (
            with(
                "volumes: [{name: v, projected: {sources: [{downwardAPI: {}}, {serviceAccountToken: {path: t}}]}}]",
            ),
            "spec.volumes[0].projected.sources[1].serviceAccountToken: Forbidden",
        ),
        ("not: [yaml".to_owned(), ""),
    ] {
        let error = check(&text).unwrap_err().to_string();
        assert!(error.contains(expect), "{text}: {error}");
    }
}

#[test]
fn a_folder_is_read_without_hidden_files_and_what_is_wrong_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("web.yaml", WEB);
    write(".hidden.yaml", &WEB.replace("web", "hidden"));
    write("wrong.yaml", "{kind: Pod}");
    write("again.yaml", &WEB.replace("img", "first"));
    write("zero.yaml", "");
    let read = || read(folder.path(), "n", Timestamp::UNIX_EPOCH, &StaticPods::default());
    let pods = read();
    assert_eq!(pods.keys().collect::<Vec<_>>(), ["default/web-n"]);
    let image = |pods: &StaticPods| pods["default/web-n"].spec.as_ref().unwrap().containers[0].image.clone();
    assert_eq!(image(&pods).as_deref(), Some("img"), "the last file of a name counts");
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(read().is_empty());
}

#[test]
fn a_static_pod_is_called_after_its_node() {
    for (node, name, namespace, expect) in [
        ("node1", "static-pod1", "", Some("default/static-pod1-node1")),
        ("a.example.com", "web", "", Some("default/web-a.example.com")),
        ("node1", "static-POD1", "", None),
        ("node_1", "web", "", None),
        ("node1", "", "", None),
    ] {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: '{name}', namespace: '{namespace}'}}, \
             spec: {{containers: [{{name: a, image: img}}]}}}}"
        );
        let pod = parse(&text, Path::new("/etc/pods/web.yaml"), node, Timestamp::UNIX_EPOCH).ok();
        assert_eq!(pod.map(|pod| namespaced_name(&pod)).as_deref(), expect, "{name} on {node}");
    }
}

#[test]
fn a_uid_is_of_the_content_the_node_and_the_place_or_the_one_that_is_given() {
    let uid = |text: &str, file: &str, node: &str| {
        let pod = parse(text, Path::new(file), node, Timestamp::UNIX_EPOCH).unwrap();
        pod.metadata.uid.unwrap()
    };
    let here = uid(WEB, "/etc/pods/web.yaml", "n1");
    assert_eq!(
        uid(&format!("\n# A comment.\n{WEB}\n"), "/etc/pods/web.yaml", "n1"),
        here,
        "comments say nothing"
    );
    assert_ne!(uid(WEB, "/etc/pods/other.yaml", "n1"), here, "in another file");
    assert_ne!(uid(WEB, "/etc/pods/web.yaml", "n2"), here, "on another node");
    let given = WEB.replace("name: web", "name: web, uid: abc");
    assert_eq!(uid(&given, "/etc/pods/web.yaml", "n1"), "abc");
    // What the API server writes says nothing either.
    for own in ["resourceVersion: '7'", "creationTimestamp: '2026-01-01T00:00:00Z'", "ownerReferences: []"] {
        let text = WEB.replace("name: web", &format!("name: web, {own}"));
        assert_eq!(uid(&text, "/etc/pods/web.yaml", "n1"), here, "{own}");
    }
}

#[test]
fn what_a_static_pod_says_of_itself_is_as_of_one_that_was_made() {
    let now = Timestamp::from_second(100).unwrap();
    let text = WEB.replace("name: web", "name: web, annotations: {a: b, kubernetes.io/config.source: api}");
    let text = text.replace("}]}}", "}]}, status: {phase: Failed, podIP: 1.2.3.4}}");
    let pod = parse(&text, Path::new("/etc/pods/web.yaml"), "n1", now).unwrap();
    let annotations = pod.metadata.annotations.clone().unwrap();
    assert_eq!(annotations["a"], "b");
    assert_eq!(annotations[SOURCE], "file", "whatever it says");
    assert_eq!(annotations[SEEN], now.to_string());
    assert_eq!(Some(&annotations[HASH]), pod.metadata.uid.as_ref());
    let status = pod.status.unwrap();
    assert_eq!((status.phase.as_deref(), status.pod_ip), (Some("Pending"), None));
}

/// Source: `TestExtractFromBadDataFile`, `TestExtractFromEmptyDir`, `TestReadPodsFromFileExistAlready`.
#[test]
fn what_has_not_changed_stays_the_same_pod() {
    let folder = tempfile::tempdir().unwrap();
    let known = StaticPods::default();
    let read = |known: &StaticPods| read(folder.path(), "n", Timestamp::UNIX_EPOCH, known);
    assert!(read(&known).is_empty());
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/web.yaml"), WEB).unwrap();
    std::fs::write(folder.path().join("bad"), [1, 2, 3]).unwrap();
    std::fs::write(folder.path().join("binary"), [0xff, 0xfe, 0xfd]).unwrap();
    std::fs::write(folder.path().join("list"), "{apiVersion: v1, kind: PodList, items: []}").unwrap();
    assert!(read(&known).is_empty(), "nothing of that is a Pod here");
    std::fs::write(folder.path().join("web.yaml"), WEB).unwrap();
    let first = read(&known);
    let again = read(&first);
    assert!(Arc::ptr_eq(&first["default/web-n"], &again["default/web-n"]), "the same object");
    std::fs::write(folder.path().join("web.yaml"), WEB.replace("img", "other")).unwrap();
    let changed = read(&again);
    assert_ne!(changed["default/web-n"].metadata.uid, first["default/web-n"].metadata.uid);
    std::fs::write(folder.path().join("db.yaml"), WEB.replace("web", "db")).unwrap();
    assert_eq!(read(&changed).keys().collect::<Vec<_>>(), ["default/db-n", "default/web-n"]);
    let file = folder.path().join("db.yaml");
    let one = super::read(&file, "n", Timestamp::UNIX_EPOCH, &StaticPods::default());
    assert_eq!(one.keys().collect::<Vec<_>>(), ["default/db-n"], "a file alone");
    std::fs::remove_file(&file).unwrap();
    assert!(super::read(&file, "n", Timestamp::UNIX_EPOCH, &one).is_empty());
}

/// Source: `TestDecodeSinglePodRejects*`, and `HasAPIObjectReference` of upstream's `pkg/api/pod`.
#[test]
fn everything_that_is_of_the_api_is_named() {
    let with = |spec: &str| serde_saphyr::from_str::<Value>(&format!("{{spec: {spec}}}")).unwrap();
    let of_container = |text: &str| format!("{{containers: [{{name: a}}, {{name: b, {text}}}]}}");
    let of_volume = |text: &str| format!("{{volumes: [{{name: u, emptyDir: {{}}}}, {{name: v, {text}}}]}}");
    let of_source =
        |text: &str| of_volume(&format!("projected: {{sources: [{{downwardAPI: {{}}}}, {{{text}}}]}}"));
    for (spec, expect) in [
        ("{}".to_owned(), None),
        (of_container("env: [{name: A, value: b}]"), None),
        (of_container("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), Some("secrets")),
        (
            of_container("env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]"),
            Some("configmaps"),
        ),
        (of_container("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"), None),
        (of_container("envFrom: [{secretRef: {name: s}}]"), Some("secrets")),
        (of_container("envFrom: [{configMapRef: {name: c}}]"), Some("configmaps")),
        (of_container("envFrom: [{configMapRef: {name: c}}, {secretRef: {name: s}}]"), Some("secrets")),
        (
            "{initContainers: [{name: a, envFrom: [{configMapRef: {name: c}}]}]}".to_owned(),
            Some("configmaps"),
        ),
        (of_volume("configMap: {name: c}"), Some("configmaps")),
        (of_volume("secret: {secretName: s}"), Some("secrets")),
        (of_volume("hostPath: {path: /}"), None),
        (of_volume("nfs: {server: s, path: /}"), None),
        (of_volume("rbd: {secretRef: {name: s}}"), Some("secrets")),
        (of_volume("cephfs: {secretRef: {name: s}}"), Some("secrets")),
        (of_volume("flexVolume: {driver: d, secretRef: {name: s}}"), Some("secrets")),
        (of_volume("azureFile: {secretName: s}"), Some("secrets")),
        (of_volume("storageos: {secretRef: {name: s}}"), Some("secrets")),
        (of_volume("scaleIO: {secretRef: {name: s}}"), Some("secrets")),
        (of_volume("cinder: {secretRef: {name: s}}"), Some("secrets")),
        (of_volume("iscsi: {iqn: i}"), None),
        (of_volume("glusterfs: {endpoints: e, path: p}"), Some("endpoints (via glusterFS volumes)")),
        (of_volume("ephemeral: {}"), Some("persistentvolumeclaims (via ephemeral volumes)")),
        (of_source("secret: {name: s}"), Some("secrets")),
        (of_source("configMap: {name: c}"), Some("configmaps")),
        (of_source("serviceAccountToken: {path: t}"), Some("serviceaccounts (via projected volumes)")),
        (of_source("clusterTrustBundle: {name: b, path: p}"), Some("clustertrustbundles")),
        (of_source("podCertificate: {signerName: s}"), Some("podcertificates")),
        ("{resourceClaims: [{name: r, resourceClaimName: c}]}".to_owned(), Some("resourceclaims")),
        ("{resourceClaims: []}".to_owned(), None),
        ("{serviceAccountName: ''}".to_owned(), None),
        ("{imagePullSecrets: [{}]}".to_owned(), None),
    ] {
        assert_eq!(api_reference(&with(&spec)), expect, "{spec}");
    }
}
