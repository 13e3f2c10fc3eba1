//! The kubelet over a CRI socket: to the built-in runtime behind its own, and to Debian's containerd with runc.
//!
//! containerd is in the cluster's network, see `testkit::containerd`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::clients::{KUBECTL_SPDY, KUBECTLS};
use testkit::containerd::{self, DEBIAN_PLUGINS, PTP};
use testkit::{Cluster, Containerd, Session};

use crate::{BUSYBOX, must, pods};

/// crun does not run where both versions of cgroups have controllers, so it is shown the first alone.
const CRUN: &str = r#"#!/bin/sh
exec unshare --mount --propagation=unchanged sh -c '
    mount --make-rprivate /sys/fs/cgroup && umount /sys/fs/cgroup/unified 2>/dev/null
    exec crun "$@"' crun "$@"
"#;

/// Starts a cluster whose containers are another runtime's.
pub(crate) fn up(cluster: &mut Cluster, endpoint: &str, more: &[&str]) {
    let flags = ["--container-runtime-endpoint", endpoint];
    must(cluster.up_with(&[&flags, more].concat()));
}

/// Runs each session in a namespace of its own.
fn run(cluster: &Cluster, sessions: &[(&str, &str, &str)]) {
    let failures: Vec<String> = sessions
        .iter()
        .filter_map(|(kubectl, name, script)| {
            let namespace = name.trim_end_matches(".txt").replace(['_', '.', ' '], "-");
            let ran =
                Session::new(cluster, kubectl, &namespace).and_then(|session| session.run(name, script));
            ran.err().map(|error| format!("{error:#}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_kubelet_reaches_the_built_in_runtime_over_its_socket() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    let socket = cluster.data_dir().join("run/cri.sock");
    up(&mut cluster, &format!("unix://{}", socket.display()), &[]);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(socket.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    run(
        &cluster,
        &[
            (KUBECTLS[1], "pods_lifecycle.txt", include_str!("sessions/pods_lifecycle.txt")),
            (KUBECTLS[1], "streams.txt", include_str!("sessions/streams.txt")),
            (KUBECTL_SPDY, "streams.txt spdy", include_str!("sessions/streams.txt")),
        ],
    );
    must(cluster.remove());
}

#[test]
fn a_runtime_class_chooses_runc_or_crun() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    let crun = cluster.scratch().join("crun");
    fs::write(&crun, CRUN).unwrap();
    fs::set_permissions(&crun, fs::Permissions::from_mode(0o755)).unwrap();
    must(cluster.up_with(&["--container-runtime-handler", &format!("crun={}", crun.display())]));
    run(&cluster, &[(KUBECTLS[1], "runtime_class.txt", include_str!("sessions/runtime_class.txt"))]);
    must(cluster.remove());
}

#[test]
fn the_kubelet_runs_on_containerd_and_a_reset_takes_its_pods_back() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let containerd = must(Containerd::start(&cluster, DEBIAN_PLUGINS, PTP));
    up(&mut cluster, &containerd.endpoint(), &[]);
    run(&cluster, &[(KUBECTLS[1], "containerd.txt", include_str!("sessions/containerd.txt"))]);
    run(&cluster, &[(KUBECTLS[1], "left.txt", include_str!("sessions/left.txt"))]);
    assert_ne!(must(containerd.containers()), "");
    let said = must(cluster.knarr(&["reset", "--yes"]));
    assert!(said.contains("removed 1 Pods of the container runtime"), "{said}");
    assert_eq!(must(containerd.containers()), "");
    // The table is iptables', which Debian's portmap leaves; what it had in there for the Pod is gone.
    let table = cluster.command("nft").args(["list", "table", "ip", "nat"]).output().unwrap();
    assert!(table.status.success() && !String::from_utf8_lossy(&table.stdout).contains("8083"), "{table:?}");
    assert!(cluster.command("nft").args(["delete", "table", "ip", "nat"]).status().unwrap().success());
    drop(containerd);
    must(cluster.remove());
}

#[test]
fn the_same_pods_do_the_same_on_containerd() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let containerd = must(Containerd::start(&cluster, DEBIAN_PLUGINS, PTP));
    up(&mut cluster, &containerd.endpoint(), &[]);
    let failures = pods::failures(&cluster, &pods::SESSIONS, containerd::IMAGE);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    must(cluster.knarr(&["reset", "--yes"]));
    drop(containerd);
    must(cluster.remove());
}

#[test]
fn logs_of_containerd_are_rotated_and_none_of_their_lines_is_lost() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let containerd = must(Containerd::start(&cluster, DEBIAN_PLUGINS, PTP));
    let config = cluster.scratch().join("kubelet.yaml");
    fs::write(
        &config,
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         containerLogMaxSize: 20Ki\ncontainerLogMaxFiles: 4\ncontainerLogMonitorInterval: 3s\n\
         evictionHard: {nodefs.available: 0%, imagefs.available: 0%}\nimageGCHighThresholdPercent: 100\n",
    )
    .unwrap();
    let config = format!("config={}", config.display());
    up(&mut cluster, &containerd.endpoint(), &["--kubelet-arg", &config]);
    run(&cluster, &[(KUBECTLS[1], "log_rotation.txt", include_str!("sessions/log_rotation.txt"))]);
    must(cluster.knarr(&["reset", "--yes"]));
    drop(containerd);
    must(cluster.remove());
}
