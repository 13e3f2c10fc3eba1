mod told;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::netns::NetNs;

const TCP: u8 = 6;

/// A table that sends 10.43.0.1:80 to one of the ports on loopback, and remembers clients.
fn table(ports: &[u16]) -> Table {
    let mut table = Table::new("t");
    table.base_chain("output", ChainKind::Nat, Hook::Output, -100);
    table.base_chain("filter-output", ChainKind::Filter, Hook::Output, 0);
    table.set("services", &[Field::Ipv4, Field::Protocol, Field::Port], SetValue::Verdict);
    table.dynamic_set("clients", &[Field::Ipv4], Duration::from_secs(60));
    table.rule(
        "output",
        vec![
            Expr::DestinationIp(Reg::R0),
            Expr::L4Protocol(Reg::R1),
            Expr::DestinationPort(Reg::R2),
            Expr::VerdictMap("services".into(), Reg::R0),
        ],
    );
    let mut reject = destination_in(Ipv4Addr::new(10, 43, 0, 0), 16, Compare::Equal);
    reject.extend(l4_protocol(TCP));
    reject.extend([Expr::Counter, Expr::RejectTcpReset]);
    table.rule("filter-output", reject);
    if ports.is_empty() {
        return table;
    }
    table.set("endpoints", &[Field::Index], SetValue::Fields(vec![Field::Ipv4, Field::Port]));
    for (n, port) in ports.iter().enumerate() {
        let to = Key::new().ip(Ipv4Addr::LOCALHOST).port(*port);
        table.element("endpoints", Key::new().index(n as u32), Data::Value(to));
    }
    table.rule(
        "svc",
        vec![
            Expr::SourceIp(Reg::R0),
            Expr::Update("clients".into(), Reg::R0),
            Expr::Random(Reg::R0, ports.len() as u32),
            Expr::Map("endpoints".into(), Reg::R0, Reg::R1),
            Expr::Dnat(Reg::R1, Some(Reg::R2)),
        ],
    );
    let service = Key::new().ip(Ipv4Addr::new(10, 43, 0, 1)).protocol(TCP).port(80);
    table.element("services", service, Data::Verdict(Verdict::Goto("svc".into())));
    table
}

fn listing() -> String {
    String::from_utf8(Command::new("nft").args(["list", "ruleset"]).output().unwrap().stdout).unwrap()
}

/// What the service answers with: the accepting port, or the error.
fn ask() -> String {
    let to = "10.43.0.1:80".parse().unwrap();
    let mut answer = String::new();
    match TcpStream::connect_timeout(&to, Duration::from_secs(60)) {
        Ok(mut stream) => {
            stream.read_to_string(&mut answer).unwrap();
            answer
        }
        Err(error) => error.kind().to_string(),
    }
}

fn answer_with_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            write!(stream.unwrap(), "{port}").unwrap();
        }
    });
    port
}

#[test]
fn connections_follow_the_table_that_was_applied_last() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let ns = NetNs::anonymous().unwrap();
    ns.run(|| {
        let mut route = crate::netlink::Route::open()?;
        let link = route.index("lo")?;
        let destination = Some(("10.43.0.0".parse().unwrap(), 16));
        let source = Some("127.0.0.1".parse().unwrap());
        route.add_route(&crate::netlink::NewRoute {
            destination,
            source,
            link: Some(link),
            ..Default::default()
        })?;
        let (a, b) = (answer_with_port(), answer_with_port());
        let (empty, one, two) = (table(&[]), table(&[a]), table(&[a, b]));

        apply(None, &one)?;
        assert_eq!(ask(), a.to_string());
        assert_eq!(table_names()?, ["t"]);
        apply(Some(&one), &two)?;
        let answers: Vec<String> = (0..40).map(|_| ask()).collect();
        assert!(answers.contains(&a.to_string()) && answers.contains(&b.to_string()), "{answers:?}");
        assert!(listing().contains("127.0.0.1 expires"), "the client is remembered: {}", listing());

        apply(Some(&two), &empty)?;
        assert_eq!(ask(), "connection refused");
        assert!(listing().contains("127.0.0.1 expires"), "a change keeps what the packet path stored");
        assert!(!listing().contains("svc") && !listing().contains("endpoints"), "{}", listing());

        // The kernel does not have what we say it has: replaced whole.
        apply(Some(&two), &one)?;
        assert_eq!(ask(), a.to_string());

        delete_table("t")?;
        delete_table("t")?;
        assert_eq!(listing(), "");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_thousand_services_are_replaced_in_one_batch() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let mut table = table(&[1]);
    for n in 0..1000u16 {
        let service = Key::new().ip(Ipv4Addr::from(0x0a2b_0000 + u32::from(n))).protocol(TCP).port(443);
        let (chain, map) = (format!("svc-{n}"), format!("endpoints-{n}"));
        table.set(&map, &[Field::Index], SetValue::Fields(vec![Field::Ipv4, Field::Port]));
        for index in 0..3 {
            let to = Key::new().ip(Ipv4Addr::new(10, 42, 0, index as u8)).port(n);
            table.element(&map, Key::new().index(index), Data::Value(to));
        }
        table.rule(
            &chain,
            vec![
                Expr::Random(Reg::R0, 3),
                Expr::Map(map, Reg::R0, Reg::R1),
                Expr::Dnat(Reg::R1, Some(Reg::R2)),
            ],
        );
        table.element("services", service, Data::Verdict(Verdict::Goto(chain)));
    }
    NetNs::anonymous()
        .unwrap()
        .run(|| {
            apply(None, &table)?;
            apply(None, &table)?;
            apply(Some(&table), &super::Table::new("t"))?;
            delete_table("t")
        })
        .unwrap();
}

#[test]
fn base_chains_say_where_they_are_hooked() {
    let namespace = NetNs::anonymous().expect("a namespace");
    let chains = namespace.run(|| {
        apply(None, &table(&[]))?;
        base_chains()
    });
    let found: Vec<_> =
        chains.expect("chains").into_iter().map(|c| (c.family, c.table, c.name, c.hook, c.policy)).collect();
    let chain = |name: &str| (Family::Ipv4, "t".to_owned(), name.to_owned(), 3, 1);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&chain("output")) && found.contains(&chain("filter-output")), "{found:?}");
}

#[test]
fn tables_of_both_families_change_together_or_not_at_all() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let of_v6 = |chain: &str, to: &str| {
        let mut table = Table { family: TableFamily::Ipv6, ..Table::new("t") };
        table.base_chain("output", ChainKind::Nat, Hook::Output, -100);
        table.base_chain("filter-output", ChainKind::Filter, Hook::Output, 0);
        let mut refused = destination_in("fd43::".parse::<IpAddr>().unwrap(), 112, Compare::Equal);
        refused.push(Expr::RejectPortUnreachable);
        table.rule("filter-output", refused);
        let to = Verdict::Goto(to.to_owned());
        table.rule("output", vec![Expr::Verdict(to)]);
        let address = Key::new().address("fd42::2".parse().unwrap());
        let port = Reg::R1.after(Field::Ipv6);
        let lead =
            vec![load(Reg::R1, &address), load(port, &Key::new().port(80)), Expr::Dnat(Reg::R1, Some(port))];
        table.rule(chain, lead);
        table
    };
    let lists = |text: &str| assert!(listing().contains(text), "{text} in {}", listing());
    NetNs::anonymous()
        .unwrap()
        .run(|| {
            let before = [table(&[1]), of_v6("a", "a")];
            replace_all(&before)?;
            lists("ip6 daddr fd43::/112 reject");
            let names = || Ok([table_names_of(TableFamily::Ipv4)?, table_names_of(TableFamily::Ipv6)?]);
            assert_eq!(names()?, [["t"], ["t"]]);
            let known = listing();
            assert!(change(&before, &[table(&[2]), of_v6("b", "nowhere")]).is_err());
            assert_eq!(listing(), known, "one of both was wrong");
            change(&before, &[table(&[2]), of_v6("b", "b")])?;
            lists("127.0.0.1 . 2");
            lists("goto b");
            delete_table_of(TableFamily::Ipv6, "t")?;
            assert_eq!(names()?, [vec!["t"], vec![]]);
            Ok(())
        })
        .unwrap();
}

/// A rule of each expression, and what `nft` takes it for: it reads back what the kernel has made of the bytes.
fn check_words(family: TableFamily, rows: Vec<(&str, Vec<Expr>)>) {
    let mut table = Table { family, ..Table::new("t") };
    table.set("members", &[Field::Ipv4, Field::Port], SetValue::None);
    table.base_chain("d", ChainKind::Nat, Hook::Output, -100);
    table.base_chain("f", ChainKind::Filter, Hook::Output, 0);
    table.base_chain("m", ChainKind::Nat, Hook::Postrouting, 100);
    table.rule("other", vec![Expr::Counter]);
    let mut expect = BTreeMap::from([("d", String::new()), ("f", String::new()), ("m", String::new())]);
    for (words, rule) in rows {
        let chain = match rule.last() {
            Some(Expr::Masquerade) => "m",
            Some(Expr::Dnat(..)) => "d",
            _ => "f",
        };
        table.rule(chain, rule);
        expect.entry(chain).or_default().extend([words, "\n"]);
    }
    let family = if family == TableFamily::Ipv6 { "ip6" } else { "ip" };
    let list = |chain: &'static str| {
        let listed = Command::new("nft").args(["-n", "list", "chain", family, "t", chain]).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        let is_rule =
            |line: &&str| !line.is_empty() && !line.starts_with("type ") && !line.ends_with(['{', '}']);
        (chain, text.lines().map(str::trim).filter(is_rule).flat_map(|line| [line, "\n"]).collect::<String>())
    };
    let listed = NetNs::anonymous().unwrap().run(|| {
        apply(None, &table)?;
        Ok(BTreeMap::from(["d", "f", "m"].map(list)))
    });
    let listed = listed.unwrap();
    for (chain, rules) in expect {
        assert_eq!(listed[chain], rules, "{chain} has\n{}", listed[chain]);
    }
}

/// The steps of both slices, one after the other.
fn both(first: Vec<Expr>, second: impl IntoIterator<Item = Expr>) -> Vec<Expr> {
    first.into_iter().chain(second).collect()
}

fn equal(load: Expr, value: &[u8]) -> Vec<Expr> {
    vec![load, Expr::Compare(Reg::R0, Compare::Equal, value.to_vec())]
}

fn name(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

#[test]
fn networks_are_masked_to_the_bit() {
    let v4 = |text: &str, prefix| destination_in(text.parse::<IpAddr>().unwrap(), prefix, Compare::Equal);
    check_words(
        TableFamily::Ipv4,
        vec![
            ("ip daddr 10.1.2.3", v4("10.1.2.3", 32)),
            ("ip daddr 10.1.2.2/31", v4("10.1.2.3", 31)),
            ("ip daddr 10.1.0.0/17", v4("10.1.2.3", 17)),
            ("ip daddr 10.1.0.0/16", v4("10.1.2.3", 16)),
            ("ip daddr 10.0.0.0/15", v4("10.1.2.3", 15)),
            ("ip daddr 128.0.0.0/1", v4("192.0.2.1", 1)),
            ("ip daddr 0.0.0.0/0", v4("192.0.2.1", 0)),
            ("ip saddr != 10.1.2.0/24", source_in(Ipv4Addr::new(10, 1, 2, 3), 24, Compare::NotEqual)),
        ],
    );
    let v6 = |prefix| source_in("fd42:1:ffff::7".parse::<IpAddr>().unwrap(), prefix, Compare::Equal);
    check_words(
        TableFamily::Ipv6,
        vec![
            ("ip6 saddr fd42:1:ffff::7", v6(128)),
            ("ip6 saddr fd42:1:ffff::6/127", v6(127)),
            ("ip6 saddr fd42:1:ffff::/48", v6(48)),
            ("ip6 saddr fd42:1:fffe::/47", v6(47)),
            ("ip6 saddr fc00::/7", v6(7)),
        ],
    );
}

#[test]
fn expressions_are_what_nft_takes_them_for() {
    let mark = 0x4000_u32.to_ne_bytes().to_vec();
    let local = Expr::LOCAL.to_ne_bytes();
    check_words(
        TableFamily::Ipv4,
        vec![
            ("tcp dport 443", both(l4_protocol(TCP), equal(Expr::DestinationPort(Reg::R0), &[1, 187]))),
            ("icmp type 8", both(l4_protocol(1), equal(Expr::IcmpType(Reg::R0), &[8]))),
            (
                "meta mark & 0x00004000 == 0x00004000",
                when(Expr::Mark(Reg::R0), 0x4000, Compare::Equal, 0x4000),
            ),
            ("meta mark set 0x00004000", vec![Expr::Load(Reg::R0, mark), Expr::SetMark(Reg::R0)]),
            ("iifname \"eth0\"", equal(Expr::InputName(Reg::R0), &name("eth0"))),
            ("oifname \"a-name-15-bytes\"", equal(Expr::OutputName(Reg::R0), &name("a-name-15-bytes"))),
            ("fib daddr type 2", equal(Expr::DestinationKind(Reg::R0), &local)),
            ("fib saddr type 2", equal(Expr::SourceKind(Reg::R0), &local)),
            ("ct status 0x20", when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0)),
            (
                "ct state 0x1,0x40",
                when(Expr::ConnectionState(Reg::R0), Expr::UNTRACKED, Compare::NotEqual, 0),
            ),
            ("ct original ip saddr 10.0.0.1", equal(Expr::Initiator(Reg::R0, Field::Ipv4), &[10, 0, 0, 1])),
            ("ct reply ip saddr 10.0.0.1", equal(Expr::Responder(Reg::R0, Field::Ipv4), &[10, 0, 0, 1])),
            ("ct protocol 6", equal(Expr::TrackedProtocol(Reg::R0), &[TCP])),
            (
                "meta l4proto 6 ct reply proto-src 80",
                both(l4_protocol(TCP), equal(Expr::ResponderPort(Reg::R0), &[0, 80])),
            ),
            (
                "ip daddr . tcp dport @members",
                both(
                    l4_protocol(TCP),
                    [
                        Expr::DestinationIp(Reg::R0),
                        Expr::DestinationPort(Reg::R1),
                        Expr::In("members".into(), Reg::R0),
                    ],
                ),
            ),
            (
                "ip saddr . tcp dport != @members",
                both(
                    l4_protocol(TCP),
                    [
                        Expr::SourceIp(Reg::R0),
                        Expr::DestinationPort(Reg::R1),
                        Expr::NotIn("members".into(), Reg::R0),
                    ],
                ),
            ),
            ("reject", vec![Expr::RejectPortUnreachable]),
            ("reject with tcp reset", both(l4_protocol(TCP), [Expr::RejectTcpReset])),
            ("counter packets 0 bytes 0 accept", vec![Expr::Counter, Expr::Verdict(Verdict::Accept)]),
            ("drop", vec![Expr::Verdict(Verdict::Drop)]),
            ("return", vec![Expr::Verdict(Verdict::Return)]),
            ("jump other", vec![Expr::Verdict(Verdict::Jump("other".into()))]),
            ("goto other", vec![Expr::Verdict(Verdict::Goto("other".into()))]),
            ("masquerade", vec![Expr::Masquerade]),
            (
                "dnat to 10.0.0.9",
                vec![load(Reg::R0, &Key::new().ip(Ipv4Addr::new(10, 0, 0, 9))), Expr::Dnat(Reg::R0, None)],
            ),
        ],
    );
}

#[test]
fn expressions_of_ipv6_are_what_nft_takes_them_for() {
    let of = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    check_words(
        TableFamily::Ipv6,
        vec![
            ("ip6 hoplimit 255", equal(Expr::HopLimit(Reg::R0), &[255])),
            ("ip6 daddr fd00::1", equal(Expr::DestinationIpv6(Reg::R0), &of("fd00::1"))),
            ("ct original ip6 saddr fd00::1", equal(Expr::Initiator(Reg::R0, Field::Ipv6), &of("fd00::1"))),
            ("ct reply ip6 saddr fd00::1", equal(Expr::Responder(Reg::R0, Field::Ipv6), &of("fd00::1"))),
            ("icmpv6 type 135", both(l4_protocol(58), equal(Expr::IcmpType(Reg::R0), &[135]))),
            ("reject", vec![Expr::RejectPortUnreachable]),
            ("masquerade", vec![Expr::Masquerade]),
        ],
    );
}
