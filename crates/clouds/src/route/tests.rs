//! What is decided of routes.

use expect_test::{Expect, expect};

use super::*;
use crate::RefusalKind;
use crate::fixture::{noon, parse, render};

fn node(name: &str, ranges: &str, more: &str) -> Arc<Node> {
    parse(&format!(
        "{{metadata: {{name: {name}, uid: u-{name}}}, spec: {{podCIDRs: [{ranges}]}},
           status: {{addresses: [{{type: InternalIP, address: 192.0.2.1}}], {more}}}}}"
    ))
}

fn route(node: &str, range: &str) -> v1::Route {
    v1::Route {
        name: format!("to-{node}"),
        target_node: node.to_owned(),
        destination_cidr: range.to_owned(),
        ..v1::Route::default()
    }
}

const THERE: &str = "conditions: [{type: NetworkUnavailable, status: 'False', reason: RouteCreated}]";

fn told(nodes: &[Arc<Node>], routes: Vec<v1::Route>) -> String {
    let options =
        Options { cluster_cidr: Some("10.42.0.0/16,fd42::/56".parse().unwrap()), ..Options::default() };
    render(&compare(nodes, &Listed::read(routes).unwrap(), &options, noon()))
}

fn check(nodes: &[Arc<Node>], routes: Vec<v1::Route>, expect: &Expect) {
    expect.assert_eq(&told(nodes, routes));
}

#[test]
fn routes_that_are_missing_are_made_and_others_taken_away() {
    check(
        &[node("a", "10.42.0.0/24", ""), node("b", "10.42.1.0/24", "")],
        Vec::new(),
        &expect![[r#"
        - ask CreateRoute 10.42.0.0/24 a
          ask CreateRoute 10.42.1.0/24 b
    "#]],
    );
    let routes = vec![route("a", "10.42.0.0/24"), route("gone", "10.42.9.0/24"), route("a", "10.42.7.0/24")];
    check(
        &[node("a", "10.42.0.0/24", "")],
        routes,
        &expect![[r#"
        - ask DeleteRoute to-gone 10.42.9.0/24
          ask DeleteRoute to-a 10.42.7.0/24
        - Patch("application/strategic-merge-patch+json") nodes/status a {"metadata":{"uid":"u-a"},"status":{"conditions":[{"lastHeartbeatTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"RouteController created a route","reason":"RouteCreated","status":"False","type":"NetworkUnavailable"}]}}
    "#]],
    );
    assert_eq!(told(&[node("a", "10.42.0.0/24", THERE)], vec![route("a", "10.42.0.0/24")]), "");
    assert_eq!(told(&[node("a", "", "")], Vec::new()), "", "it has no range yet");
}

#[test]
fn what_is_not_the_clusters_stays() {
    for range in ["10.43.0.0/24", "0.0.0.0/0", "fd43::/64", "nowhere", ""] {
        assert_eq!(told(&[], vec![route("x", range)]), "", "{range}");
    }
    assert_eq!(told(&[], vec![route("x", "fd42::/64")]), "- ask DeleteRoute to-x fd42::/64\n");
}

#[test]
fn a_route_to_another_place_is_made_anew() {
    let nodes = [node("a", "10.42.0.0/24", THERE)];
    let with = |change: fn(&mut v1::Route)| {
        let mut one = route("a", "10.42.0.0/24");
        change(&mut one);
        told(&nodes, vec![one])
    };
    let anew = "- ask DeleteRoute to-a 10.42.0.0/24\n- ask CreateRoute 10.42.0.0/24 a\n";
    assert_eq!(with(|route| route.blackhole = true), anew);
    assert_eq!(with(|route| route.target_node = "b".into()), anew);
    assert_eq!(with(|route| route.enable_node_addresses = true), anew, "to no address");
    let right = with(|route| {
        route.enable_node_addresses = true;
        route.target_node_addresses =
            vec![v1::NodeAddress { r#type: "InternalIP".into(), address: "192.0.2.1".into() }];
    });
    assert_eq!(right, "");
}

#[test]
fn a_node_has_its_routes_when_all_are_made_and_is_told_when_one_is_not() {
    let node = node("a", "10.42.0.0/24, 'fd42::/64'", "");
    let options = Options::default();
    let next = render(&created(&node, vec!["10.42.0.0/24".to_owned()], &options, noon()));
    assert_eq!(next, "- ask CreateRoute 10.42.0.0/24 a\n");
    assert!(render(&created(&node, Vec::new(), &options, noon())).contains("RouteCreated"));
    let why = Refusal { kind: RefusalKind::Failed, message: "table full".to_owned(), retry_after: None };
    expect![[r#"
        - Warning FailedToCreateRoute: Could not create route u-a 10.42.0.0/24 for node a: table full
        - Patch("application/strategic-merge-patch+json") nodes/status a {"metadata":{"uid":"u-a"},"status":{"conditions":[{"lastHeartbeatTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"RouteController failed to create a route","reason":"NoRouteCreated","status":"True","type":"NetworkUnavailable"}]}}
    "#]]
    .assert_eq(&render(&not_created(&node, "10.42.0.0/24", &why, noon())));
}

#[test]
fn a_list_without_an_end_is_not_believed() {
    assert!(
        Listed::read(vec![v1::Route::default(); 10_001])
            .is_err_and(|refusal| refusal.message.contains("at most 10000"))
    );
}
