//! What a question gets: a pure function of the zone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::zone::{NamedPort, ServiceNames, Zone};

/// The kinds of records that the zone knows; a question for another kind gets no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryType {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// Port and target.
    Srv,
    /// The name of an address.
    Ptr,
    /// The version of the schema, at `dns-version`.
    Txt,
    /// The canonical name.
    Cname,
    /// Anything else.
    Other,
}

/// A record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A or AAAA.
    Address(IpAddr),
    /// Priority 0.
    Srv {
        /// Equal shares of 100.
        weight: u16,
        /// The port.
        port: u16,
        /// Whose port it is.
        target: String,
    },
    /// A name.
    Ptr(String),
    /// A name.
    Cname(String),
    /// A text.
    Txt(String),
}

/// A record; the name has no dot at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose record it is.
    pub name: String,
    /// What it says.
    pub data: Data,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Records, and further ones that the asker will want next.
    Records(Vec<Record>, Vec<Record>),
    /// The name exists, but has no record of this kind.
    NoData,
    /// There is no such name.
    NoSuchName,
    /// The name is outside of the zone.
    NotOurs,
}

/// The version of the schema. Source: Kubernetes DNS-based service discovery.
const SCHEMA_VERSION: &str = "1.1.0";

/// Answers a question for `name` (in lower case, without a dot at the end).
pub fn answer(zone: &Zone, name: &str, query_type: QueryType) -> Answer {
    if let Some(address) = reverse_address(name) {
        return answer_reverse(zone, name, address, query_type);
    }
    let Some(relative) = name.strip_suffix(&zone.domain) else { return Answer::NotOurs };
    if relative.is_empty() {
        return Answer::NoData;
    }
    let Some(relative) = relative.strip_suffix('.') else { return Answer::NotOurs };
    let labels: Vec<&str> = relative.split('.').collect();
    match labels.as_slice() {
        ["dns-version"] => {
            select(vec![record(name, Data::Txt(SCHEMA_VERSION.to_owned()))], Vec::new(), query_type)
        }
        ["svc" | "pod"] => Answer::NoData,
        [namespace, "svc" | "pod"] => exists(zone.namespaces.contains_key(*namespace)),
        [dashed, _, "pod"] => answer_pod(name, dashed, query_type),
        [rest @ .., namespace, "svc"] => answer_service(zone, name, rest, namespace, query_type),
        _ => Answer::NoSuchName,
    }
}

fn exists(exists: bool) -> Answer {
    if exists { Answer::NoData } else { Answer::NoSuchName }
}

/// `10-42-0-7.default.pod`: the address that is in the name.
fn answer_pod(name: &str, dashed: &str, query_type: QueryType) -> Answer {
    let address = dashed.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    let address = address.or_else(|_| dashed.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6));
    match address {
        Ok(address) => select(vec![record(name, Data::Address(address))], Vec::new(), query_type),
        Err(_) => Answer::NoSuchName,
    }
}

fn answer_service(zone: &Zone, name: &str, rest: &[&str], namespace: &str, query_type: QueryType) -> Answer {
    let Some(services) = zone.namespaces.get(namespace) else { return Answer::NoSuchName };
    match rest {
        [service] => match services.get(*service) {
            Some(names) => select(addresses_of(name, names), Vec::new(), query_type),
            None => Answer::NoSuchName,
        },
        [port, protocol, service] if port.starts_with('_') && protocol.starts_with('_') => {
            let Some(names) = services.get(*service) else { return Answer::NoSuchName };
            let wanted = (port.trim_start_matches('_'), protocol.trim_start_matches('_'));
            answer_srv(name, &zone.service_name(namespace, service), names, wanted, query_type)
        }
        [host, service] => match services.get(*service).and_then(|names| names.hosts.get(*host)) {
            Some(host) => {
                let addresses = host.addresses.iter().map(|address| record(name, Data::Address(*address)));
                select(addresses.collect(), Vec::new(), query_type)
            }
            None => Answer::NoSuchName,
        },
        _ => Answer::NoSuchName,
    }
}

fn addresses_of(name: &str, names: &ServiceNames) -> Vec<Record> {
    if let Some(target) = &names.external_name {
        return vec![record(name, Data::Cname(target.trim_end_matches('.').to_lowercase()))];
    }
    let of_hosts = names.hosts.values().flat_map(|host| host.addresses.iter());
    names.addresses.iter().chain(of_hosts).map(|address| record(name, Data::Address(*address))).collect()
}

fn answer_srv(
    name: &str,
    service_name: &str,
    names: &ServiceNames,
    wanted: (&str, &str),
    query_type: QueryType,
) -> Answer {
    let is_wanted = |port: &&NamedPort| port.name == wanted.0 && port.protocol == wanted.1;
    let mut targets: Vec<(u16, String, Vec<IpAddr>)> = Vec::new();
    for port in names.ports.iter().filter(is_wanted).filter(|_| !names.addresses.is_empty()) {
        targets.push((port.port, service_name.to_owned(), names.addresses.clone()));
    }
    for (host_name, host) in &names.hosts {
        for port in host.ports.iter().filter(is_wanted) {
            let addresses = host.addresses.iter().copied().collect();
            targets.push((port.port, format!("{host_name}.{service_name}"), addresses));
        }
    }
    if targets.is_empty() {
        return Answer::NoSuchName;
    }
    let weight = u16::try_from(100 / targets.len()).unwrap_or(1).max(1);
    let mut further = Vec::new();
    let mut records = Vec::new();
    for (port, target, addresses) in targets {
        further.extend(addresses.into_iter().map(|address| record(&target, Data::Address(address))));
        records.push(record(name, Data::Srv { weight, port, target }));
    }
    select(records, further, query_type)
}

/// An address of ours has a name; others are not ours to deny.
fn answer_reverse(zone: &Zone, name: &str, address: IpAddr, query_type: QueryType) -> Answer {
    match zone.reverse.get(&address) {
        Some(names) => {
            let records = names.iter().map(|target| record(name, Data::Ptr(target.clone()))).collect();
            select(records, Vec::new(), query_type)
        }
        None => Answer::NotOurs,
    }
}

/// `7.0.42.10.in-addr.arpa` and `...ip6.arpa`.
fn reverse_address(name: &str) -> Option<IpAddr> {
    if let Some(octets) = name.strip_suffix(".in-addr.arpa") {
        let octets: Vec<&str> = octets.rsplit('.').collect();
        return octets.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let nibbles: String = name.strip_suffix(".ip6.arpa")?.rsplit('.').collect();
    let bits = u128::from_str_radix(&nibbles, 16).ok().filter(|_| nibbles.len() == 32)?;
    Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

fn record(name: &str, data: Data) -> Record {
    Record { name: name.to_owned(), data }
}

/// The records of the kind that was asked for; a CNAME answers every question.
fn select(records: Vec<Record>, further: Vec<Record>, query_type: QueryType) -> Answer {
    let is_kind = |record: &Record| {
        matches!(
            (&record.data, query_type),
            (Data::Address(IpAddr::V4(_)), QueryType::A)
                | (Data::Address(IpAddr::V6(_)), QueryType::Aaaa)
                | (Data::Srv { .. }, QueryType::Srv)
                | (Data::Ptr(_), QueryType::Ptr)
                | (Data::Txt(_), QueryType::Txt)
                | (Data::Cname(_), _)
        )
    };
    let records: Vec<Record> = records.into_iter().filter(is_kind).collect();
    if records.is_empty() { Answer::NoData } else { Answer::Records(records, further) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use expect_test::{Expect, expect};
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;

    fn zone() -> Zone {
        let services: Vec<Service> = [
            "{metadata: {namespace: default, name: web}, spec: {clusterIP: 10.43.0.7, clusterIPs: [10.43.0.7], ports: [{name: http, port: 80}, {port: 81}]}}",
            "{metadata: {namespace: default, name: db}, spec: {clusterIP: None, clusterIPs: [None], ports: [{name: sql, port: 5432}]}}",
            "{metadata: {namespace: default, name: ext}, spec: {type: ExternalName, externalName: Example.COM}}",
        ]
        .map(|yaml| serde_saphyr::from_str(yaml).expect("a service"))
        .to_vec();
        let slice: EndpointSlice = serde_saphyr::from_str("{metadata: {namespace: default, name: db-1, labels: {kubernetes.io/service-name: db}}, addressType: IPv4, ports: [{name: sql, port: 5432}], endpoints: [{addresses: [10.42.0.5], hostname: db-0, conditions: {ready: true}}, {addresses: [10.42.0.6]}, {addresses: [10.42.0.9], conditions: {ready: false}}]}").expect("a slice");
        let services: Vec<_> = services.into_iter().map(Arc::new).collect();
        Zone::build("cluster.local", &services, &[Arc::new(slice)])
    }

    fn check(name: &str, query_type: QueryType, expected: Expect) {
        let text = match answer(&zone(), name, query_type) {
            Answer::Records(records, further) => {
                let line = |record: &Record| format!("{} {:?}", record.name, record.data);
                let mut lines: Vec<String> = records.iter().map(line).collect();
                lines.extend(further.iter().map(|record| format!("+ {}", line(record))));
                lines.join("\n")
            }
            other => format!("{other:?}"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn a_service_has_its_cluster_address() {
        check(
            "web.default.svc.cluster.local",
            QueryType::A,
            expect!["web.default.svc.cluster.local Address(10.43.0.7)"],
        );
        check("web.default.svc.cluster.local", QueryType::Aaaa, expect!["NoData"]);
        check("no.default.svc.cluster.local", QueryType::A, expect!["NoSuchName"]);
        check("web.other.svc.cluster.local", QueryType::A, expect!["NoSuchName"]);
        check("default.svc.cluster.local", QueryType::A, expect!["NoData"]);
    }

    #[test]
    fn a_headless_service_has_its_ready_endpoints() {
        check(
            "db.default.svc.cluster.local",
            QueryType::A,
            expect![[r#"
            db.default.svc.cluster.local Address(10.42.0.6)
            db.default.svc.cluster.local Address(10.42.0.5)"#]],
        );
        check(
            "db-0.db.default.svc.cluster.local",
            QueryType::A,
            expect!["db-0.db.default.svc.cluster.local Address(10.42.0.5)"],
        );
        check(
            "10-42-0-6.db.default.svc.cluster.local",
            QueryType::A,
            expect!["10-42-0-6.db.default.svc.cluster.local Address(10.42.0.6)"],
        );
    }

    #[test]
    fn named_ports_have_srv_records() {
        check(
            "_http._tcp.web.default.svc.cluster.local",
            QueryType::Srv,
            expect![[r#"
            _http._tcp.web.default.svc.cluster.local Srv { weight: 100, port: 80, target: "web.default.svc.cluster.local" }
            + web.default.svc.cluster.local Address(10.43.0.7)"#]],
        );
        check(
            "_sql._tcp.db.default.svc.cluster.local",
            QueryType::Srv,
            expect![[r#"
            _sql._tcp.db.default.svc.cluster.local Srv { weight: 50, port: 5432, target: "10-42-0-6.db.default.svc.cluster.local" }
            _sql._tcp.db.default.svc.cluster.local Srv { weight: 50, port: 5432, target: "db-0.db.default.svc.cluster.local" }
            + 10-42-0-6.db.default.svc.cluster.local Address(10.42.0.6)
            + db-0.db.default.svc.cluster.local Address(10.42.0.5)"#]],
        );
        check("_http._udp.web.default.svc.cluster.local", QueryType::Srv, expect!["NoSuchName"]);
    }

    #[test]
    fn addresses_have_names() {
        check(
            "7.0.43.10.in-addr.arpa",
            QueryType::Ptr,
            expect![[r#"7.0.43.10.in-addr.arpa Ptr("web.default.svc.cluster.local")"#]],
        );
        check(
            "5.0.42.10.in-addr.arpa",
            QueryType::Ptr,
            expect![[r#"5.0.42.10.in-addr.arpa Ptr("db-0.db.default.svc.cluster.local")"#]],
        );
        check("1.1.1.1.in-addr.arpa", QueryType::Ptr, expect!["NotOurs"]);
    }

    #[test]
    fn other_names() {
        check(
            "ext.default.svc.cluster.local",
            QueryType::A,
            expect![[r#"ext.default.svc.cluster.local Cname("example.com")"#]],
        );
        check(
            "10-42-0-5.default.pod.cluster.local",
            QueryType::A,
            expect!["10-42-0-5.default.pod.cluster.local Address(10.42.0.5)"],
        );
        check(
            "dns-version.cluster.local",
            QueryType::Txt,
            expect![[r#"dns-version.cluster.local Txt("1.1.0")"#]],
        );
        check("example.com", QueryType::A, expect!["NotOurs"]);
        check("notcluster.local", QueryType::A, expect!["NotOurs"]);
        check("x.cluster.local", QueryType::A, expect!["NoSuchName"]);
    }
}
