use expect_test::{Expect, expect};

use controller::question::Answer;
use controller::{Discovered, Discovery};

use super::*;
use crate::fixture::{noon, parse, render, unanswered};

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
        is_incomplete: false,
        questions: Vec::new(),
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
        &[Owner::NotSeen(Box::new(kinds::by_kind("apps", "Deployment").unwrap().clone()))],
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

#[test]
fn nothing_goes_while_an_owner_may_be_there() {
    let two = owned(&[("d1", true), ("w1", true)]);
    check(
        &two,
        &[Owner::Gone, Owner::Unknown],
        &[],
        &expect![[r#"
        again after 60s
    "#]],
    );
    check(
        &two,
        &[Owner::Gone, Owner::SolidForeign],
        &[],
        &expect![[r#"
        step
          patch replicasets web {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"d1"}],"uid":"r1"}}
        again after 60s
    "#]],
    );
    check(
        &two,
        &[Owner::Gone, Owner::Impossible],
        &[],
        &expect![[r#"
        step
          Warning OwnerRefInvalidNamespace: ownerRef [apps/v1/Deployment, namespace: default, name: w1, uid: w1] does not exist in namespace "default"
    "#]],
    );
    check(
        &two,
        &[Owner::Gone, Owner::Gone],
        &[],
        &expect![[r#"
        step
          delete replicasets web
    "#]],
    );
}

#[test]
fn owners_that_no_informer_knows_are_asked_for() {
    let answers = Answers::default();
    let owner = parse("{apiVersion: example.com/v1, kind: Widget, name: w, uid: u1}");
    let look_up = |namespace: &str| foreign::look_up(&answers, &owner, namespace, noon());
    assert_eq!(look_up("team"), Err(Box::new(Question::Resources)));
    answers.put(Question::Resources, noon(), Err(unanswered("away")));
    assert_eq!(look_up("team"), Ok(Owner::Unknown), "the server cannot say which kinds there are");
    answers.put(Question::Resources, noon(), Ok(Answer::Resources(Arc::default())));
    assert_eq!(look_up("team"), Ok(Owner::Unknown), "nobody serves the kind");

    let resource = ResourceRef {
        group: "example.com".into(),
        version: "v2".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        namespaced: true,
    };
    let found = Discovered { resource: resource.clone(), verbs: Vec::new(), subresources: Vec::new() };
    let discovery = Discovery { resources: vec![found], ..Discovery::default() };
    answers.put(Question::Resources, noon(), Ok(Answer::Resources(Arc::new(discovery))));
    assert_eq!(look_up(""), Ok(Owner::Impossible));
    let question = Question::Object(resource, "team".into(), "w".into(), "u1".into());
    assert_eq!(look_up("team"), Err(Box::new(question.clone())));
    let object =
        |metadata: &str| Ok(Answer::Object(Some(Arc::new(parse(&format!("{{metadata: {{{metadata}}}}}"))))));
    for (answer, expect) in [
        (Err(unanswered("forbidden")), Owner::Unknown),
        (object("uid: u1"), Owner::SolidForeign),
        (object("uid: u1, deletionTimestamp: '2026-01-01T11:00:00Z'"), Owner::SolidForeign),
        (
            object("deletionTimestamp: '2026-01-01T11:00:00Z', finalizers: [foregroundDeletion]"),
            Owner::Waiting,
        ),
        (Ok(Answer::Object(None)), Owner::Gone),
    ] {
        answers.put(question.clone(), noon(), answer);
        assert_eq!(look_up("team"), Ok(expect));
    }
    assert_eq!(
        foreign::look_up(&answers, &owner, "team", noon() + Duration::from_secs(31)),
        Err(Box::new(Question::Resources))
    );
}

fn widget(metadata: &str) -> Item {
    let resource = ResourceRef {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        namespaced: true,
    };
    let object = parse(&format!("{{metadata: {{namespace: default, resourceVersion: '7', {metadata}}}}}"));
    Item { resource, object: Arc::new(object) }
}

fn check_widget(metadata: &str, owners: &[Owner], dependents: &[&str], expect: &Expect) {
    let snapshot = Snapshot {
        item: widget(metadata),
        owners: owners.to_vec(),
        dependents: dependents.iter().map(|metadata| widget(metadata)).collect(),
        is_incomplete: false,
        questions: Vec::new(),
    };
    expect.assert_eq(&render(&plan(&snapshot, noon())));
}

const PART: &str = "name: a, uid: w2, ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: web, uid: r1, \
                    blockOwnerDeletion: true, controller: true}, {apiVersion: v1, kind: Secret, name: s, uid: s1}]";

#[test]
fn custom_objects_are_collected_like_others_and_patched_as_they_can_be() {
    check_widget(
        &owned(&[("d1", true)]),
        &[Owner::Gone],
        &[],
        &expect![[r#"
            step
              delete widgets web
        "#]],
    );
    check_widget(
        &owned(&[("d1", true), ("d2", true)]),
        &[Owner::NotSeen(Box::new(widget("name: d1").resource)), Owner::Solid],
        &[],
        &expect![[r#"
            step
              require no widgets d1
            step
              patch widgets web {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"kind":"Deployment","name":"d2","uid":"d2"}],"resourceVersion":"7","uid":"r1"}}
        "#]],
    );
    check_widget(
        &format!("{DELETING}, finalizers: [orphan]"),
        &[],
        &[PART],
        &expect![[r#"
        step
          patch widgets a {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"s","uid":"s1"}],"resourceVersion":"7","uid":"w2"}}
        step
          patch widgets web {"metadata":{"finalizers":[],"resourceVersion":"7","uid":"r1"}}
    "#]],
    );
    check_widget(&format!("{DELETING}, finalizers: [foregroundDeletion]"), &[], &[PART], &expect![[""]]);
    // A circle: whoever is waited for waits too.
    let circle = PART.replace(
        "name: a,",
        "name: a, deletionTimestamp: '2026-01-01T11:00:00Z', finalizers: [foregroundDeletion],",
    );
    check_widget(
        &owned(&[("d1", true)]),
        &[Owner::Waiting],
        &[&circle],
        &expect![[r#"
        step
          patch widgets web {"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":false,"kind":"Deployment","name":"d1","uid":"d1"}],"resourceVersion":"7","uid":"r1"}}
        step
          delete widgets web
    "#]],
    );
}

#[test]
fn finalizers_stay_while_dependents_may_be_unknown() {
    for finalizer in ["orphan", "foregroundDeletion"] {
        let mut snapshot = Snapshot {
            item: widget(&format!("{DELETING}, finalizers: [{finalizer}]")),
            owners: Vec::new(),
            dependents: vec![widget(PART)],
            is_incomplete: true,
            questions: Vec::new(),
        };
        assert_eq!(render(&plan(&snapshot, noon())), "again after 1s\n", "{finalizer}");
        snapshot.item = widget(&format!("{DELETING}, finalizers: [other]"));
        assert_eq!(render(&plan(&snapshot, noon())), "", "it is not held for dependents");
    }
}
