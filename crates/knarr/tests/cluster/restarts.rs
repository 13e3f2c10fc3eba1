//! What is stopped or killed comes back: objects, running Pods with unchanged restart counts, and convergence.

use std::path::Path;
use std::time::{Duration, Instant};

use auth::pki::{Authority, Subject, kubeconfig};
use jiff::Timestamp;
use testkit::clients::KUBECTLS;
use testkit::cluster::NODE_NAME;
use testkit::{Cluster, Session};

use crate::{BUSYBOX, cluster, must};

/// One line per Pod: name, restarts, when its container started, since when it is ready, address.
const PODS: &str = "kubectl get pods -o jsonpath='{range .items[*]}{.metadata.name} \
    {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.running.startedAt} \
    {.status.conditions[?(@.type==\"Ready\")].lastTransitionTime} {.status.podIP}{\"\\n\"}{end}'";

/// What is mounted for the volumes of Pods, on the host.
fn mounts(cluster: &Cluster) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = cluster.data_dir().canonicalize().unwrap();
    let points = all.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned);
    points.filter(|point| point.starts_with(folder.to_str().unwrap()) && point.contains("volumes")).collect()
}

fn kubectl(cluster: &Cluster) -> Session<'_> {
    must(Session::new(cluster, KUBECTLS[1], "steady"))
}

/// Pods, and what is mounted for them.
fn start_workload(cluster: &Cluster) -> (String, Vec<String>) {
    let session = kubectl(cluster);
    must(session.run("before.txt", include_str!("sessions/before.txt")));
    let mounts = mounts(cluster);
    assert!(mounts.len() >= 2, "a claim's and one of memory: {mounts:?}");
    (must(session.must(PODS)), mounts)
}

fn check_workload(cluster: &Cluster, (pods, mounted): &(String, Vec<String>)) {
    let session = kubectl(cluster);
    must(session.run("after.txt", include_str!("sessions/after.txt")));
    assert_eq!(
        must(session.must(PODS)),
        *pods,
        "the same Pods and containers run, and were ready all the time"
    );
    assert_eq!(mounts(cluster), *mounted, "volumes are mounted once, and stay so");
}

/// Kills these processes as a crash would.
fn kill(pids: &[i32]) {
    for pid in pids {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

/// Makes the folder what it was when one authority signed everything. An administrator has a copy of the kubeconfig.
fn one_authority_only(cluster: &Cluster) {
    let [tls, agent] = ["server/tls", "agent/tls"].map(|folder| cluster.data_dir().join(folder));
    for name in ["client-ca", "kubelet-serving-ca", "front-proxy-ca", "front-proxy-client"] {
        for kind in ["crt", "key"] {
            std::fs::remove_file(tls.join(format!("{name}.{kind}"))).unwrap();
        }
    }
    std::fs::remove_file(tls.join("client-ca-bundle.crt")).unwrap();
    std::fs::remove_file(agent.join("client-ca.crt")).unwrap();
    let (old, now) = (Authority::load_or_create(&tls, Timestamp::now()).unwrap(), Timestamp::now());
    let node = format!("system:node:{NODE_NAME}");
    old.issue(&agent, &Subject::client("kubelet", &node, "system:nodes"), now).unwrap();
    let copied = Subject::client("copied", "system:admin", "system:masters");
    let copied = old.issue(cluster.scratch(), &copied, now).unwrap();
    let copied = kubeconfig("https://127.0.0.1:6443", old.certificate_pem(), "admin", &copied);
    std::fs::write(cluster.scratch().join("copied.kubeconfig"), copied).unwrap();
}

/// Certificates that the new authority of clients has signed, for the session.
fn certify(cluster: &Cluster, users: &[&str]) {
    let tls = cluster.data_dir().join("server/tls");
    let clients = Authority::named(&tls, "client-ca", Timestamp::now()).unwrap();
    for user in users {
        clients.issue(cluster.scratch(), &Subject::user(user, user), Timestamp::now()).unwrap();
    }
    for name in ["kubelet-serving-ca.crt", "ca.crt", "front-proxy-client.crt", "front-proxy-client.key"] {
        std::fs::copy(tls.join(name), cluster.scratch().join(name)).unwrap();
    }
}

#[test]
fn down_and_up_keep_objects_and_running_pods() {
    let mut cluster = cluster();
    let pods = start_workload(&cluster);
    let former =
        "create clusterrolebinding knarr:node-proxier --clusterrole=system:node-proxier --group=system:nodes";
    must(kubectl(&cluster).must(&format!("kubectl {former}")));
    must(cluster.knarr(&["down"]));
    assert!(cluster.processes("knarr control-plane").is_empty(), "no part is left");
    one_authority_only(&cluster);
    must(cluster.up());
    check_workload(&cluster, &pods);
    certify(&cluster, &["kube-apiserver-kubelet-client", "scraper"]);
    must(kubectl(&cluster).run("authorities.txt", include_str!("sessions/authorities.txt")));
    must(cluster.remove());
}

#[test]
fn up_right_after_the_supervisor_was_killed_waits_for_the_end_of_its_parts() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&["--disable-agent"]));
    for _ in 0..3 {
        let pid = std::fs::read_to_string(cluster.data_dir().join("knarr.pid")).unwrap();
        kill(&[pid.parse().unwrap()]);
        must(cluster.up_with(&["--disable-agent"]));
    }
    assert_eq!(cluster.processes("knarr control-plane").len(), 1);
    let log = std::fs::read_to_string(cluster.data_dir().join("knarr.log")).unwrap();
    assert!(!log.contains("started again"), "the first attempt succeeds each time: {log}");
    must(cluster.remove());
}

#[test]
fn killed_parts_come_back_and_containers_never_notice() {
    let mut cluster = cluster();
    let pods = start_workload(&cluster);
    for part in ["knarr control-plane", "knarr node"] {
        let before = cluster.processes(part);
        assert_eq!(before.len(), 1, "{part}");
        kill(&before);
        check_workload(&cluster, &pods);
        assert_ne!(cluster.processes(part), before, "{part} is another process");
    }
    // The supervisor takes its parts with it; the containers stay.
    let supervisor: i32 =
        std::fs::read_to_string(cluster.data_dir().join("knarr.pid")).unwrap().parse().unwrap();
    kill(&[supervisor]);
    must(cluster.up());
    check_workload(&cluster, &pods);
    must(cluster.remove());
}

/// Creates ConfigMaps one by one, kills the process PID in the middle, and prints each acknowledged one that is lost.
const WRITE_AND_KILL: &str = r#"
for part in client-certificate client-key; do kubectl config view --raw --minify -o "jsonpath={.users[0].user.$part-data}" | base64 -d > $part.pem; done
kubectl config view --raw --minify -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d > ca.pem
server=$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
for number in $(seq 100 250); do
  [ $number = 150 ] && kill -KILL PID
  code=$(curl --silent --max-time 5 --cacert ca.pem --cert client-certificate.pem --key client-key.pem -o /dev/null -w '%{http_code}' \
    -H 'Content-Type: application/json' "$server/api/v1/namespaces/steady/configmaps" \
    -d '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"written-'$number'"}}')
  [ "$code" = 201 ] && echo configmap/written-$number >> acknowledged
done
eventually 'kubectl get --raw /readyz >/dev/null'
kubectl get configmaps -o name | sort > there
sort acknowledged | comm -23 - there
test $(wc -l < acknowledged) -ge 50
"#;

#[test]
fn no_acknowledged_write_is_lost_by_a_kill() {
    let cluster = cluster();
    let session = kubectl(&cluster);
    let control_plane = cluster.processes("knarr control-plane");
    assert_eq!(control_plane.len(), 1);
    let script = WRITE_AND_KILL.replace("PID", &control_plane[0].to_string());
    assert_eq!(must(session.must(&script)), "", "every acknowledged object is there");
    drop(session);
    must(cluster.remove());
}

#[test]
fn a_reboot_makes_pods_anew_and_counts_one_restart() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.boot());
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up());
    must(kubectl(&cluster).run("reboot_before.txt", include_str!("sessions/reboot_before.txt")));
    must(cluster.reboot());
    must(cluster.up());
    must(kubectl(&cluster).run("reboot_after.txt", include_str!("sessions/reboot_after.txt")));
    must(cluster.remove());
}

/// The number of the file that a process runs: shims see theirs in a mount of their own, which has no path.
fn program(pid: i32) -> u64 {
    inode(format!("/proc/{pid}/exe").as_ref())
}

fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
}

/// Puts a copy of the binary there as a package manager would: whoever runs the one before goes on with that.
fn install(path: &Path, stamp: &str) {
    // What follows the last section of an executable is nobody's. Written by a process of its own: what another test is
    // just starting would have it open, too, and what is open for writing cannot be run.
    let script = r#"cp "$0" "$1.new" && printf %s "$2" >> "$1.new" && mv "$1.new" "$1""#;
    let mut install = std::process::Command::new("sh");
    let install = install.args(["-c", script, env!("CARGO_BIN_EXE_knarr")]).arg(path).arg(stamp);
    assert!(install.status().unwrap().success());
}

/// The shims, once there are as many: that of a Pod that is gone ends by itself.
fn shims(cluster: &Cluster, count: usize) -> Vec<i32> {
    let begun = Instant::now();
    loop {
        let found = cluster.processes("knarr shim /");
        if found.len() == count {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{found:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn another_build_takes_over_what_the_one_before_has_started() {
    // Who gives up root must still reach it.
    let everyone_may_enter = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let folder = tempfile::Builder::new().permissions(everyone_may_enter).tempdir().unwrap();
    let path = folder.path().join("knarr");
    install(&path, "one build");
    let first = inode(&path);
    let mut cluster = Cluster::new(path.to_str().unwrap()).unwrap();
    must(cluster.up());
    let pods = start_workload(&cluster);
    let before = shims(&cluster, 3);

    must(cluster.knarr(&["down"]));
    install(&path, "another");
    must(cluster.up());
    check_workload(&cluster, &pods);
    assert_eq!(shims(&cluster, 3), before, "the shims of the build before are served");
    for pid in &before {
        assert_eq!(program(*pid), first);
    }
    assert_eq!(program(cluster.processes("knarr node")[0]), inode(&path));

    // Those of the build before that die are replaced by this build's, and the containers never notice.
    kill(&before);
    check_workload(&cluster, &pods);
    let now = shims(&cluster, 3);
    assert!(now.iter().all(|pid| program(*pid) == inode(&path)), "{now:?}");
    must(cluster.remove());
}
