//! What this machine's kernel lacks, on one that has it: limits by cgroup v2, AppArmor, NFS and iSCSI from real
//! servers, ipvlan. It has no nftables for IPv4, so there are no Services.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session, other_kernel};

use crate::{BUSYBOX, must};

/// Whose Pods are attached by Debian's plugins.
const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [
    {"type": "ipvlan", "master": "host0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "198.51.100.0/24"}]]}},
    {"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}}]}"#;

/// The target is where the kernel's initiator is, in the machine's network; udev's names of disks are waited for.
const ISCSIADM: &str =
    "#!/bin/sh\nnsenter --net=/proc/1/ns/net /sbin/iscsiadm \"$@\"; code=$?; udevadm settle; exit $code\n";

#[test]
fn a_node_works_with_cgroup_v2_apparmor_nfs_iscsi_and_ipvlan() {
    let program = std::env::current_exe().unwrap();
    let folder = std::env::current_dir().unwrap();
    must(other_kernel::run(
        &folder,
        &program,
        &["--ignored", "--exact", "kernel::a_node_under_the_other_kernel"],
    ));
}

#[test]
#[ignore = "exports files and disks of the machine: the test above runs it under a kernel of its own"]
fn a_node_under_the_other_kernel() {
    assert!(other_kernel::is_here(), "this is for a kernel of its own");
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let folder = cluster.scratch().to_owned();
    let [network, programs] = ["net.d", "programs"].map(|name| folder.join(name));
    fs::create_dir(&network).unwrap();
    fs::write(network.join("10-pods.conflist"), NETWORK).unwrap();
    fs::create_dir(&programs).unwrap();
    for (name, text) in [("iscsiadm", ISCSIADM), ("serve", include_str!("kernel/serve.sh"))] {
        fs::write(programs.join(name), text).unwrap();
        fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    cluster.add_programs(programs);
    // An image that is there before the cluster is.
    let images = cluster.data_dir().join("images");
    fs::create_dir_all(&images).unwrap();
    fs::rename(must(testkit::image::busybox(&folder)), images.join("early.tar")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    let refused = format!("{:#}", cluster.up().unwrap_err());
    assert!(refused.contains("CONFIG_NF_TABLES_IPV4"), "{refused}");
    must(cluster.up_with(&["--disable", "proxy,dns", "--cni-conf-dir", network.to_str().unwrap()]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "kernel"));
    must(session.run("kernel.txt", include_str!("sessions/kernel.txt")));
    drop(session);
    must(cluster.remove());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("nfs4") && !mounts.contains("/dev/sd"), "{mounts}");
}
