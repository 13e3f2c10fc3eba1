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

#[test]
fn data_that_is_gone_is_missed_and_secrets_come_back_with_the_backup_after_a_reset() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&["--disable-agent"]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    must(session.must("kubectl create secret generic kept --from-literal=password=secret"));
    must(session.must("$KNARR backup ../kept.backup --data-dir $DATA_DIR"));
    drop(session);
    let (key, data) = ("server/cred/encryption-config.yaml", "server/db/data.mdb");
    let (key, data) = (cluster.data_dir().join(key), cluster.data_dir().join(data));
    let old_key = std::fs::read(&key).unwrap();
    must(cluster.knarr(&["down"]));
    std::fs::write(&data, "").unwrap();
    for state in ["is empty", "is missing"] {
        let refused = cluster.up_with(&["--disable-agent"]).unwrap_err().to_string();
        let said = format!("data.mdb {state}, and this cluster has had one");
        assert!(refused.contains(&said) && refused.contains("knarr restore"), "{refused}");
        std::fs::remove_file(&data).unwrap_or_default();
    }
    must(cluster.knarr(&["reset", "--yes"]));
    let backup = cluster.scratch().join("kept.backup");
    must(cluster.knarr(&["restore", backup.to_str().unwrap()]));
    must(cluster.up_with(&["--disable-agent"]));
    assert_eq!(std::fs::read(&key).unwrap(), old_key, "no other key was made");
    let session = must(Session::new(&cluster, KUBECTLS[1], "steady"));
    let read = session.must("kubectl get secret kept -o jsonpath='{.data.password}' | base64 -d");
    assert_eq!(must(read), "secret");
    drop(session);
    must(cluster.remove());
}
