//! A containerd of the test's own. It has namespaces of its own for processes and mounts, so that nothing of it is left.
#![allow(unreachable_pub)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::support::archive;

pub struct Containerd {
    child: Child,
    folder: PathBuf,
}

impl Containerd {
    pub fn start(folder: &Path) -> Self {
        let folder = folder.join("containerd");
        fs::create_dir_all(folder.join("net.d")).unwrap();
        fs::write(folder.join("net.d/10-test.conflist"), NETWORK).unwrap();
        let config = CONFIG.replace("FOLDER", &folder.display().to_string());
        fs::write(folder.join("config.toml"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=slave", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c"]).arg(format!(
            "for folder in /run/containerd /run/netns; do mkdir -p $folder; mount -t tmpfs tmpfs $folder; done; \
             mount --make-rshared /; exec containerd --config {}",
            folder.join("config.toml").display()
        ));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let containerd = Self { child, folder };
        let started = Instant::now();
        while !(containerd.socket().exists() && containerd.ctr(&["version"])) {
            let log = || fs::read_to_string(containerd.folder.join("log")).unwrap();
            assert!(started.elapsed() < Duration::from_secs(60), "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        let image = containerd.folder.join("image.tar");
        fs::write(&image, archive()).unwrap();
        assert!(containerd.ctr(&["--namespace=k8s.io", "images", "import", &image.display().to_string()]));
        containerd
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    fn ctr(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.socket()).args(arguments).output().unwrap().status.success()
    }
}

/// Ends it and everything that it has started: they are one PID namespace.
impl Drop for Containerd {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const CONFIG: &str = r#"
version = 2
root = "FOLDER/root"
state = "FOLDER/state"
[grpc]
  address = "FOLDER/sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "test.local/busybox:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "FOLDER/net.d"
"#;

const NETWORK: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "test",
  "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.42.0.0/24"}]],
      "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/containerd/leases"}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}"#;
