use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, render};

const DRIVER: &str = "{metadata: {name: ebs.csi.aws.com}, spec: {seLinuxMount: true}}";
const OTHER_DRIVER: &str = "{metadata: {name: ebs.csi.aws.com}, spec: {}}";

/// A Pod as an informer of this controller keeps it.
fn pod(yaml: &str) -> MountingPod {
    let value: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
    controller::informer::known(&value.to_string(), &crate::transform::of_pods()).unwrap()
}

/// A Pod of `ns1` that wants a level and a policy, if it says so, and mounts a volume of this source.
fn with(name: &str, (level, policy): (&str, &str), source: &str) -> String {
    let level = (!level.is_empty()).then(|| format!("seLinuxOptions: {{level: '{level}'}}"));
    let policy = (!policy.is_empty()).then(|| format!("seLinuxChangePolicy: {policy}"));
    let context = level.into_iter().chain(policy).collect::<Vec<_>>().join(", ");
    format!(
        "{{metadata: {{name: {name}, namespace: ns1, uid: {name}}}, spec: {{securityContext: {{{context}}}, \
         volumes: [{{name: vol1, {source}}}, {{name: dir, emptyDir: {{}}}}], containers: [{{name: c, volumeMounts: \
         [{{name: vol1, mountPath: /mnt}}, {{name: dir, mountPath: /dir}}]}}]}}, status: {{phase: Running}}}}"
    )
}

const CLAIM: &str = "persistentVolumeClaim: {claimName: pvc1}";

/// Claims and volumes that are bound to each other.
struct Storage {
    claims: String,
    volumes: String,
    drivers: &'static str,
}

fn bound() -> Storage {
    Storage {
        claims: "[{metadata: {name: pvc1, namespace: ns1, uid: uid1}, spec: {volumeName: pv1}, status: {phase: Bound}}]".into(),
        volumes: "[{metadata: {name: pv1}, spec: {claimRef: {namespace: ns1, name: pvc1, uid: uid1}, \
                  awsElasticBlockStore: {volumeID: vol-1}}}]"
            .into(),
        drivers: DRIVER,
    }
}

impl Storage {
    fn snapshot(&self, pod: &MountingPod) -> Snapshot {
        let claims = list::<PersistentVolumeClaim>(&self.claims).into_iter();
        let volumes = list::<PersistentVolume>(&self.volumes).into_iter();
        let drivers = list::<CSIDriver>(&format!("[{}]", self.drivers));
        let drivers = drivers.iter().filter(|driver| takes_labels(driver));
        Snapshot {
            pod: Arc::new(pod.clone()),
            claims: claims.map(|claim| (name(&claim.metadata).to_owned(), claim)).collect(),
            volumes: volumes.map(|volume| (name(&volume.metadata).to_owned(), volume)).collect(),
            drivers: drivers.map(|driver| name(&driver.metadata).to_owned()).collect(),
        }
    }
}

/// What is told when these Pods are looked at, one after the other; all of them are there but those that are `gone`.
fn plans(cache: &mut VolumeCache, pods: &[&str], gone: &[&str], storage: &Storage) -> String {
    let pods: Vec<MountingPod> = pods.iter().map(|yaml| pod(yaml)).collect();
    let there = pods.iter().filter(|pod| !gone.contains(&name(&pod.metadata)));
    let there = Informer::fixed(there.cloned().collect());
    pods.iter().map(|pod| render(&plan(&storage.snapshot(pod), cache, &there))).collect()
}

/// What one Pod uses, and what it is told.
fn check(what: &str, yaml: &str, storage: &Storage, expect: &str) {
    let mut cache = VolumeCache::default();
    let told = plans(&mut cache, &[yaml], &[], storage);
    assert_eq!(format!("{}{told}", cache.describe()), expect, "{what}");
}

const MOUNTED: &str =
    "kubernetes.io/csi/ebs.csi.aws.com^vol-1 of ebs.csi.aws.com: ns1/pod1 \":::s0:c1,c2\" MountOption\n";
const RECURSIVE: &str =
    "kubernetes.io/csi/ebs.csi.aws.com^vol-1 of ebs.csi.aws.com: ns1/pod1 \"\" Recursive\n";

/// Source: `TestSELinuxWarningController_Sync`.
#[test]
fn a_volume_is_used_under_the_pods_label_where_it_can_be_mounted_under_one() {
    let level = ("s0:c1,c2", "");
    let inline = "awsElasticBlockStore: {volumeID: vol-1}";
    check("nothing mounted", "{metadata: {name: pod1, namespace: ns1}}", &bound(), "");
    check("a claim", &with("pod1", level, CLAIM), &bound(), MOUNTED);
    check("a disk of its own", &with("pod1", level, inline), &bound(), MOUNTED);
    check("explicitly", &with("pod1", ("s0:c1,c2", "MountOption"), CLAIM), &bound(), MOUNTED);
    check("recursively", &with("pod1", ("s0:c1,c2", "Recursive"), CLAIM), &bound(), RECURSIVE);
    check("without a label", &with("pod1", ("", "MountOption"), CLAIM), &bound(), RECURSIVE);
    let other = Storage { drivers: OTHER_DRIVER, ..bound() };
    check("a driver that cannot", &with("pod1", level, CLAIM), &other, RECURSIVE);
    let none = Storage { drivers: "", ..bound() };
    check("a driver that says nothing", &with("pod1", level, CLAIM), &none, RECURSIVE);
    for (phase, expect) in [("Pending", MOUNTED), ("Unknown", MOUNTED)] {
        let pod = with("pod1", level, CLAIM).replace("phase: Running", &format!("phase: {phase}"));
        check(phase, &pod, &bound(), expect);
    }
}

#[test]
fn a_claim_counts_when_it_and_its_volume_belong_together() {
    let pod1 = with("pod1", ("s0:c1,c2", ""), CLAIM);
    let claims = |claims: &str| Storage { claims: claims.into(), ..bound() };
    let volumes = |from: &str, to: &str| Storage { volumes: bound().volumes.replace(from, to), ..bound() };
    check("no claim", &pod1, &claims("[]"), "");
    for (what, from, to) in [
        ("pending", "Bound", "Pending"),
        ("lost", "Bound", "Lost"),
        ("without a volume", "volumeName: pv1", ""),
        ("another volume", "volumeName: pv1", "volumeName: pv2"),
        ("another claim of the name", "uid1", "uid2"),
    ] {
        check(what, &pod1, &claims(&bound().claims.replace(from, to)), "");
    }
    check("no volume", &pod1, &volumes("name: pv1", "name: pv2"), "");
    check("a volume for nobody", &pod1, &volumes("claimRef", "other"), "");
    check("a volume for no uid", &pod1, &volumes(", uid: uid1", ""), "");
    let own = with("pod1", ("s0:c1,c2", ""), "ephemeral: {}");
    let ephemeral = |owner: &str| {
        let owner = format!(
            "ownerReferences: [{{apiVersion: v1, kind: Pod, name: pod1, uid: {owner}, controller: true}}]"
        );
        let claims = bound().claims.replace("name: pvc1", &format!("name: pod1-vol1, {owner}"));
        Storage { claims, ..bound() }
    };
    check("made for the Pod", &own, &ephemeral("pod1"), MOUNTED);
    check("made for another Pod", &own, &ephemeral("pod2"), "");
}

#[test]
fn volumes_are_named_as_nodes_name_them() {
    let level = ("s0:c1,c2", "");
    let wwns = "fc: {targetWWNs: ['5000', '5001'], lun: 3}";
    let iscsi = "iscsi: {targetPortal: p, iqn: i, lun: 0}";
    let disk = |name: &str| format!("{name} of : ns1/pod1 \":::s0:c1,c2\" MountOption\n");
    for (source, expect) in [
        (iscsi, disk("kubernetes.io/iscsi/p:i:0")),
        (wwns, disk("kubernetes.io/fc/[5000 5001]:3")),
        ("fc: {wwids: [w]}", disk("kubernetes.io/fc/[w]")),
        ("fc: {targetWWNs: ['5000'], wwids: [w]}", disk("kubernetes.io/fc/[w]")),
        ("fc: {targetWWNs: ['5000']}", String::new()),
        ("csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}", MOUNTED.to_owned()),
        ("nfs: {server: s, path: /}", String::new()),
        ("hostPath: {path: /data}", String::new()),
        ("local: {path: /data}", String::new()),
    ] {
        let volumes = bound().volumes.replace("awsElasticBlockStore: {volumeID: vol-1}", source);
        check(source, &with("pod1", level, CLAIM), &Storage { volumes, ..bound() }, &expect);
        // A CSI volume that a Pod names itself is its own.
        if !source.starts_with("csi") {
            check(source, &with("pod1", level, source), &bound(), &expect);
        }
    }
    let own = "csi: {driver: ebs.csi.aws.com}";
    check("a CSI volume of its own", &with("pod1", level, own), &bound(), "");
}

fn check_events(pods: &[&str], gone: &[&str], storage: &Storage, expect: &Expect) {
    let mut cache = VolumeCache::default();
    expect.assert_eq(&plans(&mut cache, pods, gone, storage));
    assert_eq!(plans(&mut cache, pods, gone, storage), "", "nothing is told twice");
}

/// Source: the same.
#[test]
fn both_pods_are_told_of_a_conflict_and_one_that_is_gone_is_not() {
    let pod1 = with("pod1", ("s0:c1,c2", ""), CLAIM);
    let pod2 = with("pod2", ("s0:c98,c99", ""), CLAIM);
    let [recursive1, recursive2] = [("pod1", "s0:c1,c2"), ("pod2", "s0:c98,c99")]
        .map(|(name, level)| with(name, (level, "Recursive"), CLAIM));
    let labels = expect![[r#"
        step
          Normal SELinuxLabelConflict: SELinuxLabel ":::s0:c98,c99" conflicts with pod pod1 that uses the same volume as this pod with SELinuxLabel ":::s0:c1,c2". If both pods land on the same node, only one of them may access the volume.
          Normal SELinuxLabelConflict: SELinuxLabel ":::s0:c1,c2" conflicts with pod pod2 that uses the same volume as this pod with SELinuxLabel ":::s0:c98,c99". If both pods land on the same node, only one of them may access the volume.
    "#]];
    check_events(&[&pod1, &pod2], &[], &bound(), &labels);
    check_events(
        &[&pod1, &pod2],
        &["pod1"],
        &bound(),
        &expect![[r#"
            step
              Normal SELinuxLabelConflict: SELinuxLabel ":::s0:c98,c99" conflicts with pod pod1 that uses the same volume as this pod with SELinuxLabel ":::s0:c1,c2". If both pods land on the same node, only one of them may access the volume.
        "#]],
    );
    check_events(
        &[&recursive1, &pod2],
        &[],
        &bound(),
        &expect![[r#"
            step
              Normal SELinuxChangePolicyConflict: SELinuxChangePolicy "MountOption" conflicts with pod pod1 that uses the same volume as this pod with SELinuxChangePolicy "Recursive". If both pods land on the same node, only one of them may access the volume.
              Normal SELinuxChangePolicyConflict: SELinuxChangePolicy "Recursive" conflicts with pod pod2 that uses the same volume as this pod with SELinuxChangePolicy "MountOption". If both pods land on the same node, only one of them may access the volume.
              Normal SELinuxLabelConflict: SELinuxLabel ":::s0:c98,c99" conflicts with pod pod1 that uses the same volume as this pod with SELinuxLabel "". If both pods land on the same node, only one of them may access the volume.
              Normal SELinuxLabelConflict: SELinuxLabel "" conflicts with pod pod2 that uses the same volume as this pod with SELinuxLabel ":::s0:c98,c99". If both pods land on the same node, only one of them may access the volume.
        "#]],
    );
    check_events(&[&recursive1, &recursive2], &[], &bound(), &expect![""]);
    check_events(&[&pod1, &pod2], &[], &Storage { drivers: OTHER_DRIVER, ..bound() }, &expect![""]);
}

#[test]
fn what_a_driver_can_changes_what_its_pods_are_told() {
    let (pod1, pod2) = (with("pod1", ("s0:c1", ""), CLAIM), with("pod2", ("s0:c2", ""), CLAIM));
    let mut cache = VolumeCache::default();
    let cannot = Storage { drivers: OTHER_DRIVER, ..bound() };
    assert_eq!(plans(&mut cache, &[&pod1, &pod2], &[], &cannot), "");
    assert_eq!(cache.pods_of_driver("ebs.csi.aws.com"), ["ns1/pod1", "ns1/pod2"]);
    let told = plans(&mut cache, &[&pod1, &pod2], &[], &bound());
    assert_eq!(cache.conflicts().len(), 2);
    assert!(told.contains("SELinuxLabel \":::s0:c2\" conflicts with pod pod1"), "{told}");
    assert_eq!(plans(&mut cache, &[&pod1, &pod2], &[], &cannot).matches("SELinuxLabelConflict").count(), 2);
    assert!(cache.conflicts().is_empty());
}

#[test]
fn different_labels_in_one_pod_are_told_whatever_the_volume_is() {
    let pod = |source: &str| {
        format!(
            "{{metadata: {{name: pod1, namespace: ns1, uid: u}}, spec: {{volumes: [{{name: v, {source}}}], containers: \
             [{{name: a, volumeMounts: [{{name: v}}], securityContext: {{seLinuxOptions: {{level: s0}}}}}}, \
             {{name: b, volumeMounts: [{{name: v}}], securityContext: {{seLinuxOptions: {{level: s1}}}}}}]}}}}"
        )
    };
    let told = "step\n  Warning MultipleSELinuxLabels: Volume \"v\" is mounted twice with different SELinux labels inside \
                this pod\n";
    check("a claim", &pod(CLAIM), &bound(), told);
    check("a directory", &pod("emptyDir: {}"), &bound(), told);
    check("a claim without a volume", &pod(CLAIM), &Storage { volumes: "[]".into(), ..bound() }, "");
}

/// Which label each volume has, if it has one. Source: `TestGetPodVolumeNames`, `TestGetMountSELinuxLabel`.
fn check_mounts(what: &str, spec: &str, expect: &str) {
    let volumes = "volumes: [{name: v1, persistentVolumeClaim: {claimName: c}}, {name: v2, ephemeral: {}}, \
                   {name: v3, iscsi: {targetPortal: p, iqn: i, lun: 0}}, {name: dir, emptyDir: {}}]";
    let pod = pod(&format!("{{metadata: {{name: p, labels: {{a: b}}}}, spec: {{{volumes}, {spec}}}}}"));
    assert_eq!(pod.metadata.labels, None);
    let label = |mount: &Mount| {
        mount.label.as_ref().map_or("different".to_owned(), |label| format!("{:?}", &**label))
    };
    let all: Vec<String> =
        pod.mounts.iter().map(|mount| format!("{} {}", mount.volume, label(mount))).collect();
    assert_eq!(all.join(", "), expect, "{what}");
}

const OF_POD: &str = "securityContext: {seLinuxOptions: {type: pod_t, level: s0}}";

fn own(kind: &str) -> String {
    format!("securityContext: {{seLinuxOptions: {{type: {kind}, level: s0}}}}")
}

fn container(context: &str, mounts: &str) -> String {
    let context = if context.is_empty() { String::new() } else { format!(", {context}") };
    format!("{{name: c, volumeMounts: [{mounts}]{context}}}")
}

#[test]
fn a_volume_has_the_label_of_the_containers_that_mount_it() {
    let (v1, v2) = ("{name: v1}", "{name: v2}");
    for (what, spec, expect) in [
        ("nothing", String::new(), ""),
        ("no containers", "containers: null".to_owned(), ""),
        ("no labels", format!("containers: [{}]", container("", v1)), "v1 \"\""),
        ("a device", "containers: [{name: c, volumeDevices: [{name: v1}]}]".to_owned(), ""),
        (
            "the Pod's",
            format!("{OF_POD}, containers: [{}, {}]", container("", v1), container("", "{name: v3}")),
            "v1 \"::pod_t:s0\", v3 \"::pod_t:s0\"",
        ),
        (
            "of every kind of container",
            format!(
                "{OF_POD}, initContainers: [{}], containers: [{}], ephemeralContainers: [{}]",
                container(&own("init_t"), v1),
                container("", v2),
                container(&own("debug_t"), "{name: v3}")
            ),
            "v1 \"::init_t:s0\", v2 \"::pod_t:s0\", v3 \"::debug_t:s0\"",
        ),
        (
            "a privileged one has the Pod's",
            format!("{OF_POD}, containers: [{}]", container("securityContext: {privileged: true}", v1)),
            "v1 \"::pod_t:s0\"",
        ),
    ] {
        check_mounts(what, &spec, expect);
    }
}

#[test]
fn containers_of_different_labels_are_seen() {
    let (v1, v2, dir) = ("{name: v1}", "{name: v2}", "{name: dir}");
    let two = |one: String, other: String| format!("containers: [{one}, {other}]");
    let (a_label, no_label) = (container(&own("a_t"), v1), container("", v1));
    let no_part = container("securityContext: {seLinuxOptions: {}}", v1);
    let dirs = two(container(&own("a_t"), dir), container("", dir));
    for (what, spec, expect) in [
        (
            "different ones",
            format!(
                "{OF_POD}, initContainers: [{}], containers: [{}, {}]",
                container(&own("init_t"), v1),
                container(&own("main_t"), &format!("{v1}, {v2}")),
                container("", v2)
            ),
            "v1 different, v2 different",
        ),
        ("the same ones", two(a_label.clone(), a_label.clone()), "v1 \"::a_t:s0\""),
        ("one asks for none", two(a_label.clone(), no_label), "v1 \"::a_t:s0\""),
        ("one asks for nothing in particular", two(a_label, no_part), "v1 different"),
        ("a directory under one label is nobody's trouble", dirs.clone(), ""),
        ("a directory under two labels", format!("{OF_POD}, {dirs}"), "dir different"),
    ] {
        check_mounts(what, &spec, expect);
    }
}

#[test]
fn only_what_is_news_wakes_a_pod() {
    let pod = |yaml: &str| Some(Arc::new(pod(yaml)));
    let running = with("pod1", ("s0:c1", ""), CLAIM);
    let finished = running.replace("Running", "Succeeded");
    let bare = "{metadata: {name: pod1, namespace: ns1, uid: pod1}}";
    let more = running.replace("containers", "ephemeralContainers: [{name: d, volumeMounts: [{name: new}], securityContext: \
                                              {seLinuxOptions: {level: s1}}}, {name: e, volumeMounts: [{name: new}]}], containers");
    for (what, old, new, expect) in [
        ("it came", None, pod(&running), true),
        ("it runs", pod(&running.replace("Running", "Pending")), pod(&running), false),
        ("it mounts more", pod(&running), pod(&more), true),
        ("it ended", pod(&running), pod(&finished), true),
        ("it failed", pod(&running), pod(&running.replace("Running", "Failed")), true),
        ("it had ended", None, pod(&finished), false),
        ("it went", pod(&running), None, true),
        ("it went when it had ended", pod(&finished), None, false),
        ("it mounts nothing", None, pod(bare), false),
        ("another one came", pod(&running), pod(&running.replace("uid: pod1", "uid: pod2")), true),
    ] {
        let change = Change { key: "ns1/pod1".into(), old, new, revision: 1 };
        assert_eq!(is_news(&change), expect, "{what}");
    }
}

#[test]
fn claims_and_volumes_wake_pods_once_they_are_bound() {
    let bound = bound();
    let claim = |edit: (&str, &str)| list(&bound.claims.replace(edit.0, edit.1)).pop();
    let same = ("", "");
    for (what, old, new, expect) in [
        ("it was there", None, claim(same), true),
        ("it was bound", claim(("Bound", "Pending")), claim(same), true),
        ("it is as it was", claim(same), claim(same), false),
        ("it is another one", claim(("uid1", "uid0")), claim(same), true),
        ("it waits", None, claim(("Bound", "Pending")), false),
        ("it names a volume", None, claim(("phase: Bound", "")), false),
        ("it went", claim(same), None, false),
    ] {
        let change = Change { key: "ns1/pvc1".into(), old, new, revision: 1 };
        assert_eq!(is_newly_bound(&change), expect, "{what}");
    }
    let volume = |edit: (&str, &str)| list(&bound.volumes.replace(edit.0, edit.1)).pop();
    for (what, old, new, expect) in [
        ("it was there", None, volume(same), Some("ns1/pvc1")),
        ("it is set aside", None, volume((", uid: uid1", "")), None),
        ("it was bound", volume((", uid: uid1", "")), volume(same), Some("ns1/pvc1")),
        ("it is as it was", volume(same), volume(same), None),
        ("it is for another one", volume(("uid1", "uid0")), volume(same), Some("ns1/pvc1")),
        ("it is free", volume(same), volume(("claimRef", "other")), None),
        ("it went", volume(same), None, None),
    ] {
        let change = Change { key: "pv1".into(), old, new, revision: 1 };
        assert_eq!(newly_bound_to(&change).as_deref(), expect, "{what}");
    }
}
