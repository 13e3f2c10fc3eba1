//! Persistent volumes as their users see them: the default class, claims, other kinds of volumes, and a node that is killed
//! while it mounts.

use std::path::{Path, PathBuf};

use testkit::clients::KUBECTLS;
use testkit::{Cluster, Process, Session};

use crate::{BUSYBOX, cluster, must};

fn session<'a>(cluster: &'a Cluster, namespace: &str) -> Session<'a> {
    must(Session::new(cluster, KUBECTLS[1], namespace))
}

/// The folders of volumes that the driver has.
fn volumes(cluster: &Cluster) -> usize {
    std::fs::read_dir(cluster.data_dir().join("csi-hostpath/volumes")).unwrap().count()
}

/// Everything that is mounted for volumes.
fn mounts(cluster: &Cluster) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = cluster.data_dir().canonicalize().unwrap();
    let points = all.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned);
    points.filter(|point| point.starts_with(folder.to_str().unwrap()) && point.contains("csi")).collect()
}

#[test]
fn claims_get_volumes_that_outlive_pods_and_go_with_their_claims() {
    let cluster = cluster();
    let session = session(&cluster, "storage");
    must(session.run("storage.txt", include_str!("sessions/storage.txt")));
    assert_eq!(volumes(&cluster), 0, "what is deleted takes its files along");
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    let folder = cluster.data_dir().join("csi-hostpath/volumes");
    let half_made = include_str!("sessions/storage_half_made.txt");
    must(session.run("storage_half_made.txt", &half_made.replace("$VOLUMES", folder.to_str().unwrap())));
    must(session.run("storage_kinds.txt", include_str!("sessions/storage_kinds.txt")));
    must(session.run("storage_stateful_sets.txt", include_str!("sessions/storage_stateful_sets.txt")));
    assert_eq!(volumes(&cluster), 0, "what is deleted takes its files along");
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    must(cluster.remove());
}

#[test]
fn volumes_change_grow_and_are_copied_and_what_they_hold_is_told() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up_with(&["--kubelet-arg=sync-frequency=1s"]));
    let session = session(&cluster, "attributes");
    must(session.run("storage_attributes.txt", include_str!("sessions/storage_attributes.txt")));
    drop(session);
    assert_eq!(volumes(&cluster), 0, "what is deleted takes its files along");
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    must(cluster.remove());
}

#[test]
fn a_drivers_chart_finds_the_kubelet_where_it_looks_for_it() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    let root = cluster.scratch().join("var-lib-kubelet");
    let flag = format!("--kubelet-arg=root-dir={}", root.display());
    must(cluster.up_with(&["--disable=csi-hostpath", &flag]));
    let root = root.canonicalize().unwrap();
    let script = include_str!("sessions/storage_chart.txt");
    let script = script
        .replace("$KUBELET_ROOT", root.to_str().unwrap())
        .replace("$KNARR", env!("CARGO_BIN_EXE_knarr"));
    let session = session(&cluster, "chart");
    must(session.run("storage_chart.txt", &script));
    drop(session);
    must(cluster.remove());
    assert!(!root.join("pods").exists(), "reset takes back what the kubelet has made");
}

/// The host-path driver under another name, beside the cluster: with where it keeps volumes and where it listens.
fn beside(cluster: &Cluster, name: &str, options: &[&str]) -> (Process, String, PathBuf) {
    let state = cluster.scratch().join(name).to_str().unwrap().to_owned();
    let kubelet = cluster.data_dir().join("kubelet");
    let socket = kubelet.join(format!("plugins/{name}.sock"));
    let registration = kubelet.join(format!("plugins_registry/{name}-reg.sock"));
    let places = ["--state-dir", &state, "--endpoint", socket.to_str().unwrap()];
    let registration = ["--registration-endpoint", registration.to_str().unwrap()];
    let all = [&["csi-hostpath", "--node-name=test"], &places[..], &registration, options].concat();
    (must(cluster.start(name, &all)), state, socket)
}

/// Has a driver make a volume.
fn make(socket: &Path, name: &str) {
    use csi::v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
    let capability = csi::v1::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    };
    let request = csi::v1::CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![capability],
        ..Default::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { csi::client::Client::new(socket).create_volume(request).await }).unwrap();
}

#[test]
fn volumes_of_kinds_of_old_are_attached_and_mounted_by_the_drivers_that_have_taken_them_over() {
    let cluster = cluster();
    let (driver, state, socket) = beside(&cluster, "ebs", &["--driver-name=ebs.csi.aws.com"]);
    let session = session(&cluster, "migrated");
    must(session.must(
        "eventually 'kubectl get csinode test -o jsonpath={.spec.drivers[*].name} | grep ebs.csi.aws.com'",
    ));
    make(&socket, "vol-1");
    make(&socket, "vol-2");
    let script = include_str!("sessions/storage_migrated.txt").replace("$STATE", &state);
    must(session.run("storage_migrated.txt", &script));
    let few = ["--driver-name=few.example.com", "--max-volumes-per-node=1"];
    let (few, _, socket) = beside(&cluster, "few", &few);
    must(session.must(
        "eventually 'kubectl get csinode test -o jsonpath={.spec.drivers[*].name} | grep few.example.com'",
    ));
    make(&socket, "one");
    make(&socket, "two");
    must(session.run("storage_few.txt", include_str!("sessions/storage_few.txt")));
    drop(session);
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    must(driver.stop());
    must(few.stop());
    must(cluster.remove());
}

#[test]
fn volumes_stay_with_their_pods_when_the_supervisor_is_killed() {
    let mut cluster = cluster();
    let up = include_str!("sessions/storage_killed_up.txt");
    let first = session(&cluster, "supervisor");
    must(first.run("storage_killed_claims.txt", include_str!("sessions/storage_killed_claims.txt")));
    must(first.must("kubectl apply -f pods.yaml"));
    must(first.run("storage_killed_up.txt", up));
    drop(first);
    let mounted = mounts(&cluster);
    assert!(!mounted.is_empty());
    let supervisor: i32 =
        std::fs::read_to_string(cluster.data_dir().join("knarr.pid")).unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    must(cluster.up());
    let then = session(&cluster, "supervisor");
    must(then.run("storage_killed_up.txt", up));
    let restarts = "kubectl get pods -o jsonpath='{.items[*].status.containerStatuses[0].restartCount}'";
    assert_eq!(must(then.must(restarts)).trim(), "0 0 0");
    assert_eq!(mounts(&cluster), mounted, "what was mounted stays, and nothing is mounted twice");
    must(then.must("kubectl delete -f pods.yaml"));
    must(then.run("storage_killed_after.txt", include_str!("sessions/storage_killed_after.txt")));
    drop(then);
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    assert_eq!(volumes(&cluster), 0, "what is deleted takes its files along");
    must(cluster.remove());
}

#[test]
fn a_node_that_is_killed_while_it_mounts_and_unmounts_leaves_nothing_behind() {
    let cluster = cluster();
    let session = session(&cluster, "killed");
    let kill = || {
        for node in cluster.processes("knarr node") {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(node), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
        }
    };
    must(session.run("storage_killed_claims.txt", include_str!("sessions/storage_killed_claims.txt")));
    for _ in 0..3 {
        must(session.must("kubectl apply -f pods.yaml"));
        kill();
        must(session.run("storage_killed_up.txt", include_str!("sessions/storage_killed_up.txt")));
        must(session.must("kubectl delete -f pods.yaml --wait=false"));
        kill();
        must(session.must("kubectl wait --for=delete pod --all --timeout=90s"));
    }
    assert_eq!(mounts(&cluster), [""; 0], "nothing is left mounted");
    must(session.run("storage_killed_after.txt", include_str!("sessions/storage_killed_after.txt")));
    assert_eq!(volumes(&cluster), 0, "what is deleted takes its files along");
    must(cluster.remove());
}
