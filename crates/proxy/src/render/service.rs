//! What one port of a Service comes to in the table of its family.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use machinery::net::{Cidr, Family};
use sys::nftables::{Compare, Data, Expr, Key, Reg, Rule, Table, Verdict, load, source_in, when};

use super::{MASQUERADE_MARK, field, from_pods, shard_of, source};
use crate::service_port::{External, Internal, ServicePort, Target};
use crate::services::Row;
use crate::{Config, bits};

/// The numbers of a row's choices among endpoints; see [`choice_number`].
const CHOICES: u32 = 4;

/// Which endpoints of a row are chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Those for traffic from inside.
    Inside,
    /// All that traffic from outside may reach.
    All,
    /// Those of them on this Node.
    Local,
}

fn choice_number(row: &Row, choice: Choice) -> u32 {
    row.number.wrapping_mul(CHOICES).wrapping_add(choice as u32)
}

fn id(row: &Row) -> String {
    format!("{}/{}", row.port.name, row.port.protocol)
}

fn goto(chain: impl Into<String>) -> Expr {
    Expr::Verdict(Verdict::Goto(chain.into()))
}

/// Adds a row to a table with the frame's sets.
pub(super) fn add(table: &mut Table, row: &Row, config: &Config) {
    add_inside(table, row, config);
    if row.leads.outside_ips().next().is_none() && row.leads.node_port.is_none() {
        return;
    }
    let has_endpoints = !row.port.endpoints().is_empty();
    let chain = format!("external/{}", id(row));
    if has_endpoints {
        add_external(table, row, &chain, config);
    }
    let to_row = has_endpoints.then(|| chain.clone());
    let to_balancer = match &row.port.source_ranges {
        Some(ranges) if !row.leads.balancer_ips.is_empty() => {
            Some(add_firewall(table, row, ranges, to_row.as_deref(), config))
        }
        _ => to_row.clone(),
    };
    for (ips, to) in [(&row.leads.external_ips, &to_row), (&row.leads.balancer_ips, &to_balancer)] {
        for ip in ips {
            lead(table, row, *ip, to.as_deref());
            if !has_endpoints {
                refuse(table, row, *ip);
            }
        }
    }
    let Some(port) = row.leads.node_port else { return };
    let key = Key::new().protocol(row.port.protocol).port(port);
    match to_row {
        Some(chain) => table.element("node-ports", key, Data::Verdict(Verdict::Goto(chain))),
        None => table.element("refused-ports", key, Data::None),
    }
}

fn key(row: &ServicePort, ip: IpAddr) -> Key {
    Key::new().address(ip).protocol(row.protocol).port(row.port)
}

fn lead(table: &mut Table, row: &Row, ip: IpAddr, chain: Option<&str>) {
    if let Some(chain) = chain {
        let to = Data::Verdict(Verdict::Goto(chain.to_owned()));
        table.element("service-ips", key(&row.port, ip), to);
    }
}

fn refuse(table: &mut Table, row: &Row, ip: IpAddr) {
    table.element("refused-ips", key(&row.port, ip), Data::None);
}

/// Traffic from inside: to the endpoints; nowhere, if there are some on other Nodes only and it must stay on this one;
/// refused, if there are none at all.
fn add_inside(table: &mut Table, row: &Row, config: &Config) {
    let chain = format!("service/{}", id(row));
    let targets = row.port.internal.targets();
    if !targets.is_empty() {
        let mut from_outside = from_pods(config, row.port.family, Compare::NotEqual);
        from_outside.extend(mark_for_masquerade());
        table.rule(&chain, from_outside);
        let to = choose(table, row, Choice::Inside, targets);
        table.rule(&chain, vec![goto(to)]);
    }
    let is_elsewhere = matches!(row.port.internal, Internal::Local { has_others: true, .. });
    for ip in &row.leads.cluster_ips {
        if !targets.is_empty() {
            lead(table, row, *ip, Some(&chain));
        } else if is_elsewhere {
            table.element("service-ips", key(&row.port, *ip), Data::Verdict(Verdict::Drop));
        } else if !config.service_cidrs.contains(*ip) {
            // All that is of the range and nobody's is refused by one rule.
            refuse(table, row, *ip);
        }
    }
}

/// The chain for traffic from outside.
fn add_external(table: &mut Table, row: &Row, chain: &str, config: &Config) {
    match &row.port.external {
        External::Cluster(all) => {
            let mut rule = mark_for_masquerade();
            rule.push(goto(choose_outside(table, row, Choice::All, all)));
            table.rule(chain, rule);
        }
        External::Local { local, all } => {
            let to_all = choose_outside(table, row, Choice::All, all);
            if config.pods(row.port.family).is_some() {
                let mut rule = from_pods(config, row.port.family, Compare::Equal);
                rule.push(goto(to_all.clone()));
                table.rule(chain, rule);
            }
            // The host's own traffic may have the balancer's address as its source, and goes wherever Pods' goes.
            let mut rule = when(Expr::SourceKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
            rule.extend(mark_for_masquerade());
            rule.push(goto(to_all));
            table.rule(chain, rule);
            let rest = if local.is_empty() {
                Expr::Verdict(Verdict::Drop)
            } else {
                goto(choose_outside(table, row, Choice::Local, local))
            };
            table.rule(chain, vec![rest]);
        }
    }
}

/// Shares the choice with the inside where it is the same, so that affinity is shared, too.
fn choose_outside(table: &mut Table, row: &Row, choice: Choice, targets: &[Target]) -> String {
    if targets == row.port.internal.targets() {
        return chain_of(row, Choice::Inside);
    }
    choose(table, row, choice, targets)
}

/// The chain for a load balancer's addresses, which only some may reach: they go on to `chain`, or are refused like
/// anybody if there is none. The host reaches it from the address itself, if its own is one of those that may.
fn add_firewall(
    table: &mut Table,
    row: &Row,
    ranges: &[Cidr],
    chain: Option<&str>,
    config: &Config,
) -> String {
    let firewall = format!("firewall/{}", id(row));
    let pass = || Expr::Verdict(chain.map_or(Verdict::Return, |chain| Verdict::Goto(chain.to_owned())));
    let node_ip = config.node_ip(row.port.family);
    let is_allowed = node_ip.is_some_and(|ip| ranges.iter().any(|range| range.contains(ip)));
    let own = if is_allowed { row.leads.balancer_ips.as_slice() } else { &[] };
    let ranges = ranges.iter().map(|range| (range.first(), range.bits()));
    for (network, bits) in ranges.chain(own.iter().map(|ip| (*ip, bits(row.port.family)))) {
        let mut rule = source_in(network, bits, Compare::Equal);
        rule.push(pass());
        table.rule(&firewall, rule);
    }
    table.rule(&firewall, vec![Expr::Verdict(Verdict::Drop)]);
    firewall
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

fn chain_of(row: &Row, choice: Choice) -> String {
    let name = match choice {
        Choice::Inside => "",
        Choice::All => "/all",
        Choice::Local => "/local",
    };
    format!("endpoints/{}{name}", id(row))
}

/// The chain that sends a connection to one of `targets`, the one that the client had before if the Service wants that.
fn choose(table: &mut Table, row: &Row, choice: Choice, targets: &[Target]) -> String {
    let chain = chain_of(row, choice);
    let number = choice_number(row, choice);
    if let Some(timeout) = row.port.affinity {
        choose_again(table, row, choice, timeout, targets);
        return chain;
    }
    if let [only] = targets {
        table.rule(&chain, lead_to(*only));
        return chain;
    }
    let target = |(ip, port): &Target| Key::new().address(*ip).port(*port);
    let endpoints = shard_of("endpoints", row.number);
    for (index, to) in (0u32..).zip(targets) {
        table.element(&endpoints, Key::new().index(number).index(index), Data::Value(target(to)));
    }
    let mut rule = pick(number, targets);
    let port = Reg::R2.after(field(row.port.family));
    rule.extend([Expr::Map(endpoints, Reg::R0, Reg::R2), Expr::Dnat(Reg::R2, Some(port))]);
    table.rule(&chain, rule);
    chain
}

/// Sends a connection to an endpoint.
fn lead_to((ip, port): Target) -> Rule {
    let family = Family::of(ip);
    let (address, at) = (Key::new().address(ip), Reg::R1.after(field(family)));
    let mut rule = match family {
        Family::V4 => vec![load(Reg::R1, &address.port(port))],
        // Longer than what a rule can load at once.
        Family::V6 => vec![load(Reg::R1, &address), load(at, &Key::new().port(port))],
    };
    rule.push(Expr::Dnat(Reg::R1, Some(at)));
    rule
}

/// Loads the number of a choice and that of one of its targets.
fn pick(number: u32, targets: &[Target]) -> Rule {
    vec![load(Reg::R0, &Key::new().index(number)), Expr::Random(Reg::R1, targets.len() as u32)]
}

/// Each endpoint has a set of the clients that it served, which they leave when they have been away for `timeout`.
fn choose_again(table: &mut Table, row: &Row, choice: Choice, timeout: Duration, targets: &[Target]) {
    let (chain, number, family) = (chain_of(row, choice), choice_number(row, choice), row.port.family);
    let name = chain.trim_start_matches("endpoints/");
    // The kernel cannot change a set's timeout: one with another is another set.
    let clients = |to: &Target| format!("clients/{}/{name}/{}", timeout.as_secs(), SocketAddr::from(*to));
    let endpoint = |to: &Target| format!("endpoint/{name}/{}", SocketAddr::from(*to));
    for to in targets {
        table.dynamic_set(&clients(to), &[field(family)], timeout);
        let mut rule = vec![source(family, Reg::R0), Expr::Update(clients(to), Reg::R0)];
        rule.extend(lead_to(*to));
        table.rule(&endpoint(to), rule);
        let again = vec![source(family, Reg::R0), Expr::In(clients(to), Reg::R0), goto(endpoint(to))];
        table.rule(&chain, again);
    }
    let sticky = shard_of("sticky", row.number);
    for (index, to) in (0u32..).zip(targets) {
        let to = Data::Verdict(Verdict::Goto(endpoint(to)));
        table.element(&sticky, Key::new().index(number).index(index), to);
    }
    let mut rule = pick(number, targets);
    rule.push(Expr::VerdictMap(sticky, Reg::R0));
    table.rule(&chain, rule);
}
