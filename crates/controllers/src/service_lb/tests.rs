use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, render};

const NODES: &str = "
- {metadata: {name: a}, status: {conditions: [{type: Ready, status: 'True'}],
   addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: a}]}}
- {metadata: {name: b}, status: {conditions: [{type: Ready, status: 'True'}],
   addresses: [{type: InternalIP, address: 192.0.2.2}]}}";

fn snapshot(services: &str, nodes: &str, pool: &str) -> Snapshot {
    let pool = pool.split_whitespace().map(|range| range.parse().unwrap()).collect();
    Snapshot {
        settings: Arc::new(Settings { pool, own_ports: [6443, 10_250].into() }),
        services: list(services),
        nodes: list(nodes),
        slices: Vec::new(),
        host_ports: Vec::new(),
    }
}

fn check(services: &str, nodes: &str, pool: &str, expect: &Expect) {
    expect.assert_eq(&render(&plan(&snapshot(services, nodes, pool), noon())));
}

/// A Service of namespace `team` that was made in the given minute, with more metadata, spec and status.
fn service(name: &str, minute: u8, more: [&str; 3]) -> String {
    let [meta, spec, status] = more;
    format!(
        "- {{metadata: {{namespace: team, name: {name}, uid: u-{name}, creationTimestamp: '2026-01-01T10:{minute:02}:00Z'{meta}}}, \
         spec: {{type: LoadBalancer{spec}}}, status: {{{status}}}}}\n"
    )
}

const HELD: &str = ", finalizers: [service.kubernetes.io/load-balancer-cleanup]";
const PORT_80: &str = ", ports: [{port: 80}]";

/// The status of a Service that has these addresses.
fn given(reason: &str, message: &str, addresses: &[&str]) -> String {
    let ingress: Vec<String> = addresses.iter().map(|ip| format!("{{ip: {ip}, ipMode: VIP}}")).collect();
    format!(
        "loadBalancer: {{ingress: [{}]}}, conditions: [{{type: knarr.io/LoadBalancer, status: 'True', reason: {reason}, \
         message: {message}, lastTransitionTime: '2026-01-01T11:00:00Z'}}]",
        ingress.join(", ")
    )
}

fn at_nodes(addresses: &[&str]) -> String {
    given("NodeAddresses", "reached at the addresses of Nodes", addresses)
}

fn of_pool(address: &str) -> String {
    given("PoolAddress", "reached at an address of the pool", &[address])
}

/// What each Service has when the plan is carried out: its addresses, or why it has none.
fn outcome(snapshot: &Snapshot) -> Vec<String> {
    let text = render(&plan(snapshot, noon()));
    let statuses = text.lines().filter_map(|line| line.trim().strip_prefix("patch services/status "));
    let mut told: Vec<String> = statuses
        .map(|line| {
            let (name, body) = line.split_once(' ').unwrap();
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let ingress = body["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
            let ips: Vec<&str> = ingress.iter().filter_map(|one| one["ip"].as_str()).collect();
            match ips.as_slice() {
                [] => {
                    format!("{name}: {}", body["status"]["conditions"][0]["message"].as_str().unwrap_or("-"))
                }
                ips => format!("{name} has {}", ips.join(" ")),
            }
        })
        .collect();
    told.sort();
    told
}

#[test]
fn a_service_gets_the_nodes_addresses_and_is_held_and_then_nothing_more_happens() {
    check(
        &service("web", 0, ["", PORT_80, ""]),
        NODES,
        "",
        &expect![[r#"
            step
              Normal EnsuringLoadBalancer: Ensuring load balancer
              patch services/status web {"metadata":{"uid":"u-web"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"reached at the addresses of Nodes","reason":"NodeAddresses","status":"True","type":"knarr.io/LoadBalancer"}],"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"ip":"192.0.2.2"}]}}}
              Normal EnsuredLoadBalancer: Ensured load balancer
            step
              patch services web {"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"],"uid":"u-web"}}
        "#]],
    );
    let status = at_nodes(&["192.0.2.1", "192.0.2.2"]);
    check(&service("web", 0, [HELD, PORT_80, &status]), NODES, "", &expect![[""]]);
}

#[test]
fn a_status_that_names_other_addresses_is_put_right() {
    let status = at_nodes(&["192.0.2.1", "10.43.0.1", "198.51.100.9"]);
    check(
        &service("web", 0, [HELD, PORT_80, &status]),
        NODES,
        "",
        &expect![[r#"
            step
              patch services/status web {"metadata":{"uid":"u-web"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T11:00:00Z","message":"reached at the addresses of Nodes","reason":"NodeAddresses","status":"True","type":"knarr.io/LoadBalancer"}],"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"ip":"192.0.2.2"}]}}}
              Normal UpdatedLoadBalancer: Updated load balancer with new hosts
        "#]],
    );
}

#[test]
fn what_a_service_has_is_taken_back_when_it_is_nobodys_or_somebody_elses() {
    let status = at_nodes(&["192.0.2.1", "192.0.2.2"]);
    let gone = expect![[r#"
        step
          Normal DeletingLoadBalancer: Deleting load balancer
          patch services/status web {"metadata":{"uid":"u-web"},"status":{"conditions":[{"$patch":"delete","type":"knarr.io/LoadBalancer"}],"loadBalancer":{"ingress":null}}}
          Normal DeletedLoadBalancer: Deleted load balancer
        step
          patch services web {"metadata":{"$deleteFromPrimitiveList/finalizers":["service.kubernetes.io/load-balancer-cleanup"],"uid":"u-web"}}
    "#]];
    let deleting = format!("{HELD}, deletionTimestamp: '2026-01-01T11:59:00Z'");
    check(&service("web", 0, [&deleting, PORT_80, &status]), NODES, "", &gone);
    let another = service("web", 0, [HELD, ", loadBalancerClass: example.com/other", &status]);
    check(&another, NODES, "", &gone);
    let cluster_ip =
        service("web", 0, [HELD, PORT_80, &status]).replace("type: LoadBalancer", "type: ClusterIP");
    check(&cluster_ip, NODES, "", &gone);
}

#[test]
fn what_others_have_given_is_left_alone() {
    let theirs = "loadBalancer: {ingress: [{ip: 198.51.100.9}]}";
    let deleting = format!("{HELD}, deletionTimestamp: '2026-01-01T11:59:00Z'");
    for service in [
        service("web", 0, [HELD, ", loadBalancerClass: example.com/other", theirs]),
        service("web", 0, [&deleting, ", loadBalancerClass: example.com/other", theirs]),
        service("web", 0, [HELD, "", theirs]).replace("type: LoadBalancer", "type: ClusterIP"),
        service("web", 0, [", deletionTimestamp: '2026-01-01T11:59:00Z'", "", ""]),
    ] {
        check(&service, NODES, "", &expect![[""]]);
    }
}

#[test]
fn our_class_and_none_are_ours() {
    for class in ["", ", loadBalancerClass: knarr.io/servicelb"] {
        let service = service("web", 0, ["", &format!("{PORT_80}{class}"), ""]);
        assert_eq!(outcome(&snapshot(&service, NODES, "")), ["web has 192.0.2.1 192.0.2.2"], "{class}");
    }
}

#[test]
fn nodes_take_part_that_are_ready_stay_and_are_not_excluded() {
    let node = |more: &str, ready: &str, addresses: &str| {
        format!(
            "- {{metadata: {{name: x{more}}}, status: {{conditions: [{{type: Ready, status: '{ready}'}}], addresses: [{addresses}]}}}}\n"
        )
    };
    let internal = "{type: InternalIP, address: 192.0.2.9}";
    let both = "{type: InternalIP, address: 192.0.2.9}, {type: ExternalIP, address: 203.0.113.9}";
    let tainted = node("", "True", internal).replace(
        ", status: {",
        ", spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}, status: {",
    );
    for (what, nodes, expect) in [
        ("none", "[]".to_owned(), "web: There are no available nodes for LoadBalancer"),
        ("external", format!("{NODES}\n{}", node("", "True", both)), "web has 203.0.113.9"),
        ("not ready", format!("{NODES}\n{}", node("", "Unknown", internal)), "web has 192.0.2.1 192.0.2.2"),
        ("none ready", node("", "False", internal), "web has 192.0.2.9"),
        (
            "going",
            node(", deletionTimestamp: '2026-01-01T11:00:00Z'", "True", internal),
            "web: There are no available nodes for LoadBalancer",
        ),
        (
            "excluded",
            node(", labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''}", "True", internal),
            "web: There are no available nodes for LoadBalancer",
        ),
        ("tainted", tainted, "web: There are no available nodes for LoadBalancer"),
        (
            "nameless",
            node("", "True", "{type: Hostname, address: x}"),
            "web: no Node has an address of the Service's families",
        ),
    ] {
        let service = service("web", 0, ["", PORT_80, ""]);
        assert_eq!(outcome(&snapshot(&service, &nodes, "")), [expect], "{what}");
    }
}

#[test]
fn traffic_that_stays_on_a_node_comes_to_nodes_with_ready_endpoints() {
    let spec = format!("{PORT_80}, externalTrafficPolicy: Local");
    let slice = |conditions: &str| {
        format!(
            "[{{metadata: {{namespace: team, name: web-1, labels: {{kubernetes.io/service-name: web}}}}, addressType: IPv4, \
             endpoints: [{{addresses: [10.42.0.2], nodeName: b, conditions: {{{conditions}}}}}]}}]"
        )
    };
    for (conditions, expect) in [
        ("ready: true", "web has 192.0.2.2"),
        ("", "web has 192.0.2.2"),
        (
            "ready: false, serving: true, terminating: true",
            "web: No available node has a ready endpoint, and externalTrafficPolicy is Local",
        ),
    ] {
        let service = service("web", 0, ["", &spec, ""]);
        let snapshot = Snapshot { slices: list(&slice(conditions)), ..snapshot(&service, NODES, "") };
        assert_eq!(outcome(&snapshot), [expect], "{conditions}");
    }
}

#[test]
fn a_port_of_the_nodes_leads_to_one_service_and_the_later_one_is_told_whose_it_is() {
    let status = at_nodes(&["192.0.2.1", "192.0.2.2"]);
    let node_port = "- {metadata: {namespace: team, name: np}, spec: {type: NodePort, ports: [{port: 1, nodePort: 30080}], healthCheckNodePort: 32000}}\n";
    let taken = "of the Nodes is taken by";
    for (what, services, expect) in [
        (
            "the older one first",
            service("new", 1, ["", PORT_80, ""]) + &service("old", 0, ["", PORT_80, ""]),
            vec![
                format!("new: port 80/TCP {taken} the load balancer of Service team/old"),
                "old has 192.0.2.1 192.0.2.2".to_owned(),
            ],
        ),
        (
            "who has it keeps it",
            service("new", 1, [HELD, PORT_80, &status]) + &service("old", 0, ["", PORT_80, ""]),
            vec![format!("old: port 80/TCP {taken} the load balancer of Service team/new")],
        ),
        (
            "another protocol",
            service("tcp", 0, ["", PORT_80, ""])
                + &service("udp", 1, ["", ", ports: [{port: 80, protocol: UDP}]", ""]),
            vec!["tcp has 192.0.2.1 192.0.2.2".to_owned(), "udp has 192.0.2.1 192.0.2.2".to_owned()],
        ),
        (
            "one of several ports",
            service("one", 0, ["", PORT_80, ""])
                + &service("two", 1, ["", ", ports: [{port: 79}, {port: 80}]", ""]),
            vec![
                "one has 192.0.2.1 192.0.2.2".to_owned(),
                format!("two: port 80/TCP {taken} the load balancer of Service team/one"),
            ],
        ),
        (
            "a node port",
            node_port.to_owned() + &service("web", 0, ["", ", ports: [{port: 30080}]", ""]),
            vec![format!("web: port 30080/TCP {taken} a node port of Service team/np")],
        ),
        (
            "a health check's",
            node_port.to_owned() + &service("web", 0, ["", ", ports: [{port: 32000}]", ""]),
            vec![format!("web: port 32000/TCP {taken} a node port of Service team/np")],
        ),
        (
            "its own node port",
            service("web", 0, ["", ", ports: [{port: 30080, nodePort: 30080}]", ""]),
            vec!["web has 192.0.2.1 192.0.2.2".to_owned()],
        ),
        (
            "the API server's",
            service("web", 0, ["", ", ports: [{port: 6443}]", ""]),
            vec![format!("web: port 6443/TCP {taken} the Node itself")],
        ),
    ] {
        assert_eq!(outcome(&snapshot(&services, NODES, "")), expect, "{what}");
    }
}

#[test]
fn a_node_whose_port_a_pod_has_is_left_out_unless_the_service_was_there_first() {
    let pods: Vec<Arc<Pod>> = list(
        "[{metadata: {namespace: p, name: x}, spec: {nodeName: a, containers: [{name: c, ports: [{containerPort: 1, hostPort: 80}]}]}}, \
          {metadata: {namespace: p, name: done}, spec: {nodeName: b, containers: [{name: c, ports: [{containerPort: 1, hostPort: 80}]}]}, status: {phase: Succeeded}}, \
          {metadata: {namespace: p, name: udp}, spec: {nodeName: b, containers: [{name: c, ports: [{containerPort: 1, hostPort: 80, protocol: UDP}]}]}}]",
    );
    let with_pods = |service: &str, nodes: &str| Snapshot {
        host_ports: pods.iter().flat_map(|pod| port_owners::host_ports(pod)).collect(),
        ..snapshot(service, nodes, "")
    };
    let new = service("web", 0, ["", PORT_80, ""]);
    assert_eq!(outcome(&with_pods(&new, NODES)), ["web has 192.0.2.2"]);
    let only = NODES.split("- ").nth(1).map(|node| format!("- {node}")).unwrap();
    assert_eq!(outcome(&with_pods(&new, &only)), ["web: port 80/TCP of Node a is a host port of Pod p/x"]);
    let old = service("web", 0, [HELD, PORT_80, &at_nodes(&["192.0.2.1", "192.0.2.2"])]);
    assert_eq!(outcome(&with_pods(&old, NODES)), Vec::<String>::new());
}

#[test]
fn the_pool_gives_each_service_an_address_of_its_own() {
    let asks = |ip: &str| format!("{PORT_80}, loadBalancerIP: '{ip}'");
    let external =
        "- {metadata: {namespace: team, name: ext}, spec: {type: ClusterIP, externalIPs: [198.51.100.1]}}\n";
    for (what, services, pool, expect) in [
        (
            "the first that are free",
            service("a", 0, ["", PORT_80, ""]) + &service("b", 1, ["", PORT_80, ""]),
            "198.51.100.1-198.51.100.9",
            vec!["a has 198.51.100.1", "b has 198.51.100.2"],
        ),
        (
            "exhausted",
            service("a", 0, ["", PORT_80, ""]) + &service("b", 1, ["", PORT_80, ""]),
            "198.51.100.1/32",
            vec!["a has 198.51.100.1", "b: every address of the pool is taken"],
        ),
        (
            "asked for",
            service("a", 0, ["", &asks("198.51.100.7"), ""]),
            "198.51.100.0/24",
            vec!["a has 198.51.100.7"],
        ),
        (
            "foreign",
            service("a", 0, ["", &asks("203.0.113.7"), ""]),
            "198.51.100.0/24",
            vec!["a: spec.loadBalancerIP 203.0.113.7 must be an address of the pool"],
        ),
        (
            "nonsense",
            service("a", 0, ["", &asks("x"), ""]),
            "198.51.100.0/24",
            vec!["a: spec.loadBalancerIP x must be an IP address"],
        ),
        (
            "another's",
            service("a", 0, [HELD, PORT_80, &of_pool("198.51.100.7")])
                + &service("b", 1, ["", &asks("198.51.100.7"), ""]),
            "198.51.100.0/24",
            vec!["b: spec.loadBalancerIP 198.51.100.7 is that of Service team/a"],
        ),
        (
            "another family",
            service("a", 0, ["", &asks("2001:db8::1"), ""]),
            "198.51.100.0/24",
            vec!["a: spec.loadBalancerIP 2001:db8::1 must be of the Service's family"],
        ),
        (
            "a Node's, and one that a Service has by its own words",
            external.to_owned() + &service("a", 0, ["", PORT_80, ""]),
            "192.0.2.1/32 198.51.100.1-198.51.100.2",
            vec!["a has 198.51.100.2"],
        ),
        (
            "no family in common",
            service("a", 0, ["", ", ipFamilies: [IPv6]", ""]),
            "198.51.100.0/24",
            vec!["a: the pool has no addresses of the Service's families"],
        ),
    ] {
        assert_eq!(outcome(&snapshot(&services, NODES, pool)), expect, "{what}");
    }
}

#[test]
fn a_service_is_reached_at_addresses_of_its_families_alone() {
    const BOTH: &str = "
- {metadata: {name: a}, status: {conditions: [{type: Ready, status: 'True'}],
   addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: '2001:db8::1'}, {type: Hostname, address: a}]}}
- {metadata: {name: b}, status: {conditions: [{type: Ready, status: 'True'}],
   addresses: [{type: InternalIP, address: '2001:db8::2'}, {type: InternalIP, address: 192.0.2.2}]}}";
    let outside = BOTH.replace(
        "{type: Hostname, address: a}",
        "{type: ExternalIP, address: 198.51.100.1}, {type: Hostname, address: a}",
    );
    let of = |families: &str| service("web", 0, ["", &format!("{PORT_80}{families}"), ""]);
    let (four, six) = (of(", ipFamilies: [IPv4]"), of(", ipFamilies: [IPv6]"));
    let (dual, six_first) = (of(", ipFamilies: [IPv4, IPv6]"), of(", ipFamilies: [IPv6, IPv4]"));
    for (what, services, nodes, pool, expect) in [
        ("of IPv4", &four, BOTH, "", "web has 192.0.2.1 192.0.2.2"),
        ("of IPv6", &six, BOTH, "", "web has 2001:db8::1 2001:db8::2"),
        ("of both", &dual, BOTH, "", "web has 192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2"),
        ("IPv6 first", &six_first, BOTH, "", "web has 2001:db8::1 2001:db8::2 192.0.2.1 192.0.2.2"),
        ("outside in one family", &dual, &outside, "", "web has 198.51.100.1 2001:db8::1 2001:db8::2"),
        ("by its address", &of(", clusterIP: 'fd43::7'"), BOTH, "", "web has 2001:db8::1 2001:db8::2"),
        ("Nodes without", &six, NODES, "", "web: no Node has an address of the Service's families"),
        (
            "a pool of both",
            &dual,
            BOTH,
            "198.51.100.0/30 2001:db8:1::/126",
            "web has 198.51.100.0 2001:db8:1::",
        ),
        (
            "the same, IPv6 first",
            &six_first,
            BOTH,
            "198.51.100.0/30 2001:db8:1::/126",
            "web has 2001:db8:1:: 198.51.100.0",
        ),
        ("a pool of one", &dual, BOTH, "2001:db8:1::/126", "web has 2001:db8:1::"),
        ("a pool with a Node's", &six, BOTH, "2001:db8::1-2001:db8::3", "web has 2001:db8::3"),
    ] {
        assert_eq!(outcome(&snapshot(services, nodes, pool)), [expect], "{what}");
    }
}

#[test]
fn an_address_of_the_pool_is_kept_as_long_as_it_is_of_the_pool_and_nobody_elses() {
    for (what, services, pool, expect) in [
        (
            "what is no longer of the pool is changed",
            service("a", 0, [HELD, PORT_80, &of_pool("203.0.113.7")]),
            "198.51.100.0/24",
            vec!["a has 198.51.100.0"],
        ),
        (
            "of two who have one, the older keeps it",
            service("a", 1, [HELD, PORT_80, &of_pool("198.51.100.7")])
                + &service("b", 0, [HELD, PORT_80, &of_pool("198.51.100.7")]),
            "198.51.100.0/24",
            vec!["a has 198.51.100.0"],
        ),
        ("kept", service("a", 0, [HELD, PORT_80, &of_pool("198.51.100.7")]), "198.51.100.0/24", vec![]),
    ] {
        assert_eq!(outcome(&snapshot(&services, NODES, pool)), expect, "{what}");
    }
}

#[test]
fn who_waits_is_told_once() {
    let services = service("new", 1, ["", PORT_80, ""])
        + &service("old", 0, [HELD, PORT_80, &at_nodes(&["192.0.2.1", "192.0.2.2"])]);
    let why = "port 80/TCP of the Nodes is taken by the load balancer of Service team/old";
    let first = render(&plan(&snapshot(&services, NODES, ""), noon()));
    assert!(first.contains(&format!("Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: {why}")), "{first}");
    let waiting = format!(
        "conditions: [{{type: knarr.io/LoadBalancer, status: 'False', reason: Waiting, message: {why}, lastTransitionTime: '2026-01-01T11:00:00Z'}}]"
    );
    let services = services
        .replace("- {metadata: {namespace: team, name: new", "- {metadata: {namespace: team, name: NEW");
    let old = services.lines().last().unwrap().to_owned() + "\n";
    check(&(service("new", 1, [HELD, PORT_80, &waiting]) + &old), NODES, "", &expect![[""]]);
}
