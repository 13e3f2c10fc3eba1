//! The table: one lookup finds a Service by address, protocol and port; one more finds an endpoint by a random number.
//!
//! Chains: `services` (from prerouting and output) looks up; `service/...` chooses among the endpoints for traffic
//! from inside, `external/...` among those for traffic from outside. Sets: `service-ips`, `node-ports` hold what has
//! endpoints; `refused-ips`, `refused-ports` what has none. The order of everything follows from names; an address of
//! several Services is a ClusterIP before all else ([`crate::external`]).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sys::nftables::{
    ChainKind, Compare, Data, Expr, Field, Hook, Key, Reg, Rule, SetValue, Table, Verdict, destination_in,
    l4_protocol, load, source_in, when,
};

use crate::external::{Owners, Reserved};
use crate::service_port::{External, Here, ServicePort, Target, service_ports};
use crate::{Config, Nodes};

/// Packets with this mark leave with the node's address. The same bit as upstream's.
const MASQUERADE_MARK: u32 = 0x4000;
const TCP: u8 = 6;

/// What Services and EndpointSlices come to.
#[derive(Debug)]
pub struct Rendered {
    /// Does what they say.
    pub table: Table,
    /// Addresses from outside that lead nowhere, since they belong to the cluster, by `namespace/name/port` of the Service.
    pub refused: BTreeSet<(String, Ipv4Addr)>,
}

/// Renders what these Services, EndpointSlices and Nodes say.
pub fn render(
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
    nodes: &Nodes,
    config: &Config,
) -> Rendered {
    let mut rows = service_ports(services, slices, Here::new(&config.node_name, nodes));
    let refused = Reserved::new(config, &nodes.addresses, &rows).take_from(&mut rows);
    let owners = Owners::of(&rows);
    let mut table = frame(config);
    for (number, row) in rows.iter().enumerate() {
        let is_own = |ip: &&Ipv4Addr| owners.is(number, (**ip, row.protocol, row.port));
        add_row(&mut table, row, config, &is_own);
    }
    Rendered { table, refused }
}

/// Whether an address with the row's port is the row's, if several name it.
type IsOwn<'a> = &'a dyn Fn(&&Ipv4Addr) -> bool;

/// What is there without any Service.
fn frame(config: &Config) -> Table {
    let mut table = Table::new(config.table_name());
    table.set("service-ips", &[Field::Ipv4, Field::Protocol, Field::Port], SetValue::Verdict);
    table.set("node-ports", &[Field::Protocol, Field::Port], SetValue::Verdict);
    table.set("refused-ips", &[Field::Ipv4, Field::Protocol, Field::Port], SetValue::None);
    table.set("refused-ports", &[Field::Protocol, Field::Port], SetValue::None);
    table.set("hairpin", &[Field::Ipv4, Field::Ipv4], SetValue::None);
    frame_nat(&mut table);
    frame_refusals(&mut table, config);
    table
}

fn frame_nat(table: &mut Table) {
    let to_services = || vec![Expr::Verdict(Verdict::Jump("services".into()))];
    table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -100);
    table.rule("prerouting", to_services());
    table.base_chain("output", ChainKind::Nat, Hook::Output, -100);
    table.rule("output", to_services());
    let mut by_ip = load_destination();
    by_ip.push(Expr::VerdictMap("service-ips".into(), Reg::R0));
    table.rule("services", by_ip);
    let mut by_port = to_this_host();
    by_port.extend([
        Expr::L4Protocol(Reg::R0),
        Expr::DestinationPort(Reg::R1),
        Expr::VerdictMap("node-ports".into(), Reg::R0),
    ]);
    table.rule("services", by_port);

    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 100);
    let mut marked = when(Expr::Mark(Reg::R0), MASQUERADE_MARK, Compare::NotEqual, 0);
    marked.extend([
        Expr::Mark(Reg::R0),
        Expr::Bitwise(Reg::R0, (!MASQUERADE_MARK).to_ne_bytes().to_vec(), vec![0; 4]),
        Expr::SetMark(Reg::R0),
        Expr::Masquerade,
    ]);
    table.rule("postrouting", marked);
    // A Pod that reaches itself through a Service must not see its own address as the client's.
    let mut hairpin = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
    hairpin.extend([
        Expr::SourceIp(Reg::R0),
        Expr::DestinationIp(Reg::R1),
        Expr::In("hairpin".into(), Reg::R0),
        Expr::Masquerade,
    ]);
    table.rule("postrouting", hairpin);
}

/// Nothing answers for a Service without endpoints, nor for an address of the Service range that is nobody's: the
/// client learns so at once, and the packet goes nowhere.
fn frame_refusals(table: &mut Table, config: &Config) {
    let nobody = config.services().map(|(network, prefix)| {
        let mut nobody = destination_in(network, prefix, Compare::Equal);
        nobody.extend(when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::NotEqual, Expr::LOCAL));
        nobody.push(Expr::Verdict(Verdict::Goto("refuse".into())));
        nobody
    });
    let mut refused = load_destination();
    refused.extend([Expr::In("refused-ips".into(), Reg::R0), Expr::Verdict(Verdict::Goto("refuse".into()))]);
    for (name, hook) in [("filter-forward", Hook::Forward), ("filter-output", Hook::Output)] {
        table.base_chain(name, ChainKind::Filter, hook, 0);
        if let Some(nobody) = &nobody {
            table.rule(name, nobody.clone());
        }
        table.rule(name, refused.clone());
    }
    table.base_chain("filter-input", ChainKind::Filter, Hook::Input, 0);
    table.rule("filter-input", refused);
    let mut port = to_this_host();
    port.extend([
        Expr::L4Protocol(Reg::R0),
        Expr::DestinationPort(Reg::R1),
        Expr::In("refused-ports".into(), Reg::R0),
        Expr::Verdict(Verdict::Goto("refuse".into())),
    ]);
    table.rule("filter-input", port);
    let mut reset = l4_protocol(TCP);
    reset.push(Expr::RejectTcpReset);
    table.rule("refuse", reset);
    table.rule("refuse", vec![Expr::RejectPortUnreachable]);
}

fn load_destination() -> Rule {
    vec![Expr::DestinationIp(Reg::R0), Expr::L4Protocol(Reg::R1), Expr::DestinationPort(Reg::R2)]
}

/// Addresses of this host but loopback, whose packets cannot leave it.
fn to_this_host() -> Rule {
    let mut rule = when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
    rule.extend(destination_in(Ipv4Addr::new(127, 0, 0, 0), 8, Compare::NotEqual));
    rule
}

/// Goes on with what Pods send, or with all else; with everything in a cluster whose Pods have no IPv4 addresses.
fn from_pods(config: &Config, compare: Compare) -> Vec<Expr> {
    config.pods().map(|(network, prefix)| source_in(network, prefix, compare)).unwrap_or_default()
}

fn add_row(table: &mut Table, row: &ServicePort, config: &Config, is_own: IsOwn<'_>) {
    let id = format!("{}/{}", row.name, row.protocol);
    let inside = format!("service/{id}");
    if !row.internal.is_empty() {
        let mut from_outside = from_pods(config, Compare::NotEqual);
        from_outside.extend(mark_for_masquerade());
        table.rule(&inside, from_outside);
        table.rule(&inside, vec![Expr::Verdict(Verdict::Goto(format!("endpoints/{id}")))]);
        choose(table, &id, row, &row.internal);
        for ip in row.cluster_ips.iter().filter(is_own) {
            let key = Key::new().ip(*ip).protocol(row.protocol).port(row.port);
            table.element("service-ips", key, Data::Verdict(Verdict::Goto(inside.clone())));
        }
    }
    if row.outside_ips().next().is_none() && row.node_port.is_none() {
        return;
    }
    match add_external(table, row, &id, config) {
        Some(chain) => lead_outside_to(table, row, &chain, is_own),
        None => refuse_outside(table, row, is_own),
    }
}

/// The chain for traffic from outside, `None` if there is no endpoint at all.
fn add_external(table: &mut Table, row: &ServicePort, id: &str, config: &Config) -> Option<String> {
    let chain = format!("external/{id}");
    // Shares the choice with the inside where it is the same, so that affinity is shared, too.
    let goto_choice = |table: &mut Table, suffix: &str, targets: &Vec<Target>| {
        let same = *targets == row.internal;
        let name = if same { id.to_owned() } else { format!("{id}/{suffix}") };
        if !same {
            choose(table, &name, row, targets);
        }
        Expr::Verdict(Verdict::Goto(format!("endpoints/{name}")))
    };
    match &row.external {
        External::Cluster(all) if all.is_empty() => return None,
        External::Local { all, .. } if all.is_empty() => return None,
        External::Cluster(all) => {
            let mut rule = mark_for_masquerade();
            rule.push(goto_choice(table, "all", all));
            table.rule(&chain, rule);
        }
        External::Local { local, all } => {
            if config.pods().is_some() {
                let mut rule = from_pods(config, Compare::Equal);
                rule.push(goto_choice(table, "all", all));
                table.rule(&chain, rule);
            }
            let rest = if local.is_empty() {
                Expr::Verdict(Verdict::Drop)
            } else {
                goto_choice(table, "local", local)
            };
            table.rule(&chain, vec![rest]);
        }
    }
    Some(chain)
}

fn lead_outside_to(table: &mut Table, row: &ServicePort, chain: &str, is_own: IsOwn<'_>) {
    for ip in row.outside_ips().filter(is_own) {
        let key = Key::new().ip(*ip).protocol(row.protocol).port(row.port);
        table.element("service-ips", key, Data::Verdict(Verdict::Goto(chain.to_owned())));
    }
    if let Some(port) = row.node_port {
        let key = Key::new().protocol(row.protocol).port(port);
        table.element("node-ports", key, Data::Verdict(Verdict::Goto(chain.to_owned())));
    }
}

fn refuse_outside(table: &mut Table, row: &ServicePort, is_own: IsOwn<'_>) {
    for ip in row.outside_ips().filter(is_own) {
        table.element("refused-ips", Key::new().ip(*ip).protocol(row.protocol).port(row.port), Data::None);
    }
    if let Some(port) = row.node_port {
        table.element("refused-ports", Key::new().protocol(row.protocol).port(port), Data::None);
    }
}

fn mark_for_masquerade() -> Rule {
    vec![
        Expr::Mark(Reg::R0),
        Expr::Bitwise(
            Reg::R0,
            (!MASQUERADE_MARK).to_ne_bytes().to_vec(),
            MASQUERADE_MARK.to_ne_bytes().to_vec(),
        ),
        Expr::SetMark(Reg::R0),
    ]
}

/// The chain `endpoints/NAME`: sends a connection to one of `targets`, the one that the client had before if the
/// Service wants that.
fn choose(table: &mut Table, name: &str, row: &ServicePort, targets: &[Target]) {
    let chain = format!("endpoints/{name}");
    for (ip, _) in targets {
        table.element("hairpin", Key::new().ip(*ip).ip(*ip), Data::None);
    }
    if let Some(timeout) = row.affinity {
        return choose_again(table, name, timeout, targets);
    }
    let target = |(ip, port): &Target| Key::new().ip(*ip).port(*port);
    let dnat = Expr::Dnat(Reg::R1, Some(Reg::R2));
    if let [only] = targets {
        table.rule(&chain, vec![load(Reg::R1, &target(only)), dnat]);
        return;
    }
    table.set(&chain, &[Field::Index], SetValue::Fields(vec![Field::Ipv4, Field::Port]));
    for (index, to) in (0u32..).zip(targets) {
        table.element(&chain, Key::new().index(index), Data::Value(target(to)));
    }
    let count = targets.len() as u32;
    table.rule(&chain, vec![Expr::Random(Reg::R0, count), Expr::Map(chain.clone(), Reg::R0, Reg::R1), dnat]);
}

/// Each endpoint has a set of the clients that it served, which they leave when they have been away for `timeout`.
fn choose_again(table: &mut Table, name: &str, timeout: std::time::Duration, targets: &[Target]) {
    let chain = format!("endpoints/{name}");
    let endpoint = |(ip, port): &Target| format!("endpoint/{name}/{ip}:{port}");
    let clients = |(ip, port): &Target| format!("clients/{name}/{ip}:{port}");
    for to in targets {
        let (ip, port) = *to;
        table.dynamic_set(&clients(to), &[Field::Ipv4], timeout);
        table.rule(
            &endpoint(to),
            vec![
                Expr::SourceIp(Reg::R0),
                Expr::Update(clients(to), Reg::R0),
                load(Reg::R1, &Key::new().ip(ip).port(port)),
                Expr::Dnat(Reg::R1, Some(Reg::R2)),
            ],
        );
        table.rule(
            &chain,
            vec![
                Expr::SourceIp(Reg::R0),
                Expr::In(clients(to), Reg::R0),
                Expr::Verdict(Verdict::Goto(endpoint(to))),
            ],
        );
    }
    table.set(&chain, &[Field::Index], SetValue::Verdict);
    for (index, to) in (0u32..).zip(targets) {
        table.element(&chain, Key::new().index(index), Data::Verdict(Verdict::Goto(endpoint(to))));
    }
    let count = targets.len() as u32;
    table.rule(&chain, vec![Expr::Random(Reg::R0, count), Expr::VerdictMap(chain.clone(), Reg::R0)]);
}

#[cfg(test)]
mod tests;
