//! The state on a real etcd: the same cluster, with its keys where upstream has them.

use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::clients::KUBECTLS;
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};

const URL: &str = "http://127.0.0.1:2379";

/// An etcd inside the cluster's namespace.
fn etcd(cluster: &Cluster) -> Child {
    let data = cluster.scratch().join("etcd");
    let mut command = cluster.command("etcd");
    command.args(["--listen-client-urls", URL, "--advertise-client-urls", URL, "--log-level", "error"]);
    command.arg("--data-dir").arg(data).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Ends it as a crash would: `timeout`, which runs it, hands signals on but this one.
fn crash(mut etcd: Child) {
    let pid = etcd.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    for child in children.split_whitespace() {
        kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    etcd.wait().unwrap();
}

fn up(cluster: &mut Cluster) {
    let flags = ["up", "--node-ip", NODE_IP, "--node-name", NODE_NAME, "--datastore-endpoint", URL];
    must(cluster.knarr(&flags));
}

#[test]
fn a_cluster_keeps_its_state_on_etcd_as_upstream_does() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    let server = etcd(&cluster);
    up(&mut cluster);
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("before.txt", include_str!("sessions/before.txt")));
    must(steady.run("etcd.txt", include_str!("sessions/etcd.txt")));
    drop(steady);

    crash(server);
    let server = etcd(&cluster);
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("after.txt", include_str!("sessions/after.txt")));
    drop(steady);

    must(cluster.knarr(&["down"]));
    up(&mut cluster);
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("after.txt", include_str!("sessions/after.txt")));
    drop(steady);
    must(cluster.remove());
    crash(server);
}
