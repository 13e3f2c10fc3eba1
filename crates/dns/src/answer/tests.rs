use std::str::FromStr;
use std::sync::Arc;

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::*;

const OBJECTS: &str = "
- {metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}}
- {metadata: {name: web}, ports: [{name: http, port: 8080}], endpoints: [{addresses: [10.42.0.2]}]}
- {metadata: {name: db}, spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}}
- {metadata: {name: db}, ports: [{name: sql, port: 5432}], endpoints: [
    {addresses: [10.42.0.3], hostname: db-0}, {addresses: [10.42.0.4]},
    {addresses: [10.42.0.9], conditions: {ready: false}}]}
- {metadata: {name: empty}, spec: {clusterIP: None}}
- {metadata: {name: alias}, spec: {type: ExternalName, externalName: 10-7-7-7.x.pod.example.org}}
- {metadata: {name: inside}, spec: {type: ExternalName, externalName: web.default.svc.cluster.local}}
- {metadata: {name: many}, spec: {clusterIP: None}}
- {metadata: {name: dual}, spec: {clusterIP: 10.43.0.6, clusterIPs: [10.43.0.6, 'fd43::6'], ports: [{name: http, port: 80}]}}
- {metadata: {name: six}, spec: {clusterIP: 'fd43::7', clusterIPs: ['fd43::7']}}
- {metadata: {name: pair}, spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}}
- {metadata: {name: pair}, ports: [{name: sql, port: 5432}], endpoints: [
    {addresses: [10.42.0.6], hostname: pair-0}, {addresses: [10.42.0.7]}]}
- {metadata: {name: pair}, ports: [{name: sql, port: 5432}], endpoints: [
    {addresses: ['fd42::6'], hostname: pair-0}, {addresses: ['fd42::7']},
    {addresses: ['fd42::9'], conditions: {ready: false}}]}
";

/// The zone of the tests of this crate.
pub(crate) fn zone() -> Zone {
    let objects: Vec<serde_json::Value> = serde_saphyr::from_str(OBJECTS).unwrap();
    let (mut services, mut slices) = (Vec::new(), Vec::new());
    for mut object in objects {
        object["metadata"]["namespace"] = "default".into();
        if object.get("endpoints").is_some() {
            object["metadata"]["labels"] =
                serde_json::json!({ "kubernetes.io/service-name": object["metadata"]["name"] });
            let is_ipv6 = object["endpoints"][0]["addresses"][0].as_str().unwrap().contains(':');
            object["addressType"] = if is_ipv6 { "IPv6" } else { "IPv4" }.into();
            slices.push(serde_json::from_value::<EndpointSlice>(object).unwrap());
        } else {
            services.push(Arc::new(serde_json::from_value::<Service>(object).unwrap()));
        }
    }
    let mut many = slices[0].clone();
    many.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), "many".to_owned())].into());
    many.endpoints = (0..200)
        .map(|n| k8s_openapi::api::discovery::v1::Endpoint {
            addresses: vec![format!("10.42.9.{n}")],
            ..Default::default()
        })
        .collect();
    slices.push(many);
    let slices: Vec<Arc<EndpointSlice>> = slices.into_iter().map(Arc::new).collect();
    Zone::new(&services, &slices, "cluster.local", 7).with_reverse_cidrs(&[
        "10.42.0.0/15".parse().unwrap(),
        "fd42::/56".parse().unwrap(),
        "fd43::/112".parse().unwrap(),
    ])
}

fn check(question: &str, expected: Expect) {
    let (name, kind) = question.split_once(' ').unwrap();
    let lines =
        |records: &[Record]| -> String { records.iter().map(|record| format!("{record}\n")).collect() };
    let show = |answer: &Answer| {
        let mut text = format!("{:?}\n{}", answer.code, lines(&answer.answers));
        if !answer.additionals.is_empty() {
            text += &format!("with {}", lines(&answer.additionals));
        }
        if let Some(soa) = &answer.soa {
            text += &lines(std::slice::from_ref(soa));
        }
        text
    };
    let text = match answer(&zone(), &Name::from_ascii(name).unwrap(), RecordType::from_str(kind).unwrap()) {
        Decision::Answer(answer) => show(&answer),
        Decision::Chase(answer, target) => format!("{}then {target}\n", show(&answer)),
        Decision::Forward => "forward\n".to_owned(),
    };
    expected.assert_eq(&text);
}

#[test]
fn a_service_has_its_address() {
    check(
        "web.default.svc.cluster.local. A",
        expect![[r#"
        NoError
        web.default.svc.cluster.local. 5 IN A 10.43.0.5
    "#]],
    );
}

#[test]
fn a_service_without_ipv6_exists_all_the_same() {
    check(
        "web.default.svc.cluster.local. AAAA",
        expect![[r#"
        NoError
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
}

#[test]
fn a_service_has_an_address_of_each_of_its_families() {
    for (question, expected) in [
        ("dual.default.svc.cluster.local. A", "10.43.0.6"),
        ("dual.default.svc.cluster.local. AAAA", "fd43::6"),
        ("six.default.svc.cluster.local. AAAA", "fd43::7"),
        ("six.default.svc.cluster.local. A", ""),
        ("pair.default.svc.cluster.local. A", "10.42.0.6 10.42.0.7"),
        ("pair.default.svc.cluster.local. AAAA", "fd42::6 fd42::7"),
        ("pair-0.pair.default.svc.cluster.local. A", "10.42.0.6"),
        ("pair-0.pair.default.svc.cluster.local. AAAA", "fd42::6"),
        ("fd42--7.pair.default.svc.cluster.local. AAAA", "fd42::7"),
        ("fd42--7.pair.default.svc.cluster.local. A", ""),
        ("10-42-0-7.pair.default.svc.cluster.local. AAAA", ""),
        ("fd42--5.default.pod.cluster.local. AAAA", "fd42::5"),
        ("FD42-0-0-0-0-0-0-5.default.pod.cluster.local. AAAA", "fd42::5"),
        ("fd42--5.default.pod.cluster.local. A", ""),
        ("10-42-0-5.default.pod.cluster.local. AAAA", ""),
    ] {
        let (name, kind) = question.split_once(' ').unwrap();
        let decision = answer(&zone(), &Name::from_ascii(name).unwrap(), RecordType::from_str(kind).unwrap());
        let Decision::Answer(answer) = decision else { panic!("{question}") };
        // What has no address of that family exists all the same.
        assert_eq!(answer.code, ResponseCode::NoError, "{question}");
        let mut found: Vec<String> = answer.answers.iter().map(|record| record.data.to_string()).collect();
        found.sort_unstable();
        assert_eq!(found.join(" "), expected, "{question}");
    }
    for nothing in [
        "fd42--9.pair.default.svc.cluster.local. AAAA",
        "fd42--.default.pod.cluster.local.extra. AAAA",
        "fd42-5.default.pod.cluster.local. AAAA",
        "fd42---5.default.pod.cluster.local. AAAA",
        "fd42--5-eth0.default.pod.cluster.local. AAAA",
    ] {
        let (name, kind) = nothing.split_once(' ').unwrap();
        let decision = answer(&zone(), &Name::from_ascii(name).unwrap(), RecordType::from_str(kind).unwrap());
        let is_found = matches!(&decision, Decision::Answer(answer) if answer.code != ResponseCode::NXDomain);
        assert!(!is_found, "{nothing}: {decision:?}");
    }
}

#[test]
fn a_headless_service_has_the_addresses_of_its_ready_endpoints() {
    check(
        "db.default.svc.cluster.local. A",
        expect![[r#"
        NoError
        db.default.svc.cluster.local. 5 IN A 10.42.0.4
        db.default.svc.cluster.local. 5 IN A 10.42.0.3
    "#]],
    );
}

#[test]
fn a_headless_service_without_endpoints_does_not_exist() {
    check(
        "empty.default.svc.cluster.local. A",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
}

#[test]
fn an_endpoint_is_found_by_hostname_or_by_its_dashed_address() {
    check(
        "db-0.db.default.svc.cluster.local. A",
        expect![[r#"
        NoError
        db-0.db.default.svc.cluster.local. 5 IN A 10.42.0.3
    "#]],
    );
    check(
        "10-42-0-4.db.default.svc.cluster.local. A",
        expect![[r#"
        NoError
        10-42-0-4.db.default.svc.cluster.local. 5 IN A 10.42.0.4
    "#]],
    );
    check(
        "db-1.db.default.svc.cluster.local. A",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
}

#[test]
fn named_ports_have_srv_records() {
    check(
        "_http._tcp.web.default.svc.cluster.local. SRV",
        expect![[r#"
        NoError
        _http._tcp.web.default.svc.cluster.local. 5 IN SRV 0 100 80 web.default.svc.cluster.local.
        with web.default.svc.cluster.local. 5 IN A 10.43.0.5
    "#]],
    );
    check(
        "_sql._tcp.db.default.svc.cluster.local. SRV",
        expect![[r#"
        NoError
        _sql._tcp.db.default.svc.cluster.local. 5 IN SRV 0 100 5432 10-42-0-4.db.default.svc.cluster.local.
        _sql._tcp.db.default.svc.cluster.local. 5 IN SRV 0 100 5432 db-0.db.default.svc.cluster.local.
        with 10-42-0-4.db.default.svc.cluster.local. 5 IN A 10.42.0.4
        db-0.db.default.svc.cluster.local. 5 IN A 10.42.0.3
    "#]],
    );
    check(
        "_http._udp.web.default.svc.cluster.local. SRV",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
    check(
        "_tcp.web.default.svc.cluster.local. SRV",
        expect![[r#"
        NoError
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
}

#[test]
fn a_port_leads_to_each_target_once_at_all_of_its_addresses() {
    check(
        "_sql._tcp.pair.default.svc.cluster.local. SRV",
        expect![[r#"
        NoError
        _sql._tcp.pair.default.svc.cluster.local. 5 IN SRV 0 100 5432 10-42-0-7.pair.default.svc.cluster.local.
        _sql._tcp.pair.default.svc.cluster.local. 5 IN SRV 0 100 5432 fd42--7.pair.default.svc.cluster.local.
        _sql._tcp.pair.default.svc.cluster.local. 5 IN SRV 0 100 5432 pair-0.pair.default.svc.cluster.local.
        with 10-42-0-7.pair.default.svc.cluster.local. 5 IN A 10.42.0.7
        fd42--7.pair.default.svc.cluster.local. 5 IN AAAA fd42::7
        pair-0.pair.default.svc.cluster.local. 5 IN A 10.42.0.6
        pair-0.pair.default.svc.cluster.local. 5 IN AAAA fd42::6
    "#]],
    );
    check(
        "_http._tcp.dual.default.svc.cluster.local. SRV",
        expect![[r#"
        NoError
        _http._tcp.dual.default.svc.cluster.local. 5 IN SRV 0 100 80 dual.default.svc.cluster.local.
        with dual.default.svc.cluster.local. 5 IN A 10.43.0.6
        dual.default.svc.cluster.local. 5 IN AAAA fd43::6
    "#]],
    );
}

#[test]
fn addresses_of_ipv6_have_names() {
    let nibbles = |last: &str| format!("{last}.{}2.4.d.f.ip6.arpa. PTR", "0.".repeat(27));
    let services = |last: &str| format!("{last}.{}3.4.d.f.ip6.arpa. PTR", "0.".repeat(27));
    for (question, expected) in [
        (services("6"), "NoError dual.default.svc.cluster.local."),
        (services("7"), "NoError six.default.svc.cluster.local."),
        (nibbles("6"), "NoError pair-0.pair.default.svc.cluster.local."),
        (nibbles("7"), "NoError fd42--7.pair.default.svc.cluster.local."),
        (nibbles("8"), "NXDomain "),
        (services("f"), "NXDomain "),
        (format!("1.{}8.b.d.0.1.0.0.2.ip6.arpa. PTR", "0.".repeat(23)), "forward"),
        // Not a whole address, and none at all.
        ("2.4.d.f.ip6.arpa. PTR".to_owned(), "forward"),
        (nibbles("66"), "forward"),
        (nibbles("g"), "forward"),
    ] {
        let (name, kind) = question.split_once(' ').unwrap();
        let found =
            match answer(&zone(), &Name::from_ascii(name).unwrap(), RecordType::from_str(kind).unwrap()) {
                Decision::Answer(answer) => {
                    let names: Vec<String> =
                        answer.answers.iter().map(|record| record.data.to_string()).collect();
                    format!("{:?} {}", answer.code, names.join(" "))
                }
                _ => "forward".to_owned(),
            };
        assert_eq!(found, expected, "{question}");
    }
}

#[test]
fn addresses_have_names() {
    check(
        "5.0.43.10.in-addr.arpa. PTR",
        expect![[r#"
        NoError
        5.0.43.10.in-addr.arpa. 5 IN PTR web.default.svc.cluster.local.
    "#]],
    );
    check(
        "3.0.42.10.in-addr.arpa. PTR",
        expect![[r#"
        NoError
        3.0.42.10.in-addr.arpa. 5 IN PTR db-0.db.default.svc.cluster.local.
    "#]],
    );
    check(
        "77.0.42.10.in-addr.arpa. PTR",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
    check(
        "1.1.1.1.in-addr.arpa. PTR",
        expect![[r#"
        forward
    "#]],
    );
}

#[test]
fn external_names_are_aliases() {
    check(
        "alias.default.svc.cluster.local. A",
        expect![[r#"
        NoError
        alias.default.svc.cluster.local. 5 IN CNAME 10-7-7-7.x.pod.example.org.
        then 10-7-7-7.x.pod.example.org.
    "#]],
    );
    check(
        "inside.default.svc.cluster.local. A",
        expect![[r#"
        NoError
        inside.default.svc.cluster.local. 5 IN CNAME web.default.svc.cluster.local.
        web.default.svc.cluster.local. 5 IN A 10.43.0.5
    "#]],
    );
}

#[test]
fn pods_have_names_made_of_their_address() {
    check(
        "10-42-0-5.default.pod.cluster.local. A",
        expect![[r#"
        NoError
        10-42-0-5.default.pod.cluster.local. 5 IN A 10.42.0.5
    "#]],
    );
    check(
        "nonsense.default.pod.cluster.local. A",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
}

#[test]
fn the_zone_has_an_apex_and_a_version() {
    check(
        "cluster.local. SOA",
        expect![[r#"
        NoError
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
    check(
        "cluster.local. NS",
        expect![[r#"
        NoError
        cluster.local. 5 IN NS ns.dns.cluster.local.
    "#]],
    );
    check(
        "dns-version.cluster.local. TXT",
        expect![[r#"
        NoError
        dns-version.cluster.local. 5 IN TXT 1.1.0
    "#]],
    );
    check(
        "default.svc.cluster.local. A",
        expect![[r#"
        NoError
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
    check(
        "other.svc.cluster.local. A",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
}

#[test]
fn search_domains_end_quickly_and_other_names_are_forwarded() {
    check(
        "example.com.default.svc.cluster.local. A",
        expect![[r#"
        NXDomain
        cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5
    "#]],
    );
    check(
        "example.com. A",
        expect![[r#"
        forward
    "#]],
    );
    check(
        "local. A",
        expect![[r#"
        forward
    "#]],
    );
    check(
        ". NS",
        expect![[r#"
        forward
    "#]],
    );
}
