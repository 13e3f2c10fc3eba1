//! Expressions, sets, elements and chains as the kernel is told of them, against tables of the attributes that
//! `include/uapi/linux/netfilter/nf_tables.h` says.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::super::{Hook, Table};
use super::*;
use crate::rows::{Row, in_hex, rows, shown};

const R: [Reg; 4] = [Reg::R0, Reg::R1, Reg::R2, Reg::R3];

fn written(fill: impl FnOnce(&mut Encoder)) -> String {
    let mut out = Encoder::default();
    fill(&mut out);
    shown(&out.into_bytes())
}

/// Of each row of a table what was written of that name; nothing is written that the table does not have, or the other way
/// round.
fn check(table: &'static str, section: &str, written: &[(&str, String)]) {
    let rows: Vec<_> = rows(table).into_iter().filter(|row| row.section == section).collect();
    for (name, found) in written {
        let row = rows.iter().find(|row| row.name == *name).unwrap_or_else(|| panic!("{name} = {found}"));
        assert_eq!(*found, row.outcome, "{section}: {name}");
    }
    let missing = |row: &&Row| !written.iter().any(|(name, _)| *name == row.name);
    assert_eq!(rows.iter().find(missing).map(|row| row.name), None, "{section}");
}

fn expressions() -> Vec<(&'static str, Expr)> {
    let [r0, r1, r2, r3] = R;
    let name = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(16, 0);
        bytes
    };
    vec![
        ("ip saddr", Expr::SourceIp(r0)),
        ("ip daddr", Expr::DestinationIp(r1)),
        ("ip6 saddr", Expr::SourceIpv6(r0)),
        ("ip6 daddr", Expr::DestinationIpv6(r0)),
        ("ether saddr", Expr::SourceMac(r0)),
        ("ether daddr", Expr::DestinationMac(r2)),
        ("meta protocol", Expr::EtherType(r0)),
        ("arp saddr ether", Expr::ArpSenderMac(r0)),
        ("arp saddr ip", Expr::ArpSenderIp(r0)),
        ("icmp type", Expr::IcmpType(r0)),
        ("nd target", Expr::NeighbourTarget(r0)),
        ("th dport", Expr::DestinationPort(r3)),
        ("ip6 hoplimit", Expr::HopLimit(r0)),
        ("meta l4proto", Expr::L4Protocol(r1)),
        ("meta mark", Expr::Mark(r0)),
        ("meta mark set", Expr::SetMark(r0)),
        ("meta iifname", Expr::InputName(r0)),
        ("meta oifname", Expr::OutputName(r0)),
        ("ct status", Expr::ConnectionStatus(r0)),
        ("ct state", Expr::ConnectionState(r0)),
        ("ct original ip saddr", Expr::Initiator(r0, Field::Ipv4)),
        ("ct original ip6 saddr", Expr::Initiator(r0, Field::Ipv6)),
        ("ct reply ip saddr", Expr::Responder(r1, Field::Ipv4)),
        ("ct reply ip6 saddr", Expr::Responder(r0, Field::Ipv6)),
        ("ct protocol", Expr::TrackedProtocol(r0)),
        ("ct reply proto-src", Expr::ResponderPort(r2)),
        ("fib daddr type", Expr::DestinationKind(r0)),
        ("fib saddr type", Expr::SourceKind(r0)),
        ("a constant", Expr::Load(r2, vec![10, 42, 0, 7])),
        ("a constant of six bytes", Expr::Load(r0, vec![2, 0, 0, 0, 0, 1])),
        ("a constant of no bytes", Expr::Load(r0, Vec::new())),
        ("== a byte", Expr::Compare(r0, Compare::Equal, vec![6])),
        ("!= an address", Expr::Compare(r1, Compare::NotEqual, vec![10, 43, 0, 0])),
        ("== a name", Expr::Compare(r0, Compare::Equal, name("eth0"))),
        ("& and ^", Expr::Bitwise(r0, vec![255, 255, 0, 0], vec![0, 0, 0, 1])),
        ("& of 16 bytes", Expr::Bitwise(r0, vec![255; 16], vec![0; 16])),
        ("numgen random mod 3", Expr::Random(r0, 3)),
        ("@members", Expr::In("members".into(), r0)),
        ("!= @members", Expr::NotIn("members".into(), r0)),
        ("map @endpoints", Expr::Map("endpoints".into(), r0, r1)),
        ("vmap @services", Expr::VerdictMap("services".into(), r0)),
        ("update @clients", Expr::Update("clients".into(), r0)),
        ("counter", Expr::Counter),
        ("accept", Expr::Verdict(Verdict::Accept)),
        ("drop", Expr::Verdict(Verdict::Drop)),
        ("return", Expr::Verdict(Verdict::Return)),
        ("jump svc-1", Expr::Verdict(Verdict::Jump("svc-1".into()))),
        ("goto svc-1", Expr::Verdict(Verdict::Goto("svc-1".into()))),
        ("dnat", Expr::Dnat(r1, None)),
        ("dnat with a port", Expr::Dnat(r0, Some(r3))),
        ("masquerade", Expr::Masquerade),
        ("reject", Expr::RejectPortUnreachable),
        ("reject with tcp reset", Expr::RejectTcpReset),
    ]
}

#[test]
fn every_expression_is_written_as_the_kernel_has_it() {
    let table = include_str!("tests/expressions.txt");
    let of = |family: TableFamily| {
        expressions()
            .into_iter()
            .map(move |(name, expr)| (name, written(|out| expression(out, &expr, family as u8))))
    };
    let in_ip: Vec<_> = of(TableFamily::Ipv4).collect();
    check(table, "in a table of IPv4", &in_ip);
    // Nothing but these is another thing in tables of other families.
    for (family, section) in
        [(TableFamily::Ipv6, "otherwise in one of IPv6"), (TableFamily::Inet, "otherwise in one of both")]
    {
        let other: Vec<_> = of(family).filter(|it| !in_ip.contains(it)).collect();
        check(table, section, &other);
    }
}

#[test]
fn a_rule_names_its_table_and_its_chain_and_has_its_expressions_in_order() {
    let table = include_str!("tests/expressions.txt");
    let of = |steps: Rule| written(|out| rule(out, IPV6, "knarr", "svc-1", &steps));
    let three = vec![
        Expr::L4Protocol(Reg::R0),
        Expr::Compare(Reg::R0, Compare::Equal, vec![17]),
        Expr::Verdict(Verdict::Goto("x".into())),
    ];
    check(table, "rules", &[("no expression", of(Vec::new())), ("three", of(three))]);
}

#[test]
fn networks_are_masked_as_their_lengths_say() {
    let rows = rows(include_str!("tests/networks.txt"));
    for Row { section, name, outcome, .. } in rows {
        let (ip, prefix) = name.split_once('/').unwrap();
        let (ip, prefix) = (ip.parse::<IpAddr>().unwrap(), prefix.parse().unwrap());
        let (steps, like) = match section {
            "sources" => (super::super::source_in(ip, prefix, Compare::Equal), Expr::source(Reg::R0, ip)),
            _ => {
                (super::super::destination_in(ip, prefix, Compare::NotEqual), Expr::destination(Reg::R0, ip))
            }
        };
        let [load, Expr::Bitwise(_, mask, xor), Expr::Compare(_, compare, value)] = steps.as_slice() else {
            panic!("{name}: {steps:?}");
        };
        assert_eq!(
            (load, *compare),
            (&like, if section == "sources" { Compare::Equal } else { Compare::NotEqual })
        );
        assert!(xor.iter().all(|byte| *byte == 0) && xor.len() == mask.len(), "{name}");
        assert_eq!(format!("{} & {}", in_hex(value), in_hex(mask)), outcome, "{name}");
    }
}

fn sets() -> Vec<(&'static str, Set)> {
    let key = |fields: &[Field]| Set { key: fields.to_vec(), ..Set::default() };
    let service = [Field::Ipv4, Field::Protocol, Field::Port];
    let to = |fields: &[Field]| SetValue::Fields(fields.to_vec());
    vec![
        ("addresses", key(&[Field::Ipv4])),
        ("addresses of IPv6", key(&[Field::Ipv6])),
        ("protocols", key(&[Field::Protocol])),
        ("ports", key(&[Field::Port])),
        ("protocols and ports", key(&[Field::Protocol, Field::Port])),
        ("ranges of addresses", Set { members: Members::Ranges, ..key(&[Field::Ipv4]) }),
        ("ranges of IPv6", Set { members: Members::Ranges, ..key(&[Field::Ipv6]) }),
        ("verdicts of Services", Set { value: SetValue::Verdict, ..key(&service) }),
        (
            "verdicts of Services of IPv6",
            Set { value: SetValue::Verdict, ..key(&[Field::Ipv6, Field::Protocol, Field::Port]) },
        ),
        ("endpoints by number", Set { value: to(&[Field::Ipv4, Field::Port]), ..key(&[Field::Index]) }),
        ("endpoints of IPv6", Set { value: to(&[Field::Ipv6, Field::Port]), ..key(&[Field::Index]) }),
        (
            "verdicts of ranges",
            Set { value: SetValue::Verdict, members: Members::Ranges, ..key(&[Field::Ipv4]) },
        ),
        ("clients", Set { timeout: Some(Duration::from_secs(10_800)), ..key(&[Field::Ipv4]) }),
        ("for a moment", Set { timeout: Some(Duration::from_millis(1)), ..key(&[Field::Ipv6]) }),
        (
            "chosen before",
            Set { timeout: Some(Duration::from_secs(1)), value: to(&[Field::Port]), ..key(&service) },
        ),
    ]
}

#[test]
fn every_set_is_written_as_the_kernel_has_it() {
    let of =
        |(name, set): (&'static str, Set)| (name, written(|out| super::set(out, "t", "s", 0x0102, &set)));
    let found: Vec<_> = sets().into_iter().map(of).collect();
    check(include_str!("tests/sets.txt"), "sets", &found);
}

#[test]
fn every_element_is_written_as_the_kernel_has_it() {
    let sets: BTreeMap<_, _> = sets().into_iter().collect();
    let v4 = |a, b, c, d| Key::new().ip(Ipv4Addr::new(a, b, c, d));
    let v6 = |text: &str| Key::new().address(text.parse::<Ipv6Addr>().unwrap().into());
    let service = v4(10, 43, 0, 1).protocol(6).port(443);
    let goto = |chain: &str| Data::Verdict(Verdict::Goto(chain.into()));
    let row = |name, set: &str, key: &Key, value: &Data| {
        (name, written(|out| element(out, &sets[set], key, value)))
    };
    let found = [
        row("an address", "addresses", &v4(10, 42, 0, 7), &Data::None),
        row("an address of IPv6", "addresses of IPv6", &v6("fd42::7"), &Data::None),
        row("a protocol has one byte when it is all", "protocols", &Key::new().protocol(17), &Data::None),
        row("a port has two", "ports", &Key::new().port(53), &Data::None),
        row(
            "both are filled up to registers",
            "protocols and ports",
            &Key::new().protocol(17).port(53),
            &Data::None,
        ),
        row("a Service", "verdicts of Services", &service, &goto("svc-1")),
        row("a Service that is gone", "verdicts of Services", &service, &Data::None),
        row("a Service without endpoints", "verdicts of Services", &service, &Data::Verdict(Verdict::Drop)),
        row(
            "an endpoint",
            "endpoints by number",
            &Key::new().index(2),
            &Data::Value(v4(10, 42, 0, 7).port(8080)),
        ),
        row(
            "an endpoint of IPv6",
            "endpoints of IPv6",
            &Key::new().index(0),
            &Data::Value(v6("fd42::7").port(8080)),
        ),
        row("a value of one field", "chosen before", &service, &Data::Value(Key::new().port(8080))),
        row(
            "a value in a set without any",
            "addresses",
            &v4(10, 42, 0, 7),
            &Data::Value(Key::new().port(80)),
        ),
        row("a range", "ranges of addresses", &v4(10, 0, 0, 0), &Data::Through(v4(10, 255, 255, 255))),
        row("a range of one", "ranges of addresses", &v4(192, 0, 2, 1), &Data::Through(v4(192, 0, 2, 1))),
        row(
            "a range to the last of all",
            "ranges of addresses",
            &v4(224, 0, 0, 0),
            &Data::Through(v4(255, 255, 255, 255)),
        ),
        row("all there is", "ranges of addresses", &v4(0, 0, 0, 0), &Data::Through(v4(255, 255, 255, 255))),
        row(
            "a range of IPv6",
            "ranges of IPv6",
            &v6("fd00::"),
            &Data::Through(v6("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
        ),
        row(
            "a range to the last of IPv6",
            "ranges of IPv6",
            &v6("ff00::"),
            &Data::Through(v6("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
        ),
        row("a key that is too short stays so", "verdicts of Services", &v4(10, 43, 0, 1), &Data::None),
        row("of a key that is too long the rest is left out", "addresses", &service, &Data::None),
    ];
    check(include_str!("tests/sets.txt"), "elements", &found);
}

#[test]
fn every_chain_is_written_as_the_kernel_has_it() {
    let base = |kind, hook, priority| Some(Base { kind, hook, priority });
    let of = |name, base: Option<Base>| (name, written(|out| chain(out, "t", "c", base.as_ref())));
    let found = [
        of("only jumped to", None),
        of("filters what goes through", base(ChainKind::Filter, Hook::Forward, 0)),
        of("filters what comes to the host, early", base(ChainKind::Filter, Hook::Input, -300)),
        of("translates destinations", base(ChainKind::Nat, Hook::Prerouting, -100)),
        of("translates those of the host", base(ChainKind::Nat, Hook::Output, -100)),
        of("translates sources", base(ChainKind::Nat, Hook::Postrouting, 100)),
        of("first of all", base(ChainKind::Filter, Hook::Prerouting, i32::MIN)),
        of("last of all", base(ChainKind::Filter, Hook::Postrouting, i32::MAX)),
        ("of what arrives at a link", written(|out| ingress_chain(out, "t", "veth12"))),
    ];
    check(include_str!("tests/sets.txt"), "chains", &found);
}

#[test]
fn the_next_number_carries_and_the_last_has_none() {
    for (number, next) in [
        (&[0][..], Some(&[1][..])),
        (&[0xff], None),
        (&[0, 0xff], Some(&[1, 0])),
        (&[1, 2, 3, 0xfe], Some(&[1, 2, 3, 0xff])),
        (&[9, 0xff, 0xff, 0xff], Some(&[10, 0, 0, 0])),
        (&[0x7f, 0xff, 0xff, 0xff], Some(&[0x80, 0, 0, 0])),
        (&[0xff; 4], None),
        (&[0xff; 16], None),
        (&[], None),
    ] {
        assert_eq!(after(number).as_deref(), next, "{number:?}");
    }
}

#[test]
fn a_table_of_every_set_and_chain_is_one_that_the_kernel_takes() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let mut table = Table::new("t");
    for (name, set) in sets() {
        table.sets.insert(name.replace(' ', "-"), set);
    }
    for chain in ["svc-1", "c"] {
        table.rule(chain, vec![Expr::Counter]);
    }
    let key = Key::new().ip(Ipv4Addr::new(10, 43, 0, 1)).protocol(6).port(443);
    table.element("verdicts-of-Services", key, Data::Verdict(Verdict::Goto("svc-1".into())));
    let last = Data::Through(Key::new().ip(Ipv4Addr::BROADCAST));
    table.element("ranges-of-addresses", Key::new().ip(Ipv4Addr::new(224, 0, 0, 0)), last);
    let namespace = crate::netns::NetNs::anonymous().unwrap();
    namespace.run(|| super::super::replace(&table)).unwrap();
}
