use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{noon, parse, render};

/// An entry: server and encoding version.
type Entry = (&'static str, &'static str);

fn version(stored: &[Entry], more: &str) -> Arc<StorageVersion> {
    let entry = |(server, version): &Entry| {
        format!("{{apiServerID: {server}, encodingVersion: {version}, decodableVersions: [{version}]}}")
    };
    let entries: Vec<String> = stored.iter().map(entry).collect();
    Arc::new(parse(&format!(
        "{{metadata: {{name: k8s.test.resources, uid: u, resourceVersion: '7', generation: 3}}, spec: {{}}, status: \
         {{storageVersions: [{}], {more}}}}}",
        entries.join(", ")
    )))
}

/// Servers are seen by their names: `one`, `two` and so on. `young` are not seen, `odd` are something else.
fn check(name: &str, stored: &[Entry], more: &str, expect: &Expect) {
    let version = version(stored, more);
    let identity = |entry: &ServerStorageVersion| match server(entry) {
        "gone" | "young" | "" => Identity::Unseen,
        "odd" => Identity::Foreign,
        _ => Identity::Seen,
    };
    let identities = entries(&version).iter().map(identity).collect();
    let plan = plan(&Snapshot { version, identities }, noon());
    let deletes = plan.actions().filter_map(|action| match action {
        Action::Request(request) if request.body.get("preconditions").is_some() => {
            Some(format!("    only {}\n", request.body["preconditions"]))
        }
        _ => None,
    });
    let told = format!("{}{}", render(&plan), deletes.collect::<String>());
    eprintln!("{name}");
    expect.assert_eq(&told);
}

/// Source: `Test_StorageVersionUpdatedWithAllEncodingVersionsEqualOnLeaseDeletion` and its neighbours.
#[test]
fn what_is_said_of_servers_that_are_gone_is_taken_out() {
    check(
        "those that are left agree",
        &[("gone", "v1"), ("two", "v2"), ("three", "v2")],
        "commonEncodingVersion: v1",
        &expect![[r#"
            step
              require no leases gone
            step
              update storageversions/status k8s.test.resources {"commonEncodingVersion":"v2","conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Common encoding version set","observedGeneration":3,"reason":"CommonEncodingVersionSet","status":"True","type":"AllEncodingVersionsEqual"}],"storageVersions":[{"apiServerID":"two","decodableVersions":["v2"],"encodingVersion":"v2"},{"apiServerID":"three","decodableVersions":["v2"],"encodingVersion":"v2"}]}
                only {"uid":""}
        "#]],
    );
    check("all are there", &[("one", "v1"), ("three", "v2")], "commonEncodingVersion: v1", &expect![""]);
    check("nobody says anything", &[], "", &expect![""]);
    check(
        "those that are left do not agree",
        &[("one", "v1"), ("two", "v2"), ("three", "v2"), ("gone", "v2")],
        "commonEncodingVersion: v1",
        &expect![[r#"
            step
              require no leases gone
            step
              update storageversions/status k8s.test.resources {"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"Common encoding version unset","observedGeneration":3,"reason":"CommonEncodingVersionUnset","status":"False","type":"AllEncodingVersionsEqual"}],"storageVersions":[{"apiServerID":"one","decodableVersions":["v1"],"encodingVersion":"v1"},{"apiServerID":"two","decodableVersions":["v2"],"encodingVersion":"v2"},{"apiServerID":"three","decodableVersions":["v2"],"encodingVersion":"v2"}]}
                only {"uid":""}
        "#]],
    );
    check(
        "nobody is left",
        &[("gone", "v1")],
        "",
        &expect![[r#"
            step
              require no leases gone
            step
              delete storageversions k8s.test.resources
                only {"uid":""}
                only {"resourceVersion":"7","uid":"u"}
        "#]],
    );
    check(
        "something else has the name, and one has none",
        &[("odd", "v1"), ("''", "v1")],
        "",
        &expect![[r#"
            step
              delete storageversions k8s.test.resources
                only {"resourceVersion":"7","uid":"u"}
        "#]],
    );
}

#[test]
fn a_lease_is_a_servers_by_its_label() {
    let lease = |labels: &str| parse::<Lease>(&format!("{{metadata: {{name: a, labels: {{{labels}}}}}}}"));
    for (labels, expect) in [
        ("apiserver.kubernetes.io/identity: kube-apiserver", Identity::Seen),
        ("apiserver.kubernetes.io/identity: other-apiserver", Identity::Foreign),
        ("k8s.io/component: kube-apiserver", Identity::Foreign),
        ("", Identity::Foreign),
    ] {
        assert_eq!(of(&lease(labels)), expect, "{labels}");
    }
}
