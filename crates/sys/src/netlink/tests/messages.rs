//! What Linux says of links, addresses, routes, neighbours, queues and tracked connections, byte for byte, and what is made of
//! it; and the same cut off, or with any byte of it another.

use super::conntrack::flow;
use super::overlay::{parse_neighbour, parse_vxlan};
use super::route::{parse_address, parse_link, parse_route};
use super::*;
use crate::rows::{Row, in_hex, rows};

/// What a row's bytes say, in words; none of what is left out or not there.
fn read(section: &str, bytes: &[u8]) -> Option<String> {
    let said = match section {
        "links" => link(bytes)?,
        "VXLAN links" => {
            let Vxlan { id, port, local, below } = parse_vxlan(bytes)?;
            words([format!("id {id}"), format!("port {port}"), format!("local {local}"), below_words(below)])
        }
        "addresses" => {
            let Address { link, ip, prefix } = parse_address(bytes)?;
            let passing = if route::is_lasting(bytes) { "" } else { "passing" };
            words([format!("link {link}"), format!("{ip}/{prefix}"), passing.into()])
        }
        "routes" => route_words(bytes)?,
        // Of whatever family and link they are.
        "neighbours" => {
            let link = bytes.get(4..).and_then(u32_of)?;
            let family = *bytes.first()?;
            let Neighbour { ip, mac } = parse_neighbour(bytes, family, link)?;
            assert_eq!(parse_neighbour(bytes, family, link ^ 1), None, "of another link");
            words([format!("link {link}"), ip.to_string(), in_hex(&mac)])
        }
        "queues" => {
            let link = traffic::link_of(bytes)?;
            let TokenBucket { rate, limit, buffer_ticks } = traffic::parse_token_bucket(bytes)?;
            words([
                format!("link {link}"),
                format!("rate {rate}"),
                format!("limit {limit} ticks {buffer_ticks}"),
            ])
        }
        "filters" => format!("to {}", traffic::parse_redirect(bytes)?),
        "tracked connections" => {
            let tuple = |kind| find_attribute(bytes.get(4..)?, kind);
            let Flow { protocol, destination: (to, port), answering } = flow(tuple(1)?, tuple(2)?)?;
            format!("{protocol} to {to} {port} answered by {} {}", answering.0, answering.1)
        }
        "virtual servers" => {
            let (address, service) = ipvs::read_service(bytes)?;
            let seconds = service.persistence_seconds.map(|seconds| format!("for {seconds}s"));
            let by_port = if service.is_by_port { "by port" } else { "" };
            words([address.to_string(), service.scheduler, seconds.unwrap_or_default(), by_port.into()])
        }
        "real servers" => {
            let it = ipvs::read_destination(bytes)?;
            format!("{} {} weight {} of {} connections", it.ip, it.port, it.weight, it.connections)
        }
        other => panic!("no such section: {other}"),
    };
    Some(said)
}

fn words(words: impl IntoIterator<Item = String>) -> String {
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

fn below_words(below: u32) -> String {
    if below == 0 { String::new() } else { format!("below {below}") }
}

fn link(bytes: &[u8]) -> Option<String> {
    let link = parse_link(bytes)?;
    let number = |what: &str, number: Option<u32>| number.map_or(String::new(), |it| format!("{what} {it}"));
    let flag = |what: &str, is_set| if is_set { what.to_owned() } else { String::new() };
    Some(words([
        link.index.to_string(),
        link.name,
        link.kind,
        flag("up", link.is_up),
        flag("operational", link.is_operational),
        number("mtu", Some(link.mtu).filter(|mtu| *mtu != 0)),
        in_hex(&link.mac),
        number("master", link.master),
        number("peer", link.peer),
        link.alias,
    ]))
}

fn route_words(bytes: &[u8]) -> Option<String> {
    let route = parse_route(bytes)?;
    let kind = route.kind.map_or("other".to_owned(), |kind| format!("{kind:?}").to_lowercase());
    let destination = route.destination.map(|(ip, prefix)| format!("to {ip}/{prefix}"));
    Some(words([
        kind,
        destination.unwrap_or_default(),
        route.gateway.map_or(String::new(), |gateway| format!("via {gateway}")),
        route.link.map_or(String::new(), |link| format!("link {link}")),
        route.source.map_or(String::new(), |source| format!("from {source}")),
    ]))
}

fn table() -> Vec<Row> {
    rows(include_str!("messages.txt"))
}

#[test]
fn what_the_kernel_says_is_read_as_it_is_meant() {
    for Row { section, name, bytes, outcome } in table() {
        let read = read(section, &bytes).unwrap_or_else(|| "nothing".into());
        assert_eq!(read, outcome, "{section}: {name}");
    }
}

#[test]
fn a_message_that_is_cut_off_says_nothing_that_the_whole_does_not() {
    // But a number that is too short spoils all of a link, and without it there is one; and of a link to one other end the
    // other's address comes first.
    let is_spoilt = |row: &Row| {
        (row.section == "links" && row.outcome == "nothing") || row.name == "of a link to one other end"
    };
    for Row { section, name, bytes, outcome } in table().into_iter().filter(|row| !is_spoilt(row)) {
        let whole: Vec<_> = outcome.split(", ").collect();
        for cut in 0..bytes.len() {
            let Some(said) = read(section, &bytes[..cut]) else { continue };
            let more: Vec<_> = said.split(", ").filter(|word| !whole.contains(word)).collect();
            assert!(more.is_empty(), "{section}: {name}, cut at {cut}: {more:?}");
        }
    }
}

#[test]
fn no_byte_of_a_message_ends_the_reader() {
    for Row { section, mut bytes, .. } in table() {
        for at in 0..bytes.len() {
            let right = bytes[at];
            for wrong in [0, 1, 3, 0x7f, 0xff, right ^ 0x80, right.wrapping_add(1), right.wrapping_sub(1)] {
                bytes[at] = wrong;
                if let Some(said) = read(section, &bytes) {
                    assert!(said.len() < 2 * bytes.len() + 100, "no more than there is: {said}");
                }
            }
            bytes[at] = right;
        }
    }
}

#[test]
fn attributes_in_attributes_are_read_however_deep_they_are() {
    // Each level takes four bytes, and says that it is all the rest.
    let deepest: Vec<u8> = (0..u16::MAX / 4).rev().fold(Vec::new(), |mut bytes, left| {
        let kind = if left % 2 == 0 { libc::IFLA_LINKINFO } else { libc::IFLA_INFO_DATA };
        bytes.extend([((left + 1) * 4).to_ne_bytes(), (kind | 0x8000).to_ne_bytes()].concat());
        bytes
    });
    assert_eq!(attributes(&deepest).count(), 1);
    for section in ["links", "VXLAN links", "addresses", "routes", "neighbours", "queues", "filters"] {
        for header in [8, 12, 16, 20] {
            let bytes = [&vec![0; header][..], &deepest].concat();
            read(section, &bytes);
        }
    }
    let said = parse_link(&[&[0; 16][..], &deepest].concat());
    assert_eq!(said, Some(Link::default()), "a kind of link that is no text");
}

#[test]
fn only_news_of_which_routes_may_go_or_come_count() {
    let told = |kind| watch::counts(kind);
    // Source: `include/uapi/linux/rtnetlink.h`.
    for (name, kind, counts) in [
        ("RTM_NEWLINK", 16, true),
        ("RTM_DELLINK", 17, true),
        ("RTM_GETLINK", 18, false),
        ("RTM_SETLINK", 19, false),
        ("RTM_NEWADDR", 20, true),
        ("RTM_DELADDR", 21, true),
        ("RTM_NEWROUTE", 24, false),
        ("RTM_DELROUTE", 25, true),
        ("RTM_NEWNEIGH", 28, false),
        ("RTM_DELNEIGH", 29, false),
        ("RTM_DELQDISC", 37, false),
        ("NLMSG_ERROR", 2, false),
        ("NLMSG_DONE", 3, false),
    ] {
        assert_eq!(told(kind), counts, "{name}");
    }
}
