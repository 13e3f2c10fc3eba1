use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{noon, parse, render};

/// `dependents` are Pods.
fn check(metadata: &str, owners: &[Owner], dependents: &[&str], expect: &Expect) {
    let item = |kind: &str, metadata: &str| Item {
        resource: kinds::by_kind(if kind == "Pod" { "" } else { "apps" }, kind).unwrap().clone(),
        object: Arc::new(parse(&format!(
            "{{metadata: {{namespace: default, resourceVersion: '7', {metadata}}}}}"
        ))),
    };
    let snapshot = Snapshot {
        item: item("ReplicaSet", metadata),
        owners: owners.to_vec(),
        dependents: dependents.iter().map(|metadata| item("Pod", metadata)).collect(),
    };
    expect.assert_eq(&render(&plan(&snapshot, noon())));
}

fn owned(owners: &[(&str, bool)]) -> String {
    let references: Vec<String> = owners
        .iter()
        .map(|(uid, blocks)| {
            format!("{{apiVersion: apps/v1, kind: Deployment, name: {uid}, uid: {uid}, blockOwnerDeletion: {blocks}}}")
        })
        .collect();
    format!("name: web, uid: r1, ownerReferences: [{}]", references.join(", "))
}

const DELETING: &str = "name: web, uid: r1, deletionTimestamp: '2026-01-01T11:00:00Z'";
const POD: &str = "name: a, uid: p1, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: r1, blockOwnerDeletion: true}]";

#[test]
fn what_has_lost_its_owner_goes() {
    check(
        &owned(&[("d1", true)]),
        &[Owner::Gone],
        &[],
        &expect![[r#"
        step
          delete replicasets web
    "#]],
    );
    check(&owned(&[("d1", true)]), &[Owner::Solid], &[], &expect![[""]]);
    check("name: web, uid: r1", &[], &[], &expect![[""]]);
}

#[test]
fn the_server_is_asked_for_an_owner_that_was_not_seen() {
    check(
        &owned(&[("d1", true)]),
        &[Owner::NotSeen],
        &[],
        &expect![[r#"
        step
          require no deployments d1
        step
          delete replicasets web
    "#]],
    );
}

#[test]
fn one_owner_that_stays_is_enough() {
    check(
        &owned(&[("d1", true), ("d2", true)]),
        &[Owner::Gone, Owner::Solid],
        &[],
        &expect![[r#"
        step
          patch replicasets web {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"d1"}],"uid":"r1"}}
    "#]],
    );
}

#[test]
fn a_waiting_owner_takes_the_whole_tree_in_the_foreground() {
    check(
        &owned(&[("d1", true)]),
        &[Owner::Waiting],
        &[POD],
        &expect![[r#"
        step
          delete replicasets web
    "#]],
    );
    check(
        &owned(&[("d1", true)]),
        &[Owner::Waiting],
        &[],
        &expect![[r#"
        step
          delete replicasets web
    "#]],
    );
}

#[test]
fn foreground_deletion_ends_when_nobody_blocks_it() {
    let deleting = format!("{DELETING}, finalizers: [foregroundDeletion, other]");
    check(&deleting, &[], &[POD], &expect![[""]]);
    check(
        &deleting,
        &[],
        &[&POD.replace("blockOwnerDeletion: true", "blockOwnerDeletion: false")],
        &expect![[r#"
            step
              patch replicasets web {"metadata":{"finalizers":["other"],"resourceVersion":"7","uid":"r1"}}
        "#]],
    );
}

#[test]
fn orphans_forget_their_owner() {
    check(
        &format!("{DELETING}, finalizers: [orphan]"),
        &[],
        &[POD],
        &expect![[r#"
        step
          patch pods a {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"r1"}],"uid":"p1"}}
        step
          patch replicasets web {"metadata":{"finalizers":[],"resourceVersion":"7","uid":"r1"}}
    "#]],
    );
}
