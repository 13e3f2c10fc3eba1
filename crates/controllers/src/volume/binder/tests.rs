use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, parse, render};

const CLASSES: &str = "[
    {metadata: {name: fast, creationTimestamp: '2026-01-01T00:00:00Z', annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: example.com/p, volumeBindingMode: Immediate},
    {metadata: {name: late}, provisioner: example.com/p, volumeBindingMode: WaitForFirstConsumer},
    {metadata: {name: gp2}, provisioner: kubernetes.io/aws-ebs},
    {metadata: {name: manual}, provisioner: kubernetes.io/no-provisioner}]";

fn claim(claim: &str, volumes: &str, pods: &[&str], expect: Expect) {
    let claim: Arc<PersistentVolumeClaim> = Arc::new(parse(claim));
    let classes = list::<StorageClass>(CLASSES);
    let class = claim_class(&claim)
        .and_then(|name| classes.iter().find(|class| class.metadata.name.as_deref() == Some(name)).cloned());
    let snapshot = ClaimSnapshot {
        claim,
        volumes: list(volumes),
        class,
        classes,
        pods: pods.iter().map(|&pod| pod.to_owned()).collect(),
        is_provisioned: true,
    };
    expect.assert_eq(&render(&plan_claim(&snapshot)));
}

fn volume(volume: &str, claim: Option<&str>, expect: Expect) {
    let claim = claim.map(|claim| Arc::new(parse(claim)));
    expect.assert_eq(&render(&plan_volume(&VolumeSnapshot { volume: Arc::new(parse(volume)), claim })));
}

const FREE: &str = "[{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}, status: {phase: Available}}]";

#[test]
fn a_binding_is_four_writes_and_each_run_makes_the_next() {
    let open = "{metadata: {name: c, namespace: d, uid: u}, spec: {storageClassName: '', accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}";
    claim(
        open,
        FREE,
        &[],
        expect![[r#"
        step
          update persistentvolumes v {"apiVersion":"v1","kind":"PersistentVolume","metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"},"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"c","namespace":"d","uid":"u"}},"status":{"phase":"Available"}}
    "#]],
    );
    let set_aside = "[{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, claimRef: {name: c, namespace: d, uid: u}}, status: {phase: Available}}]";
    claim(
        open,
        set_aside,
        &[],
        expect![[r#"
            step
              update persistentvolumes/status v {"phase":"Bound"}
        "#]],
    );
    let bound = &set_aside.replace("Available", "Bound");
    claim(
        open,
        bound,
        &[],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes","pv.kubernetes.io/bound-by-controller":"yes"},"name":"c","namespace":"d","uid":"u"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"","volumeName":"v"}}
    "#]],
    );
    let named = "{metadata: {name: c, namespace: d, uid: u, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: v}}";
    claim(
        named,
        bound,
        &[],
        expect![[r#"
            step
              update persistentvolumeclaims/status c annotations {"pv.kubernetes.io/bind-completed":"yes"} {"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"phase":"Bound"}
        "#]],
    );
    let done = "{metadata: {name: c, namespace: d, uid: u, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: v}, status: {phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}}";
    claim(done, bound, &[], expect![""]);
}

#[test]
fn a_claim_says_what_it_waits_for() {
    let of = |class: &str, more: &str| {
        format!(
            "{{metadata: {{name: c, namespace: d, uid: u{more}}}, spec: {{storageClassName: {class}, resources: {{requests: {{storage: 1Gi}}}}}}}}"
        )
    };
    claim(
        &of("late", ""),
        FREE,
        &[],
        expect![[r#"
        step
          Normal WaitForFirstConsumer: waiting for first consumer to be created before binding
    "#]],
    );
    claim(
        &of("late", ""),
        FREE,
        &["web-0"],
        expect![[r#"
        step
          Normal WaitForPodScheduled: waiting for pod web-0 to be scheduled
    "#]],
    );
    claim(
        &of("''", ""),
        "[]",
        &[],
        expect![[r#"
        step
          Normal FailedBinding: no persistent volumes available for this claim and no storage class is set
    "#]],
    );
    claim(
        &of("gone", ""),
        "[]",
        &[],
        expect![[r#"
        step
          Warning ProvisioningFailed: storageclass.storage.k8s.io "gone" not found
    "#]],
    );
    claim(
        &of("manual", ""),
        "[]",
        &[],
        expect![[r#"
        step
          Warning ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner
    "#]],
    );
    claim(
        &of("null", ""),
        "[]",
        &[],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"d","uid":"u"},"spec":{"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"fast"}}
    "#]],
    );
    claim(
        &of("late", ", annotations: {volume.kubernetes.io/selected-node: one}"),
        "[]",
        &["web-0"],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"volume.beta.kubernetes.io/storage-provisioner":"example.com/p","volume.kubernetes.io/selected-node":"one","volume.kubernetes.io/storage-provisioner":"example.com/p"},"name":"c","namespace":"d","uid":"u"},"spec":{"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"late"}}
        step
          Normal ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/p' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.
    "#]],
    );
}

#[test]
fn a_claim_that_names_a_volume_gets_it_or_is_told_why_not() {
    let asking = |size: &str| {
        format!(
            "{{metadata: {{name: c, namespace: d, uid: u}}, spec: {{storageClassName: '', volumeName: v, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}}}"
        )
    };
    claim(
        &asking("2Gi"),
        FREE,
        &[],
        expect![[r#"
        step
          Warning VolumeMismatch: Cannot bind to requested volume "v": requested PV is too small
    "#]],
    );
    let taken = "[{metadata: {name: v}, spec: {claimRef: {name: other, namespace: d, uid: x}}}]";
    claim(
        &asking("1Gi"),
        taken,
        &[],
        expect![[r#"
        step
          Warning FailedBinding: volume "v" already bound to a different claim.
    "#]],
    );
    claim(&asking("1Gi"), "[]", &[], expect![""]);
    let bound = "{metadata: {name: c, namespace: d, uid: u, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: v}, status: {phase: Bound}}";
    claim(
        bound,
        "[]",
        &[],
        expect![[r#"
            step
              update persistentvolumeclaims/status c annotations {"pv.kubernetes.io/bind-completed":"yes"} {"phase":"Lost"}
            step
              Warning ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!
        "#]],
    );
}

#[test]
fn a_volume_follows_its_claim() {
    let of = |phase: &str, more: &str| {
        format!(
            "{{metadata: {{name: v}}, spec: {{claimRef: {{name: c, namespace: d, uid: u}}{more}}}, status: {{phase: {phase}}}}}"
        )
    };
    let bound = "{metadata: {name: c, namespace: d, uid: u}, spec: {volumeName: v}}";
    volume(
        &of("Available", ""),
        Some(bound),
        expect![[r#"
            step
              update persistentvolumes/status v {"phase":"Bound"}
        "#]],
    );
    volume(&of("Bound", ""), Some(bound), expect![""]);
    volume(
        &of("Bound", ""),
        None,
        expect![[r#"
            step
              require no persistentvolumeclaims c
            step
              update persistentvolumes/status v {"phase":"Released"}
        "#]],
    );
    volume(&of("Released", ", persistentVolumeReclaimPolicy: Retain"), None, expect![""]);
    volume(
        &of("Released", ", persistentVolumeReclaimPolicy: Delete, csi: {driver: d, volumeHandle: h}"),
        None,
        expect![""],
    );
    volume(
        &of("Released", ", persistentVolumeReclaimPolicy: Recycle"),
        None,
        expect![[r#"
            step
              update persistentvolumes/status v {"message":"No recycler plugin found for the volume!","phase":"Failed"}
            step
              Warning VolumeFailedRecycle: No recycler plugin found for the volume!
        "#]],
    );
    let elsewhere = "{metadata: {name: c, namespace: d, uid: u}, spec: {volumeName: w}}";
    volume(
        &of("Bound", ""),
        Some(elsewhere),
        expect![[r#"
        step
          update persistentvolumes v {"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"claimRef":{"name":"c","namespace":"d"}},"status":{"phase":"Bound"}}
    "#]],
    );
}

#[test]
fn what_a_driver_has_taken_over_is_asked_of_the_driver() {
    claim(
        "{metadata: {name: c, namespace: d, uid: u}, spec: {storageClassName: gp2, resources: {requests: {storage: 1Gi}}}}",
        "[]",
        &[],
        expect![[r#"
            step
              update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"volume.beta.kubernetes.io/storage-provisioner":"ebs.csi.aws.com","volume.kubernetes.io/storage-provisioner":"ebs.csi.aws.com"},"name":"c","namespace":"d","uid":"u"},"spec":{"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"gp2"}}
            step
              Normal ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'ebs.csi.aws.com' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.
        "#]],
    );
    let asked = |annotations: &str| {
        format!(
            "{{metadata: {{name: c, namespace: d, uid: u, annotations: {{{annotations}}}}}, spec: {{storageClassName: gp2}}}}"
        )
    };
    let old = "volume.beta.kubernetes.io/storage-provisioner: kubernetes.io/aws-ebs";
    claim(
        &asked(old),
        "[]",
        &[],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"pv.kubernetes.io/migrated-to":"ebs.csi.aws.com","volume.beta.kubernetes.io/storage-provisioner":"kubernetes.io/aws-ebs"},"name":"c","namespace":"d","uid":"u"},"spec":{"storageClassName":"gp2"}}
    "#]],
    );
    let stale = "volume.kubernetes.io/storage-provisioner: example.com/p, pv.kubernetes.io/migrated-to: ebs.csi.aws.com";
    claim(
        &asked(stale),
        "[]",
        &[],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"volume.kubernetes.io/storage-provisioner":"example.com/p"},"name":"c","namespace":"d","uid":"u"},"spec":{"storageClassName":"gp2"}}
    "#]],
    );
    let made = "{metadata: {name: v, finalizers: [kubernetes.io/pv-controller, kubernetes.io/pv-protection], annotations: {pv.kubernetes.io/provisioned-by: kubernetes.io/gce-pd}}, spec: {gcePersistentDisk: {pdName: d}}}";
    volume(
        made,
        None,
        expect![[r#"
        step
          update persistentvolumes v {"apiVersion":"v1","kind":"PersistentVolume","metadata":{"annotations":{"pv.kubernetes.io/migrated-to":"pd.csi.storage.gke.io","pv.kubernetes.io/provisioned-by":"kubernetes.io/gce-pd"},"finalizers":["kubernetes.io/pv-protection"],"name":"v"},"spec":{"gcePersistentDisk":{"pdName":"d"}}}
    "#]],
    );
    let released = "{metadata: {name: v, annotations: {pv.kubernetes.io/provisioned-by: kubernetes.io/gce-pd, pv.kubernetes.io/migrated-to: pd.csi.storage.gke.io}}, spec: {persistentVolumeReclaimPolicy: Delete, gcePersistentDisk: {pdName: d}, claimRef: {namespace: d, name: c, uid: u}}, status: {phase: Released}}";
    volume(released, None, expect![""]);
}
