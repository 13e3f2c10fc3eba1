//! A backup of a running cluster, and what is made of it: the same cluster as it was, and another one.

use testkit::clients::KUBECTLS;
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::{Cluster, Session};

use crate::must;

#[test]
fn a_backup_of_a_running_cluster_is_restored_here_and_elsewhere() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&["--disable-agent"]));
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("backup_before.txt", include_str!("sessions/backup_before.txt")));
    must(steady.run("backup_refused.txt", include_str!("sessions/backup_refused.txt")));
    must(cluster.up_with(&["--disable-agent"]));
    let steady = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(steady.run("backup_after.txt", include_str!("sessions/backup_after.txt")));

    // Another folder becomes the same cluster: same authority, same keys, so that the same tokens are believed.
    let mut other = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let backup = cluster.scratch().join("two.backup");
    must(other.knarr(&["restore", backup.to_str().unwrap()]));
    must(other.knarr(&["up", "--node-ip", NODE_IP, "--node-name", NODE_NAME, "--disable-agent"]));
    let elsewhere = must(Session::new(&other, KUBECTLS[1], "steady"));
    for file in ["later.revision", "token"] {
        std::fs::copy(cluster.scratch().join(file), other.scratch().join(file)).unwrap();
    }
    must(elsewhere.run("backup_after.txt", include_str!("sessions/backup_after.txt")));
    must(other.remove());
    must(cluster.remove());
}
