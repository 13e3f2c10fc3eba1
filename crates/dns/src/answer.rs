//! One question, one decision. Names below the cluster's domain are answered here and never forwarded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::TTL_SECONDS;
use crate::zone::{Endpoint, Entry, Port, Zone};

/// Version of the specification, which `dns-version` tells.
const SPECIFICATION: &str = "1.1.0";

/// The treatment of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Send this.
    Answer(Answer),
    /// Send this alias with what its target, outside the cluster, resolves to.
    Chase(Answer, Name),
    /// Ask someone else: the name is not the cluster's.
    Forward,
}

/// An authoritative answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// `NoError` also if the name exists without such records.
    pub code: ResponseCode,
    /// The records that were asked for.
    pub answers: Vec<Record>,
    /// The addresses of the answers' targets.
    pub additionals: Vec<Record>,
    /// With empty answers: how long they hold.
    pub soa: Option<Record>,
}

/// What is known about a name.
enum Found {
    /// Nothing: it does not exist.
    Nothing,
    /// It exists and has these records, of whatever type.
    Records(Vec<RData>, Vec<Record>),
    /// It is an alias.
    Alias(String),
}

/// Answers `name` and `kind` from the zone.
pub fn answer(zone: &Zone, name: &Name, kind: RecordType) -> Decision {
    let labels: Vec<String> =
        name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    if let Some(ip) = reverse_ip(&labels) {
        return answer_reverse(zone, name, kind, ip);
    }
    let Some(below) = below_domain(zone, &labels) else { return Decision::Forward };
    match find(zone, below) {
        Found::Nothing => Decision::Answer(negative(zone, ResponseCode::NXDomain)),
        Found::Records(records, additionals) => {
            Decision::Answer(positive(zone, name, kind, records, additionals))
        }
        Found::Alias(target) => answer_alias(zone, name, kind, &target),
    }
}

/// The labels in front of the cluster's domain.
fn below_domain<'a>(zone: &Zone, labels: &'a [&'a str]) -> Option<&'a [&'a str]> {
    let at = labels.len().checked_sub(zone.domain.len())?;
    let (below, domain) = labels.split_at(at);
    domain.iter().zip(&zone.domain).all(|(a, b)| a == b).then_some(below)
}

fn find(zone: &Zone, below: &[&str]) -> Found {
    match below {
        [] => {
            let apex = vec![soa_data(zone), RData::NS(NS(in_domain(zone, "ns.dns")))];
            Found::Records(apex, Vec::new())
        }
        ["dns-version"] => exists(vec![RData::TXT(TXT::new(vec![SPECIFICATION.to_owned()]))]),
        ["svc" | "pod"] => exists(Vec::new()),
        [namespace, "svc" | "pod"] if zone.namespaces.contains(*namespace) => exists(Vec::new()),
        [ip, _, "pod"] => parse_dashed(ip).map_or(Found::Nothing, |ip| exists(vec![address(ip)])),
        [rest @ .., service, namespace, "svc"] => {
            let key = ((*namespace).to_owned(), (*service).to_owned());
            let below = format!("{service}.{namespace}.svc");
            zone.services.get(&key).map_or(Found::Nothing, |entry| find_in_service(zone, entry, &below, rest))
        }
        _ => Found::Nothing,
    }
}

fn exists(records: Vec<RData>) -> Found {
    Found::Records(records, Vec::new())
}

/// `rest` is what stands in front of the Service's name.
fn find_in_service(zone: &Zone, entry: &Entry, below: &str, rest: &[&str]) -> Found {
    let (cluster_ips, ports, endpoints) = match entry {
        Entry::External(target) if rest.is_empty() => return Found::Alias(target.clone()),
        Entry::External(_) => return Found::Nothing,
        Entry::Local { cluster_ips, ports, endpoints } => (cluster_ips, ports, endpoints),
    };
    match rest {
        [] if !cluster_ips.is_empty() => exists(cluster_ips.iter().map(|ip| address(*ip)).collect()),
        [] if endpoints.is_empty() => Found::Nothing,
        [] => exists(endpoints.iter().map(|endpoint| address(endpoint.ip)).collect()),
        [label] if label.starts_with('_') => {
            let has_one = ports.iter().any(|port| label.strip_prefix('_') == Some(&port.protocol));
            if has_one { exists(Vec::new()) } else { Found::Nothing }
        }
        [port, protocol] => match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
            (Some(port), Some(protocol)) if cluster_ips.is_empty() => {
                srv_of_endpoints(zone, below, (port, protocol), endpoints)
            }
            (Some(port), Some(protocol)) => srv_of_service(zone, below, (port, protocol), ports, cluster_ips),
            _ => Found::Nothing,
        },
        [hostname] => {
            let named = endpoints.iter().filter(|endpoint| endpoint.hostname == *hostname);
            let records: Vec<RData> = named.map(|endpoint| address(endpoint.ip)).collect();
            if records.is_empty() { Found::Nothing } else { exists(records) }
        }
        _ => Found::Nothing,
    }
}

fn is_asked(port: &Port, (name, protocol): (&str, &str)) -> bool {
    !name.is_empty() && port.name == name && port.protocol == protocol
}

fn srv_of_service(zone: &Zone, below: &str, asked: (&str, &str), ports: &[Port], ips: &[IpAddr]) -> Found {
    let target = in_domain(zone, below);
    let records: Vec<RData> = ports
        .iter()
        .filter(|port| is_asked(port, asked))
        .map(|port| RData::SRV(SRV::new(0, 100, port.number, target.clone())))
        .collect();
    if records.is_empty() {
        return Found::Nothing;
    }
    Found::Records(records, ips.iter().map(|ip| record(target.clone(), address(*ip))).collect())
}

fn srv_of_endpoints(zone: &Zone, below: &str, asked: (&str, &str), endpoints: &[Endpoint]) -> Found {
    let (mut records, mut additionals) = (Vec::new(), Vec::new());
    for endpoint in endpoints {
        let target = in_domain(zone, &format!("{}.{below}", endpoint.hostname));
        for port in endpoint.ports.iter().filter(|port| is_asked(port, asked)) {
            // One that has an address of each family is one target.
            let data = RData::SRV(SRV::new(0, 100, port.number, target.clone()));
            if !records.contains(&data) {
                records.push(data);
            }
            additionals.push(record(target.clone(), address(endpoint.ip)));
        }
    }
    if records.is_empty() { Found::Nothing } else { Found::Records(records, additionals) }
}

fn positive(
    zone: &Zone,
    name: &Name,
    kind: RecordType,
    records: Vec<RData>,
    additionals: Vec<Record>,
) -> Answer {
    let answers: Vec<Record> = records
        .into_iter()
        .filter(|data| data.record_type() == kind)
        .map(|data| record(name.clone(), data))
        .collect();
    if answers.is_empty() {
        return negative(zone, ResponseCode::NoError);
    }
    let additionals = if kind == RecordType::SRV { additionals } else { Vec::new() };
    Answer { code: ResponseCode::NoError, answers, additionals, soa: None }
}

fn negative(zone: &Zone, code: ResponseCode) -> Answer {
    let soa = Some(record(in_domain(zone, ""), soa_data(zone)));
    Answer { code, answers: Vec::new(), additionals: Vec::new(), soa }
}

/// An alias within the cluster is followed once: a chain of aliases has an end.
fn answer_alias(zone: &Zone, name: &Name, kind: RecordType, target: &str) -> Decision {
    let Some(target) = absolute(target) else {
        return Decision::Answer(negative(zone, ResponseCode::NoError));
    };
    let alias = record(name.clone(), RData::CNAME(CNAME(target.clone())));
    let alone =
        Answer { code: ResponseCode::NoError, answers: vec![alias], additionals: Vec::new(), soa: None };
    if kind == RecordType::CNAME {
        return Decision::Answer(alone);
    }
    let labels: Vec<String> =
        target.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let Some(below) = below_domain(zone, &labels) else { return Decision::Chase(alone, target) };
    let mut answer = alone;
    if let Found::Records(records, _) = find(zone, below) {
        answer.answers.extend(positive(zone, &target, kind, records, Vec::new()).answers);
    }
    Decision::Answer(answer)
}

fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn answer_reverse(zone: &Zone, name: &Name, kind: RecordType, ip: IpAddr) -> Decision {
    match zone.reverse.get(&ip) {
        Some(names) => {
            let records = names.iter().map(|below| RData::PTR(PTR(in_domain(zone, below)))).collect();
            Decision::Answer(positive(zone, name, kind, records, Vec::new()))
        }
        None if zone.reverse_cidrs.iter().any(|cidr| cidr.contains(ip)) => {
            Decision::Answer(negative(zone, ResponseCode::NXDomain))
        }
        None => Decision::Forward,
    }
}

/// The address that a name below `in-addr.arpa` or `ip6.arpa` means.
fn reverse_ip(labels: &[&str]) -> Option<IpAddr> {
    match labels {
        [d, c, b, a, "in-addr", "arpa"] => {
            let octets = [a, b, c, d].map(|label| label.parse::<u8>().ok());
            let [Some(a), Some(b), Some(c), Some(d)] = octets else { return None };
            Some(Ipv4Addr::new(a, b, c, d).into())
        }
        [nibbles @ .., "ip6", "arpa"] if nibbles.len() == 32 => {
            let mut bits = 0u128;
            for nibble in nibbles.iter().rev() {
                bits = bits << 4
                    | u128::from(u8::from_str_radix(nibble, 16).ok().filter(|_| nibble.len() == 1)?);
            }
            Some(Ipv6Addr::from(bits).into())
        }
        _ => None,
    }
}

fn parse_dashed(label: &str) -> Option<IpAddr> {
    let v4: Option<Ipv4Addr> = label.replace('-', ".").parse().ok();
    v4.map(IpAddr::from).or_else(|| label.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::from))
}

fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(ip.into()),
        IpAddr::V6(ip) => RData::AAAA(ip.into()),
    }
}

fn record(name: Name, data: RData) -> Record {
    Record::from_rdata(name, TTL_SECONDS, data)
}

/// A name below the cluster's domain. What cannot be a name (a label too long) becomes the root.
fn in_domain(zone: &Zone, below: &str) -> Name {
    let labels = below.split('.').filter(|label| !label.is_empty());
    let labels = labels.chain(zone.domain.iter().map(String::as_str)).map(str::as_bytes);
    Name::from_labels(labels).unwrap_or_else(|_| Name::root())
}

fn soa_data(zone: &Zone) -> RData {
    const REFRESH: i32 = 7200;
    const RETRY: i32 = 1800;
    const EXPIRE: i32 = 86_400;
    let (server, person) = (in_domain(zone, "ns.dns"), in_domain(zone, "hostmaster"));
    RData::SOA(SOA::new(server, person, zone.serial, REFRESH, RETRY, EXPIRE, TTL_SECONDS))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::zone as tests_zone;
