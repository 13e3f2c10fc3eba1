use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{noon, parse, render};

fn check(namespace: &str, content: &[(&str, &str)], expect: &Expect) {
    let content = content
        .iter()
        .map(|(kind, metadata)| {
            let object = parse(&format!("{{metadata: {{namespace: team, {metadata}}}}}"));
            (kinds::by_kind("", kind).unwrap().clone(), vec![Arc::new(object)])
        })
        .collect();
    let snapshot = Snapshot { namespace: Arc::new(parse(namespace)), content };
    expect.assert_eq(&render(&plan(&snapshot, noon())));
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
fn content_goes_first() {
    check(
        DELETED,
        &[
            ("ConfigMap", "name: c, uid: c1"),
            (
                "Pod",
                "name: a, uid: p1, deletionTimestamp: '2026-01-01T11:59:30Z', finalizers: [example.com/hold]",
            ),
        ],
        &expect![[r#"
            step
              delete configmaps c
            step
              patch namespaces/status team {"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"All resources successfully discovered","reason":"ResourcesDiscovered","status":"False","type":"NamespaceDeletionDiscoveryFailure"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"All legacy kube types successfully parsed","reason":"ParsedGroupVersions","status":"False","type":"NamespaceDeletionGroupVersionParsingFailure"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"All content successfully deleted, may be waiting on finalization","reason":"ContentDeleted","status":"False","type":"NamespaceDeletionContentFailure"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances","reason":"SomeResourcesRemain","status":"True","type":"NamespaceContentRemaining"},{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances","reason":"SomeFinalizersRemain","status":"True","type":"NamespaceFinalizersRemaining"}],"phase":"Terminating"}}
        "#]],
    );
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
