//! The kubelet over a CRI socket: to the built-in runtime behind its own, and to Debian's containerd with runc.
//!
//! containerd has namespaces of its own for processes and mounts, so that nothing of it is left, and the cluster's
//! network. Packages: `containerd`, `runc`, `containernetworking-plugins`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::clients::{KUBECTL_SPDY, KUBECTLS};
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::{Cluster, Session};

use crate::{BUSYBOX, must};

fn up(cluster: &mut Cluster, endpoint: &str) {
    let flags =
        ["up", "--node-ip", NODE_IP, "--node-name", NODE_NAME, "--container-runtime-endpoint", endpoint];
    must(cluster.knarr(&flags));
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
    up(&mut cluster, &format!("unix://{}", socket.display()));
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
fn a_runtime_class_chooses_runc() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up());
    run(&cluster, &[(KUBECTLS[1], "runtime_class.txt", include_str!("sessions/runtime_class.txt"))]);
    must(cluster.remove());
}

#[test]
fn the_kubelet_runs_on_containerd() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let containerd = Containerd::start(&cluster);
    up(&mut cluster, &containerd.endpoint());
    run(&cluster, &[(KUBECTLS[1], "containerd.txt", include_str!("sessions/containerd.txt"))]);
    must(cluster.knarr(&["down"]));
    drop(containerd);
    must(cluster.remove());
}

/// A containerd of the test's own.
struct Containerd {
    child: Child,
    folder: PathBuf,
}

impl Containerd {
    fn start(cluster: &Cluster) -> Self {
        let folder = cluster.scratch().join("containerd");
        fs::create_dir_all(folder.join("net.d")).unwrap();
        fs::write(folder.join("net.d/10-test.conflist"), NETWORK).unwrap();
        let config = CONFIG.replace("FOLDER", &folder.display().to_string());
        fs::write(folder.join("config.toml"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = cluster.unlimited_command("unshare");
        command.args(["--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c"]).arg(format!(
            "for folder in /run/containerd /run/netns; do mkdir -p $folder; mount -t tmpfs tmpfs $folder; done; \
             exec containerd --config {}",
            folder.join("config.toml").display()
        ));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let containerd = Self { child, folder };
        containerd.wait(cluster);
        // With tags: what is called latest is pulled each time.
        for (name, command) in [("test.local/busybox:1", "sh"), ("test.local/pause:1", "pause")] {
            let image = image(&containerd.folder, name, command);
            containerd.ctr(cluster, &["--namespace=k8s.io", "images", "import", &image]);
        }
        containerd
    }

    fn endpoint(&self) -> String {
        format!("unix://{}", self.folder.join("sock").display())
    }

    /// Until it answers; `ctr` itself waits for the socket.
    fn wait(&self, cluster: &Cluster) {
        let socket = self.folder.join("sock");
        let waiting = cluster
            .command("sh")
            .args(["-c", "until test -S \"$0\" && ctr --address \"$0\" version; do :; done"])
            .arg(&socket)
            .output()
            .unwrap();
        assert!(waiting.status.success(), "{}", fs::read_to_string(self.folder.join("log")).unwrap());
    }

    fn ctr(&self, cluster: &Cluster, arguments: &[&str]) {
        let output = cluster
            .command("ctr")
            .arg("--address")
            .arg(self.folder.join("sock"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

/// Ends it and everything that it has started: they are one PID namespace.
impl Drop for Containerd {
    fn drop(&mut self) {
        let unshare = self.child.id();
        kill(Pid::from_raw(unshare.try_into().unwrap()), Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
    }
}

/// A docker-archive of busybox: what `ctr images import` reads.
fn image(folder: &Path, name: &str, command: &str) -> String {
    let place = folder.join(name.replace(['/', ':'], "-"));
    fs::create_dir_all(&place).unwrap();
    let layer = must(testkit::image::busybox(&place));
    let sum = Command::new("sha256sum").arg(&layer).output().unwrap();
    let digest = String::from_utf8(sum.stdout).unwrap().split_whitespace().next().unwrap().to_owned();
    let process = match command {
        "pause" => r#"["sleep", "1000000"]"#,
        other => &format!("[\"{other}\"]"),
    };
    let config = format!(
        r#"{{"architecture": "amd64", "os": "linux", "config": {{"Cmd": {process}, "Env": ["PATH=/bin"]}},
            "rootfs": {{"type": "layers", "diff_ids": ["sha256:{digest}"]}}}}"#
    );
    fs::write(place.join("config.json"), config).unwrap();
    let manifest =
        format!(r#"[{{"Config": "config.json", "RepoTags": ["{name}"], "Layers": ["busybox.tar"]}}]"#);
    fs::write(place.join("manifest.json"), manifest).unwrap();
    let archive = place.join("image.tar");
    let made = Command::new("tar")
        .current_dir(&place)
        .arg("--create")
        .arg("--file=image.tar")
        .args(["manifest.json", "config.json", "busybox.tar"])
        .status();
    assert!(made.unwrap().success());
    archive.display().to_string()
}

const CONFIG: &str = r#"
version = 2
root = "FOLDER/root"
state = "FOLDER/state"
[grpc]
  address = "FOLDER/sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "test.local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "FOLDER/net.d"
"#;

/// A link for each Pod and routes between them, so that Services work within one host without bridge filtering.
const NETWORK: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "test",
  "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.42.0.0/24"}]],
      "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/containerd/leases"}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}"#;
