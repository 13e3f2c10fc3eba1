//! What is decided of routes.

use expect_test::{Expect, expect};

use super::*;
use crate::RefusalKind;
use crate::fixture::{change, noon, parse, render};
use machinery::net::Cidr;

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

/// Source: `TestIsResponsibleForRoute` of upstream's route controller.
#[test]
fn routes_are_the_clusters_where_its_networks_are() {
    for (cluster, range, expect) in [
        ("10.244.0.0/16", "10.244.0.0/24", true),
        ("10.244.0.0/16", "10.244.10.0/24", true),
        ("10.244.0.0/16", "10.244.255.0/24", true),
        ("10.244.0.0/14", "10.244.0.0/24", true),
        ("10.244.0.0/14", "10.247.255.0/24", true),
        ("a00:100::/10", "a00:100::/24", true),
        ("10.244.0.0/16", "10.224.0.0/24", false),
        ("10.244.0.0/16", "10.0.10.0/24", false),
        ("10.244.0.0/16", "10.255.255.0/24", false),
        ("10.244.0.0/14", "10.248.0.0/24", false),
        ("10.244.0.0/14", "10.243.255.0/24", false),
        ("a00:100::/10", "b00:100::/24", false),
        // Either end is enough.
        ("10.244.0.0/16", "10.244.0.0/15", true),
        ("10.245.0.0/16", "10.244.0.0/15", true),
        ("10.244.0.0/16", "10.0.0.0/8", false),
        ("10.244.0.0/16", "a00:100::/24", false),
    ] {
        let cluster = Cidr::legacy(cluster).unwrap();
        let listed = Listed::read(vec![route("x", range)]).unwrap();
        assert_eq!(listed[0].is_in(&[cluster]), expect, "{cluster} {range}");
    }
}

/// Source: `TestReconcile` of upstream's route controller.
#[test]
fn routes_come_to_be_as_upstreams_rows_have_them() {
    let with_address = |mut route: v1::Route, address: &str| {
        route.enable_node_addresses = true;
        let address = v1::NodeAddress { r#type: "InternalIP".into(), address: address.into() };
        route.target_node_addresses = vec![address];
        route
    };
    let (four, six) = (|n: u8| format!("10.42.{n}.0/24"), |n: u8| format!("fd42:0:0:{n}::/64"));
    let both = |name: &str, n: u8| node(name, &format!("{}, '{}'", four(n), six(n)), THERE);
    let single = |name: &str, n: u8| node(name, &four(n), THERE);
    let routes =
        |all: &[(&str, String)]| all.iter().map(|(node, range)| route(node, range)).collect::<Vec<_>>();
    let at = |address: &str| {
        let all = routes(&[("a", four(0)), ("b", four(1)), ("a", six(0)), ("b", six(1))]);
        all.into_iter().map(|route| with_address(route, address)).collect::<Vec<_>>()
    };
    let no_address = routes(&[("a", four(0))]).into_iter().map(|mut route| {
        route.enable_node_addresses = true;
        route
    });
    let blackhole = |range: &str| v1::Route { blackhole: true, ..route("", range) };
    let right = || routes(&[("a", four(0)), ("b", four(1))]);
    let two = || vec![single("a", 0), single("b", 1)];
    let dual = || vec![both("a", 0), both("b", 1)];
    for (name, nodes, routes, deleted, created) in [
        ("none", two(), vec![], 0, 2),
        ("all", two(), right(), 0, 0),
        ("one is missing", two(), routes(&[("a", four(0))]), 0, 1),
        ("one leads nowhere", two(), routes(&[("a", four(0)), ("c", four(2))]), 1, 1),
        ("wrong ones", two(), routes(&[("a", four(1)), ("b", four(0))]), 2, 2),
        ("too many", two(), [right(), routes(&[("c", four(2)), ("d", four(3))])].concat(), 2, 0),
        ("one Node without range", vec![single("a", 0), node("b", "", "")], vec![], 0, 1),
        ("a black hole in range", two(), [right(), vec![blackhole("10.42.2.0/24")]].concat(), 1, 0),
        ("a black hole elsewhere", two(), [right(), vec![blackhole("10.1.2.0/24")]].concat(), 0, 0),
        ("both families: none", dual(), vec![], 0, 2),
        ("both families: some", dual(), routes(&[("a", four(0)), ("b", six(1))]), 0, 2),
        (
            "both families: wrong ones",
            dual(),
            routes(&[("a", four(1)), ("b", four(0)), ("a", six(1)), ("b", six(0))]),
            4,
            2,
        ),
        (
            "both families: too many",
            dual(),
            [at("192.0.2.1"), routes(&[("x", four(2)), ("y", six(3))])].concat(),
            2,
            0,
        ),
        ("with addresses of Nodes", dual(), at("192.0.2.1"), 0, 0),
        ("with other addresses", dual(), at("192.0.2.9"), 4, 2),
        ("with no addresses", vec![single("a", 0)], no_address.collect(), 1, 1),
    ] {
        let told = told(&nodes, routes);
        let count = |what: &str| told.matches(what).count();
        // The routes of one Node are made one after the other.
        assert_eq!((count("DeleteRoute"), count("CreateRoute")), (deleted, created), "{name}: {told}");
        let (last_deleted, first_created) = (told.rfind("DeleteRoute"), told.find("CreateRoute"));
        assert!(first_created.is_none() || last_deleted < first_created, "{name}: those that go, go first");
    }
}

/// Source: `TestHandleNodeUpdate` of upstream's route controller. Who compares again after a time needs no such event.
#[test]
fn other_ranges_and_addresses_are_news() {
    let usual = "{metadata: {name: a, uid: u}, spec: {podCIDRs: [10.0.0.0/24, 'fd00::/64']},
                  status: {addresses: [{type: InternalIP, address: 10.1.1.1}]}}";
    for (new, expect) in [
        (usual.to_owned(), false),
        (usual.replace("uid: u", "uid: u, resourceVersion: '8', labels: {x: y}"), false),
        (usual.replace("status: {", "status: {conditions: [{type: Ready, status: 'False'}], "), false),
        (usual.replace("10.0.0.0/24, ", ""), true),
        (usual.replace("10.0.0.0/24, 'fd00::/64'", "'fd00::/64', 10.0.0.0/24"), true),
        (usual.replace("10.1.1.1", "10.1.1.2"), true),
        (usual.replace("InternalIP", "ExternalIP"), true),
        (usual.replace("uid: u", "uid: v"), true),
        (String::new(), true),
    ] {
        assert_eq!(is_news(&change(usual, &new)), expect, "{new}");
        assert_eq!(is_news(&change(&new, usual)), expect, "back from {new}");
    }
}
