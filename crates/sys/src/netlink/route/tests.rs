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
