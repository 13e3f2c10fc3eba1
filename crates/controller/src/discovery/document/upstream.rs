//! Documents of discovery, as their items in YAML, and what is understood of them.
//!
//! Source: `aggregated_discovery_test.go` of upstream's `client-go/discovery`.

use expect_test::expect_file;

use super::*;
use crate::table;

#[test]
fn documents_are_understood_as_upstreams_client_does() {
    table::check(&expect_file!["upstream/documents.txt"], |input| {
        let (root, yaml) = input.split_once(' ').expect("a root");
        let items: serde_json::Value = serde_saphyr::from_str(yaml).expect("YAML");
        let body = serde_json::json!({"kind": "APIGroupDiscoveryList", "items": items}).to_string();
        let root = if root == "/api" { Root::Core } else { Root::Groups };
        let Told { found, others } = match read(body.as_bytes(), root) {
            Ok(told) => told,
            Err(error) => return format!("refused: {error}"),
        };
        let shown = |one: &Discovered| {
            let Discovered { resource, verbs, subresources } = one;
            let scope = if resource.namespaced { "in namespaces" } else { "in the cluster" };
            let parts: String = subresources.iter().map(|part| format!(" /{part}")).collect();
            format!(
                "{} {} {} {scope} {}{parts}",
                resource.api_version(),
                resource.plural,
                resource.kind,
                verbs.join(",")
            )
        };
        let all = found.resources.iter().map(shown);
        let others =
            others.iter().map(|one| format!("also {} {}", one.resource.api_version(), one.resource.plural));
        let failed = found.failed.iter().map(|(place, why)| format!("{place} fails: {why}"));
        let unreadable = found.unreadable.iter().map(|place| format!("unreadable {place:?}"));
        all.chain(others).chain(failed).chain(unreadable).collect::<Vec<_>>().join("; ")
    });
}
