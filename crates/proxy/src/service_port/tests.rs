mod upstream;

use super::*;
use crate::families::BOTH;

/// The last bytes of the endpoints' addresses that a Node `here` in the zone `near` leads to. An endpoint is written as
/// `1 node zone`, with `-` for no hint and `+` between several, and `!1` if it ends.
fn check(what: &str, endpoints: &[&str], expect: &[u8]) {
    let endpoint = |text: &&str| {
        let words: Vec<&str> = text.split(' ').collect();
        let (number, ready) = words[0].strip_prefix('!').map_or((words[0], true), |number| (number, false));
        let hints = |word: &str| {
            let names = word.split('+').filter(|name| *name != "-");
            names.map(|name| serde_json::json!({"name": name})).collect::<Vec<_>>()
        };
        serde_json::json!({"addresses": [format!("10.42.0.{number}")],
            "conditions": {"ready": ready, "serving": true, "terminating": !ready},
            "hints": {"forNodes": hints(words[1]), "forZones": hints(words[2])}})
    };
    let slice = serde_json::json!({"addressType": "IPv4", "ports": [{"name": "", "port": 80}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()});
    let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
    let nodes = Nodes { zone: Some("near".to_owned()), ..Nodes::default() };
    let here = Here::new("here", &nodes);
    let found = Endpoints::collect([&slice].into_iter(), "", 6, here, Family::V4).all.nearest();
    let expect: Vec<String> = expect.iter().map(|last| format!("10.42.0.{last}")).collect();
    assert_eq!(found.iter().map(|(ip, _)| ip.to_string()).collect::<Vec<_>>(), expect, "{what}");
}

#[test]
fn traffic_goes_to_the_nearest_endpoints_that_are_ready() {
    check("no hints", &["1 - -", "2 - -"], &[1, 2]);
    check("the zone's", &["1 - near", "2 - far"], &[1]);
    check("of several zones", &["1 - far+near", "2 - far"], &[1]);
    check("no zone's", &["1 - far", "2 - far"], &[1, 2]);
    check("not all are for zones", &["1 - near", "2 - -"], &[1, 2]);
    check("the node's", &["1 here near", "2 there near"], &[1]);
    check("no node's", &["1 there near", "2 there far"], &[1]);
    check("not all are for nodes", &["1 here near", "2 - near", "3 there far"], &[1, 2]);
    check("nobody's", &["1 there far"], &[1]);
    check("the near one ends", &["!1 here near", "2 there far"], &[2]);
    check("one that ends has no hint", &["1 - near", "2 - far", "!3 - -"], &[1]);
    check("all end", &["!1 here near", "!2 there far"], &[1, 2]);
}

#[test]
fn a_node_that_names_no_zone_has_none_of_the_endpoints() {
    let zones = ["near".to_owned()];
    assert_eq!(Meant::of(&zones, None), Meant::Others);
    assert_eq!(Meant::of(&[], None), Meant::All);
}

/// The rows of a Service with one port, and with slices of a type and addresses: each as its family, its addresses, and its
/// endpoints.
fn rows(spec: &str, slices: &[(&str, &str)], families: &[Family]) -> Vec<String> {
    let read = |yaml: String| serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap();
    let service =
        read(format!("{{metadata: {{namespace: ns, name: web}}, spec: {{ports: [{{port: 80}}], {spec}}}}}"));
    let service: Service = serde_json::from_value(service).unwrap();
    let slice = |(kind, addresses): &(&str, &str)| {
        let endpoints: Vec<String> =
            addresses.split(' ').map(|address| format!("{{addresses: ['{address}']}}")).collect();
        let endpoints = endpoints.join(", ");
        let slice = read(format!("{{addressType: {kind}, ports: [{{port: 1}}], endpoints: [{endpoints}]}}"));
        serde_json::from_value::<EndpointSlice>(slice).unwrap()
    };
    let slices: Vec<EndpointSlice> = slices.iter().map(slice).collect();
    let nodes = Nodes::default();
    let rows = service_ports(&service, slices.iter(), Here::new("here", &nodes), families);
    let told =
        |ips: &mut dyn Iterator<Item = IpAddr>| ips.map(|ip| ip.to_string()).collect::<Vec<_>>().join(" ");
    rows.iter()
        .map(|row| {
            let cluster = told(&mut row.cluster_ips.iter().copied());
            let outside = told(&mut row.outside_ips().copied());
            let endpoints = told(&mut row.endpoints().iter().map(|(ip, _)| *ip));
            format!("{}: {cluster} | {outside} | {endpoints}", row.family.as_str())
        })
        .collect()
}

#[test]
fn a_row_has_what_is_of_its_family_and_nothing_else() {
    let v6 = "clusterIP: 'fd43::5'";
    for (what, spec, slices, expect) in [
        (
            "both families",
            "clusterIPs: [10.43.0.5, 'fd43::5'], externalIPs: [192.0.2.9, '2001:db8::9']",
            &[("IPv6", "fd42::2"), ("IPv4", "10.42.0.2"), ("IPv4", "10.42.0.3")][..],
            &["IPv4: 10.43.0.5 | 192.0.2.9 | 10.42.0.2 10.42.0.3", "IPv6: fd43::5 | 2001:db8::9 | fd42::2"][..],
        ),
        (
            "one family, and addresses of the other outside",
            "clusterIP: 10.43.0.5, externalIPs: ['2001:db8::9']",
            &[("IPv4", "10.42.0.2"), ("IPv6", "fd42::2")],
            &["IPv4: 10.43.0.5 |  | 10.42.0.2"],
        ),
        (
            "an IPv6 address that wraps one of IPv4",
            "clusterIP: '::ffff:10.43.0.5', externalIPs: ['::ffff:192.0.2.9']",
            &[("IPv4", "::ffff:10.42.0.2"), ("IPv6", "::ffff:10.42.0.3")],
            &["IPv4: 10.43.0.5 | 192.0.2.9 | 10.42.0.2"],
        ),
        ("a slice of the other type", v6, &[("IPv4", "fd42::2")], &["IPv6: fd43::5 |  | "]),
        ("a slice that lies", v6, &[("IPv6", "10.42.0.2 fd42::2")], &["IPv6: fd43::5 |  | fd42::2"]),
        ("names", v6, &[("FQDN", "fd42::2"), ("FQDN", "a.example")], &["IPv6: fd43::5 |  | "]),
        (
            "addresses that mean something else on each link or host",
            v6,
            &[
                ("IPv6", "fe80::1 :: ::1 ff02::1 fd42::2"),
                ("IPv4", "169.254.0.1 0.0.0.0 127.0.0.1 224.0.0.1"),
            ],
            &["IPv6: fd43::5 |  | fd42::2"],
        ),
        (
            "no addresses at all",
            v6,
            &[("IPv6", "fd42::2%eth0 fd42::/64 fd42:: x 1.2.3")],
            &["IPv6: fd43::5 |  | fd42::"],
        ),
        (
            "a cluster address that is none",
            "clusterIPs: ['::', 'fe80::1', '::1', 'ff02::1', 'x', 127.0.0.1]",
            &[],
            &[],
        ),
        (
            "a Service without one",
            "clusterIP: None, externalIPs: ['2001:db8::9']",
            &[("IPv6", "fd42::2")],
            &[],
        ),
    ] {
        assert_eq!(rows(spec, slices, &BOTH), expect, "{what}");
    }
    let both = "clusterIPs: [10.43.0.5, 'fd43::5']";
    assert_eq!(rows(both, &[], &[Family::V4]), ["IPv4: 10.43.0.5 |  | "]);
    assert_eq!(rows(both, &[], &[Family::V6]), ["IPv6: fd43::5 |  | "]);
    assert!(rows("clusterIP: 'fd43::5'", &[], &[Family::V4]).is_empty(), "a cluster without that family");
}

#[test]
fn source_ranges_of_the_other_family_open_nothing() {
    for (ranges, v4, v6) in [
        ("", None, None),
        ("192.0.2.0/24", Some("192.0.2.0/24"), Some("")),
        ("'2001:db8::/32'", Some(""), Some("2001:db8::/32")),
        ("192.0.2.0/24, ' 2001:db8::/32 '", Some("192.0.2.0/24"), Some("2001:db8::/32")),
        ("0.0.0.0/0", None, Some("")),
        ("'::/0', 192.0.2.0/24", Some("192.0.2.0/24"), None),
        ("'::ffff:192.0.2.0/120'", Some("192.0.2.0/24"), Some("")),
        ("nonsense", Some(""), Some("")),
    ] {
        let yaml = format!("{{loadBalancerSourceRanges: [{ranges}]}}");
        let spec: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        let spec: ServiceSpec = serde_json::from_value(spec).unwrap();
        let found = BOTH.map(|family| source_ranges(&spec, family));
        let told = found.map(|ranges| ranges.map(|all| all.iter().map(Cidr::to_string).collect::<String>()));
        assert_eq!(told, [v4, v6].map(|ranges| ranges.map(str::to_owned)), "{ranges}");
    }
}
