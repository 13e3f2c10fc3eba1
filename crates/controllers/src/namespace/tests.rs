use expect_test::{Expect, expect};

use controller::question::{Answer, Content};
use controller::{Discovered, Discovery, Question};

use super::*;
use crate::fixture::{noon, parse, render, unanswered};

fn check(namespace: &str, content: &[(&str, &str)], expect: &Expect) {
    check_with(namespace, content, Foreign::Known(Survey::default()), expect);
}

fn check_with(namespace: &str, content: &[(&str, &str)], foreign: Foreign, expect: &Expect) {
    let content = content
        .iter()
        .map(|(kind, metadata)| (kinds::by_kind("", kind).unwrap().clone(), vec![object(metadata)]))
        .collect();
    let snapshot = Snapshot { namespace: Arc::new(parse(namespace)), content, foreign };
    expect.assert_eq(&shown(plan(&snapshot, noon())));
}

/// The plan, with conditions instead of whole namespaces: those that say that something is wrong.
fn shown(mut plan: Plan) -> String {
    for action in plan.steps.iter_mut().flatten() {
        let Action::Request(request) = action else { continue };
        let Some(conditions) = request.body.pointer("/status/conditions") else { continue };
        let conditions = conditions.as_array().unwrap().iter();
        let wrong = conditions.filter(|condition| condition["status"] == "True");
        let told = wrong.map(|condition| {
            json!([condition["type"], condition["message"], condition["lastTransitionTime"]])
        });
        request.body = json!({"status": told.collect::<serde_json::Value>()});
    }
    render(&plan)
}

fn object(metadata: &str) -> Arc<PartialObject> {
    Arc::new(parse(&format!("{{metadata: {{namespace: team, {metadata}}}}}")))
}

/// Custom objects, of which no informer knows.
fn widgets(verbs: &[&str], objects: &[&str]) -> Foreign {
    let content = Content { objects: objects.iter().map(|one| object(one)).collect(), others: 0 };
    let content = vec![(found("widgets", verbs), Arc::new(content))];
    Foreign::Known(Survey { content, ..Survey::default() })
}

fn found(plural: &str, verbs: &[&str]) -> Discovered {
    let resource = ResourceRef {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: plural.into(),
        namespaced: true,
    };
    let verbs = verbs.iter().map(|&verb| verb.to_owned()).collect();
    Discovered { resource, verbs, subresources: Vec::new() }
}

const DELETED: &str = "{metadata: {name: team, uid: n1, resourceVersion: '5', \
                       deletionTimestamp: '2026-01-01T11:59:00Z'}, spec: {finalizers: [kubernetes]}}";

#[test]
fn a_living_namespace_is_left_alone() {
    check(
        "{metadata: {name: team}, spec: {finalizers: [kubernetes]}}",
        &[("Pod", "name: a")],
        &expect![[""]],
    );
}

#[test]
fn pods_go_before_everything_else() {
    check(
        DELETED,
        &[("ConfigMap", "name: c, uid: c1"), ("Pod", "name: a, uid: p1")],
        &expect![[r#"
        step
          delete pods a
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances","2026-01-01T12:00:00Z"]]
    "#]],
    );
    check(
        DELETED,
        &[("ConfigMap", "name: c, uid: c1"), ("Pod", GOING_POD)],
        &expect![[r#"
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances","2026-01-01T12:00:00Z"],["NamespaceFinalizersRemaining","Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances","2026-01-01T12:00:00Z"]]
    "#]],
    );
    check(
        DELETED,
        &[("ConfigMap", "name: c, uid: c1")],
        &expect![[r#"
        step
          delete configmaps c
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: configmaps. has 1 resource instances","2026-01-01T12:00:00Z"]]
    "#]],
    );
}

const GOING_POD: &str =
    "name: b, uid: p2, deletionTimestamp: '2026-01-01T11:59:30Z', finalizers: [example.com/hold]";

#[test]
fn conditions_of_others_stay_and_times_tell_of_changes_only() {
    let told = DELETED.replace(
        "spec:",
        "status: {phase: Terminating, conditions: [{type: Mine, status: 'True'}, \
         {type: NamespaceContentRemaining, status: 'True', reason: SomeResourcesRemain, message: old, \
         lastTransitionTime: '2026-01-01T11:00:00Z'}]}, spec:",
    );
    check(
        &told,
        &[("Pod", GOING_POD)],
        &expect![[r#"
        step
          update namespaces/status team [["Mine",null,null],["NamespaceContentRemaining","Some resources are remaining: pods. has 1 resource instances","2026-01-01T11:00:00Z"],["NamespaceFinalizersRemaining","Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances","2026-01-01T12:00:00Z"]]
    "#]],
    );
}

#[test]
fn custom_objects_go_too_and_are_waited_for() {
    let all = ["delete", "deletecollection", "list"];
    check_with(
        DELETED,
        &[],
        widgets(&all, &["name: w, uid: w1"]),
        &expect![[r#"
        step
          delete widgets (generated)
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: widgets.example.com has 1 resource instances","2026-01-01T12:00:00Z"]]
        ask which widgets there are in team
        again after 11s
    "#]],
    );
    check_with(
        DELETED,
        &[],
        widgets(&all[..1], &["name: w, uid: w1"]),
        &expect![[r#"
        step
          delete widgets w
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: widgets.example.com has 1 resource instances","2026-01-01T12:00:00Z"]]
        ask which widgets there are in team
        again after 11s
    "#]],
    );
    let going = "name: w, uid: w1, deletionTimestamp: '2026-01-01T11:59:30Z', finalizers: [example.com/hold]";
    check_with(
        DELETED,
        &[],
        widgets(&all, &[going]),
        &expect![[r#"
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: widgets.example.com has 1 resource instances","2026-01-01T12:00:00Z"],["NamespaceFinalizersRemaining","Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances","2026-01-01T12:00:00Z"]]
        again after 11s
    "#]],
    );
    check_with(
        DELETED,
        &[("Pod", GOING_POD)],
        widgets(&all, &["name: w, uid: w1"]),
        &expect![[r#"
        step
          update namespaces/status team [["NamespaceContentRemaining","Some resources are remaining: pods. has 1 resource instances","2026-01-01T12:00:00Z"],["NamespaceFinalizersRemaining","Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances","2026-01-01T12:00:00Z"]]
    "#]],
    );
}

#[test]
fn nothing_is_finalized_before_the_server_was_asked_what_there_is() {
    let ask = || Foreign::Ask(vec![Question::Resources]);
    check_with(
        DELETED,
        &[],
        ask(),
        &expect![[r#"
        ask which resources there are
    "#]],
    );
    check_with(
        DELETED,
        &[("ConfigMap", "name: c, uid: c1")],
        ask(),
        &expect![[r#"
        step
          delete configmaps c
        ask which resources there are
    "#]],
    );
}

#[test]
fn nothing_is_finalized_where_the_server_cannot_say_what_there_is() {
    for survey in [
        Survey { discovery_failure: Some("away".into()), ..Survey::default() },
        Survey { unreadable: vec!["a/b/c".into()], ..Survey::default() },
        Survey { content_failures: vec!["forbidden".into(), "away".into()], ..Survey::default() },
    ] {
        let snapshot = Snapshot {
            namespace: Arc::new(parse(DELETED)),
            content: Vec::new(),
            foreign: Foreign::Known(survey),
        };
        let plan = plan(&snapshot, noon());
        let Some(Action::Request(told)) = plan.actions().next() else { panic!("conditions") };
        let conditions = told.body.pointer("/status/conditions").unwrap().as_array().unwrap().iter();
        let wrong: Vec<String> = conditions
            .filter(|condition| condition["status"] == "True")
            .map(|condition| format!("{}: {}", condition["reason"], condition["message"]))
            .collect();
        assert_eq!(
            (plan.actions().count(), wrong.len(), plan.requeue_after),
            (1, 1, Some(LOOK_AGAIN)),
            "{wrong:?}"
        );
        assert!(told.subresource == "status");
    }
}

#[test]
fn questions_follow_from_what_was_answered() {
    let answers = Answers::default();
    let early = noon() - Duration::from_secs(30);
    let is_known = |resource: &ResourceRef| resource.plural == "pods";
    let gather = || match Foreign::gather(&answers, "team", is_known, noon()) {
        Foreign::Ask(questions) => questions
            .into_iter()
            .map(|question| match question {
                Question::Content(resource, namespace) => format!("{} in {namespace}", resource.plural),
                _ => "resources".to_owned(),
            })
            .collect(),
        Foreign::Known(survey) => {
            vec![format!("{} left, {:?}", survey.content.len(), survey.discovery_failure)]
        }
    };
    assert_eq!(gather(), ["resources"]);
    answers.put(Question::Resources, early, Ok(Answer::Resources(Arc::default())));
    assert_eq!(gather(), ["resources"], "asked before the namespace took nothing new any more");
    answers.put(Question::Resources, noon(), Err(unanswered("away")));
    assert_eq!(gather(), ["0 left, Some(\"away\")"]);

    let mut cluster_wide = found("gadgets", &["delete", "list"]);
    cluster_wide.resource.namespaced = false;
    let pods =
        Discovered { resource: kinds::by_kind("", "Pod").unwrap().clone(), ..found("", &["delete", "list"]) };
    let events = Discovered { resource: kinds::events(), ..found("", &["delete", "list"]) };
    let widgets = found("widgets", &["delete", "list"]);
    let resources = vec![widgets.clone(), cluster_wide, pods, events, found("readings", &["get", "list"])];
    let discovery =
        Discovery { resources, failed: [("a/v1".into(), "stale".into())].into(), ..Discovery::default() };
    answers.put(Question::Resources, noon(), Ok(Answer::Resources(Arc::new(discovery))));
    assert_eq!(gather(), ["widgets in team"]);
    let question = Question::Content(widgets.resource, "team".into());
    let left = Content { objects: vec![object("name: w")], others: 0 };
    answers.put(question, noon(), Ok(Answer::Content(Arc::new(left))));
    let failure = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: a/v1: stale";
    assert_eq!(gather(), [format!("1 left, Some({failure:?})")]);
}

#[test]
fn an_empty_namespace_is_finalized_once_it_has_settled() {
    check(
        DELETED,
        &[],
        &expect![[r#"
        step
          delete events (generated)
        step
          update namespaces/finalize team {"apiVersion":"v1","kind":"Namespace","metadata":{"deletionTimestamp":"2026-01-01T11:59:00Z","name":"team","resourceVersion":"5","uid":"n1"},"spec":{"finalizers":[]}}
    "#]],
    );
    check(
        &DELETED.replace("11:59:00", "12:00:00"),
        &[],
        &expect![[r#"
        again after 1s
    "#]],
    );
}
