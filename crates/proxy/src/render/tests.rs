//! What Services come to in tables, and ([`packets`]) what the kernel does with packets then.

mod packets;
mod shown;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::families::{BOTH, config, ip, told};
use crate::services::{Changed, News};

/// Objects of the namespace `default`, told in a family; those with endpoints are slices of the Service of their label or,
/// without, their name.
fn changed(family: Family, yaml: &str) -> Changed {
    let objects: Vec<Value> = serde_saphyr::from_str(&told(family, yaml)).unwrap();
    let mut changed = Changed::default();
    for mut object in objects {
        object["metadata"]["namespace"] = json!("default");
        let name = object["metadata"]["name"].clone();
        let key = format!("default/{}", name.as_str().unwrap());
        if object.get("endpoints").is_some() {
            if object["metadata"].get("labels").is_none() {
                object["metadata"]["labels"] = json!({ "kubernetes.io/service-name": name });
            }
            if object.get("addressType").is_none() {
                object["addressType"] = json!(family.as_str());
            }
            changed.slices.push((key, None, Some(Arc::new(serde_json::from_value(object).unwrap()))));
        } else {
            changed.services.push((key, None, Some(Arc::new(serde_json::from_value(object).unwrap()))));
        }
    }
    changed
}

/// What leads from one state of the world to another.
fn news(family: Family, before: &str, after: &str) -> Changed {
    let (old, mut new) = (changed(family, before), changed(family, after));
    fn join<K: Clone>(old: Vec<News<K>>, new: &mut Vec<News<K>>) {
        for (key, _, was) in old {
            match new.iter_mut().find(|(other, ..)| *other == key) {
                Some(one) => one.1 = was,
                None => new.push((key, was, None)),
            }
        }
    }
    join(old.services, &mut new.services);
    join(old.slices, &mut new.slices);
    new
}

/// The table of a cluster of one family.
fn table(family: Family, yaml: &str) -> Table {
    let mut tables = crate::tables(config(&[family]), changed(family, yaml));
    assert_eq!((tables.len(), tables[0].family), (1, table_family(family)));
    tables.remove(0)
}

/// Names of the chains, without those that are always there: the same in both families.
fn chains(yaml: &str) -> Vec<String> {
    let of = |family| {
        let always: BTreeSet<String> = table(family, "[]").chains.into_keys().collect();
        let all = table(family, yaml).chains.into_keys();
        all.filter(|name| !always.contains(name)).collect::<Vec<String>>()
    };
    assert_eq!(of(Family::V4), of(Family::V6));
    of(Family::V4)
}

const WEB: &str = "
- {metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}
- {metadata: {name: web}, ports: [{port: 8080}], endpoints: [{addresses: [10.42.0.2]}, {addresses: [10.42.0.3]}]}
";

#[test]
fn a_service_is_an_element_and_a_chain_that_chooses() {
    assert_eq!(chains(WEB), ["endpoints/default/web//6", "service/default/web//6"]);
    for family in BOTH {
        let table = table(family, WEB);
        assert_eq!(table.sets["service-ips"].elements.len(), 1);
        assert_eq!(table.sets["endpoints-0"].elements.len(), 2);
    }
}

#[test]
fn services_without_address_or_of_another_proxy_are_left_alone() {
    let endpoints = "{metadata: {name: web}, ports: [{port: 80}], endpoints: [{addresses: [10.42.0.2]}]}";
    for (name, service) in [
        ("headless", "{metadata: {name: web}, spec: {clusterIP: None, ports: [{port: 80}]}}"),
        (
            "external name",
            "{metadata: {name: web}, spec: {type: ExternalName, externalName: x, ports: [{port: 80}]}}",
        ),
        (
            "other proxy",
            "{metadata: {name: web, labels: {service.kubernetes.io/service-proxy-name: x}},
              spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}",
        ),
        ("no endpoints", "{metadata: {name: other}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}"),
        (
            "other port name",
            "{metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{name: a, port: 80}]}}",
        ),
    ] {
        assert_eq!(chains(&format!("[{service}, {endpoints}]")), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn endpoints_that_end_are_used_only_when_no_other_is_left() {
    let service = "{metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}";
    let ending = "{addresses: [10.42.0.2], conditions: {ready: false, serving: true, terminating: true}}";
    let unready = "{addresses: [10.42.0.3], conditions: {ready: false, serving: false}}";
    let ready = "{addresses: [10.42.0.4], conditions: {ready: true}}";
    for (name, endpoints, used) in [
        ("ready wins", format!("{ending}, {unready}, {ready}"), "10.42.0.4"),
        ("ending as last resort", format!("{ending}, {unready}"), "10.42.0.2"),
    ] {
        let yaml = format!(
            "[{service}, {{metadata: {{name: web}}, ports: [{{port: 80}}], endpoints: [{endpoints}]}}]"
        );
        for family in BOTH {
            let ip = ip(family, used.parse::<Ipv4Addr>().unwrap());
            let elements = &table(family, &yaml).sets["hairpin"].elements;
            assert_eq!(elements.keys().collect::<Vec<_>>(), [&Key::new().address(ip).address(ip)], "{name}");
        }
    }
}

#[test]
fn local_policy_keeps_outside_traffic_on_the_node_but_not_pods() {
    let yaml = "
- {metadata: {name: web}, spec: {type: NodePort, externalTrafficPolicy: Local, clusterIP: 10.43.0.5,
   ports: [{port: 80, nodePort: 30080}]}}
- {metadata: {name: web}, ports: [{port: 80}],
   endpoints: [{addresses: [10.42.0.2], nodeName: node-a}, {addresses: [10.42.1.2], nodeName: node-b}]}
";
    let expected = [
        "endpoints/default/web//6",
        "endpoints/default/web//6/local",
        "external/default/web//6",
        "service/default/web//6",
    ];
    assert_eq!(chains(yaml), expected);
    let elsewhere = yaml.replace("node-a", "node-c");
    for family in BOTH {
        let table = table(family, &elsewhere);
        assert_eq!(table.chains["external/default/web//6"].rules[2], [Expr::Verdict(Verdict::Drop)]);
    }
}

#[test]
fn ports_without_endpoints_are_refused() {
    let yaml =
        "[{metadata: {name: web}, spec: {type: NodePort, clusterIP: 10.43.0.5, externalIPs: [192.0.2.9],
        ports: [{port: 80, nodePort: 30080}]}}]";
    for family in BOTH {
        let table = table(family, yaml);
        assert_eq!(table.sets["refused-ports"].elements.len(), 1);
        assert_eq!(table.sets["refused-ips"].elements.len(), 1);
        assert!(table.sets["service-ips"].elements.is_empty());
    }
}

/// Address, port and protocol of what leads to the Service, and the chain that it leads to.
fn ways_in(table: &Table) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for set in ["service-ips", "node-ports"] {
        for (key, data) in &table.sets[set].elements {
            let (ip, rest) = key.bytes().split_at(key.bytes().len() - 8);
            let ip = match ip.len() {
                0 => String::new(),
                4 => format!("{} ", IpAddr::from(<[u8; 4]>::try_from(ip).unwrap())),
                _ => format!("{} ", IpAddr::from(<[u8; 16]>::try_from(ip).unwrap())),
            };
            let to = match data {
                Data::Verdict(Verdict::Goto(chain)) => {
                    chain.split("/default/web").collect::<Vec<_>>().join(" ")
                }
                other => format!("{other:?}"),
            };
            found.push(format!("{ip}{}/{} {to}", u16::from_be_bytes([rest[4], rest[5]]), rest[0]));
        }
    }
    found
}

#[test]
fn a_services_ways_in_are_these() {
    let endpoints = "{metadata: {name: web}, ports: [{name: a, port: 1}, {name: b, port: 2, protocol: SCTP}], endpoints: [{addresses: [10.42.0.2], nodeName: node-a}, {addresses: [10.42.1.2], nodeName: node-b}]}";
    let check = |what: &str, spec: &str, status: &str, expect: &[&str]| {
        let service = format!(
            "{{metadata: {{name: web}}, spec: {{clusterIP: 10.43.0.5, {spec}}}, status: {{{status}}}}}"
        );
        for family in BOTH {
            let expect: Vec<String> = expect.iter().map(|way| told(family, way)).collect();
            assert_eq!(ways_in(&table(family, &format!("[{service}, {endpoints}]"))), expect, "{what}");
        }
    };
    check("one port", "ports: [{name: a, port: 80}]", "", &["10.43.0.5 80/6 service /a/6"]);
    check(
        "several ports and protocols",
        "ports: [{name: a, port: 80}, {name: b, port: 80, protocol: SCTP}, {name: c, port: 81}]",
        "",
        &["10.43.0.5 80/6 service /a/6", "10.43.0.5 80/132 service /b/132"],
    );
    check(
        "a balancer without ports of Nodes",
        "type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{name: a, port: 80}]",
        "loadBalancer: {ingress: [{ip: 192.0.2.77}, {ip: 192.0.2.78, ipMode: VIP}, {hostname: x.example}]}",
        &["10.43.0.5 80/6 service /a/6", "192.0.2.77 80/6 external /a/6", "192.0.2.78 80/6 external /a/6"],
    );
    check(
        "a balancer that is a proxy itself",
        "type: LoadBalancer, ports: [{name: a, port: 80, nodePort: 30080}]",
        "loadBalancer: {ingress: [{ip: 192.0.2.77, ipMode: Proxy}]}",
        &["10.43.0.5 80/6 service /a/6", "30080/6 external /a/6"],
    );
    check(
        "source ranges",
        "type: LoadBalancer, externalIPs: [192.0.2.9], loadBalancerSourceRanges: [10.0.0.0/8], ports: [{name: a, port: 80, nodePort: 30080}]",
        "loadBalancer: {ingress: [{ip: 192.0.2.77}]}",
        &[
            "10.43.0.5 80/6 service /a/6",
            "192.0.2.9 80/6 external /a/6",
            "192.0.2.77 80/6 firewall /a/6",
            "30080/6 external /a/6",
        ],
    );
}
