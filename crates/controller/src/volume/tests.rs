use super::*;

#[test]
fn names_are_those_that_sidecars_look_for() {
    let source = CSIPersistentVolumeSource {
        driver: "d".into(),
        volume_handle: "v".into(),
        ..CSIPersistentVolumeSource::default()
    };
    assert_eq!(unique_name(&source), "kubernetes.io/csi/d^v");
    // sha256("vdn")
    let name = attachment_name(&source, "n");
    assert_eq!((name.len(), &name[..4]), (68, "csi-"));
    assert_eq!(sha256(&["a", "bc"]), sha256(&["abc"]));
}

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

/// Source: `TestIsVolumeBoundToClaim`-like cases of upstream's `component-helpers/storage/volume`: what is said by name, and by uid.
#[test]
fn a_volume_is_for_the_claim_that_it_names() {
    let claim: PersistentVolumeClaim = parse("{metadata: {name: a, namespace: n, uid: u}}");
    for (reference, expect) in [
        ("", false),
        (", claimRef: {name: a, namespace: n}", true),
        (", claimRef: {name: a, namespace: n, uid: ''}", true),
        (", claimRef: {name: a, namespace: n, uid: u}", true),
        (", claimRef: {name: a, namespace: n, uid: v}", false),
        (", claimRef: {name: b, namespace: n, uid: u}", false),
        (", claimRef: {name: a, namespace: m, uid: u}", false),
        (", claimRef: {name: a}", false),
    ] {
        let volume: PersistentVolume =
            parse(&format!("{{metadata: {{name: v}}, spec: {{volumeMode: Block{reference}}}}}"));
        assert_eq!(is_for(&volume, &claim), expect, "{reference}");
    }
}

/// Source: `GetPersistentVolumeClaimClass`, `GetPersistentVolumeClass`: an annotation counts before the field, also if it is
/// empty.
#[test]
fn classes_are_said_in_two_ways() {
    let beta = "annotations: {volume.beta.kubernetes.io/storage-class: old}";
    let empty = "annotations: {volume.beta.kubernetes.io/storage-class: ''}";
    for (metadata, spec, claimed, given) in [
        ("", "", None, ""),
        ("", "storageClassName: new", Some("new"), "new"),
        ("", "storageClassName: ''", Some(""), ""),
        (beta, "", Some("old"), "old"),
        (beta, "storageClassName: new", Some("old"), "old"),
        (empty, "storageClassName: new", Some(""), ""),
    ] {
        let text = format!("{{metadata: {{{metadata}}}, spec: {{{spec}}}}}");
        assert_eq!(claim_class(&parse(&text)), claimed, "{text}");
        assert_eq!(volume_class(&parse(&text)), given, "{text}");
    }
}

#[test]
fn modes_sizes_and_bindings_have_defaults() {
    let claim = |text: &str| -> PersistentVolumeClaim { parse(text) };
    let volume = |text: &str| -> PersistentVolume { parse(text) };
    assert_eq!((claim_mode(&claim("{}")), volume_mode(&volume("{}"))), ("Filesystem", "Filesystem"));
    assert_eq!(claim_mode(&claim("{spec: {volumeMode: Block}}")), "Block");
    assert_eq!(requested(&claim("{spec: {resources: {requests: {storage: 1Gi}}}}")).to_string(), "1Gi");
    assert!(
        requested(&claim("{}")).is_zero() && capacity(&volume("{spec: {capacity: {cpu: '1'}}}")).is_zero()
    );
    for (text, expect) in [
        ("{}", false),
        ("{spec: {volumeName: v}}", false),
        ("{metadata: {annotations: {pv.kubernetes.io/bind-completed: 'yes'}}}", false),
        ("{metadata: {annotations: {pv.kubernetes.io/bind-completed: ''}}, spec: {volumeName: v}}", true),
    ] {
        assert_eq!(is_claim_bound(&claim(text)), expect, "{text}");
    }
    for (modes, expect) in [
        ("[]", false),
        ("[ReadWriteOnce]", true),
        ("[ReadWriteOncePod]", true),
        ("[ReadWriteOnce, ReadOnlyMany]", false),
        ("[ReadWriteMany]", false),
    ] {
        assert_eq!(is_exclusive(&volume(&format!("{{spec: {{accessModes: {modes}}}}}"))), expect, "{modes}");
    }
    for (mode, expect) in [("Immediate", false), ("WaitForFirstConsumer", true), ("''", false)] {
        let class: StorageClass = parse(&format!("{{provisioner: p, volumeBindingMode: {mode}}}"));
        assert_eq!(waits_for_consumer(&class), expect, "{mode}");
    }
}

#[test]
fn claims_are_named_by_pods_or_after_them() {
    let pod: Pod = parse(
        "{metadata: {name: web, namespace: shop, uid: u}, spec: {containers: [], volumes: [
            {name: a, persistentVolumeClaim: {claimName: data}}, {name: b, ephemeral: {}}, {name: c, emptyDir: {}}]}}",
    );
    assert_eq!(claims_of(&pod), ["shop/data", "shop/web-b"]);
    for (owners, expect) in [
        ("[]", false),
        ("[{apiVersion: v1, kind: Pod, name: web, uid: u, controller: true}]", true),
        ("[{apiVersion: v1, kind: Pod, name: web, uid: u}]", false),
        ("[{apiVersion: v1, kind: Pod, name: web, uid: other, controller: true}]", false),
        (
            "[{apiVersion: v1, kind: Job, name: x, uid: y}, {apiVersion: v1, kind: Pod, name: web, uid: u, controller: true}]",
            true,
        ),
    ] {
        let claim: PersistentVolumeClaim = parse(&format!("{{metadata: {{ownerReferences: {owners}}}}}"));
        assert_eq!(is_claim_of_pod(&claim, &pod), expect, "{owners}");
    }
}

#[test]
fn a_volume_that_is_set_aside_says_by_whom() {
    let claim: PersistentVolumeClaim =
        parse("{metadata: {name: a, namespace: n, uid: u, resourceVersion: '5'}}");
    let free: PersistentVolume = parse("{metadata: {name: v}, spec: {volumeMode: Block}}");
    let taken = set_aside(&free, &claim);
    assert!(is_for(&taken, &claim));
    assert_eq!(annotation(&taken.metadata, BOUND_BY_CONTROLLER), Some("yes"));
    let reference = claim_ref(&taken).expect("a reference");
    assert_eq!(
        (reference.kind.as_deref(), reference.uid.as_deref()),
        (Some("PersistentVolumeClaim"), Some("u"))
    );
    let wanted: PersistentVolume = parse("{metadata: {name: v}, spec: {claimRef: {name: a, namespace: n}}}");
    let taken = set_aside(&wanted, &claim);
    assert_eq!(annotation(&taken.metadata, BOUND_BY_CONTROLLER), None, "a person has set it aside");
    assert_eq!(claim_ref(&taken).and_then(|reference| reference.uid.as_deref()), Some("u"));
}
