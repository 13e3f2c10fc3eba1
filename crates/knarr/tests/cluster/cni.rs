//! Pod networks, as their users see them: the built-in one in-process, its plugins as programs under our runtime and under
//! containerd, and one that a DaemonSet installs while the cluster runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::clients::KUBECTLS;
use testkit::containerd::DEBIAN_PLUGINS;
use testkit::{Cluster, Containerd, Session};

use crate::must;

/// With a tag: containerd pulls what is called latest each time.
const IMAGE: &str = "test.local/busybox:1";

fn session(cluster: &Cluster, name: &str, script: &str) {
    let session = must(Session::new(cluster, KUBECTLS[1], name));
    must(session.run(&format!("{name}.txt"), script));
}

/// A Pod that has all that a network can give, for the reset to take back.
fn leave_one(cluster: &Cluster) {
    session(cluster, "left", include_str!("sessions/left.txt"));
    session(cluster, "left-link", "$ ip -o link show type ifb 2>/dev/null | wc -l\n1\n");
}

/// What the built-in network does, whoever calls its plugins.
fn suite(cluster: &Cluster) {
    session(cluster, "pod-network", include_str!("sessions/pod_network.txt"));
    session(cluster, "bandwidth", include_str!("sessions/bandwidth.txt"));
}

fn knarr(cluster: &Cluster, arguments: &[&str]) {
    let output = cluster.command(env!("CARGO_BIN_EXE_knarr")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// What the built-in runtime says of annotations that nobody can heed. containerd 1.6 says the same, but now and then
/// keeps the sandbox, whose network it cannot take back for the same reason, so that the Pod never ends.
fn refusals(cluster: &Cluster) {
    session(cluster, "bandwidth-refused", include_str!("sessions/bandwidth_refused.txt"));
}

/// The plugins as programs in `folder`, and what they keep.
struct Programs(std::path::PathBuf);

impl Programs {
    fn install(cluster: &Cluster, folder: &Path) -> Self {
        let programs = Self(folder.to_owned());
        let (bin, net, state) = (programs.path("bin"), programs.path("net.d"), programs.path("kept"));
        let folders = ["--bin-dir", &bin, "--conf-dir", &net, "--state-dir", &state];
        let data_dir = cluster.data_dir().display().to_string();
        let all = ["cni", "install", "--pod-cidr", "10.42.0.0/24", "--data-dir", &data_dir];
        knarr(cluster, &[&all[..], &folders].concat());
        programs
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// No Pod is there any more: what one had is taken back soon after its interface is.
    fn check_empty(&self) {
        let (leases, rules) = (self.0.join("kept/leases/knarr"), self.0.join("kept/state/knarr/rules.json"));
        let begun = Instant::now();
        loop {
            let left = fs::read_dir(&leases).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = left.collect();
            if left == ["last_reserved_ip.0"] && !rules.exists() {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "of Pods that are gone: {left:?} {}",
                rules.exists()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn uninstall(&self, cluster: &Cluster) {
        let (bin, net) = (self.path("bin"), self.path("net.d"));
        knarr(cluster, &["cni", "uninstall", "--bin-dir", &bin, "--conf-dir", &net]);
        assert_eq!(fs::read_dir(&bin).unwrap().count() + fs::read_dir(&net).unwrap().count(), 0);
    }
}

#[test]
fn the_built_in_network_connects_pods_and_leaves_nothing_of_them() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(IMAGE));
    must(cluster.up());
    suite(&cluster);
    refusals(&cluster);
    leave_one(&cluster);
    must(cluster.remove());
}

#[test]
fn daemons_find_network_namespaces_by_the_names_that_plugins_are_told() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(IMAGE));
    must(cluster.up());
    session(&cluster, "netns-names", include_str!("sessions/netns_names.txt"));
    let path = fs::read_to_string(cluster.data_dir().join("../path")).unwrap();
    let node = cluster.processes("knarr node")[0];
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(node), nix::sys::signal::Signal::SIGKILL).unwrap();
    let script = "$ eventually 'test \"$(cat \"$DATA_DIR\"/../path)\" -ef \"$(ls -d \"$DATA_DIR\"/runtime/sandboxes/*/netns)\"'\n";
    session(&cluster, "netns-names-again", script);
    // With a Pod that has one.
    must(cluster.remove());
    assert!(!Path::new(path.trim()).exists());
}

#[test]
fn its_plugins_do_the_same_as_programs() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(IMAGE));
    let programs = Programs::install(&cluster, &cluster.scratch().join("cni"));
    let (bin, net) = (programs.path("bin"), programs.path("net.d"));
    let told = Command::new(format!("{bin}/knarr-bandwidth")).env_remove("CNI_COMMAND").output().unwrap();
    let (says, lists) = ("CNI bandwidth plugin knarr v", "\nCNI protocol versions supported: 0.3.0, ");
    let text = String::from_utf8(told.stderr).unwrap();
    assert!(told.status.success() && text.starts_with(says) && text.contains(lists), "{text}");
    must(cluster.up_with(&["--cni-conf-dir", &net, "--cni-bin-dir", &bin]));
    suite(&cluster);
    refusals(&cluster);
    programs.check_empty();
    leave_one(&cluster);
    must(cluster.knarr(&["reset", "--yes"]));
    programs.check_empty();
    programs.uninstall(&cluster);
    must(cluster.remove());
}

#[test]
fn its_plugins_do_the_same_for_containerd() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    let programs = Programs::install(&cluster, &Containerd::folder(cluster.scratch()));
    let containerd = must(Containerd::start(&cluster, &programs.path("bin"), ""));
    crate::cri::up(&mut cluster, &containerd.endpoint(), &[]);
    suite(&cluster);
    programs.check_empty();
    must(cluster.knarr(&["reset", "--yes"]));
    programs.uninstall(&cluster);
    drop(containerd);
    must(cluster.remove());
}

#[test]
fn a_network_that_a_daemon_set_installs_is_used_at_once_and_what_it_says_is_told() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(IMAGE));
    let scratch = cluster.scratch().to_owned();
    let (bin, net) = (scratch.join("opt/cni/bin"), scratch.join("etc/cni/net.d"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&net).unwrap();
    let linked = Command::new("ln").arg("-s").arg(format!("{DEBIAN_PLUGINS}/ipvlan")).arg(&bin).status();
    assert!(linked.unwrap().success());
    let first = r#"{"cniVersion": "1.0.0", "name": "first", "plugins": [{"type": "loopback"}]}"#;
    fs::write(net.join("10-first.conflist"), first).unwrap();
    let (bin, net) = (bin.display().to_string(), net.display().to_string());
    must(cluster.up_with(&["--cni-conf-dir", &net, "--cni-bin-dir", &bin]));
    session(&cluster, "cni-install", include_str!("sessions/cni_install.txt"));
    must(cluster.remove());
}
