//! The kubelet as its operator sees it: configuration, Pods from files, what it measures, whom it refuses and evicts.

use std::path::PathBuf;

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};

/// Read at each start of the node.
const CONFIGURATION: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 42
podPidsLimit: 64
kubeReserved: {cpu: 100m, memory: 64Mi}
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
evictionPressureTransitionPeriod: 1s
";

fn write(folder: PathBuf, name: &str, text: &str) {
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), text).unwrap();
}

fn configure(cluster: &Cluster, more: &str) {
    let folder = cluster.data_dir().join("agent/etc/kubelet.conf.d");
    write(folder, "10-test.conf", &format!("{CONFIGURATION}{more}"));
}

#[test]
fn a_kubelet_does_what_its_operator_says() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    configure(&cluster, "");
    must(cluster.up_with(&["--kubelet-arg=max-pods=40"]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "operator"));
    let sessions = [
        ("kubelet_static.txt", include_str!("sessions/kubelet_static.txt")),
        ("kubelet_metrics.txt", include_str!("sessions/kubelet_metrics.txt")),
        ("autoscaler.txt", include_str!("sessions/autoscaler.txt")),
        ("kubelet_limits.txt", include_str!("sessions/kubelet_limits.txt")),
        ("kubelet_rules.txt", include_str!("sessions/kubelet_rules.txt")),
    ];
    let failures = sessions.into_iter().filter_map(|(name, script)| session.run(name, script).err());
    let mut failures: Vec<_> = failures.map(|error| format!("{error:#}")).collect();
    // The disk is all but full, says the operator: who runs must go, and nobody comes.
    configure(&cluster, "evictionHard: {nodefs.available: 99.999%}\n");
    for pid in cluster.processes("knarr node") {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    let pressed = session.run("kubelet_pressure.txt", include_str!("sessions/kubelet_pressure.txt"));
    failures.extend(pressed.err().map(|error| format!("{error:#}")));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    drop(session);
    must(cluster.remove());
}

/// What is reserved is as much as the first hard threshold and the reserved memory keep.
const ALONE: &str = "cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 164Mi}}]
";

#[test]
fn a_kubelet_gives_parts_of_its_machine_to_one_container_alone() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    configure(&cluster, ALONE);
    must(cluster.up());
    let session = must(Session::new(&cluster, KUBECTLS[1], "alone"));
    must(session.run("kubelet_alone.txt", include_str!("sessions/kubelet_alone.txt")));
    drop(session);
    must(cluster.remove());
}
