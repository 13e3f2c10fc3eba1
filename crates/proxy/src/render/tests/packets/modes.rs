//! What modes are about: changes carried out in the kernel, what others do to rules, one mode after another, both families.

use std::process::Command;

use sys::netlink::ipset::Ipset;
use sys::netlink::ipvs::Ipvs;

use super::*;
use crate::backend::Tended;
use crate::families::ipvs_options;
use crate::services::tests::{Random, news as news_of, world};

in_modes!(nftables, crate::Mode::Nftables, any(), [a_change_of_mode_leaves_nothing_of_the_other]);
in_modes!(
    iptables,
    crate::Mode::Iptables,
    any(),
    [
        a_change_of_mode_leaves_nothing_of_the_other,
        differences_in_the_kernel_are_what_is_made_whole,
        what_somebody_flushes_is_mended,
    ]
);
in_modes!(
    ipvs,
    crate::Mode::Ipvs(crate::families::ipvs_options("rr")),
    all(),
    [
        a_change_of_mode_leaves_nothing_of_the_other,
        differences_in_the_kernel_are_what_is_made_whole,
        what_somebody_flushes_is_mended,
    ]
);

#[test]
fn modes_change_to_ipvs_and_back() {
    under_the_other_kernel("modes::ipvs::");
}

/// Those that this kernel has.
fn modes() -> [Mode; 2] {
    match testkit::other_kernel::is_here() {
        true => [Mode::Iptables, Mode::Ipvs(ipvs_options("rr"))],
        false => [Mode::Nftables, Mode::Iptables],
    }
}

/// What cleaning up finds of a cluster of these families.
pub(super) fn leftovers(mode: &Mode, families: &[Family]) -> Vec<String> {
    let chains = families.iter().map(|family| match family {
        Family::V4 => "KUBE-* chains of iptables",
        Family::V6 => "KUBE-* chains of ip6tables",
    });
    let mut found = vec!["link ks-test"];
    match mode {
        Mode::Nftables => found.push("nftables table knarr-test-services"),
        Mode::Iptables => found.extend(chains),
        Mode::Ipvs(_) => found.extend(chains.chain(["sets KUBE-* of ipset", "link kube-ipvs0"])),
    }
    found.into_iter().map(str::to_owned).collect()
}

/// Whether Services have rules for IPv6 in the calling thread's namespace.
pub(super) fn ipv6_rules() -> bool {
    let tables = sys::nftables::table_names_of(table_family(Family::V6)).unwrap();
    let chains = iptables("ip6tables", "-save", &["-t", "nat"]);
    tables.iter().any(|name| name == "knarr-test-services") || chains.contains(":KUBE-SERVICES")
}

/// Everything that bears upon a packet, with its counters.
pub(super) fn listing() -> String {
    let mut listing = String::new();
    if !testkit::other_kernel::is_here() {
        listing += &run(Command::new("nft").args(["list", "ruleset"]));
    }
    for family in ["iptables", "ip6tables"] {
        listing += &iptables(family, "-save", &["-c"]);
    }
    for file in ["ip_vs", "ip_vs_conn"] {
        listing += &std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    }
    listing
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn iptables(family: &str, suffix: &str, arguments: &[&str]) -> String {
    let variant = if testkit::other_kernel::is_here() { "legacy" } else { "nft" };
    run(Command::new(format!("{family}-{variant}{suffix}")).args(arguments))
}

const TABLES: [&str; 3] = ["mangle", "filter", "nat"];

/// Everything that Services have in the calling thread's namespace, in an order of its own.
fn state() -> String {
    let mut lines: Vec<String> = Vec::new();
    for (family, table) in
        ["iptables", "ip6tables"].into_iter().flat_map(|family| TABLES.map(|table| (family, table)))
    {
        let saved = iptables(family, "-save", &["-t", table]);
        let rules = saved.lines().filter(|line| !line.starts_with('#'));
        // Counters of chains differ.
        lines.extend(rules.map(|line| format!("{family} {table} {}", line.split(" [").next().unwrap())));
    }
    let mut ipset = Ipset::open().unwrap();
    for name in ipset.names().unwrap() {
        let elements = ipset.elements(&name).unwrap();
        lines.extend(elements.iter().map(|element| format!("{name} {element:?}")));
    }
    // Not by /proc, which leaves out some where several namespaces have some.
    if let Ok(mut ipvs) = Ipvs::open() {
        for (vip, service) in ipvs.services().unwrap() {
            lines.push(format!("{vip} {service:?}"));
            let all = ipvs.destinations(vip).unwrap();
            lines.extend(all.iter().map(|to| format!("{vip} -> {}:{} {}", to.ip, to.port, to.weight)));
        }
    }
    lines.sort();
    lines.join("\n")
}

fn differences_in_the_kernel_are_what_is_made_whole(mode: Mode) {
    let namespace = || {
        let host = NetNs::anonymous().unwrap();
        let up = || {
            Route::open()?.loopback_up()?;
            BOTH.into_iter().for_each(|family| add_address("lo", ip(family, [192, 0, 2, 1]), bits(family)));
            Ok(())
        };
        host.run(up).unwrap();
        host
    };
    let config = || Config { local_addresses: Vec::new(), ..in_mode(&mode, config(&BOTH)) };
    let kernel = || Kernel::new(config(), &base::metrics::Metrics::new());
    let (host, mut changing) = (namespace(), kernel());
    let mut random = Random(7);
    let mut known = world(&mut random);
    let start = news_of(&known, &known);
    host.run(|| changing.program(Changed { services: start.services, ..start })).unwrap();
    for step in 0..4 {
        let next = world(&mut random);
        let (news, all) = (news_of(&known, &next), news_of(&next, &next));
        let changed = host.run(|| changing.program(news).map(|_| state())).unwrap();
        let whole = namespace().run(|| kernel().program(all).map(|_| state())).unwrap();
        assert!(whole.contains("KUBE-MARK-MASQ"), "{whole}");
        pretty(&changed, &whole, step);
        known = next;
    }
}

/// What is in one only.
fn pretty(changed: &str, whole: &str, step: usize) {
    let of = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (changed, whole) = (of(changed), of(whole));
    let more: Vec<_> = changed.difference(&whole).collect();
    let less: Vec<_> = whole.difference(&changed).collect();
    assert!(more.is_empty() && less.is_empty(), "step {step}: too much {more:#?}, missing {less:#?}");
}

fn what_somebody_flushes_is_mended(mode: Mode) {
    let cluster = Cluster::new(&mode, Family::V4);
    cluster.apply(WEB);
    for flushed in [&["-t", "nat", "-F"][..], &["-t", "filter", "-F"], &["-t", "mangle", "-F"]] {
        let flush = || {
            let before = state();
            iptables("iptables", "", flushed);
            assert_ne!(state(), before, "{flushed:?}");
            Ok(before)
        };
        let before = cluster.host.run(flush).unwrap();
        let tended = cluster.host.run(|| cluster.kernel.lock().unwrap().0.tend().map(|_| state())).unwrap();
        pretty(&tended, &before, 0);
        assert!(cluster.asked_by_host("10.43.0.5:80").starts_with("pod"));
    }
}

#[test]
fn what_somebody_flushes_of_nftables_is_told_and_mended() {
    let cluster = Cluster::new(&Mode::Nftables, Family::V4);
    cluster.apply(WEB);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kernel = || cluster.kernel.lock().unwrap();
    let mut flushes = cluster
        .host
        .run(|| {
            let _entered = runtime.enter();
            Ok(kernel().0.flushes())
        })
        .unwrap();
    let random = base::Random::seeded(1);
    let mut is_told = |wait| {
        let told = async { tokio::time::timeout(wait, flushes.next(&random)).await.is_ok() };
        runtime.block_on(told)
    };
    cluster.apply(WEB);
    assert!(!is_told(Duration::from_millis(300)), "all that has happened was done here");
    for command in ["flush ruleset", "flush chain ip knarr-test-services services"] {
        let flush = || {
            let output = Command::new("nft").args(command.split(' ')).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        cluster.host.run(flush).unwrap();
        assert!(is_told(Duration::from_secs(10)), "{command}");
        assert_eq!(cluster.host.run(|| kernel().0.after_flush()).unwrap(), Tended::Lost);
        assert!(cluster.asked_by_host("10.43.0.5:80").starts_with("pod"), "{command}");
    }
}

fn a_change_of_mode_leaves_nothing_of_the_other(mode: Mode) {
    let cluster = Cluster::new(&mode, Family::V4);
    cluster.apply(WEB);
    let other = modes().into_iter().find(|other| *other != mode).unwrap();
    let before = cluster.host.run(|| crate::leftovers("test")).unwrap();
    assert!(cluster.asked_by_host("10.43.0.5:80").starts_with("pod"));
    let program = |mode: &Mode| {
        let config = in_mode(mode, config(&[Family::V4]));
        let mut kernel = Kernel::new(config, &base::metrics::Metrics::new());
        kernel.program(changed(Family::V4, WEB)).map(|_| kernel)
    };
    let of_other = cluster.host.run(|| program(&other).and_then(|_| crate::leftovers("test"))).unwrap();
    let own = |found: &[String]| -> BTreeSet<String> {
        found.iter().filter(|what| *what != "link ks-test").cloned().collect()
    };
    assert!(cluster.asked_by_pod(0, "10.43.0.5:80").starts_with("pod"), "{}", cluster.listing());
    assert!(!own(&of_other).is_empty() && own(&of_other) != own(&before), "{before:?}, {of_other:?}");
    if [&mode, &other].contains(&&Mode::Nftables) {
        assert!(own(&of_other).is_disjoint(&own(&before)), "{before:?}, {of_other:?}");
    }
    let alone = {
        let cluster = Cluster::new(&other, Family::V4);
        cluster.apply(WEB);
        cluster.host.run(|| Ok(state())).unwrap()
    };
    let changed = cluster.host.run(|| Ok(state())).unwrap();
    // A table of iptables that nothing is in any more may stay.
    let rules = |text: &str| text.lines().filter(|line| line.contains("KUBE")).collect::<Vec<_>>().join("\n");
    pretty(&rules(&changed), &rules(&alone), 0);
    // And back.
    let again = cluster.host.run(|| program(&mode).and_then(|_| crate::leftovers("test"))).unwrap();
    assert_eq!(own(&again), own(&before));
    assert!(cluster.asked_by_pod(1, "10.43.0.5:80").starts_with("pod"), "{}", cluster.listing());
}
