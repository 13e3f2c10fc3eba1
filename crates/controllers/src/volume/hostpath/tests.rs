use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{parse, render};

const CLASS: &str = "{metadata: {name: hostpath}, provisioner: hostpath.csi.knarr.io, volumeBindingMode: WaitForFirstConsumer, reclaimPolicy: Delete}";

fn snapshot(claim: &str, volume: Option<&str>, nodes: &[&str]) -> ClaimSnapshot {
    let claim: Arc<PersistentVolumeClaim> = Arc::new(parse(claim));
    let selected = annotation(&claim.metadata, SELECTED_NODE);
    ClaimSnapshot {
        class: Some(Arc::new(parse(CLASS))),
        volume: volume.map(|volume| Arc::new(parse(volume))),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
        has_selected: selected.is_some_and(|node| node != "gone"),
        claim,
    }
}

fn claim(node: &str) -> String {
    format!(
        "{{metadata: {{name: c, namespace: d, uid: u, annotations: {{volume.kubernetes.io/storage-provisioner: hostpath.csi.knarr.io{node}}}}}, spec: {{storageClassName: hostpath, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
    )
}

fn check(claim: &str, nodes: &[&str], expect: Expect) {
    expect.assert_eq(&render(&provision::plan(&snapshot(claim, None, nodes))));
}

#[test]
fn a_volume_is_made_on_the_node_that_was_selected() {
    check(
        &claim(", volume.kubernetes.io/selected-node: one"),
        &["one", "two"],
        expect![[r#"
        step
          Normal Provisioning: External provisioner is provisioning volume for claim "d/c"
        step
          create nodes/proxy/csi one
        step
          create persistentvolumes pvc-u
        step
          Normal ProvisioningSucceeded: Successfully provisioned volume pvc-u
    "#]],
    );
    check(&claim(""), &["one"], expect![""]);
    check(&claim(", volume.kubernetes.io/selected-node: one"), &["two"], expect![""]);
    check(
        &claim(", volume.kubernetes.io/selected-node: gone"),
        &["two"],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"volume.kubernetes.io/storage-provisioner":"hostpath.csi.knarr.io"},"name":"c","namespace":"d","uid":"u"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"hostpath"}}
    "#]],
    );
}

fn volume(phase: &str, size: &str, mode: &str) -> String {
    format!(
        "{{metadata: {{name: pvc-u, uid: w, annotations: {{pv.kubernetes.io/provisioned-by: hostpath.csi.knarr.io}}, finalizers: [external-provisioner.volume.kubernetes.io/finalizer]}}, spec: {{capacity: {{storage: {size}}}, volumeMode: {mode}, claimRef: {{name: c, namespace: d, uid: u}}, persistentVolumeReclaimPolicy: Delete, csi: {{driver: hostpath.csi.knarr.io, volumeHandle: pvc-u}}, nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: topology.hostpath.csi.knarr.io/node, operator: In, values: [one]}}]}}]}}}}}}, status: {{phase: {phase}}}}}"
    )
}

#[test]
fn a_released_volume_goes_with_its_files() {
    let check = |phase: &str, has_node: bool, expect: Expect| {
        let text = render(&reclaim::plan(&parse(&volume(phase, "1Gi", "Filesystem")), has_node));
        let short: String =
            text.lines().map(|line| format!("{}\n", line.split(" {").next().unwrap())).collect();
        expect.assert_eq(&short);
    };
    check("Bound", true, expect![""]);
    check(
        "Released",
        true,
        expect![[r#"
        step
          create nodes/proxy/csi one
        step
          update persistentvolumes pvc-u
        step
          delete persistentvolumes pvc-u
    "#]],
    );
    check(
        "Released",
        false,
        expect![[r#"
        step
          update persistentvolumes pvc-u
        step
          delete persistentvolumes pvc-u
    "#]],
    );
}

#[test]
fn a_claim_that_asks_for_more_gets_it() {
    let bound = |mode: &str| {
        format!(
            "{{metadata: {{name: c, namespace: d, uid: u, annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}, spec: {{volumeName: pvc-u, volumeMode: {mode}, resources: {{requests: {{storage: 2Gi}}}}}}, status: {{phase: Bound, capacity: {{storage: 1Gi}}}}}}"
        )
    };
    let check = |size: &str, mode: &str, expect: Expect| {
        let snapshot = snapshot(&bound(mode), Some(&volume("Bound", size, mode)), &["one"]);
        expect.assert_eq(&render(&grow::plan(&snapshot)));
    };
    check(
        "1Gi",
        "Filesystem",
        expect![[r#"
        step
          Normal Resizing: External resizer is resizing volume pvc-u
        step
          create nodes/proxy/csi one
        step
          patch persistentvolumes pvc-u {"spec":{"capacity":{"storage":"2Gi"}}}
    "#]],
    );
    check(
        "2Gi",
        "Filesystem",
        expect![[r#"
        step
          patch persistentvolumeclaims/status c {"status":{"allocatedResourceStatuses":null,"capacity":{"storage":"2Gi"},"conditions":[]}}
        step
          Normal VolumeResizeSuccessful: Resize volume succeeded
    "#]],
    );
    check(
        "2Gi",
        "Block",
        expect![[r#"
        step
          patch persistentvolumeclaims/status c {"status":{"allocatedResourceStatuses":null,"capacity":{"storage":"2Gi"},"conditions":[]}}
        step
          Normal VolumeResizeSuccessful: Resize volume succeeded
    "#]],
    );
}
