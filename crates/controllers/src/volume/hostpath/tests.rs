use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{noon, parse, render};

const CLASS: &str = "{metadata: {name: hostpath}, provisioner: hostpath.csi.knarr.io, volumeBindingMode: WaitForFirstConsumer, reclaimPolicy: Delete}";

fn snapshot(claim: &str, volume: Option<&str>, nodes: &[&str]) -> ClaimSnapshot {
    let claim: Arc<PersistentVolumeClaim> = Arc::new(parse(claim));
    let selected = annotation(&claim.metadata, SELECTED_NODE);
    ClaimSnapshot {
        class: Some(Arc::new(parse(CLASS))),
        volume: volume.map(|volume| Arc::new(parse(volume))),
        nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
        has_selected: selected.is_some_and(|node| node != "gone"),
        has_noted: note::node(&claim).is_some_and(|node| node != "gone"),
        attributes: None,
        current_attributes: None,
        original: None,
        is_copied: false,
        claim,
    }
}

fn claim(node: &str) -> String {
    format!(
        "{{metadata: {{name: c, namespace: d, uid: u, annotations: {{volume.kubernetes.io/storage-provisioner: hostpath.csi.knarr.io{node}}}}}, spec: {{storageClassName: hostpath, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
    )
}

fn check(claim: &str, nodes: &[&str], expect: Expect) {
    expect.assert_eq(&render(&provision::plan(&snapshot(claim, None, nodes), noon())));
}

#[test]
fn a_volume_is_made_on_the_node_that_was_selected() {
    check(
        &claim(", volume.kubernetes.io/selected-node: one"),
        &["one", "two"],
        expect![[r#"
            step
              update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"hostpath.csi.knarr.io/provisioning-node":"one","volume.kubernetes.io/selected-node":"one","volume.kubernetes.io/storage-provisioner":"hostpath.csi.knarr.io"},"finalizers":["hostpath.csi.knarr.io/provisioning"],"name":"c","namespace":"d","uid":"u"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"hostpath"}}
            step
              Normal Provisioning: External provisioner is provisioning volume for claim "d/c"
            step
              create nodes/csi one
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
              patch persistentvolumeclaims c {"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null},"uid":"u"}}
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
          create nodes/csi one
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

/// A plan's lines without what is in the bodies of updates.
fn short(plan: &Plan) -> String {
    render(plan).lines().map(|line| format!("{}\n", line.split(" {").next().unwrap())).collect()
}

fn bound(size: &str, status: &str) -> String {
    format!(
        "{{metadata: {{name: c, namespace: d, uid: u, annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}, spec: {{volumeName: pvc-u, resources: {{requests: {{storage: {size}}}}}}}, status: {{phase: Bound, capacity: {{storage: 1Gi}}{status}}}}}"
    )
}

#[test]
fn a_claim_that_asks_for_more_gets_it() {
    let check = |claim: &str, size: &str, expect: Expect| {
        let snapshot = snapshot(claim, Some(&volume("Bound", size, "Filesystem")), &["one"]);
        expect.assert_eq(&render(&grow::plan(&snapshot, noon())));
    };
    check(&bound("1Gi", ""), "1Gi", expect![""]);
    check(&bound("1Gi", "").replace(", capacity: {storage: 1Gi}", ""), "1Gi", expect![""]);
    check(
        &bound("2Gi", ""),
        "1Gi",
        expect![[r#"
        step
          patch persistentvolumeclaims/status c {"status":{"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"},"allocatedResources":{"storage":"2Gi"},"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"","status":"True","type":"Resizing"}]}}
        step
          Normal Resizing: External resizer is resizing volume pvc-u
    "#]],
    );
    let trying = ", allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: ControllerResizeInProgress}";
    check(
        &bound("2Gi", trying),
        "1Gi",
        expect![[r#"
        step
          create nodes/csi one
        step
          patch persistentvolumes pvc-u {"spec":{"capacity":{"storage":"2Gi"}}}
    "#]],
    );
    check(
        &bound("2Gi", trying),
        "2Gi",
        expect![[r#"
        step
          patch persistentvolumeclaims/status c {"status":{"allocatedResourceStatuses":null,"allocatedResources":{"storage":"2Gi"},"capacity":{"storage":"2Gi"},"conditions":[]}}
        step
          Normal VolumeResizeSuccessful: Resize volume succeeded
    "#]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_size_that_cannot_be_is_left_alone_until_another_is_asked_for() {
    let check = |size: &str, state: &str, since: &str, why: &str, expect: Expect| {
        let status = format!(
            ", allocatedResources: {{storage: 2Gi}}, allocatedResourceStatuses: {{storage: {state}}}, conditions: [{{type: ControllerResizeError, status: 'True', lastTransitionTime: '{since}', message: '{why}'}}]"
        );
        let snapshot = snapshot(&bound(size, &status), Some(&volume("Bound", "1Gi", "Filesystem")), &["one"]);
        expect.assert_eq(&short(&grow::plan(&snapshot, noon())));
    };
    let (full, cannot) = (
        "failed to expand pvc with rpc error: code = ResourceExhausted desc = full",
        "failed to expand pvc with rpc error: code = OutOfRange desc = no",
    );
    let (now, then) = ("2026-01-01T11:59:55Z", "2026-01-01T11:54:00Z");
    let (trying, never) = ("ControllerResizeInProgress", "ControllerResizeInfeasible");
    check(
        "2Gi",
        trying,
        now,
        full,
        expect![[r#"
        again after 10s
    "#]],
    );
    check(
        "2Gi",
        trying,
        then,
        full,
        expect![[r#"
        step
          create nodes/csi one
        step
          patch persistentvolumes pvc-u
    "#]],
    );
    check(
        "2Gi",
        trying,
        now,
        cannot,
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
    "#]],
    );
    check(
        "2Gi",
        never,
        now,
        cannot,
        expect![[r#"
        again after 295s
    "#]],
    );
    let again = expect![[r#"
        step
          patch persistentvolumeclaims/status c
        step
          Normal Resizing: External resizer is resizing volume pvc-u
    "#]];
    check("2Gi", never, then, cannot, again);
    let other = expect![[r#"
        step
          patch persistentvolumeclaims/status c
        step
          Normal Resizing: External resizer is resizing volume pvc-u
    "#]];
    check("1536Mi", never, now, cannot, other);
    check(
        "1Gi",
        never,
        now,
        cannot,
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
    "#]],
    );
}

/// A claim that asks for `gold` or what it has, `silver`; `driver` is gold's, if there is gold.
fn check_modify(wanted: &str, tried: &str, driver: Option<&str>, expect: Expect) {
    let claim = format!(
        "{{metadata: {{name: c, namespace: d, uid: u, annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}, spec: {{volumeName: pvc-u, volumeAttributesClassName: {wanted}}}, status: {{phase: Bound, currentVolumeAttributesClassName: silver{tried}}}}}"
    );
    let class = |name: &str, driver: &str| {
        let text = format!(
            "{{metadata: {{name: {name}}}, driverName: {driver}, parameters: {{allocation: thick}}}}"
        );
        Arc::new(parse::<VolumeAttributesClass>(&text))
    };
    let silver = Some(class("silver", DRIVER));
    let snapshot = ClaimSnapshot {
        attributes: if wanted == "silver" {
            silver.clone()
        } else {
            driver.map(|driver| class(wanted, driver))
        },
        current_attributes: silver,
        ..snapshot(&claim, Some(&volume("Bound", "1Gi", "Filesystem")), &["one"])
    };
    expect.assert_eq(&short(&modify::plan(&snapshot, noon())));
}

fn tried(state: &str, since: &str, why: &str) -> String {
    format!(
        ", modifyVolumeStatus: {{status: {state}, targetVolumeAttributesClassName: gold}}, conditions: [{{type: ModifyingVolume, status: 'True', lastTransitionTime: '{since}', message: '{why}'}}]"
    )
}

#[test]
fn attributes_are_tried_and_then_had() {
    check_modify("silver", "", None, expect![""]);
    check_modify(
        "gold",
        "",
        Some(DRIVER),
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
        step
          Normal VolumeModify: external resizer is modifying volume c with vac gold
    "#]],
    );
    let trying = tried("InProgress", "2026-01-01T12:00:00Z", "ModifyVolume operation in progress.");
    check_modify(
        "gold",
        &trying,
        Some(DRIVER),
        expect![[r#"
        step
          create nodes/csi one
        step
          patch persistentvolumes pvc-u
        step
          patch persistentvolumeclaims/status c
        step
          Normal VolumeModifySuccessful: external resizer modified volume c with vac gold successfully
    "#]],
    );
    check_modify(
        "gold",
        &trying,
        Some("other"),
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
        step
          Warning VolumeModifyFailed: VolumeAttributesClass gold is for driver other, not hostpath.csi.knarr.io
    "#]],
    );
    check_modify(
        "gold",
        "",
        None,
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
        step
          Warning VolumeModifyFailed: VAC gold does not exist.
    "#]],
    );
    check_modify("gold", &tried("Pending", "2026-01-01T12:00:00Z", ""), None, expect![""]);
}

#[test]
fn attributes_that_cannot_be_are_left_alone_and_taken_back() {
    let why =
        "ModifyVolume failed with error: rpc error: code = InvalidArgument desc = no. Waiting for retry.";
    let (now, then) = ("2026-01-01T11:59:55Z", "2026-01-01T11:54:00Z");
    check_modify(
        "gold",
        &tried("InProgress", now, why),
        Some(DRIVER),
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
    "#]],
    );
    check_modify(
        "gold",
        &tried("Infeasible", now, why),
        Some(DRIVER),
        expect![[r#"
        again after 295s
    "#]],
    );
    check_modify(
        "gold",
        &tried("Infeasible", then, why),
        Some(DRIVER),
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
        step
          Normal VolumeModify: external resizer is modifying volume c with vac gold
    "#]],
    );
    let full = why.replace("InvalidArgument", "ResourceExhausted");
    check_modify(
        "gold",
        &tried("InProgress", now, &full),
        Some(DRIVER),
        expect![[r#"
        again after 10s
    "#]],
    );
    check_modify(
        "silver",
        &tried("Infeasible", now, why),
        Some(DRIVER),
        expect![[r#"
        step
          patch persistentvolumeclaims/status c
    "#]],
    );
    // It may have been done after all.
    check_modify(
        "silver",
        &tried("InProgress", then, &full),
        Some(DRIVER),
        expect![[r#"
        step
          create nodes/csi one
        step
          patch persistentvolumes pvc-u
        step
          patch persistentvolumeclaims/status c
    "#]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_claim_can_be_a_copy_of_another() {
    let source = |kind: &str, group: &str| {
        claim(", volume.kubernetes.io/selected-node: one")
            .replace("spec: {", &format!("spec: {{dataSourceRef: {{kind: {kind}, name: o{group}}}, "))
    };
    let original = |size: &str, node: &str| {
        let original = "{metadata: {name: o, namespace: d, uid: o}, spec: {volumeName: pvc-o, resources: {requests: {storage: 1Gi}}}, status: {phase: Bound}}";
        let text = volume("Bound", size, "Filesystem")
            .replace("pvc-u", "pvc-o")
            .replace("[one]", &format!("[{node}]"));
        Some((Arc::new(parse::<PersistentVolumeClaim>(original)), Some(Arc::new(parse(&text)))))
    };
    type Original = Option<(Arc<PersistentVolumeClaim>, Option<Arc<PersistentVolume>>)>;
    let check = |claim: &str, original: Original, expect: Expect| {
        let snapshot = ClaimSnapshot { original, ..snapshot(claim, None, &["one", "two"]) };
        expect.assert_eq(&short(&provision::plan(&snapshot, noon())));
    };
    check(
        &source("PersistentVolumeClaim", ""),
        original("1Gi", "one"),
        expect![[r#"
            step
              update persistentvolumeclaims c
            step
              update persistentvolumeclaims o
            step
              Normal Provisioning: External provisioner is provisioning volume for claim "d/c"
            step
              create nodes/csi one
            step
              create persistentvolumes pvc-u
            step
              Normal ProvisioningSucceeded: Successfully provisioned volume pvc-u
        "#]],
    );
    check(
        &source("PersistentVolumeClaim", ""),
        original("2Gi", "one"),
        expect![[r#"
        step
          Warning ProvisioningFailed: failed to provision volume with StorageClass "hostpath": error, new PVC request must be greater than or equal in size to the specified PVC data source, requested 1073741824 but source is 2147483648
    "#]],
    );
    check(
        &source("PersistentVolumeClaim", ""),
        original("1Gi", "two"),
        expect![[r#"
            step
              Warning ProvisioningFailed: failed to provision volume with StorageClass "hostpath": the volume to copy is on node two
            step
              patch persistentvolumeclaims c
        "#]],
    );
    check(
        &source("PersistentVolumeClaim", ""),
        None,
        expect![[r#"
        step
          Warning ProvisioningFailed: failed to provision volume with StorageClass "hostpath": error getting PVC o from api server: persistentvolumeclaims "o" not found
    "#]],
    );
    check(
        &source("VolumeSnapshot", ", apiGroup: snapshot.storage.k8s.io"),
        None,
        expect![[r#"
        step
          Warning ProvisioningFailed: failed to provision volume with StorageClass "hostpath": CSI driver hostpath.csi.knarr.io does not support snapshot restore
    "#]],
    );
    check(
        &source("Hello", ", apiGroup: example.com"),
        None,
        expect![[r#"
        step
          Normal Provisioning: Assuming an external populator will provision the volume
    "#]],
    );
    let held = "{metadata: {name: o, namespace: d, finalizers: [provisioner.storage.kubernetes.io/cloning-protection]}, spec: {}}";
    let snapshot = |is_copied: bool| ClaimSnapshot { is_copied, ..snapshot(held, None, &["one"]) };
    assert!(provision::let_go(&snapshot(true), noon()).is_empty());
    assert!(!provision::let_go(&snapshot(false), noon()).is_empty());
}

const NOTED: &str = ", hostpath.csi.knarr.io/provisioning-node: one";

fn noted(claim: &str) -> String {
    claim.replace("uid: u,", "uid: u, finalizers: [hostpath.csi.knarr.io/provisioning],")
}

#[test]
fn a_claim_says_where_its_volume_is_being_made_before_it_is() {
    let first = claim(", volume.kubernetes.io/selected-node: one");
    check(
        &first,
        &["one"],
        expect![[r#"
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"hostpath.csi.knarr.io/provisioning-node":"one","volume.kubernetes.io/selected-node":"one","volume.kubernetes.io/storage-provisioner":"hostpath.csi.knarr.io"},"finalizers":["hostpath.csi.knarr.io/provisioning"],"name":"c","namespace":"d","uid":"u"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"hostpath"}}
        step
          Normal Provisioning: External provisioner is provisioning volume for claim "d/c"
        step
          create nodes/csi one
        step
          create persistentvolumes pvc-u
        step
          Normal ProvisioningSucceeded: Successfully provisioned volume pvc-u
    "#]],
    );
    let again = noted(&claim(&format!(", volume.kubernetes.io/selected-node: one{NOTED}")));
    check(
        &again,
        &["one"],
        expect![[r#"
        step
          Normal Provisioning: External provisioner is provisioning volume for claim "d/c"
        step
          create nodes/csi one
        step
          create persistentvolumes pvc-u
        step
          Normal ProvisioningSucceeded: Successfully provisioned volume pvc-u
    "#]],
    );
    let elsewhere = noted(&claim(&format!(", volume.kubernetes.io/selected-node: two{NOTED}")));
    check(
        &elsewhere,
        &["one", "two"],
        expect![[r#"
        step
          require no persistentvolumes pvc-u
        step
          create nodes/csi one
        step
          update persistentvolumeclaims c {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"volume.kubernetes.io/selected-node":"two","volume.kubernetes.io/storage-provisioner":"hostpath.csi.knarr.io"},"finalizers":[],"name":"c","namespace":"d","uid":"u"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"hostpath"}}
    "#]],
    );
}

#[test]
fn a_driver_without_room_has_the_scheduler_choose_another_node() {
    let selected = claim(", volume.kubernetes.io/selected-node: one");
    let plan = provision::plan(&snapshot(&selected, None, &["one"]), noon());
    let [(text, action)] = plan.on_failure_saying.as_slice() else { panic!("one answer") };
    assert_eq!(*text, "code = ResourceExhausted desc");
    let mut answer = Plan::nothing();
    answer.push(action.clone());
    expect![[r#"
        step
          patch persistentvolumeclaims c {"metadata":{"annotations":{"hostpath.csi.knarr.io/provisioning-node":null,"volume.kubernetes.io/selected-node":null},"uid":"u"}}
    "#]].assert_eq(&render(&answer));
}

#[test]
fn what_was_made_for_a_claim_that_goes_is_taken_back() {
    let check = |more: &str, status: &str, made: Option<&str>, expect: Expect| {
        let text = noted(&claim(NOTED)).replace("uid: u,", &format!("uid: u{more},"));
        let text = format!("{}, status: {{{status}}}}}", text.strip_suffix('}').unwrap());
        expect.assert_eq(&short(&note::plan(&snapshot(&text, made, &["one"]), noon())));
    };
    let going = ", deletionTimestamp: '2026-01-01T00:00:00Z'";
    let made = volume("Pending", "1Gi", "Filesystem");
    check("", "phase: Pending", None, expect![[""]]);
    check("", "phase: Pending", Some(&made), expect![[""]]);
    check(
        "",
        "phase: Bound",
        Some(&made),
        expect![[r#"
        step
          update persistentvolumeclaims c
    "#]],
    );
    check(
        going,
        "phase: Pending",
        None,
        expect![[r#"
        step
          require no persistentvolumes pvc-u
        step
          create nodes/csi one
        step
          update persistentvolumeclaims c
    "#]],
    );
    check(
        going,
        "phase: Pending",
        Some(&made),
        expect![[r#"
        step
          update persistentvolumeclaims c
    "#]],
    );
    check(
        going,
        "phase: Lost",
        None,
        expect![[r#"
        step
          update persistentvolumeclaims c
    "#]],
    );
}

#[test]
fn nobody_is_asked_to_take_back_what_went_with_its_node() {
    let gone = noted(&claim(", hostpath.csi.knarr.io/provisioning-node: gone"))
        .replace("uid: u,", "uid: u, deletionTimestamp: '2026-01-01T00:00:00Z',");
    expect![[r#"
        step
          update persistentvolumeclaims c
    "#]]
    .assert_eq(&short(&note::plan(&snapshot(&gone, None, &[]), noon())));
}
