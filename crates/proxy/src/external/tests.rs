use std::sync::Arc;

use serde_json::{Value, json};
use sys::nftables::{Data, Key, Table, Verdict};

use super::*;
use crate::render::whole;
use crate::services::{Changed, Services};

/// A table, and what leads nowhere by names of rows.
struct Rendered {
    table: Table,
    refused: BTreeSet<(String, IpAddr)>,
}

const TCP: u8 = 6;

fn config() -> Config {
    Config {
        cluster_id: "test".into(),
        node_name: "node-a".into(),
        node_ips: vec![[192, 0, 2, 1].into()],
        service_cidrs: "10.43.0.0/16".parse().unwrap(),
        cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
        local_addresses: vec![[10, 43, 0, 10].into()],
        node_port_addresses: crate::NodePortAddresses::Primary,
        healthz_address: None,
        metrics_address: None,
    }
}

/// The API's Service, that of an honest tenant, and `hostile` in namespace and name as given; each with one endpoint.
fn rendered(hostile: (&str, &str), spec: Value, status: Value) -> Rendered {
    let service = |namespace: &str, name: &str, spec: Value, status: Value| {
        let object =
            json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": status});
        (format!("{namespace}/{name}"), None, Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    let slice = |namespace: &str, name: &str, ip: &str, port: u16| {
        let metadata =
            json!({"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": name}});
        let object = json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"port": port}],
            "endpoints": [{"addresses": [ip]}]});
        (format!("{namespace}/{name}-1"), None, Some(Arc::new(serde_json::from_value(object).unwrap())))
    };
    let services = vec![
        service(
            "default",
            "kubernetes",
            json!({"clusterIP": "10.43.0.1", "ports": [{"port": 443}]}),
            json!({}),
        ),
        service("a", "good", json!({"clusterIP": "10.43.0.5", "ports": [{"port": 80}]}), json!({})),
        // An address outside of the range, as after the range was changed.
        service("a", "old", json!({"clusterIP": "10.99.0.5", "ports": [{"port": 80}]}), json!({})),
        service("a", "quiet", json!({"clusterIP": "10.99.0.6", "ports": [{"port": 80}]}), json!({})),
        service(hostile.0, hostile.1, spec, status),
    ];
    let slices = vec![
        slice("default", "kubernetes", "198.51.100.7", 6443),
        slice("a", "good", "10.42.0.2", 8080),
        slice("a", "old", "10.42.0.3", 8080),
        slice(hostile.0, hostile.1, "10.42.0.66", 8080),
    ];
    let nodes = Nodes { addresses: BTreeSet::from([[192, 0, 2, 2].into()]), ..Nodes::default() };
    let mut known = Services::new(Arc::new(config()));
    known.update(Changed { services, slices, nodes: Some(nodes) });
    let part = known.whole();
    let refused =
        part.rows.iter().flat_map(|row| row.leads.refused.iter().map(|ip| (row.port.name.clone(), *ip)));
    Rendered { refused: refused.collect(), table: whole(&part, &config()).remove(0) }
}

/// The Service that has a place.
fn owner(table: &Table, ip: &str, port: u16) -> Option<String> {
    let key = Key::new().ip(ip.parse().unwrap()).protocol(TCP).port(port);
    match table.sets["service-ips"].elements.get(&key)? {
        Data::Verdict(Verdict::Goto(chain)) => {
            Some(chain.split('/').skip(1).take(2).collect::<Vec<_>>().join("/"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_external_address_takes_what_belongs_to_the_cluster_whatever_the_services_name() {
    for hostile in [("0", "0"), ("default", "a"), ("zz", "zz"), ("default", "kubernetes2")] {
        for (ip, port, of) in [
            ("10.43.0.1", 443, Some("default/kubernetes")),
            ("10.43.0.5", 80, Some("a/good")),
            ("10.43.0.5", 81, None),
            ("10.43.0.10", 53, None),
            ("10.43.77.77", 80, None),
            ("10.99.0.5", 80, Some("a/old")),
            ("10.99.0.6", 80, None),
            ("10.42.0.2", 8080, None),
            ("10.42.9.9", 80, None),
            ("192.0.2.1", 6443, None),
            ("192.0.2.1", 80, None),
            ("192.0.2.2", 10250, None),
            ("198.51.100.7", 6443, None),
            ("127.0.0.1", 80, None),
            ("0.0.0.0", 80, None),
            ("169.254.169.254", 80, None),
            ("224.0.0.1", 80, None),
        ] {
            let of = of.map(str::to_owned);
            let spec = json!({"clusterIP": "10.43.0.66", "externalIPs": [ip, "203.0.113.9"], "ports": [{"port": port}]});
            let Rendered { table, refused } = rendered(hostile, spec, json!({}));
            assert_eq!(owner(&table, ip, port), of, "{hostile:?} {ip}:{port}");
            let own = format!("{}/{}", hostile.0, hostile.1);
            assert_eq!(owner(&table, "203.0.113.9", port), Some(own.clone()), "{hostile:?} {ip}:{port}");
            assert_eq!(refused, BTreeSet::from([(format!("{own}/"), ip.parse().unwrap())]));
            let quiet = Key::new().ip([10, 99, 0, 6].into()).protocol(TCP).port(80);
            assert_eq!(table.sets["refused-ips"].elements.keys().collect::<Vec<_>>(), [&quiet]);
        }
    }
}

#[test]
fn a_load_balancers_address_may_be_a_nodes_and_nothing_else_of_the_clusters() {
    for (ip, port, of) in [
        ("192.0.2.2", 80, Some("zz/zz")),
        ("203.0.113.9", 80, Some("zz/zz")),
        ("10.43.0.1", 443, Some("default/kubernetes")),
        ("10.42.0.2", 80, None),
        ("198.51.100.7", 6443, None),
        ("198.51.100.7", 443, Some("zz/zz")),
    ] {
        let spec = json!({"clusterIP": "10.43.0.66", "type": "LoadBalancer", "ports": [{"port": port}]});
        let status = json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
        let table = rendered(("zz", "zz"), spec, status).table;
        assert_eq!(owner(&table, ip, port), of.map(str::to_owned), "{ip}:{port}");
    }
}

#[test]
fn an_address_of_two_services_is_the_apis_then_the_first_ones_by_name() {
    for (name, ip, of) in
        [("0", "10.43.0.1", "default/kubernetes"), ("zz", "10.43.0.1", "default/kubernetes")]
    {
        let spec = json!({"clusterIP": ip, "ports": [{"port": 443}]});
        assert_eq!(owner(&rendered((name, name), spec, json!({})).table, ip, 443), Some(of.to_owned()));
    }
    for (namespace, of) in [("0", "0/x"), ("zz", "a/good")] {
        let spec = json!({"clusterIP": "10.43.0.5", "ports": [{"port": 80}]});
        let table = rendered((namespace, "x"), spec, json!({})).table;
        assert_eq!(owner(&table, "10.43.0.5", 80), Some(of.to_owned()), "{namespace}");
    }
}
