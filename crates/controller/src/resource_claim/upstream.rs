//! The cases of upstream's `claim_test.go` of `dynamic-resource-allocation/resourceclaim`.

use super::*;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

fn pod(uid: &str) -> Pod {
    parse(&format!(
        "{{metadata: {{name: test, namespace: kube-system, uid: {uid}}}, spec: {{containers: []}}}}"
    ))
}

/// Source: `TestIsForPod`.
#[test]
fn a_claim_is_a_pods_if_that_controls_it_by_its_uid() {
    let reference =
        |uid: &str, more: &str| format!("{{apiVersion: v1, kind: Pod, name: test, uid: {uid}{more}}}");
    for (name, owners, is_own, is_made_for_one) in [
        ("owned", reference("u", ", controller: true"), true, true),
        ("owned, but not controlled", reference("u", ""), false, false),
        ("owned, and said not to be controlled", reference("u", ", controller: false"), false, false),
        ("another Pod of the name", reference("other", ", controller: true"), false, true),
        ("no owner", String::new(), false, false),
        (
            "a second owner",
            format!("{}, {}", reference("other", ""), reference("u", ", controller: true")),
            true,
            true,
        ),
        (
            "of another kind",
            "{apiVersion: batch/v1, kind: Job, name: test, uid: x, controller: true}".into(),
            false,
            false,
        ),
    ] {
        let claim: ResourceClaim = parse(&format!(
            "{{metadata: {{name: c, namespace: kube-system, ownerReferences: [{owners}]}}, spec: {{}}}}"
        ));
        assert_eq!(check_owner(&pod("u"), &claim).is_ok(), is_own, "{name}");
        assert_eq!(owner(&claim).is_some(), is_made_for_one, "{name}");
    }
}

/// Source: `TestIsReservedForPod`, `TestCanBeReserved`.
#[test]
fn a_claim_is_reserved_for_those_in_its_status_and_no_more_than_there_is_room_for() {
    let claim = |users: &str| -> ResourceClaim {
        parse(&format!(
            "{{metadata: {{name: c, namespace: kube-system}}, spec: {{}}, status: {{reservedFor: [{users}]}}}}"
        ))
    };
    let user = |uid: &str| format!("{{resource: pods, name: test, uid: {uid}}}");
    for (name, users, expect) in [
        ("nobody", String::new(), false),
        ("another", user("other"), false),
        ("the Pod", user("u"), true),
        ("several", format!("{}, {}", user("other"), user("u")), true),
    ] {
        assert_eq!(is_reserved_for(&pod("u"), &claim(&users)), expect, "{name}");
    }
    let many =
        |count: usize| (0..count).map(|number| user(&format!("u{number}"))).collect::<Vec<_>>().join(", ");
    for (count, expect) in
        [(0, true), (1, true), (USERS_MAX - 1, true), (USERS_MAX, false), (USERS_MAX + 1, false)]
    {
        assert_eq!(can_be_reserved(&claim(&many(count))), expect, "{count}");
    }
    let mut bare: ResourceClaim = parse("{metadata: {name: c}, spec: {}}");
    assert!(users(&bare).is_empty() && !is_allocated(&bare) && can_be_reserved(&bare));
    reserve(&mut bare, &pod("u"));
    assert!(
        is_reserved_for(&pod("u"), &bare) && !is_reserved_for(&pod("v"), &bare) && users(&bare).len() == 1
    );
    assert!(is_allocated(&parse("{metadata: {name: c}, spec: {}, status: {allocation: {}}}")));
}

/// Source: `isPodDone` of the controller's tests: `TestSyncHandler` with Pods that are over.
#[test]
fn a_pod_is_done_when_none_of_its_containers_can_run_any_more() {
    for (name, metadata, node, phase, expect) in [
        ("new", "", "", "", false),
        ("waiting", "", "", "Pending", false),
        ("running", "", "n", "Running", false),
        ("over", "", "n", "Succeeded", true),
        ("failed", "", "n", "Failed", true),
        ("deleted while it runs", ", deletionTimestamp: '2026-01-01T00:00:00Z'", "n", "Running", false),
        ("deleted before it had a Node", ", deletionTimestamp: '2026-01-01T00:00:00Z'", "", "Pending", true),
    ] {
        let pod: Pod = parse(&format!(
            "{{metadata: {{name: p{metadata}}}, spec: {{containers: [], nodeName: '{node}'}}, status: {{phase: '{phase}'}}}}"
        ));
        assert_eq!(is_done(&pod), expect, "{name}");
    }
}
