//! The state on a real etcd: the same cluster, with its keys where upstream has them.

use testkit::clients::KUBECTLS;
use testkit::cluster::{NODE_IP, NODE_NAME, Process};
use testkit::etcd::{Etcd, Security};
use testkit::{Cluster, Lan, Session};

use crate::ha::{Server, TOKEN};
use crate::{BUSYBOX, must};

const URL: &str = "http://127.0.0.1:2379";

/// An etcd inside the cluster's namespace.
fn etcd(cluster: &Cluster) -> Process {
    let data = cluster.scratch().join("etcd").display().to_string();
    let urls = ["--listen-client-urls", URL, "--advertise-client-urls", URL, "--log-level", "error"];
    must(cluster.start_other("etcd", &[&urls[..], &["--data-dir", &data]].concat()))
}

fn up(cluster: &mut Cluster) {
    let flags = ["up", "--node-ip", NODE_IP, "--node-name", NODE_NAME, "--datastore-endpoint", URL];
    must(cluster.knarr(&flags));
}

#[test]
fn a_cluster_keeps_its_state_on_etcd_as_upstream_does() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    let mut server = etcd(&cluster);
    up(&mut cluster);
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("before.txt", include_str!("sessions/before.txt")));
    must(steady.run("etcd.txt", include_str!("sessions/etcd.txt")));
    drop(steady);

    must(server.kill());
    server = etcd(&cluster);
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("after.txt", include_str!("sessions/after.txt")));
    drop(steady);

    must(cluster.knarr(&["down"]));
    up(&mut cluster);
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("after.txt", include_str!("sessions/after.txt")));
    drop(steady);
    must(cluster.remove());
    must(server.kill());
}

#[test]
fn an_alarm_of_etcd_is_told_and_once_mended_all_goes_on() {
    let wire = must(Lan::new(1));
    let quota = ["--quota-backend-bytes", "8000000"];
    let etcd = must(Etcd::on_hosts(&wire, 1, Security::Plain, &quota));
    let mut server = Server::new(&wire, &etcd, 0);
    must(server.up_with(TOKEN, &["--disable-agent"]));
    let steady = must(Session::new(&server.cluster, KUBECTLS[1], "steady"));
    must(steady.must("kubectl create configmap before --from-literal=a=b"));
    let filler = "x".repeat(100_000);
    let is_full = (0..200).any(|n| etcd.etcdctl(0, &["put", &format!("/elsewhere/{n}"), &filler]).is_err());
    assert!(is_full, "the quota holds");
    must(steady.run("etcd_full.txt", include_str!("sessions/etcd_full.txt")));
    must(etcd.etcdctl(0, &["del", "--prefix", "/elsewhere/"]));
    let status = must(etcd.etcdctl(0, &["endpoint", "status", "--write-out", "fields"]));
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    must(etcd.etcdctl(0, &["compact", revision.trim()]));
    must(etcd.etcdctl(0, &["defrag"]));
    must(etcd.etcdctl(0, &["alarm", "disarm"]));
    must(steady.run("etcd_mended.txt", include_str!("sessions/etcd_mended.txt")));
    drop(steady);
    must(server.cluster.remove());
}
