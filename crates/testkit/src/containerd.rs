//! Debian's containerd with runc, for a cluster that runs its containers by it, and for itself.
//!
//! It has a namespace of its own for processes, so that nothing of it is left, and a test's network. What is mounted
//! by it and by the test reaches the other, as on a host, which the kubelet's volumes and mount propagation need.
//! Packages: `containerd`, `runc`, `containernetworking-plugins`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};

use crate::Cluster;
use crate::cluster::{COMMAND_SECONDS_MAX, text};

/// The image that it has for Pods: busybox with a shell. With a tag: what is called latest is pulled each time.
pub const IMAGE: &str = "test.local/busybox:1";
/// Folders of the host that it has to itself.
const OWN: [&str; 2] = ["/run/containerd", "/run/netns"];
const PAUSE: &str = "test.local/pause:1";

/// A containerd of the test's own; it ends with this, and all that it has started.
#[derive(Debug)]
pub struct Containerd {
    child: Child,
    folder: PathBuf,
}

impl Containerd {
    /// Starts it in the cluster's network and folder: [`Containerd::start_in`]. Moves the calling thread into a mount
    /// namespace of its own first, for good; threads and processes that it starts are in there too.
    ///
    /// # Errors
    /// If it does not start; the message has its log.
    pub fn start(cluster: &Cluster, bin_dir: &str, network: &str) -> Result<Self> {
        sys::mount::own_namespace()?;
        Self::start_in(cluster.scratch(), cluster.unlimited_command("unshare"), bin_dir, network)
    }

    /// Starts it with a folder of its own in `folder` by `unshare`, which is that program in the network that it is to
    /// have; returns when it answers and has [`IMAGE`]. Its plugins are those in `bin_dir`, its network this conflist,
    /// unless it is empty: then what is put into `net.d` of its folder. For a thread with mounts of its own
    /// ([`sys::mount::own_namespace`]), which this end of them takes back what is mounted.
    ///
    /// # Errors
    /// If it does not start; the message has its log.
    pub fn start_in(folder: &Path, mut unshare: Command, bin_dir: &str, network: &str) -> Result<Self> {
        let folder = Self::folder(folder);
        fs::create_dir_all(folder.join("net.d"))?;
        if !network.is_empty() {
            fs::write(folder.join("net.d/10-test.conflist"), network)?;
        }
        let config = CONFIG.replace("FOLDER", &folder.display().to_string());
        let config = config.replace("PAUSE", PAUSE).replace("BIN_DIR", bin_dir);
        fs::write(folder.join("config.toml"), config)?;
        let log = fs::File::create(folder.join("log"))?;
        unshare.args([
            "--mount",
            "--propagation=unchanged",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        unshare.args(["sh", "-c"]).arg(format!(
            "for folder in {}; do mkdir -p $folder; mount -t tmpfs tmpfs $folder; done; \
             exec containerd --config {}",
            OWN.join(" "),
            folder.join("config.toml").display()
        ));
        let child = unshare.stdout(log.try_clone()?).stderr(log).spawn().context("start containerd")?;
        let containerd = Self { child, folder };
        containerd.wait()?;
        for (name, process) in [(IMAGE, r#"["sh"]"#), (PAUSE, r#"["sleep", "1000000"]"#)] {
            containerd.import(&image(&containerd.folder, name, process)?)?;
        }
        Ok(containerd)
    }

    /// The folder that it has everything of its own in.
    #[must_use]
    pub fn folder(folder: &Path) -> PathBuf {
        folder.join("containerd")
    }

    /// Reads a docker-archive; what has the names of its images are these from now on.
    ///
    /// # Errors
    /// If it does not answer, or cannot read it.
    pub fn import(&self, archive: &Path) -> Result<()> {
        self.ctr(&["--namespace=k8s.io", "images", "import", &archive.display().to_string()]).map(drop)
    }

    /// The ids of its containers, each on a line.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn containers(&self) -> Result<String> {
        self.ctr(&["--namespace=k8s.io", "containers", "list", "--quiet"])
    }

    /// The process that all of it comes from.
    ///
    /// # Errors
    /// Never: process ids are small.
    pub fn process(&self) -> Result<i32> {
        Ok(self.child.id().try_into()?)
    }

    /// For `--container-runtime-endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.folder.join("sock").display())
    }

    /// Until it answers; `ctr` itself waits for the socket.
    fn wait(&self) -> Result<()> {
        let waiting = limited("sh")
            .args(["-c", "until test -S \"$0\" && ctr --address \"$0\" version; do :; done"])
            .arg(self.folder.join("sock"))
            .output()?;
        if !waiting.status.success() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            bail!("containerd does not answer: {}\n{log}", text(&waiting));
        }
        Ok(())
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let output =
            limited("ctr").arg("--address").arg(self.folder.join("sock")).args(arguments).output()?;
        if !output.status.success() {
            bail!("`ctr {}` failed: {}", arguments.join(" "), text(&output));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A program that is ended when it takes too long.
fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", COMMAND_SECONDS_MAX, program]);
    command
}

/// They are one PID namespace.
impl Drop for Containerd {
    fn drop(&mut self) {
        if self.child.kill().and_then(|()| self.child.wait()).is_err() {
            // It had ended before.
        }
        for folder in OWN.map(Path::new).into_iter().chain([self.folder.as_path()]) {
            if let Err(error) = sys::mount::detach_below(folder) {
                eprintln!("what containerd had mounted stays: {error}");
            }
        }
    }
}

/// A docker-archive of busybox: what `ctr images import` reads. `process` is a list in JSON.
fn image(folder: &Path, name: &str, process: &str) -> Result<PathBuf> {
    let place = folder.join(name.replace(['/', ':'], "-"));
    fs::create_dir_all(&place)?;
    let layer = crate::image::busybox(&place)?;
    let sum = String::from_utf8(Command::new("sha256sum").arg(&layer).output()?.stdout)?;
    let digest = sum.split_whitespace().next().context("sha256sum printed nothing")?;
    let config = format!(
        r#"{{"architecture": "amd64", "os": "linux", "config": {{"Cmd": {process}, "Env": ["PATH=/bin"]}},
            "rootfs": {{"type": "layers", "diff_ids": ["sha256:{digest}"]}}}}"#
    );
    fs::write(place.join("config.json"), config)?;
    let manifest =
        format!(r#"[{{"Config": "config.json", "RepoTags": ["{name}"], "Layers": ["busybox.tar"]}}]"#);
    fs::write(place.join("manifest.json"), manifest)?;
    let mut tar = Command::new("tar");
    tar.current_dir(&place).args([
        "--create",
        "--file=image.tar",
        "manifest.json",
        "config.json",
        "busybox.tar",
    ]);
    let made = tar.output()?;
    if !made.status.success() {
        bail!("tar failed: {}", text(&made));
    }
    Ok(place.join("image.tar"))
}

/// The folder of Debian's `containernetworking-plugins`.
pub const DEBIAN_PLUGINS: &str = "/usr/lib/cni";

const CONFIG: &str = r#"
version = 2
root = "FOLDER/root"
state = "FOLDER/state"
[grpc]
  address = "FOLDER/sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "PAUSE"
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "BIN_DIR"
    conf_dir = "FOLDER/net.d"
"#;

/// A link for each Pod and routes between them, so that Services work within one host without bridge filtering.
pub const PTP: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "test",
  "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.42.0.0/24"}]],
      "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/containerd/leases"}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}"#;
