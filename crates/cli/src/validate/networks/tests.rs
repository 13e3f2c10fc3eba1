use clap::Parser;

use super::super::tests::check;
use crate::Cli;

const SIX: &str = "--cluster-cidr fd42::/56 --service-cidr fd43::/112";
const DUAL: &str = "--cluster-cidr 10.42.0.0/16,fd42::/56 --service-cidr 10.43.0.0/16,fd43::/112";

#[test]
fn clusters_have_one_family_or_both() {
    for flags in [
        SIX,
        DUAL,
        "--cluster-cidr fd42::/48 --service-cidr fd43::/108",
        "--cluster-cidr fd42::/64 --service-cidr fd43::/124",
        "--cluster-cidr fd42::/56,10.42.0.0/16 --service-cidr fd43::/112,10.43.0.0/16",
        "--cluster-cidr 10.42.0.0/16,fd42::/56",
        "--cluster-cidr fd42::/80 --service-cidr fd43::/112 --kube-controller-manager-arg node-cidr-mask-size-ipv6=96",
        "--cluster-cidr 10.42.0.0/25 --kube-controller-manager-arg node-cidr-mask-size-ipv4=26",
    ] {
        check(flags, "");
    }
    for (flags, why) in [
        (
            "--service-cidr 10.43.0.0/16,fd43::/112",
            "--service-cidr 10.43.0.0/16,fd43::/112 must be of the families of --cluster-cidr 10.42.0.0/16: Pods have no \
             IPv6 addresses",
        ),
        (
            "--cluster-cidr fd42::/56",
            "--service-cidr 10.43.0.0/16 must be of the families of --cluster-cidr fd42::/56: Pods have no IPv4 addresses",
        ),
        (
            "--cluster-cidr fd42::/56,10.42.0.0/16",
            "--service-cidr 10.43.0.0/16 must begin with IPv6, as --cluster-cidr fd42::/56,10.42.0.0/16 does",
        ),
        (
            "--cluster-cidr fd42::/56,10.42.0.0/16 --service-cidr 10.43.0.0/16,fd43::/112",
            "--service-cidr 10.43.0.0/16,fd43::/112 must begin with IPv6, as --cluster-cidr fd42::/56,10.42.0.0/16 does",
        ),
    ] {
        check(flags, why);
    }
}

#[test]
fn networks_are_networks_that_do_not_overlap() {
    for (flags, why) in [
        (
            "--cluster-cidr 10.42.0.0/25",
            "--cluster-cidr 10.42.0.0/25 must be a network with a prefix length between 8 and 24",
        ),
        (
            "--cluster-cidr fd42::/47 --service-cidr fd43::/112",
            "--cluster-cidr fd42::/47 must be a network with a prefix length between 48 and 64",
        ),
        (
            "--cluster-cidr fd42::/65 --service-cidr fd43::/112",
            "--cluster-cidr fd42::/65 must be a network with a prefix length between 48 and 64",
        ),
        (
            "--cluster-cidr fd42::/56 --service-cidr fd43::/107",
            "--service-cidr fd43::/107 must be a network with a prefix length between 108 and 124",
        ),
        (
            "--cluster-cidr fd42::/56 --service-cidr fd43::/125",
            "--service-cidr fd43::/125 must be a network with a prefix length between 108 and 124",
        ),
        (
            "--service-cidr 10.43.0.7/16",
            "--service-cidr 10.43.0.7/16 must be a network's first address: 10.43.0.0/16",
        ),
        (
            "--cluster-cidr fd42::1/56 --service-cidr fd43::/112",
            "--cluster-cidr fd42::1/56 must be a network's first address: fd42::/56",
        ),
        (
            "--cluster-cidr fe80::/56 --service-cidr fd43::/112",
            "--cluster-cidr fe80::/56 must be of addresses that a link can have",
        ),
        (
            "--cluster-cidr fd42::/56 --service-cidr ff02::/112",
            "--service-cidr ff02::/112 must be of addresses that a link can have",
        ),
        (
            "--cluster-cidr 10.0.0.0/8",
            "--cluster-cidr 10.0.0.0/8 and --service-cidr 10.43.0.0/16 overlap: give Pods and Services addresses of their \
             own",
        ),
        (
            "--cluster-cidr 10.42.0.0/16,fd42::/56 --service-cidr 10.43.0.0/16,fd42::/112",
            "--cluster-cidr 10.42.0.0/16,fd42::/56 and --service-cidr 10.43.0.0/16,fd42::/112 overlap: give Pods and \
             Services addresses of their own",
        ),
    ] {
        check(flags, why);
    }
    for (text, what) in [
        ("ten", "\"ten\" must be a network, such as 10.43.0.0/16 or fd43::/112"),
        ("10.42.0.0/33", "\"10.42.0.0/33\" must be a network"),
        ("fd42::/129", "\"fd42::/129\" must be a network"),
        ("::ffff:10.42.0.0/112", "must be a network"),
        ("10.0.0.0/16,10.1.0.0/16", "must have one network, or one of each family"),
        ("fd42::/56,fd43::/56", "must have one network, or one of each family"),
        ("10.0.0.0/16,fd42::/56,fd43::/56", "must have one network, or one of each family"),
    ] {
        let told = Cli::try_parse_from(["knarr", "up", "--cluster-cidr", text]).unwrap_err().to_string();
        assert!(told.contains(what) && told.contains("--cluster-cidr"), "{told}");
    }
}

#[test]
fn the_dns_is_at_an_address_of_each_family() {
    check(&format!("{DUAL} --cluster-dns 10.43.0.11,fd43::10"), "");
    check(&format!("{DUAL} --cluster-dns 10.43.0.11 --cluster-dns fd43::10"), "");
    check(&format!("{DUAL} --cluster-dns 10.43.0.11"), "");
    check(&format!("{SIX} --cluster-dns fd43::ffff"), "");
    for (dns, why) in [
        ("10.44.0.10", "10.44.0.10 must be an address of --service-cidr 10.43.0.0/16,fd43::/112"),
        ("fd43::1:10", "fd43::1:10 must be an address of --service-cidr 10.43.0.0/16,fd43::/112"),
        (
            "10.43.0.1",
            "10.43.0.1 must be free: the first two addresses and the last of --service-cidr are taken",
        ),
        (
            "10.43.255.255",
            "10.43.255.255 must be free: the first two addresses and the last of --service-cidr are taken",
        ),
        (
            "10.43.0.10,fd43::",
            "fd43:: must be free: the first two addresses and the last of --service-cidr are taken",
        ),
        ("10.43.0.10,10.43.0.11", "10.43.0.10,10.43.0.11 must have one address of a family"),
        (
            "fd43::10,10.43.0.10",
            "fd43::10,10.43.0.10 must begin with an address of 10.43.0.0/16: Pods ask it first",
        ),
        ("fd43::10", "fd43::10 must begin with an address of 10.43.0.0/16: Pods ask it first"),
    ] {
        check(&format!("{DUAL} --cluster-dns {dns}"), &format!("--cluster-dns {why}"));
    }
}

#[test]
fn the_api_server_is_where_the_kubernetes_service_can_lead() {
    check("--advertise-address 192.0.2.7", "");
    check("--bind-address ::", "");
    check("--bind-address :: --advertise-address 192.0.2.7", "");
    check(&format!("{SIX} --advertise-address 2001:db8::7 --bind-address 192.0.2.7"), "");
    for (flags, why) in [
        (
            "--advertise-address 2001:db8::7".to_owned(),
            "--advertise-address 2001:db8::7 must be an IPv4 address, as --service-cidr 10.43.0.0/16 begins with that \
             family",
        ),
        (
            format!("{SIX} --bind-address 192.0.2.7"),
            "--bind-address 192.0.2.7 must be an IPv6 address, as --service-cidr fd43::/112 begins with that family, or \
             another --advertise-address must be given",
        ),
        (
            "--advertise-address 127.0.0.1".to_owned(),
            "--advertise-address 127.0.0.1 must be an address that other machines could reach",
        ),
        (
            format!("{SIX} --advertise-address ::"),
            "--advertise-address :: must be an address that other machines could reach",
        ),
        (
            format!("{SIX} --advertise-address fe80::1"),
            "--advertise-address fe80::1 must be an address that other machines could reach",
        ),
        (
            format!("{SIX} --advertise-address ::ffff:192.0.2.7"),
            "--advertise-address ::ffff:192.0.2.7 must be an address that other machines could reach",
        ),
        (
            "--advertise-address 10.42.0.7".to_owned(),
            "--advertise-address 10.42.0.7 must lie outside --cluster-cidr 10.42.0.0/16",
        ),
    ] {
        check(&flags, why);
    }
}

#[test]
fn the_balancers_pool_is_nobody_elses() {
    check("--servicelb-pool 198.51.100.0/28,203.0.113.1-203.0.113.9", "");
    check(&format!("{DUAL} --servicelb-pool 198.51.100.0/28,2001:db8::/120"), "");
    for (pool, why) in [
        (
            "10.42.255.0-10.43.0.0",
            "10.42.255.0-10.43.0.0 overlaps --cluster-cidr 10.42.0.0-10.42.255.255: give the load balancer addresses of its own",
        ),
        (
            "10.43.9.0/30",
            "10.43.9.0-10.43.9.3 overlaps --service-cidr 10.43.0.0-10.43.255.255: give the load balancer addresses of its own",
        ),
        (
            "198.51.100.1-198.51.100.9,198.51.100.9/32",
            "198.51.100.9-198.51.100.9 overlaps 198.51.100.1-198.51.100.9 of the same pool",
        ),
        (
            "192.0.2.0/24 --node-ip 192.0.2.1",
            "192.0.2.0-192.0.2.255 must not contain the Node's address 192.0.2.1",
        ),
        ("127.0.0.1/32", "127.0.0.1-127.0.0.1 overlaps 127.0.0.0/8, whose addresses no link can have"),
        ("239.0.0.1/32", "239.0.0.1-239.0.0.1 overlaps 224.0.0.0/3, whose addresses no link can have"),
        ("2001:db8::/120", "2001:db8::-2001:db8::ff must be of IPv4 addresses: Services have no others"),
    ] {
        check(&format!("--servicelb-pool {pool}"), &format!("--servicelb-pool {why}"));
    }
    for (pool, why) in [
        ("fe80::1/128", "fe80::1-fe80::1 overlaps fe80::/10, whose addresses no link can have"),
        ("ff02::1/128", "ff02::1-ff02::1 overlaps ff00::/8, whose addresses no link can have"),
        (
            "fd42::/120",
            "fd42::-fd42::ff overlaps --cluster-cidr fd42::-fd42::ff:ffff:ffff:ffff:ffff: give the load balancer addresses of \
             its own",
        ),
    ] {
        check(&format!("{DUAL} --servicelb-pool {pool}"), &format!("--servicelb-pool {why}"));
    }
    let needs = "--servicelb-pool needs the load balancer, which --disable leaves out";
    check("--servicelb-pool 198.51.100.0/28 --disable servicelb", needs);
    check("--servicelb-pool 198.51.100.0/28 --disable controller-manager", needs);
}
