//! Volumes that grow, or whose attributes change.

use super::*;

#[test]
fn a_claim_that_asks_for_more_gets_it() {
    let check = |claim: &str, size: &str, expect: Expect| {
        let snapshot = snapshot(claim, Some(&volume("Bound", size)), &["one"]);
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
        let snapshot = snapshot(&bound(size, &status), Some(&volume("Bound", "1Gi")), &["one"]);
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
        ..snapshot(&claim, Some(&volume("Bound", "1Gi")), &["one"])
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
