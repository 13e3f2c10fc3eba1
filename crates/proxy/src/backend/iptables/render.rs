//! What a Service port comes to in iptables, and what is there without any: kube-proxy's chains, under its names.
//!
//! `nat`: KUBE-SERVICES finds a Service by address and port, KUBE-NODEPORTS by a port of Nodes. KUBE-SVC-* and KUBE-SVL-*
//! choose among the endpoints of the cluster and of this Node, KUBE-SEP-* leads to one. Traffic from outside comes through
//! KUBE-EXT-*, to a load balancer with source ranges through KUBE-FW-*. `filter` refuses what has no endpoints, drops what
//! has none here, and what KUBE-FW-* did not let through (KUBE-PROXY-FIREWALL). `mangle` has nothing but a canary.
//! Source: `pkg/proxy/iptables/proxier.go`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use machinery::net::Family;

use super::names::Names;
use super::rules::{Frame, Rules};
use super::table::{Jump, Table};
use crate::Config;
use crate::service_port::{External, Internal, Target};
use crate::services::{Part, Row};

pub(crate) const CANARY: &str = "KUBE-PROXY-CANARY";
pub(crate) const MARK_MASQ: &str = "KUBE-MARK-MASQ";
pub(crate) const POSTROUTING: &str = "KUBE-POSTROUTING";
pub(crate) const SERVICES: &str = "KUBE-SERVICES";
pub(crate) const FORWARD: &str = "KUBE-FORWARD";
pub(crate) const FIREWALL: &str = "KUBE-PROXY-FIREWALL";
const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
const NODE_PORTS: &str = "KUBE-NODEPORTS";
const PORTALS: &str = "kubernetes service portals";
const NEW: &str = "-m conntrack --ctstate NEW";
/// Not upstream's ICMP: a client on this host that is told before it waits hears that only when it tries again.
pub(crate) const REFUSE_TCP: &str = "REJECT --reject-with tcp-reset";
const TCP: u8 = 6;
/// Packets with this mark leave with the node's address.
const MARK: &str = "0x4000";

/// For whom rules are rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) config: &'a Config,
    pub(crate) family: Family,
}

impl Scope<'_> {
    /// Matches what Pods do not send; everything, in a cluster whose Pods have no addresses of the family.
    pub(crate) fn not_from_pods(&self) -> String {
        self.config.pods(self.family).map_or_else(String::new, |pods| format!("! -s {pods} "))
    }

    pub(crate) fn loopback(&self) -> &'static str {
        match self.family {
            Family::V4 => "127.0.0.0/8",
            Family::V6 => "::1/128",
        }
    }
}

/// The comment by which a cluster knows its own canary.
pub(crate) fn canary(cluster_id: &str) -> String {
    format!("knarr-{cluster_id}")
}

/// What some Service ports come to.
pub(crate) fn rules(part: &Part, scope: Scope<'_>) -> Rules {
    let mut rules = Rules::default();
    for row in part.rows.iter().filter(|row| row.port.family == scope.family) {
        PortRules { names: Names::of(&row.port), row, scope, rules: &mut rules }.add();
    }
    rules
}

/// One Service port's, being rendered.
struct PortRules<'a> {
    names: Names,
    row: &'a Row,
    scope: Scope<'a>,
    rules: &'a mut Rules,
}

impl PortRules<'_> {
    fn add(mut self) {
        let addresses = |targets: &[Target]| -> Vec<SocketAddr> {
            targets.iter().map(|(ip, port)| SocketAddr::new(*ip, *port)).collect()
        };
        let port = &self.row.port;
        let all = addresses(port.endpoints());
        let local = match (&port.internal, &port.external) {
            (Internal::Local { local, .. }, _) | (_, External::Local { local, .. }) => addresses(local),
            _ => Vec::new(),
        };
        let is_external = self.row.leads.outside_ips().next().is_some() || self.row.leads.node_port.is_some();
        self.add_inside(&all, &local);
        if let Some(port) = port.health_check_port {
            let comment = self.names.comment("{} health check node port");
            self.rules.share(
                Table::Filter,
                NODE_PORTS,
                format!("{comment} -m tcp -p tcp --dport {port} -j ACCEPT"),
            );
        }
        if is_external {
            self.add_outside(&all, &local);
        }
        let is_local_inside = matches!(port.internal, Internal::Local { .. });
        let is_local_outside = is_external && matches!(port.external, External::Local { .. });
        let cluster = if !is_local_inside || is_external { all.as_slice() } else { &[] };
        let local = if is_local_inside || is_local_outside { local.as_slice() } else { &[] };
        for (chain, targets) in [(self.names.cluster(), cluster), (self.names.local(), local)] {
            self.add_choice(&chain, targets);
        }
        for target in cluster.iter().chain(local) {
            self.add_endpoint(*target);
        }
    }

    /// Matches what is for an address with the Service's port.
    fn to(&self, ip: IpAddr) -> String {
        let (protocol, port) = (self.names.protocol, self.row.port.port);
        format!("-m {protocol} -p {protocol} -d {ip} --dport {port}")
    }

    fn own(&mut self, chain: &str, rule: String) {
        self.rules.own.entry(chain.to_owned()).or_default().push(rule);
    }

    fn add_inside(&mut self, all: &[SocketAddr], local: &[SocketAddr]) {
        let (chain, has_endpoints) = match self.row.port.internal {
            Internal::Cluster(_) => (self.names.cluster(), !all.is_empty()),
            Internal::Local { .. } => (self.names.local(), !local.is_empty()),
        };
        let comment = self.names.comment("{} cluster IP");
        for ip in &self.row.leads.cluster_ips {
            let to = self.to(*ip);
            if has_endpoints {
                self.rules.share(Table::Nat, SERVICES, format!("{comment} {to} -j {chain}"));
                let masquerade = format!("{comment} {to} {}-j {MARK_MASQ}", self.scope.not_from_pods());
                self.own(&chain, masquerade);
            } else if !self.scope.config.local_addresses.contains(ip) {
                // What this host answers at itself has no endpoints, and is there nevertheless.
                let (comment, target) = self.refusal(all);
                self.rules.share(Table::Filter, SERVICES, format!("{comment} {to} -j {target}"));
            }
        }
    }

    /// What happens to traffic that no endpoint is for: it is told so where there is none in the whole cluster.
    fn refusal(&self, all: &[SocketAddr]) -> (String, &'static str) {
        let no_endpoints = || self.names.comment("{} has no endpoints");
        match (all.is_empty(), self.row.port.protocol) {
            (true, TCP) => (no_endpoints(), REFUSE_TCP),
            (true, _) => (no_endpoints(), "REJECT"),
            (false, _) => (self.names.comment("{} has no local endpoints"), "DROP"),
        }
    }

    fn add_outside(&mut self, all: &[SocketAddr], local: &[SocketAddr]) {
        let (external, protocol) = (self.names.external(), self.names.protocol);
        let is_local = matches!(self.row.port.external, External::Local { .. });
        let reached = if is_local { local } else { all };
        let leads = &self.row.leads;
        let (external_ips, balancer_ips) = (&leads.external_ips, &leads.balancer_ips);
        if !all.is_empty() {
            self.add_external(&external, !reached.is_empty());
            let comment = self.names.comment("{} external IP");
            for ip in external_ips {
                self.rules.share(Table::Nat, SERVICES, format!("{comment} {} -j {external}", self.to(*ip)));
            }
            let chain = self.add_firewall(&external, balancer_ips);
            let comment = self.names.comment("{} loadbalancer IP");
            for ip in balancer_ips {
                self.rules.share(Table::Nat, SERVICES, format!("{comment} {} -j {chain}", self.to(*ip)));
            }
            if let Some(port) = leads.node_port {
                let comment = self.names.comment("{}");
                let rule = format!("{comment} -m {protocol} -p {protocol} --dport {port} -j {external}");
                self.rules.share(Table::Nat, NODE_PORTS, rule);
            }
        }
        if !reached.is_empty() {
            return;
        }
        let (comment, target) = self.refusal(all);
        for ip in external_ips.iter().chain(balancer_ips) {
            let rule = format!("{comment} {} -j {target}", self.to(*ip));
            self.rules.share(Table::Filter, EXTERNAL_SERVICES, rule);
        }
        if let Some(port) = leads.node_port {
            let rule = format!(
                "{comment} -m addrtype --dst-type LOCAL -m {protocol} -p {protocol} --dport {port} -j {target}"
            );
            self.rules.share(Table::Filter, EXTERNAL_SERVICES, rule);
        }
    }

    /// The chain for traffic from outside, which goes on to the endpoints if there are some for it.
    fn add_external(&mut self, chain: &str, has_endpoints: bool) {
        let cluster = self.names.cluster();
        if matches!(self.row.port.external, External::Cluster(_)) {
            let comment = self.names.comment("masquerade traffic for {} external destinations");
            self.own(chain, format!("{comment} -j {MARK_MASQ}"));
            return self.own(chain, format!("-j {cluster}"));
        }
        if let Some(pods) = self.scope.config.pods(self.scope.family) {
            let comment = self.names.comment("pod traffic for {} external destinations");
            self.own(chain, format!("{comment} -s {pods} -j {cluster}"));
        }
        let comment = self.names.comment("masquerade LOCAL traffic for {} external destinations");
        self.own(chain, format!("{comment} -m addrtype --src-type LOCAL -j {MARK_MASQ}"));
        let comment = self.names.comment("route LOCAL traffic for {} external destinations");
        self.own(chain, format!("{comment} -m addrtype --src-type LOCAL -j {cluster}"));
        if has_endpoints {
            self.own(chain, format!("-j {}", self.names.local()));
        }
    }

    /// The chain for load balancers' addresses: one that lets only some through to `external`, if only some may.
    fn add_firewall(&mut self, external: &str, ips: &[IpAddr]) -> String {
        let ranges = match &self.row.port.source_ranges {
            Some(ranges) if !ips.is_empty() => ranges,
            _ => return external.to_owned(),
        };
        let chain = self.names.firewall();
        let comment = self.names.comment("{} loadbalancer IP");
        for range in ranges {
            self.own(&chain, format!("{comment} -s {} -j {external}", range.network()));
        }
        // The host's own packets for the address have it as their source.
        let node_ip = self.scope.config.node_ip(self.scope.family);
        if node_ip.is_some_and(|node_ip| ranges.iter().any(|range| range.contains(node_ip))) {
            for ip in ips {
                self.own(&chain, format!("{comment} -s {ip} -j {external}"));
            }
        }
        let others = self.names.comment("other traffic to {} will be dropped by KUBE-PROXY-FIREWALL");
        self.own(&chain, others);
        let comment = self.names.comment(&format!("{{}} traffic not accepted by {chain}"));
        for ip in ips {
            self.rules.share(Table::Filter, FIREWALL, format!("{comment} {} -j DROP", self.to(*ip)));
        }
        chain
    }

    /// The rules that choose one of `targets`, the one that the client had before if the Service wants that.
    fn add_choice(&mut self, chain: &str, targets: &[SocketAddr]) {
        let comments: Vec<_> = targets
            .iter()
            .map(|target| (self.names.comment(&format!("{{}} -> {target}")), self.names.endpoint(*target)))
            .collect();
        if let Some(seconds) = self.row.port.affinity.as_ref().map(Duration::as_secs) {
            for (comment, to) in &comments {
                let rule =
                    format!("{comment} -m recent --name {to} --rcheck --seconds {seconds} --reap -j {to}");
                self.own(chain, rule);
            }
        }
        for (left, (comment, to)) in (1..=comments.len()).rev().zip(&comments) {
            let chance = match left {
                1 => String::new(),
                _ => format!("-m statistic --mode random --probability {:.10} ", 1.0 / left as f64),
            };
            self.own(chain, format!("{comment} {chance}-j {to}"));
        }
    }

    fn add_endpoint(&mut self, target: SocketAddr) {
        let (chain, protocol) = (self.names.endpoint(target), self.names.protocol);
        if self.rules.own.contains_key(&chain) {
            return;
        }
        let comment = self.names.comment("{}");
        // A Pod that reaches itself must not see its own address as the client's.
        self.own(&chain, format!("{comment} -s {} -j {MARK_MASQ}", target.ip()));
        let recent = match self.row.port.affinity {
            Some(_) => format!("-m recent --name {chain} --set "),
            None => String::new(),
        };
        let rule = format!("{comment} {recent}-m {protocol} -p {protocol} -j DNAT --to-destination {target}");
        self.own(&chain, rule);
    }
}

/// The rules of a chain that all modes with iptables have: masquerading of what is marked, and the canary, which whoever
/// flushes a table takes away, too.
pub(crate) fn common_rules(chain: &str, cluster_id: &str) -> Vec<String> {
    match chain {
        POSTROUTING => vec![
            format!("-m mark ! --mark {MARK}/{MARK} -j RETURN"),
            format!("-j MARK --xor-mark {MARK}"),
            "-m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully"
                .to_owned(),
        ],
        MARK_MASQ => vec![format!("-j MARK --or-mark {MARK}")],
        CANARY => vec![format!("-m comment --comment \"{}\"", canary(cluster_id))],
        _ => Vec::new(),
    }
}

/// Lets through what is masqueraded or belongs to what was let through, whatever the policy of the chain FORWARD.
pub(crate) fn forward() -> Vec<String> {
    vec![
        format!("-m comment --comment \"kubernetes forwarding rules\" -m mark --mark {MARK}/{MARK} -j ACCEPT"),
        "-m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
            .to_owned(),
    ]
}

/// Ways that all modes with iptables have.
pub(crate) fn common_jumps() -> Vec<Jump> {
    let jump = |table, from, to, only, comment| Jump { table, from, to, only, comment };
    let firewall = "kubernetes load balancer firewall";
    vec![
        jump(Table::Filter, "FORWARD", FORWARD, "", "kubernetes forwarding rules"),
        jump(Table::Filter, "INPUT", FIREWALL, NEW, firewall),
        jump(Table::Filter, "OUTPUT", FIREWALL, NEW, firewall),
        jump(Table::Filter, "FORWARD", FIREWALL, NEW, firewall),
        jump(Table::Nat, "OUTPUT", SERVICES, "", PORTALS),
        jump(Table::Nat, "PREROUTING", SERVICES, "", PORTALS),
        jump(Table::Nat, "POSTROUTING", POSTROUTING, "", "kubernetes postrouting rules"),
    ]
}

/// Ways to where Services are refused.
pub(crate) fn to_services() -> [Jump; 2] {
    ["FORWARD", "OUTPUT"].map(|from| Jump {
        table: Table::Filter,
        from,
        to: SERVICES,
        only: NEW,
        comment: PORTALS,
    })
}

/// All chains that are there without any Service.
pub(crate) const CHAINS: [(Table, &str); 12] = [
    (Table::Filter, SERVICES),
    (Table::Filter, EXTERNAL_SERVICES),
    (Table::Filter, FORWARD),
    (Table::Filter, NODE_PORTS),
    (Table::Filter, FIREWALL),
    (Table::Nat, SERVICES),
    (Table::Nat, NODE_PORTS),
    (Table::Nat, POSTROUTING),
    (Table::Nat, MARK_MASQ),
    (Table::Mangle, CANARY),
    (Table::Filter, CANARY),
    (Table::Nat, CANARY),
];

/// All ways to them.
pub(crate) fn jumps() -> Vec<Jump> {
    let jump = |from, to, only, comment| Jump { table: Table::Filter, from, to, only, comment };
    let outside = "kubernetes externally-visible service portals";
    let mut jumps = vec![
        jump("INPUT", EXTERNAL_SERVICES, NEW, outside),
        jump("FORWARD", EXTERNAL_SERVICES, NEW, outside),
        jump("INPUT", NODE_PORTS, "", "kubernetes health check service ports"),
    ];
    jumps.extend(to_services());
    jumps.extend(common_jumps());
    jumps
}

/// What is there without any Service.
pub(crate) fn frame(scope: Scope<'_>) -> Frame {
    let of = |table, chain| match (table, chain) {
        (Table::Filter, SERVICES) => nobody(scope),
        (Table::Filter, FORWARD) => {
            std::iter::once("-m conntrack --ctstate INVALID -j DROP".to_owned()).chain(forward()).collect()
        }
        (Table::Nat, SERVICES) => to_node_ports(scope),
        _ => common_rules(chain, &scope.config.cluster_id),
    };
    let chains = CHAINS.into_iter().map(|(table, chain)| (table, chain, of(table, chain))).collect();
    Frame { jumps: jumps(), chains }
}

/// Refuses what is for an address of the Service range that is nobody's.
pub(crate) fn nobody(scope: Scope<'_>) -> Vec<String> {
    let Some(services) = scope.config.services(scope.family) else { return Vec::new() };
    let comment = "-m comment --comment \"addresses of services that nobody has; NOTE: this must be last in this chain\"";
    let nobody = format!("{comment} -d {services} -m addrtype ! --dst-type LOCAL");
    vec![format!("-p tcp {nobody} -j {REFUSE_TCP}"), format!("{nobody} -j REJECT")]
}

/// Goes on with what is for ports of this Node, and never for loopback, whose packets cannot leave the host.
fn to_node_ports(scope: Scope<'_>) -> Vec<String> {
    let comment = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\"";
    let networks = scope.config.node_ports(scope.family);
    let loopback = format!("-d {} -j RETURN", scope.loopback());
    let to = |network| format!("{comment} -d {network} -m addrtype --dst-type LOCAL -j {NODE_PORTS}");
    let to = networks.into_iter().map(to);
    std::iter::once(loopback).chain(to).collect()
}
