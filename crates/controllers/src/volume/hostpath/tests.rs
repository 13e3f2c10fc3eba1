mod changes;
mod killed;

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{noon, parse, render};

const CLASS: &str = "{metadata: {name: hostpath}, provisioner: hostpath.csi.knarr.io, volumeBindingMode: WaitForFirstConsumer, reclaimPolicy: Delete}";

/// What is seen of a claim on Nodes of which `is_there` says whether they are; not all of those have the driver.
fn seen_of(
    claim: Arc<PersistentVolumeClaim>,
    (class, volume): (Option<Arc<StorageClass>>, Option<Arc<PersistentVolume>>),
    nodes: Vec<String>,
    is_there: impl Fn(&str) -> bool,
) -> ClaimSnapshot {
    ClaimSnapshot {
        class,
        volume,
        nodes,
        has_selected: annotation(&claim.metadata, SELECTED_NODE).is_some_and(&is_there),
        has_noted: note::node(&claim).is_some_and(&is_there),
        attributes: None,
        current_attributes: None,
        original: None,
        is_copied: false,
        claim,
    }
}

fn snapshot(claim: &str, volume: Option<&str>, nodes: &[&str]) -> ClaimSnapshot {
    let (class, volume) = (Some(Arc::new(parse(CLASS))), volume.map(|volume| Arc::new(parse(volume))));
    let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
    seen_of(Arc::new(parse(claim)), (class, volume), nodes, |node| node != "gone")
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

fn volume(phase: &str, size: &str) -> String {
    format!(
        "{{metadata: {{name: pvc-u, uid: w, annotations: {{pv.kubernetes.io/provisioned-by: hostpath.csi.knarr.io}}, finalizers: [external-provisioner.volume.kubernetes.io/finalizer]}}, spec: {{capacity: {{storage: {size}}}, volumeMode: Filesystem, claimRef: {{name: c, namespace: d, uid: u}}, persistentVolumeReclaimPolicy: Delete, csi: {{driver: hostpath.csi.knarr.io, volumeHandle: pvc-u}}, nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: topology.hostpath.csi.knarr.io/node, operator: In, values: [one]}}]}}]}}}}}}, status: {{phase: {phase}}}}}"
    )
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
fn a_released_volume_goes_with_its_files() {
    let check = |phase: &str, has_node: bool, expect: Expect| {
        expect.assert_eq(&short(&reclaim::plan(&parse(&volume(phase, "1Gi")), has_node)));
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

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_claim_can_be_a_copy_of_another() {
    let source = |kind: &str, group: &str| {
        claim(", volume.kubernetes.io/selected-node: one")
            .replace("spec: {", &format!("spec: {{dataSourceRef: {{kind: {kind}, name: o{group}}}, "))
    };
    let original = |size: &str, node: &str| {
        let original = "{metadata: {name: o, namespace: d, uid: o}, spec: {volumeName: pvc-o, resources: {requests: {storage: 1Gi}}}, status: {phase: Bound}}";
        let text = volume("Bound", size).replace("pvc-u", "pvc-o").replace("[one]", &format!("[{node}]"));
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
    let [(cause, action)] = plan.on_failure_of.as_slice() else { panic!("one answer") };
    assert_eq!(*cause, controller::plan::Cause::Grpc("ResourceExhausted"));
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
    let made = volume("Pending", "1Gi");
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

#[test]
fn a_volume_that_waits_for_nobody_is_asked_of_one_node_after_the_other() {
    let check = |noted_on: &str, nodes: &[&str], expect: Expect| {
        let claim = noted(&claim(&format!(", hostpath.csi.knarr.io/provisioning-node: {noted_on}")));
        let mut snapshot = snapshot(&claim, None, nodes);
        snapshot.class = Some(Arc::new(parse(&CLASS.replace("WaitForFirstConsumer", "Immediate"))));
        let plan = provision::plan(&snapshot, noon());
        let mut answer = Plan::nothing();
        answer.push_step(plan.on_failure_of.into_iter().map(|(_, action)| action).collect());
        expect.assert_eq(&render(&answer));
    };
    check("a", &["a"], expect![""]);
    check(
        "a",
        &["a", "b", "c"],
        expect![[r#"
        step
          patch persistentvolumeclaims c {"metadata":{"annotations":{"hostpath.csi.knarr.io/provisioning-node":"b","hostpath.csi.knarr.io/provisioning-pause":null},"uid":"u"}}
    "#]],
    );
    check(
        "b",
        &["a", "b", "c"],
        expect![[r#"
        step
          patch persistentvolumeclaims c {"metadata":{"annotations":{"hostpath.csi.knarr.io/provisioning-node":"c","hostpath.csi.knarr.io/provisioning-pause":null},"uid":"u"}}
    "#]],
    );
    check(
        "c",
        &["a", "b", "c"],
        expect![[r#"
        step
          patch persistentvolumeclaims c {"metadata":{"annotations":{"hostpath.csi.knarr.io/provisioning-node":"a","hostpath.csi.knarr.io/provisioning-pause":"2026-01-01T12:00:15Z"},"uid":"u"}}
    "#]],
    );
}

#[test]
fn when_no_node_has_room_all_are_left_alone_for_a_while() {
    let pause = ", hostpath.csi.knarr.io/provisioning-pause: '2026-01-01T12:00:15Z'";
    let claim = noted(&claim(&format!("{NOTED}{pause}")));
    let mut snapshot = snapshot(&claim, None, &["one", "two"]);
    snapshot.class = Some(Arc::new(parse(&CLASS.replace("WaitForFirstConsumer", "Immediate"))));
    expect![[r#"
        again after 15s
    "#]]
    .assert_eq(&render(&provision::plan(&snapshot, noon())));
    let later = noon() + std::time::Duration::from_secs(15);
    assert!(!provision::plan(&snapshot, later).is_empty());
}
