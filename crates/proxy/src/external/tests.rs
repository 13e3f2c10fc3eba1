use std::net::Ipv4Addr;
use std::sync::Arc;

use machinery::net::Family;
use serde_json::{Value, json};
use sys::nftables::{Data, Key, Table, Verdict};

use super::*;
use crate::families::{BOTH, config, ip, told};
use crate::render::whole;
use crate::services::{Changed, Services};

/// A table, and what leads nowhere by names of rows.
struct Rendered {
    table: Table,
    refused: BTreeSet<(String, IpAddr)>,
}

const TCP: u8 = 6;

/// The API's Service, that of an honest tenant, and `hostile` in namespace and name as given; each with one endpoint. All
/// is told in a family.
fn rendered(family: Family, hostile: (&str, &str), spec: Value, status: Value) -> Rendered {
    let service = |namespace: &str, name: &str, spec: Value, status: Value| {
        let object =
            json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": status});
        (format!("{namespace}/{name}"), None, Some(object_told(family, &object)))
    };
    let slice = |namespace: &str, name: &str, ip: &str, port: u16| {
        let metadata =
            json!({"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": name}});
        let object = json!({"metadata": metadata, "addressType": family.as_str(), "ports": [{"port": port}],
            "endpoints": [{"addresses": [ip]}]});
        (format!("{namespace}/{name}-1"), None, Some(object_told(family, &object)))
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
    let nodes = Nodes { addresses: BTreeSet::from([ip(family, [192, 0, 2, 2])]), ..Nodes::default() };
    let config = config(&[family]);
    let mut known = Services::new(Arc::new(config.clone()));
    known.update(Changed { services, slices, nodes: Some(nodes) });
    let part = known.whole();
    let refused =
        part.rows.iter().flat_map(|row| row.leads.refused.iter().map(|ip| (row.port.name.clone(), *ip)));
    Rendered { refused: refused.collect(), table: whole(&part, &config).remove(0) }
}

fn object_told<T: k8s_openapi::serde::de::DeserializeOwned>(family: Family, object: &Value) -> Arc<T> {
    Arc::new(serde_json::from_str(&told(family, &object.to_string())).unwrap())
}

/// The Service that has an address and port.
fn owner(table: &Table, ip: IpAddr, port: u16) -> Option<String> {
    let key = Key::new().address(ip).protocol(TCP).port(port);
    match table.sets["service-ips"].elements.get(&key)? {
        Data::Verdict(Verdict::Goto(chain)) => {
            Some(chain.split('/').skip(1).take(2).collect::<Vec<_>>().join("/"))
        }
        other => panic!("{other:?}"),
    }
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn no_external_address_takes_what_belongs_to_the_cluster_whatever_the_services_name() {
    let names = [("0", "0"), ("default", "a"), ("zz", "zz"), ("default", "kubernetes2")];
    for (family, hostile) in BOTH.into_iter().flat_map(|family| names.map(|name| (family, name))) {
        for (address, port, of) in [
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
            let spec = json!({"clusterIP": "10.43.0.66", "externalIPs": [address, "203.0.113.9"], "ports": [{"port": port}]});
            let Rendered { table, refused } = rendered(family, hostile, spec, json!({}));
            let context = format!("{hostile:?} {address}:{port} {family:?}");
            let (wanted, allowed) = (ip(family, v4(address)), ip(family, [203, 0, 113, 9]));
            assert_eq!(owner(&table, wanted, port), of, "{context}");
            let own = format!("{}/{}", hostile.0, hostile.1);
            assert_eq!(owner(&table, allowed, port), Some(own.clone()), "{context}");
            assert_eq!(refused, BTreeSet::from([(format!("{own}/"), wanted)]), "{context}");
            let quiet = Key::new().address(ip(family, [10, 99, 0, 6])).protocol(TCP).port(80);
            assert_eq!(table.sets["refused-ips"].elements.keys().collect::<Vec<_>>(), [&quiet]);
        }
    }
}

#[test]
fn a_load_balancers_address_may_be_a_nodes_and_nothing_else_of_the_clusters() {
    for (address, port, of) in [
        ("192.0.2.2", 80, Some("zz/zz")),
        ("203.0.113.9", 80, Some("zz/zz")),
        ("10.43.0.1", 443, Some("default/kubernetes")),
        ("10.42.0.2", 80, None),
        ("198.51.100.7", 6443, None),
        ("198.51.100.7", 443, Some("zz/zz")),
        ("169.254.0.9", 80, None),
    ] {
        for family in BOTH {
            let spec = json!({"clusterIP": "10.43.0.66", "type": "LoadBalancer", "ports": [{"port": port}]});
            let status = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
            let table = rendered(family, ("zz", "zz"), spec, status).table;
            let found = owner(&table, ip(family, v4(address)), port);
            assert_eq!(found, of.map(str::to_owned), "{address}:{port} {family:?}");
        }
    }
}

#[test]
fn an_address_of_two_services_is_the_apis_then_the_first_ones_by_name() {
    for family in BOTH {
        for (namespace, name, port, address, of) in [
            ("0", "0", 443, "10.43.0.1", "default/kubernetes"),
            ("zz", "zz", 443, "10.43.0.1", "default/kubernetes"),
            ("0", "x", 80, "10.43.0.5", "0/x"),
            ("zz", "x", 80, "10.43.0.5", "a/good"),
        ] {
            let spec = json!({"clusterIP": address, "ports": [{"port": port}]});
            let table = rendered(family, (namespace, name), spec, json!({})).table;
            assert_eq!(owner(&table, ip(family, v4(address)), port), Some(of.to_owned()), "{namespace}");
        }
    }
}
