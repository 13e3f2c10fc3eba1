//! What a Pod's spec asks for, as its user sees it: one cluster, all Pods in it together.
//!
//! Each session starts its Pods at once and then looks at one after the other, so that they wait together.

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, cluster, must};

pub(crate) const SESSIONS: [(&str, &str); 9] = [
    ("pods_lifecycle.txt", include_str!("sessions/pods_lifecycle.txt")),
    ("pods_endings.txt", include_str!("sessions/pods_endings.txt")),
    ("pods_probes.txt", include_str!("sessions/pods_probes.txt")),
    ("pods_volumes.txt", include_str!("sessions/pods_volumes.txt")),
    ("pods_security.txt", include_str!("sessions/pods_security.txt")),
    ("pods_host.txt", include_str!("sessions/pods_host.txt")),
    ("pods_attach.txt", include_str!("sessions/pods_attach.txt")),
    ("pods_logs.txt", include_str!("sessions/pods_logs.txt")),
    ("resize.txt", include_str!("sessions/resize.txt")),
];
/// What containerd 1.6 cannot do, or does at other times; each says what and why.
const OF_THE_BUILT_IN_RUNTIME: [(&str, &str); 2] = [
    ("pods_recent.txt", include_str!("sessions/pods_recent.txt")),
    ("pods_rotated.txt", include_str!("sessions/pods_rotated.txt")),
];
/// What leads to Pods by addresses of a pool.
const OF_THE_POOL: [(&str, &str); 1] = [("load_balancer.txt", include_str!("sessions/load_balancer.txt"))];

/// All sessions at the same time, each in a namespace of its own; with this image.
pub(crate) fn failures(cluster: &Cluster, sessions: &[(&str, &str)], image: &str) -> Vec<String> {
    let run = |(name, script): (&str, &str)| {
        let script = &script.replace(BUSYBOX, image);
        let namespace = name.trim_end_matches(".txt").replace('_', "-");
        let ran =
            Session::new(cluster, KUBECTLS[1], &namespace).and_then(|session| session.run(name, script));
        ran.err().map(|error| format!("{error:#}"))
    };
    std::thread::scope(|scope| {
        let sessions: Vec<_> = sessions.iter().map(|session| scope.spawn(move || run(*session))).collect();
        sessions.into_iter().filter_map(|session| session.join().unwrap()).collect()
    })
}

#[test]
fn pods_do_what_their_specs_say() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    // So many Pods at once are more than the kubelet asks for by default, and what it says of that crowds out other events.
    must(cluster.up_with(&["--kubelet-arg=registry-qps=0", "--servicelb-pool=198.51.100.0-198.51.100.1"]));
    let sessions = [&SESSIONS[..], &OF_THE_BUILT_IN_RUNTIME, &OF_THE_POOL].concat();
    let failures = failures(&cluster, &sessions, BUSYBOX);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    must(cluster.remove());
}

#[test]
fn pods_mount_trust_bundles_where_the_features_are_on() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up_with(&["--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true"]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "trust"));
    must(session.run("trust_bundles.txt", include_str!("sessions/trust_bundles.txt")));
    drop(session);
    must(cluster.remove());
}

#[test]
fn pods_mount_certificates_where_the_feature_is_on() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up_with(&["--feature-gates=PodCertificateRequest=true"]));
    let session = must(Session::new(&cluster, KUBECTLS[1], "pod-certificates"));
    must(session.run("pod_certificates.txt", include_str!("sessions/pod_certificates.txt")));
    drop(session);
    must(cluster.remove());
}

#[test]
fn mounts_cross_into_and_out_of_containers_as_they_ask_for() {
    // All mounts are shared in this thread's and its children's namespace, but for one.
    sys::mount::own_namespace().unwrap();
    let cluster = cluster();
    let folder = |name: &str| {
        let folder = cluster.scratch().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    };
    let (shared, private) = (folder("shared"), folder("private"));
    folder("shared/m");
    folder("shared/n");
    sys::mount::bind(&private, &private, sys::mount::BindOptions::default()).unwrap();
    sys::mount::set_propagation(&private, sys::mount::Propagation::Private).unwrap();
    let script = include_str!("sessions/mount_propagation.txt");
    let script =
        script.replace("$SHARED", shared.to_str().unwrap()).replace("$PRIVATE", private.to_str().unwrap());
    let session = must(Session::new(&cluster, KUBECTLS[1], "propagation"));
    must(session.run("mount_propagation.txt", &script));
    drop(session);
    sys::mount::detach(&private).unwrap();
    must(cluster.remove());
}

/// One line per Pod: name, restarts, container, address.
const STATE: &str = "kubectl get pods -o jsonpath='{range .items[*]}{.metadata.name} \
    {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].containerID} \
    {.status.podIP}{\"\\n\"}{end}'";

fn kill(pids: &[i32]) {
    for pid in pids {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

#[test]
fn killed_shims_are_replaced_and_broken_networks_mended() {
    let cluster = cluster();
    let session = must(Session::new(&cluster, KUBECTLS[1], "mended"));
    must(session.run("mended_before.txt", include_str!("sessions/mended_before.txt")));
    let before = must(session.must(STATE));
    let shims = cluster.processes("knarr shim /");
    assert_eq!(shims.len(), 3, "one shim for each Pod");
    kill(&shims);
    must(session.run("mended_shims.txt", include_str!("sessions/mended_shims.txt")));
    assert_eq!(must(session.must(STATE)), before, "no container has noticed");
    assert!(cluster.processes("knarr shim /").iter().all(|pid| !shims.contains(pid)));
    // A lease that nobody has, and a Pod whose interface is gone: what a crash in the wrong moment leaves.
    must(session.run("mended_break.txt", include_str!("sessions/mended_break.txt")));
    kill(&cluster.processes("knarr node"));
    must(session.run("mended_network.txt", include_str!("sessions/mended_network.txt")));
    drop(session);
    must(cluster.remove());
}
