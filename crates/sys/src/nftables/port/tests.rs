use super::*;

const MAC: [u8; 6] = [0x0a, 0x58, 10, 42, 0, 2];
const GATEWAY: [u8; 6] = [0x0a, 0x58, 10, 42, 0, 1];

/// A frame as a Pod sends it, as far as the rules look at it.
#[derive(Clone, Default)]
struct Frame {
    from: [u8; 6],
    to: [u8; 6],
    kind: [u8; 2],
    source: Vec<u8>,
    protocol: u8,
    message: u8,
    target: Vec<u8>,
}

impl Frame {
    /// What an expression loads of it; `None` where the kernel finds nothing.
    fn load(&self, expr: &Expr) -> Option<Vec<u8>> {
        let (is_v4, is_v6, is_arp) = (self.kind == IPV4, self.kind == IPV6, self.kind == ARP);
        match expr {
            Expr::SourceMac(_) => Some(self.from.to_vec()),
            Expr::DestinationMac(_) => Some(self.to.to_vec()),
            Expr::EtherType(_) => Some(self.kind.to_vec()),
            Expr::SourceIp(_) if is_v4 => Some(self.source.clone()),
            Expr::SourceIpv6(_) if is_v6 => Some(self.source.clone()),
            Expr::ArpSenderMac(_) if is_arp => Some(self.target.clone()),
            Expr::ArpSenderIp(_) if is_arp => Some(self.source.clone()),
            Expr::L4Protocol(_) => Some(vec![self.protocol]),
            Expr::IcmpType(_) => Some(vec![self.message]),
            Expr::NeighbourTarget(_) => Some(self.target.clone()),
            _ => None,
        }
    }

    /// Whether the host sees it.
    fn passes(&self, rules: &[Rule]) -> bool {
        for rule in rules {
            let mut loaded = Vec::new();
            for expr in rule {
                match expr {
                    Expr::Compare(_, Compare::Equal, value) if loaded != *value => break,
                    Expr::Compare(_, Compare::NotEqual, value) if loaded == *value => break,
                    Expr::Compare(..) => {}
                    Expr::Verdict(verdict) => return *verdict == Verdict::Accept,
                    load => match self.load(load) {
                        Some(value) => loaded = value,
                        None => break,
                    },
                }
            }
        }
        true
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn octets(text: &str) -> Vec<u8> {
    match ip(text) {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn rules_of(ips: &[&str]) -> Vec<Rule> {
    let ips: Vec<IpAddr> = ips.iter().map(|text| ip(text)).collect();
    let gateways = [ip("10.42.0.1"), ip("fd42::1")];
    rules(&Owner { mac: MAC, ips: &ips, gateway: GATEWAY, gateways: &gateways })
}

fn v4(source: &str) -> Frame {
    Frame { from: MAC, to: GATEWAY, kind: IPV4, source: octets(source), protocol: 6, ..Frame::default() }
}

fn arp(sender: [u8; 6], source: &str) -> Frame {
    Frame { to: [0xff; 6], kind: ARP, target: sender.to_vec(), ..v4(source) }
}

fn v6(source: &str) -> Frame {
    Frame { kind: IPV6, ..v4(source) }
}

/// A message of neighbour discovery.
fn nd(message: u8, source: &str, to: [u8; 6], target: &str) -> Frame {
    Frame { to, protocol: ICMPV6, message, target: octets(target), ..v6(source) }
}

const OWN: &str = "fd42::2";
const LINK_LOCAL: &str = "fe80::858:aff:fe2a:2";
const ASK_GATEWAY: [u8; 6] = [0x33, 0x33, 0xff, 0, 0, 1];
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

#[test]
fn a_pod_says_what_is_its_own_to_the_host_alone() {
    let ask = |source, to| nd(NEIGHBOUR_SOLICITATION, source, to, "fd42::1");
    let tell = |to, target| nd(NEIGHBOUR_ADVERTISEMENT, OWN, to, target);
    // What it is, the frame, and whether it passes of a Pod with IPv4, with IPv6, and with both.
    let rows: [(&str, Frame, [bool; 3]); 25] = [
        ("IPv4 of its own", v4("10.42.0.2"), [true, false, true]),
        ("IPv4 of another", v4("10.42.0.3"), [false, false, false]),
        ("IPv4 past the host", Frame { to: [2; 6], ..v4("10.42.0.2") }, [false, false, false]),
        ("with another's hardware address", Frame { from: [2; 6], ..v4("10.42.0.2") }, [false; 3]),
        ("ARP of its own", arp(MAC, "10.42.0.2"), [true, false, true]),
        ("ARP about another", arp(MAC, "10.42.0.3"), [false; 3]),
        ("ARP with another's hardware address", arp([2; 6], "10.42.0.2"), [false; 3]),
        ("IPv6 of its own", v6(OWN), [false, true, true]),
        ("IPv6 of its link", v6(LINK_LOCAL), [false, true, true]),
        ("IPv6 of another", v6("fd42::3"), [false; 3]),
        ("IPv6 of the gateway", v6("fd42::1"), [false; 3]),
        ("IPv6 of another's link", v6("fe80::858:aff:fe2a:3"), [false; 3]),
        ("IPv6 of nobody", v6("::"), [false; 3]),
        ("IPv6 past the host", Frame { to: [2; 6], ..v6(OWN) }, [false; 3]),
        ("IPv6 for all", Frame { to: ALL_NODES, ..v6(OWN) }, [false; 3]),
        ("data for those who listen for the gateway", Frame { to: ASK_GATEWAY, ..v6(OWN) }, [false; 3]),
        ("who has the gateway", ask(OWN, ASK_GATEWAY), [false, true, true]),
        ("who has the gateway, by its link", ask(LINK_LOCAL, ASK_GATEWAY), [false, true, true]),
        ("who has another's", ask(OWN, [0x33, 0x33, 0xff, 0, 0, 3]), [false; 3]),
        ("who has the gateway, as another", ask("fd42::3", ASK_GATEWAY), [false; 3]),
        ("it has its own", tell(GATEWAY, OWN), [false, true, true]),
        ("it has another's", tell(GATEWAY, "fd42::3"), [false; 3]),
        ("it has the gateway's, to all", tell(ALL_NODES, "fd42::1"), [false; 3]),
        ("it is a router", nd(ROUTER_ADVERTISEMENT, LINK_LOCAL, GATEWAY, "::"), [false; 3]),
        ("another is nearer", nd(REDIRECT, LINK_LOCAL, GATEWAY, "fd42::3"), [false; 3]),
    ];
    let pods = [rules_of(&["10.42.0.2"]), rules_of(&[OWN]), rules_of(&["10.42.0.2", OWN])];
    for (case, frame, expect) in rows {
        assert_eq!(pods.each_ref().map(|rules| frame.passes(rules)), expect, "{case}");
    }
    let strange = Frame { kind: [0x88, 0xcc], ..v4("10.42.0.2") };
    assert!(pods.iter().all(|rules| !strange.passes(rules)));
}

#[test]
fn a_pod_of_several_addresses_sends_with_each() {
    let rules = rules_of(&["10.42.0.2", "10.43.0.2", OWN, "fd43::2"]);
    assert!(["10.42.0.2", "10.43.0.2"].into_iter().all(|ip| v4(ip).passes(&rules)));
    assert!([OWN, "fd43::2"].into_iter().all(|ip| v6(ip).passes(&rules)));
    assert!(!v4("10.44.0.2").passes(&rules) && !v6("fd44::2").passes(&rules));
}
