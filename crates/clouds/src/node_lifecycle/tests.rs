//! What is decided of Nodes that are not ready.

use expect_test::{Expect, expect};

use super::*;
use crate::RefusalKind;
use crate::fixture::{change, parse, render, render_outcome};

fn node(ready: &str, more: &str) -> Arc<Node> {
    parse(&format!(
        "{{metadata: {{name: a, uid: u, resourceVersion: '7'}}, {more}
           status: {{conditions: [{{type: Ready, status: '{ready}'}}]}}}}"
    ))
}

const DOWN: &str = "spec: {taints: [{key: x, effect: NoExecute}, {key: node.cloudprovider.kubernetes.io/shutdown, effect: NoSchedule}]},";

fn refusal(kind: RefusalKind) -> Refusal {
    Refusal { kind, message: "away".to_owned(), retry_after: None }
}

#[test]
fn the_cloud_is_asked_about_nodes_that_are_not_ready() {
    let check = |node: &Arc<Node>, expect: &str| {
        assert_eq!(render(&plan(node, Duration::from_secs(5))), expect);
    };
    check(&node("True", ""), "");
    for ready in ["False", "Unknown"] {
        check(&node(ready, ""), "- ask InstanceExists a\nagain after 5s\n");
    }
    check(&parse("{metadata: {name: a}}"), "- ask InstanceExists a\nagain after 5s\n");
    check(&parse("{metadata: {name: a, deletionTimestamp: '2026-01-01T12:00:00Z'}}"), "");
    let back = render(&plan(&node("True", DOWN), Duration::from_secs(5)));
    assert!(back.contains(r#"{"op":"remove","path":"/spec/taints/1"}"#), "{back}");
}

#[test]
fn a_node_goes_only_where_its_cloud_says_that_it_is_gone() {
    let check = |answer: Result<bool, Refusal>, expect: &Expect| {
        expect.assert_eq(&render_outcome(&exists(&node("Unknown", ""), answer)));
    };
    check(
        Ok(false),
        &expect![[r#"
            - Normal DeletingNode: Deleting node a because it does not exist in the cloud provider
            - Delete nodes a {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u"},"propagationPolicy":"Background"}
            if that fails: Warning DeletingNodeFailed: Failed deleting node a: {failure}
        "#]],
    );
    check(
        Ok(true),
        &expect![[r#"
        - ask InstanceShutdown a
    "#]],
    );
    for kind in [RefusalKind::NotFound, RefusalKind::Elsewhere, RefusalKind::Failed] {
        check(
            Err(refusal(kind)),
            &expect![[r#"
            failed: away
        "#]],
        );
    }
}

#[test]
fn a_stopped_machine_taints_its_node_once() {
    let told = |node: &Node, answer| render_outcome(&shut_down(node, answer));
    let with_taint = told(&node("Unknown", "spec: {taints: [{key: x, effect: NoExecute}]},"), Ok(true));
    expect![[r#"
        - Patch("application/merge-patch+json") nodes a {"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"taints":[{"effect":"NoExecute","key":"x"},{"effect":"NoSchedule","key":"node.cloudprovider.kubernetes.io/shutdown"}]}}
    "#]]
    .assert_eq(&with_taint);
    assert_eq!(told(&node("Unknown", DOWN), Ok(true)), "");
    assert_eq!(told(&node("Unknown", ""), Ok(false)), "");
    assert_eq!(
        told(&node("Unknown", ""), Err(refusal(RefusalKind::Elsewhere))),
        "",
        "not every cloud can tell"
    );
    assert_eq!(told(&node("Unknown", ""), Err(refusal(RefusalKind::Failed))), "failed: away\n");
}

#[test]
fn a_node_that_is_ready_or_not_as_before_wakes_nobody() {
    let node = |ready: &str, more: &str| {
        format!(
            "{{metadata: {{name: a, uid: u}}, {more} status: {{conditions: [{{type: Ready, status: '{ready}'}}]}}}}"
        )
    };
    let usual = node("True", "");
    for (new, expect) in [
        (usual.clone(), false),
        (usual.replace("uid: u", "uid: u, labels: {x: y}"), false),
        (usual.replace("'True'", "'True', lastHeartbeatTime: '2026-01-01T12:00:00Z'"), false),
        (node("True", "spec: {taints: [{key: x, effect: NoExecute}]},"), false),
        (node("True", DOWN), true),
        (node("False", ""), true),
        (node("Unknown", ""), true),
        (usual.replace("uid: u", "uid: v"), true),
        (String::new(), true),
    ] {
        assert_eq!(is_news(&change(&usual, &new)), expect, "{new}");
        assert_eq!(is_news(&change(&new, &usual)), expect, "back from {new}");
    }
    assert!(!is_news(&change(&node("False", ""), &node("Unknown", ""))), "it was asked about already");
    // The same key with another effect is not this controller's.
    let other = node("True", &DOWN.replace("NoSchedule", "NoExecute"));
    assert!(!is_news(&change(&usual, &other)));
}
