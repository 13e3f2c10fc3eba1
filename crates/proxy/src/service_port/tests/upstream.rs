//! Upstream's own cases, in tables: each says its form.

use serde_json::{Value, json};

use super::*;

/// A row: its name, and the lines below it.
type Lines<'t> = (&'t str, Vec<&'t str>);

fn rows_of(text: &str) -> Vec<Lines<'_>> {
    let mut rows: Vec<Lines<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("//") && !line.is_empty()) {
        match line.strip_prefix("- ") {
            Some(name) => rows.push((name, Vec::new())),
            None => rows.last_mut().expect(line).1.push(line.trim()),
        }
    }
    rows
}

/// Tells all rows that came out differently.
fn check(table: &str, found: impl Fn(&[&str]) -> (Vec<String>, Vec<String>)) {
    let rows = rows_of(table);
    assert!(rows.len() > 10, "{} rows", rows.len());
    let different = rows.iter().filter_map(|(name, lines)| {
        let (expect, found) = found(lines);
        (expect != found).then(|| format!("- {name}\n  {}\n", found.join("\n  ")))
    });
    let different: Vec<String> = different.collect();
    assert!(different.is_empty(), "{} rows differ:\n{}", different.len(), different.concat());
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// `3 z=a,b n=node-1 local ending`, with the prefix of zones that `z` stands for.
fn endpoint(text: &str) -> Value {
    let mut words = text.split_whitespace();
    let address = format!("10.1.2.{}", words.next().unwrap());
    let mut endpoint = json!({"addresses": [address], "conditions": {"ready": true}, "hints": {}});
    for word in words {
        let names = |names: &str, prefix: &str| -> Value {
            names.split(',').map(|name| json!({"name": format!("{prefix}{name}")})).collect()
        };
        match word.split_once('=') {
            Some(("z", zones)) => endpoint["hints"]["forZones"] = names(zones, "zone-"),
            Some(("n", nodes)) => endpoint["hints"]["forNodes"] = names(nodes, ""),
            _ => match word {
                "local" => endpoint["nodeName"] = json!("node-1"),
                "unready" => endpoint["conditions"] = json!({"ready": false, "serving": false}),
                "serving" => endpoint["conditions"] = json!({"ready": false, "serving": true}),
                "ending" => {
                    endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
                }
                other => panic!("{other}"),
            },
        }
    }
    endpoint
}

fn slice(ports: &str, endpoints: &str) -> EndpointSlice {
    let endpoints = endpoints.split(';').map(str::trim).filter(|text| !text.is_empty()).map(endpoint);
    let endpoints: Vec<Value> = endpoints.collect();
    let slice = json!({"addressType": "IPv4", "ports": yaml(&format!("[{ports}]")), "endpoints": endpoints});
    serde_json::from_value(slice).unwrap()
}

/// The rows of a Service with this spec and these slices, on `node-1`.
fn ports(spec: Value, status: Value, slices: &[EndpointSlice], zone: &str) -> Vec<ServicePort> {
    let service = json!({"metadata": {"namespace": "ns", "name": "svc"}, "spec": spec, "status": status});
    let service: Service = serde_json::from_value(service).unwrap();
    let zone = Some(zone.to_owned()).filter(|zone| !zone.is_empty());
    let nodes = Nodes { zone, ..Nodes::default() };
    service_ports(&service, slices.iter(), Here::new("node-1", &nodes), &BOTH)
}

/// The last bytes of addresses, each with a space before it.
fn told(targets: &[Target]) -> String {
    let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().to_owned();
    targets.iter().map(|(ip, _)| format!(" {}", last(ip))).collect()
}

#[test]
fn traffic_of_each_policy_goes_where_upstreams_does() {
    check(include_str!("topology.txt"), |lines| {
        let [given, expect] = lines else { panic!("{lines:?}") };
        let [zone, policies, endpoints] = given.splitn(3, '|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{given}")
        };
        let mut spec = yaml(&format!("{{{policies}}}"));
        spec["clusterIP"] = json!("10.43.0.5");
        spec["ports"] = json!([{"port": 80, "nodePort": 30080}]);
        let rows = ports(spec, json!({}), &[slice("{port: 80}", endpoints)], zone);
        let inside = match &rows[0].internal {
            Internal::Cluster(targets) => told(targets),
            Internal::Local { local, has_others } => {
                format!("local{} of {}", told(local), if *has_others { "some" } else { "none" })
            }
        };
        let outside = match &rows[0].external {
            External::Cluster(targets) => told(targets),
            External::Local { local, all } => format!("local{} of{}", told(local), told(all)),
        };
        (
            vec![(*expect).to_owned()],
            vec![format!("{} | {}", inside.trim(), outside.trim()).trim().to_owned()],
        )
    });
}

#[test]
fn slices_of_a_service_are_joined_by_name_and_protocol_of_a_port() {
    check(include_str!("slices.txt"), |lines| {
        let (spec, lines) = lines.split_first().unwrap();
        let slices: Vec<EndpointSlice> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("+ ")?.split_once('|'))
            .map(|(ports, endpoints)| slice(ports, endpoints))
            .collect();
        let spec = json!({"clusterIP": "10.43.0.5", "ports": yaml(&format!("[{spec}]")),
            "externalTrafficPolicy": "Local"});
        let all = |targets: &[Target]| {
            let one = |target: &Target| format!("{}:{}", told(&[*target]).trim(), target.1);
            targets.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        let found = ports(spec, json!({}), &slices, "").into_iter().map(|row| {
            let External::Local { local, all: cluster } = &row.external else { panic!("{row:?}") };
            let name = row.name.rsplit('/').next().unwrap();
            let words = [name, &all(cluster), &format!("[{}]", all(local))];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        });
        let expect = lines.last().unwrap().strip_prefix("= ").unwrap().to_owned();
        (vec![expect], vec![found.collect::<Vec<_>>().join(" | ")])
    });
}

#[test]
fn services_are_rows_of_each_family_as_upstreams() {
    check(include_str!("services.txt"), |lines| {
        let (given, expect) = lines.split_first().unwrap();
        let (spec, ingress) = given.split_once(" | ").unwrap_or((given, ""));
        let status = json!({"loadBalancer": {"ingress": yaml(&format!("[{ingress}]"))}});
        let found = ports(yaml(spec), status, &[], "").into_iter().map(|row| {
            let ips = |ips: &[IpAddr]| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
            let ranges = row
                .source_ranges
                .as_ref()
                .map(|ranges| ranges.iter().map(|range| range.to_string()).collect::<Vec<_>>().join(","));
            let name = row.name.rsplit('/').next().unwrap();
            let more = [
                ("node", row.node_port.map(|port| port.to_string())),
                ("external", Some(ips(&row.external_ips)).filter(|ips| !ips.is_empty())),
                ("balancer", Some(ips(&row.balancer_ips)).filter(|ips| !ips.is_empty())),
                ("ranges", ranges),
                ("check", row.health_check_port.map(|port| port.to_string())),
                ("stays", row.affinity.map(|time| time.as_secs().to_string())),
            ];
            let more = more.into_iter().filter_map(|(what, value)| Some(format!(" {what}={}", value?)));
            let (family, cluster) = (row.family.as_str(), ips(&row.cluster_ips));
            format!("{family} {name} {} {cluster} {}{}", row.protocol, row.port, more.collect::<String>())
        });
        (expect.iter().map(|line| (*line).to_owned()).collect(), found.collect())
    });
}
