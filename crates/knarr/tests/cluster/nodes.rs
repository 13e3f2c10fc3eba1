//! Several Nodes on one host: each in a network namespace of its own, all of one cluster, gone with it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};

/// How long a killed process may take to end.
const DEATH_MAX: Duration = Duration::from_secs(10);
/// What each Node and its containers are known by.
const WHO: &str = "kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.uid} {.status.addresses[0].address} \
                   {.spec.podCIDR} {end}'; kubectl get pods -o jsonpath='{range .items[*]}{.status.podIP} \
                   {.status.containerStatuses[0].containerID} {end}'";

/// All processes of the cluster but those of its Pods.
fn crash(cluster: &Cluster) {
    let all: Vec<i32> = ["knarr server", "knarr control-plane", "knarr node"]
        .iter()
        .flat_map(|part| cluster.processes(part))
        .collect();
    assert!(all.len() >= 4, "supervisor, control plane and Nodes: {all:?}");
    let handles: Vec<_> = all.iter().filter_map(|pid| sys::process::PidFd::open(*pid).ok()).collect();
    for pid in all {
        // One that dies with another is gone already.
        assert!(matches!(kill(Pid::from_raw(pid), Signal::SIGKILL), Ok(()) | Err(nix::Error::ESRCH)));
    }
    assert!(handles.iter().all(|process| process.wait(DEATH_MAX).unwrap()), "all of it ends");
}

#[test]
fn three_nodes_on_one_host_are_a_cluster_that_outlives_its_processes() {
    let mut cluster = must(Cluster::new(env!("CARGO_BIN_EXE_knarr")));
    let begun = Instant::now();
    must(cluster.up_with(&["--nodes", "3"]));
    println!("three Nodes are Ready after {:.2?}", begun.elapsed());
    must(cluster.import_busybox(BUSYBOX));
    let session = must(Session::new(&cluster, KUBECTLS[1], "nodes"));
    must(session.run("nodes.txt", include_str!("sessions/nodes.txt")));
    let before = must(session.must(WHO));
    drop(session);

    // All at once, as a power cut does it, and again without a word of how many there are.
    crash(&cluster);
    must(cluster.up());
    let session = must(Session::new(&cluster, KUBECTLS[1], "nodes"));
    assert_eq!(must(session.must(WHO)), before, "the same Nodes with the same containers");
    must(session.must("eventually 'timeout 5 kubectl exec busybox-on-test-3 -- wget -q -O - http://hello/'"));
    drop(session);

    // A Node that has run is not left out, and is removed by who says so.
    must(cluster.knarr(&["down"]));
    let refused = cluster.up_with(&["--nodes", "2"]).unwrap_err().to_string();
    let third = cluster.data_dir().join("nodes/3").display().to_string();
    assert!(
        refused.contains(&format!("leaves out Node 3, which has run; `knarr reset --data-dir {third}`")),
        "{refused}"
    );
    let reset = |cluster: &Cluster| {
        let mut command = cluster.command(env!("CARGO_BIN_EXE_knarr"));
        testkit::cluster::text(&command.args(["reset", "--yes", "--data-dir", &third]).output().unwrap())
    };
    assert!(reset(&cluster).contains("removed Node 3"));
    must(cluster.up_with(&["--nodes", "2"]));
    assert!(reset(&cluster).contains("there is no cluster"));
    let session = must(Session::new(&cluster, KUBECTLS[1], "nodes"));
    must(session.must(
        "kubectl delete node test-3 && kubectl wait --for=condition=Ready node --all --timeout=60s && \
         kubectl exec busybox-on-test-2 -- true",
    ));
    drop(session);

    // What is left of a crash goes, too.
    crash(&cluster);
    must(cluster.remove());
}

#[test]
fn a_network_of_nodes_that_the_host_has_is_refused() {
    let mut cluster = must(Cluster::new(env!("CARGO_BIN_EXE_knarr")));
    let refused = |flags: &[&str], cluster: &mut Cluster| cluster.up_with(flags).unwrap_err().to_string();
    let text = refused(&["--nodes", "2", "--nodes-cidr", "192.0.2.128/25"], &mut cluster);
    assert!(text.contains("--nodes-cidr 192.0.2.128/25 is not free: this host uses 192.0.2.0/24"), "{text}");
    must(cluster.remove());
}
