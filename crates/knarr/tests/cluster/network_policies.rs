//! NetworkPolicies as their users see them: in a cluster that runs, through the ends of its processes, and while it is down.
//!
//! Which connections policies let through is tried by `network_policy/tests/packets`, pair by pair.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{cluster, must};

const NAMESPACE: &str = "network-policies";

fn session(cluster: &Cluster) -> Session<'_> {
    must(Session::new(cluster, KUBECTLS[1], NAMESPACE))
}

fn signal(pids: &[i32], signal: Signal) {
    assert!(!pids.is_empty());
    for pid in pids {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), signal).unwrap();
    }
}

/// The words of the rules that the kernel has, as `nft` lists them, but for their order, as a set has none, and for what is
/// said of the table's owner.
fn rules(cluster: &Cluster) -> String {
    let listed = cluster.command("nft").args(["list", "ruleset"]).output().unwrap();
    let listed = format!("\n{}", String::from_utf8(listed.stdout).unwrap());
    let table = listed.split("\ntable ").find(|table| table.contains("-policies {")).unwrap_or_default();
    let is_owners = |line: &&str| line.starts_with("\tflags ");
    let lines = table.lines().filter(|line| !is_owners(line)).map(|line| line.split('#').next().unwrap());
    let words = lines.flat_map(|line| line.split([' ', '\t', ',']));
    let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.join(" ")
}

#[test]
fn policies_hold_from_a_pods_first_packet_on_and_while_knarr_is_down() {
    let mut cluster = cluster();
    must(session(&cluster).run("network_policies.txt", include_str!("sessions/network_policies.txt")));
    let after = |cluster: &Cluster| {
        must(
            session(cluster)
                .run("network_policies_after.txt", include_str!("sessions/network_policies_after.txt")),
        );
    };
    let standing = rules(&cluster);
    assert!(standing.contains("goto") && standing.contains("drop"), "{standing}");

    // A firewall that begins anew takes nothing of them, or where the kernel lets it, not for long.
    let flushed = cluster.command("nft").args(["flush", "ruleset"]).status().unwrap();
    assert!(flushed.success());
    let begun = Instant::now();
    while rules(&cluster) != standing {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", rules(&cluster));
    }
    eprintln!("the rules of policies stand {:.1?} after a flush", begun.elapsed());
    after(&cluster);

    signal(&cluster.processes("knarr node"), Signal::SIGKILL);
    assert_eq!(rules(&cluster), standing, "killed");
    after(&cluster);
    must(cluster.knarr(&["down"]));
    assert_eq!(rules(&cluster), standing, "down");
    must(cluster.up());
    after(&cluster);

    // A policy that goes while nobody looks.
    let node = cluster.processes("knarr node");
    signal(&node, Signal::SIGSTOP);
    must(session(&cluster).must("kubectl delete networkpolicy --all"));
    signal(&node, Signal::SIGKILL);
    let ask = "eventually 'kubectl exec stranger -- busybox timeout 1 wget -q -O - http://$(cat address)/'";
    must(session(&cluster).must(ask));
    assert_eq!(rules(&cluster), "", "no policy, no table");

    must(cluster.knarr(&["down"]));
    must(cluster.up_with(&["--disable", "network-policy"]));
    let deny = "kubectl create -f - <<E\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny}, \
                spec: {podSelector: {}}}\nE\n";
    must(session(&cluster).must(deny));
    must(session(&cluster).must(ask));
    assert_eq!(rules(&cluster), "", "off");
    must(cluster.knarr(&["down"]));
    must(cluster.up());
    must(session(&cluster).must(&ask.replace("eventually '", "eventually '! ")));
    must(cluster.remove());
}
