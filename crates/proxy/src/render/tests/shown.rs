//! Whole tables, as the kernel gets them: that of IPv4 is the same whether there is another or not, and that of IPv6 says the
//! same in longer words.

use expect_test::expect_file;
use sys::nftables::{Rule, Set};

use super::*;

const ALL_FORMS: &str = "
- {metadata: {name: web}, spec: {type: LoadBalancer, clusterIP: 10.43.0.5, externalIPs: [192.0.2.9],
   externalTrafficPolicy: Local, loadBalancerSourceRanges: [192.0.2.0/24], ports: [{port: 80, nodePort: 30080}]},
   status: {loadBalancer: {ingress: [{ip: 192.0.2.77}]}}}
- {metadata: {name: web}, ports: [{port: 8080}],
   endpoints: [{addresses: [10.42.0.2], nodeName: node-a}, {addresses: [10.42.1.2], nodeName: node-b}]}
- {metadata: {name: sticky}, spec: {clusterIP: 10.43.0.6, sessionAffinity: ClientIP, ports: [{port: 53, protocol: UDP}]}}
- {metadata: {name: sticky}, ports: [{port: 53}], endpoints: [{addresses: [10.42.0.3]}]}
- {metadata: {name: one}, spec: {clusterIP: 10.43.0.7, ports: [{port: 80}]}}
- {metadata: {name: one}, ports: [{port: 8080}], endpoints: [{addresses: [10.42.0.4]}]}
- {metadata: {name: none}, spec: {type: NodePort, clusterIP: 10.99.0.8, ports: [{port: 80, nodePort: 30081}]}}
";

fn shown(table: &Table) -> String {
    let mut lines = vec![format!("table {:?} {}", table.family, table.name)];
    let empty_shard = |name: &str, set: &Set| {
        name.ends_with(|it: char| it.is_ascii_digit()) && set.elements.is_empty() && set.timeout.is_none()
    };
    for (name, set) in table.sets.iter().filter(|(name, set)| !empty_shard(name, set)) {
        let Set { key, value, timeout, elements, .. } = set;
        lines.push(format!("  set {name} {key:?} {value:?} {timeout:?}"));
        for (key, data) in elements {
            let data = match data {
                Data::Value(value) => format!("{:02x?}", value.bytes()),
                other => format!("{other:?}"),
            };
            lines.push(format!("    {:02x?} {data}", key.bytes()));
        }
    }
    for (name, chain) in &table.chains {
        lines.push(format!("  chain {name} {:?}", chain.base));
        let rule = |rule: &Rule| rule.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>().join("; ");
        lines.extend(chain.rules.iter().map(|steps| format!("    {}", rule(steps))));
    }
    lines.join("\n") + "\n"
}

#[test]
fn tables_are_these() {
    let v4 = table(Family::V4, ALL_FORMS);
    expect_file!["shown/ipv4.txt"].assert_eq(&shown(&v4));
    let v6 = table(Family::V6, ALL_FORMS);
    expect_file!["shown/ipv6.txt"].assert_eq(&shown(&v6));
    // Names have no addresses but that of the endpoint that is stuck to.
    let shape = |table: &Table| -> Vec<(String, usize)> {
        let sets = table.sets.iter().map(|(name, set)| (name, set.elements.len()));
        let rules = table.chains.iter().map(|(name, chain)| (name, chain.rules.len()));
        let same = |name: &String| name.replace("[fd00::a2a:3]", "10.42.0.3");
        sets.chain(rules).map(|(name, count)| (same(name), count)).collect()
    };
    assert_eq!(shape(&v4), shape(&v6));
}

#[test]
fn a_cluster_of_both_families_has_both_tables() {
    let empty = |family| table(family, "[]");
    let [v4, v6] = BOTH.map(|family| table(family, ALL_FORMS));
    let of = |family, yaml| crate::tables(config(&BOTH), changed(family, yaml));
    assert_eq!(of(Family::V4, ALL_FORMS), [v4, empty(Family::V6)]);
    assert_eq!(of(Family::V6, ALL_FORMS), [empty(Family::V4), v6]);
}
