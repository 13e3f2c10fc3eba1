use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use super::*;
use crate::netns::NetNs;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn two_namespaces_joined_by_a_bridge_talk_tcp() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let host = NetNs::anonymous().unwrap();
    let pods = [NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap()];
    host.run(|| {
        let mut route = Route::open()?;
        route.create_bridge("br")?;
        assert!(route.create_bridge("br").unwrap_err().is_exists());
        route.set_up("br")?;
        let bridge = route.index("br")?;
        route.add_address(Address { link: bridge, ip: ip("10.9.0.1"), prefix: 24 })?;
        for (n, pod) in pods.iter().enumerate() {
            let name = format!("v{n}");
            let mac = Some([2, 0, 10, 9, 0, n as u8]);
            route.create_veth(
                &name,
                Some(1400),
                Some(bridge),
                &VethPeer { name: "eth0", namespace: pod.as_fd(), mac },
            )?;
            route.set_up_hairpin_port(&name)?;
            let hairpin = std::fs::read_to_string(format!("/sys/class/net/{name}/brport/hairpin_mode"));
            assert!(hairpin.is_err() || hairpin.is_ok_and(|mode| mode == "1\n"));
        }
        let links = route.links()?;
        let ports: Vec<_> = links.iter().filter(|link| link.master == Some(bridge)).collect();
        assert_eq!(ports.len(), 2);
        assert!(ports.iter().all(|port| port.kind == "veth" && port.is_up && port.mtu == 1400));
        Ok(())
    })
    .unwrap();
    for (n, pod) in pods.iter().enumerate() {
        pod.run(|| {
            let mut route = Route::open()?;
            let link = route.index("eth0")?;
            route.set_up("eth0")?;
            route.add_address(Address { link, ip: ip(&format!("10.9.0.{}", n + 2)), prefix: 24 })?;
            let default = NewRoute { gateway: Some(ip("10.9.0.1")), link: Some(link), ..NewRoute::default() };
            route.add_route(&default)?;
            route.add_route(&default)?;
            assert!(route.routes()?.iter().any(|entry| entry.gateway == default.gateway));
            Ok(())
        })
        .unwrap();
    }
    let listener = pods[0].run(|| Ok(TcpListener::bind("10.9.0.2:80").unwrap())).unwrap();
    pods[1]
        .run(|| {
            let to = listener.local_addr().unwrap();
            assert!(TcpStream::connect_timeout(&to, Duration::from_secs(60)).is_ok());
            Ok(())
        })
        .unwrap();
    host.run(|| {
        let mut route = Route::open()?;
        route.delete_link("v0")?;
        route.delete_link("v0")?;
        assert_eq!(route.link("v0")?, None);
        Ok(())
    })
    .unwrap();
    assert_eq!(pods[0].run(|| Route::open()?.link("eth0")).unwrap(), None);
}

#[test]
fn an_unreachable_route_can_be_added_listed_and_deleted() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let unreachable = NewRoute {
        kind: RouteKind::Unreachable,
        destination: Some((ip("10.43.0.0"), 16)),
        ..NewRoute::default()
    };
    let host = NetNs::anonymous().unwrap();
    host.run(|| {
        let mut route = Route::open()?;
        route.add_route(&unreachable)?;
        let routes = route.routes()?;
        assert_eq!(routes[0].destination, unreachable.destination);
        assert_eq!(routes[0].kind, Some(RouteKind::Unreachable));
        route.delete_route(&unreachable)?;
        route.delete_route(&unreachable)?;
        assert!(route.routes()?.is_empty());
        Ok(())
    })
    .unwrap();
}

/// Until then, packets that are sent to a port are lost.
#[test]
fn a_port_is_waited_for_until_both_ends_of_its_pair_are_up() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let (host, pod) = (NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap());
    host.run(|| {
        let mut route = Route::open()?;
        route.create_bridge("br")?;
        route.set_up("br")?;
        let bridge = route.index("br")?;
        let peer = VethPeer { name: "eth0", namespace: pod.as_fd(), mac: None };
        route.create_veth("v0", None, Some(bridge), &peer)?;
        route.set_up("v0")?;
        let late = route.wait_operational(&["br", "v0"], 1).unwrap_err();
        assert!(late.to_string().starts_with("wait until br and v0 pass on packets"), "{late}");
        assert!(route.wait_operational(&["v1"], 1).unwrap_err().is_not_found());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Route::open()?.wait_operational(&["br", "v0"], 60));
            pod.run(|| Route::open()?.set_up("eth0")).unwrap();
            waiting.join().unwrap()
        })?;
        assert!(route.links()?.iter().filter(|link| link.name != "lo").all(|link| link.is_operational));
        Ok(())
    })
    .unwrap();
}

#[test]
fn addresses_of_ipv6_that_do_not_stay_are_left_out() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let host = NetNs::anonymous().unwrap();
    host.run(|| {
        let mut route = Route::open()?;
        route.create_bridge("br")?;
        let link = route.index("br")?;
        for (ip, prefix) in [("192.0.2.1", 24), ("192.0.2.2", 24), ("2001:db8::1", 64)] {
            route.add_address(Address { link, ip: ip.parse().unwrap(), prefix })?;
        }
        for command in ["2001:db8::2/64 dev br nodad preferred_lft 0", "2001:db8::3/64 dev br"] {
            let words = ["-6", "address", "add"].into_iter().chain(command.split(' '));
            assert!(std::process::Command::new("ip").args(words).status().unwrap().success(), "{command}");
        }
        route.set_up("br")?;
        let of_bridge = |all: Vec<Address>| {
            let of_bridge =
                all.into_iter().filter(|it| it.link == link && !it.ip.to_string().starts_with("fe80"));
            of_bridge.map(|it| it.ip.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of_bridge(route.lasting_addresses()?), ["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        assert_eq!(of_bridge(route.addresses()?).len(), 5);
        Ok(())
    })
    .unwrap();
}

/// The payload of a message that is being written.
fn payload(encoder: Encoder) -> Vec<u8> {
    encoder.into_bytes().split_off(16)
}

#[test]
fn a_link_is_read_from_what_there_is_of_it() {
    let mut message = Encoder::message(libc::RTM_NEWLINK, 0);
    message.raw(&link_header(libc::AF_UNSPEC, 7, libc::IFF_UP as u32, 0)).str(libc::IFLA_IFNAME, "eth0");
    message
        .u32(libc::IFLA_MTU, 1400)
        .u32(libc::IFLA_MASTER, 3)
        .bytes(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]);
    message.u8(libc::IFLA_OPERSTATE, OPERATION_UP).str(libc::IFLA_IFALIAS, "c/eth0").u32(libc::IFLA_LINK, 9);
    message.nest(libc::IFLA_LINKINFO, |info| {
        info.str(libc::IFLA_INFO_KIND, "veth");
    });
    let bytes = payload(message);
    let link = Link {
        index: 7,
        name: "eth0".into(),
        kind: "veth".into(),
        is_up: true,
        is_operational: true,
        master: Some(3),
        mtu: 1400,
        mac: vec![2, 0, 0, 0, 0, 1],
        peer: Some(9),
        alias: "c/eth0".into(),
    };
    assert_eq!(parse_link(&bytes), Some(link.clone()));
    for cut in 0..bytes.len() {
        let found = parse_link(&bytes[..cut]);
        assert_eq!(found.is_some(), cut >= LINK_HEADER_BYTES, "cut at {cut}");
        assert!(found.is_none_or(|found| found.index == 7 && found.is_up && found != link), "cut at {cut}");
    }
    let with = |fill: &dyn Fn(&mut Encoder)| {
        let mut message = Encoder::message(libc::RTM_NEWLINK, 0);
        message.raw(&link_header(libc::AF_UNSPEC, 1, 0, 0));
        fill(&mut message);
        parse_link(&payload(message))
    };
    assert_eq!(with(&|_| {}), Some(Link { index: 1, ..Link::default() }));
    let short = with(&|message| {
        message.bytes(libc::IFLA_MTU, &[1, 2]);
    });
    assert_eq!(short, None, "a short number");
    let strange = with(&|message| {
        message
            .bytes(libc::IFLA_LINKINFO, b"x")
            .bytes(libc::IFLA_OPERSTATE, b"")
            .bytes(libc::IFLA_MASTER, b"1");
    });
    assert_eq!(strange, Some(Link { index: 1, ..Link::default() }));
}

#[test]
fn addresses_are_read_back_as_they_are_asked_for() {
    for (text, prefix) in [("192.0.2.1", 24), ("0.0.0.0", 0), ("2001:db8::1", 64), ("::", 128)] {
        let address = Address { link: 5, ip: ip(text), prefix };
        let bytes = payload(address_request(libc::RTM_NEWADDR, 0, address));
        assert_eq!(parse_address(&bytes), Some(address), "{text}");
        for cut in 0..bytes.len() {
            let found = parse_address(&bytes[..cut]);
            assert!(found.is_none_or(|found| found == address), "{text} cut at {cut}: {found:?}");
        }
    }
    let of = |fill: &dyn Fn(&mut Encoder)| {
        let mut message = Encoder::message(libc::RTM_NEWADDR, 0);
        message.raw(&[libc::AF_INET as u8, 32, 0, 0, 5, 0, 0, 0]);
        fill(&mut message);
        parse_address(&payload(message)).map(|address| address.ip.to_string())
    };
    // Of a link to one other end the own address comes first.
    let peer = of(&|message| {
        message.bytes(libc::IFA_ADDRESS, &[192, 0, 2, 2]).bytes(libc::IFA_LOCAL, &[192, 0, 2, 1]);
    });
    assert_eq!(peer.as_deref(), Some("192.0.2.1"));
    assert_eq!(of(&|_| {}), None);
    for length in [0, 1, 3, 5, 15, 17] {
        let found = of(&|message| {
            message.bytes(libc::IFA_LOCAL, &vec![1; length]);
        });
        assert_eq!(found, None, "{length} bytes");
    }
}

#[test]
fn an_address_of_ipv6_lasts_unless_the_kernel_says_otherwise() {
    let lasts = |family: i32, flags: u8, wide: Option<u32>| {
        let mut message = Encoder::message(libc::RTM_NEWADDR, 0);
        message.raw(&[family as u8, 64, flags, 0, 1, 0, 0, 0]);
        if let Some(wide) = wide {
            message.u32(libc::IFA_FLAGS, wide);
        }
        is_lasting(&payload(message))
    };
    assert!(lasts(libc::AF_INET6, 0, None) && lasts(libc::AF_INET6, 0, Some(0)));
    for flag in [libc::IFA_F_TEMPORARY, libc::IFA_F_DEPRECATED, libc::IFA_F_TENTATIVE, libc::IFA_F_DADFAILED]
    {
        assert!(!lasts(libc::AF_INET6, 0, Some(flag)), "{flag}");
        assert!(!lasts(libc::AF_INET6, u8::try_from(flag).unwrap(), None), "{flag}");
        // The wide form counts, where there is one; and those of IPv4 are what they are.
        assert!(lasts(libc::AF_INET6, u8::try_from(flag).unwrap(), Some(0)), "{flag}");
        assert!(lasts(libc::AF_INET, 0, Some(flag)), "{flag}");
    }
    assert!(lasts(libc::AF_INET6, 0, Some(libc::IFA_F_PERMANENT | libc::IFA_F_NODAD)));
    assert!(is_lasting(&[]));
}

#[test]
fn routes_are_read_back_as_they_are_asked_for() {
    let entry = |route: &NewRoute| RouteEntry {
        kind: Some(route.kind),
        destination: route.destination,
        gateway: route.gateway,
        link: route.link,
        source: route.source,
    };
    for route in [
        NewRoute { gateway: Some(ip("192.0.2.1")), link: Some(3), ..NewRoute::default() },
        NewRoute { destination: Some((ip("10.42.0.0"), 16)), link: Some(3), ..NewRoute::default() },
        NewRoute {
            destination: Some((ip("fd42::"), 56)),
            gateway: Some(ip("2001:db8::1")),
            source: Some(ip("2001:db8::2")),
            link: Some(4),
            on_link: true,
            ..NewRoute::default()
        },
        NewRoute {
            kind: RouteKind::Unreachable,
            destination: Some((ip("10.43.0.0"), 16)),
            ..NewRoute::default()
        },
        NewRoute {
            kind: RouteKind::Blackhole,
            destination: Some((ip("fd43::"), 112)),
            ..NewRoute::default()
        },
    ] {
        let bytes = payload(route_request(libc::RTM_NEWROUTE, 0, &route));
        assert_eq!(parse_route(&bytes), Some(entry(&route)), "{route:?}");
        for cut in 0..bytes.len() {
            let found = parse_route(&bytes[..cut]);
            assert_eq!(found.is_some(), cut >= 12, "cut at {cut}");
        }
        // Other tables are others' business, and other kinds are told as such.
        let mut other = bytes.clone();
        other[4] = libc::RT_TABLE_LOCAL;
        assert_eq!(parse_route(&other), None);
        let mut other = bytes;
        other[7] = libc::RTN_PROHIBIT;
        assert_eq!(parse_route(&other).map(|route| route.kind), Some(None));
    }
}
