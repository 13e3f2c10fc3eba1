//! A throw-away cluster: the real binary, in a folder and a network namespace that exist for one test.
//!
//! The namespace has `lo` and a bridge with 192.0.2.1/24 (RFC 5737), no default route and no neighbour: no packet
//! can leave. Commands enter it with `nsenter --net=`, which leaves `/sys` and the cgroups as they are.

mod reboot;

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use sys::netns::NetNs;
use tempfile::TempDir;

use crate::inventory::{Inspector, Inventory, Seen};
use crate::lan::{HOST_LINK, Lan};
use crate::leftovers::{self, Noted};

/// The Node's address inside the namespace.
pub const NODE_IP: &str = "192.0.2.1";
/// The Node's name.
pub const NODE_NAME: &str = "test";
/// Any one command gets this long.
pub(crate) const COMMAND_SECONDS_MAX: &str = "120";
const LOG_LINES: usize = 60;
/// A KubeletConfiguration for tests: how full the machine's disk is does not matter to them, as to kind's clusters.
const KUBELET_CONFIGURATION: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi, nodefs.available: 0%, imagefs.available: 0%, nodefs.inodesFree: 5%}
imageGCHighThresholdPercent: 100
";

/// A cluster, from nothing to nothing; removed when dropped.
#[derive(Debug)]
pub struct Cluster {
    knarr: PathBuf,
    namespace: NetNs,
    folder: TempDir,
    noted: Noted,
    /// Folders of parts that run beside the cluster; they go before it.
    beside: Vec<PathBuf>,
    /// Disks of the test's own in the cluster's folder, where they are mounted.
    disks: Vec<PathBuf>,
    /// What of it is found only by who has seen it.
    seen: Seen,
    /// The file that its host's boot id is read from, if that is not the machine's.
    boot_id: Option<PathBuf>,
    boots: u32,
    /// A folder of programs that its host has before all others.
    programs: Option<PathBuf>,
    is_removed: bool,
}

impl Cluster {
    /// Makes the folder and the namespace; nothing runs yet. `knarr` is the binary, `CARGO_BIN_EXE_knarr`.
    ///
    /// # Errors
    /// If not root, or the namespace cannot be made.
    pub fn new(knarr: &str) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("whole-cluster tests make network namespaces: run them as root");
        }
        Self::inside(knarr, host_namespace()?)
    }

    /// The part of a cluster that runs on host `number` of a wire.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn on_host(knarr: &str, lan: &Lan, number: u8) -> Result<Self> {
        let path = format!("/proc/self/fd/{}", lan.host(number).as_fd().as_raw_fd());
        Self::inside(knarr, NetNs::open(Path::new(&path))?)
    }

    fn inside(knarr: &str, namespace: NetNs) -> Result<Self> {
        // The control plane's unprivileged user must be able to reach its folder.
        let everyone_may_enter = std::fs::Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().prefix("knarr-").permissions(everyone_may_enter).tempdir()?;
        let cluster = Self {
            knarr: knarr.into(),
            namespace,
            folder,
            noted: Noted::default(),
            beside: Vec::new(),
            disks: Vec::new(),
            seen: Seen::default(),
            boot_id: None,
            boots: 0,
            programs: None,
            is_removed: false,
        };
        std::fs::write(cluster.kubelet_configuration(), KUBELET_CONFIGURATION)?;
        let flags = format!("kubelet-arg: ['config={}']\n", cluster.kubelet_configuration().display());
        std::fs::write(cluster.configuration(), flags)?;
        Ok(cluster)
    }

    /// The file that `knarr up` and `knarr agent` have their flags from, unless they are given.
    fn configuration(&self) -> PathBuf {
        self.folder.path().join("flags-of-tests.yaml")
    }

    /// The kubelet's own file of every Node here.
    fn kubelet_configuration(&self) -> PathBuf {
        self.folder.path().join("kubelet-of-tests.yaml")
    }

    /// The cluster's data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The data directory of a part that runs beside the cluster, which is removed with it.
    #[must_use]
    pub fn data_dir_beside(&mut self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        self.beside.push(folder.clone());
        folder
    }

    /// A folder for the test's own files; gone with the cluster.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    /// A command inside the namespace, ended when it takes too long.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.unlimited_command("timeout");
        command.args(["--kill-after=2", COMMAND_SECONDS_MAX]).arg(program);
        command
    }

    /// A command inside the namespace, which whoever starts it must end; its process is the program's own.
    #[must_use]
    pub fn unlimited_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let namespace =
            format!("--net=/proc/{}/fd/{}", std::process::id(), self.namespace.as_fd().as_raw_fd());
        let mut command = Command::new("nsenter");
        command.arg(&namespace);
        if let Some(boot_id) = &self.boot_id {
            command.env("BOOT_ID", boot_id).args(["unshare", "--mount", "sh", "-c", reboot::BOOTED, "sh"]);
        }
        command.arg(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder.path());
        command.env("DATA_DIR", self.data_dir()).env("KNARR", &self.knarr);
        command.env("KNARR_CONFIG", self.configuration());
        if let Some(programs) = &self.programs {
            let all = std::env::var_os("PATH").unwrap_or_default();
            command.env("PATH", [programs.as_os_str(), &all].join(std::ffi::OsStr::new(":")));
        }
        command
    }

    /// Moves the calling thread into the namespace, for good; threads that it starts are in there too.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enter(&self) -> Result<()> {
        nix::sched::setns(&self.namespace, nix::sched::CloneFlags::CLONE_NEWNET)
            .context("enter the cluster's network namespace")
    }

    /// Runs `knarr` with these arguments and this cluster's `--data-dir`; returns what it printed.
    ///
    /// # Errors
    /// If it fails; the message has its output and the end of the cluster's log.
    pub fn knarr(&mut self, arguments: &[&str]) -> Result<String> {
        self.note();
        let output =
            self.command(&self.knarr).args(arguments).arg("--data-dir").arg(self.data_dir()).output()?;
        if !output.status.success() {
            bail!("`knarr {}` failed: {}\n{}", arguments.join(" "), text(&output), self.log_tail());
        }
        self.note();
        Ok(text(&output))
    }

    /// From now on its host has the programs in `folder`, before those of the machine.
    pub fn add_programs(&mut self, folder: PathBuf) {
        self.programs = Some(folder);
    }

    /// From now on `knarr` is another binary: another build takes over what runs.
    pub fn replace_binary(&mut self, knarr: PathBuf) {
        self.knarr = knarr;
    }

    fn note(&mut self) {
        self.noted.note(&self.data_dir());
        let mut seen = std::mem::take(&mut self.seen);
        self.inspector(&[], &mut seen).note();
        self.seen = seen;
    }

    fn inspector<'a>(&'a self, ignored: &'a [&'a str], seen: &'a mut Seen) -> Inspector<'a> {
        Inspector { data_dir: self.folder.path(), namespace: &self.namespace, ignored, seen }
    }

    /// Everything that the cluster has on this machine, apart from files whose paths below the test's folder begin
    /// with one of `ignored`.
    ///
    /// # Errors
    /// If the machine cannot be asked.
    pub fn inventory(&mut self, ignored: &[&str]) -> Result<Inventory> {
        let mut seen = std::mem::take(&mut self.seen);
        let found = self.inspector(ignored, &mut seen).look();
        self.seen = seen;
        found
    }

    /// Starts the cluster; returns when a Pod can run and DNS answers.
    ///
    /// # Errors
    /// If it does not start.
    pub fn up(&mut self) -> Result<()> {
        self.up_with(&[])
    }

    /// The same, with more flags.
    ///
    /// # Errors
    /// If it does not start.
    pub fn up_with(&mut self, flags: &[&str]) -> Result<()> {
        // Of a flag that is given, the file's are not taken.
        let own = format!("--kubelet-arg=config={}", self.kubelet_configuration().display());
        let all = ["up", "--node-ip", NODE_IP, "--node-name", NODE_NAME, &own];
        self.knarr(&[&all, flags].concat()).map(drop)
    }

    /// Starts `knarr` with these arguments beside the cluster, in its namespace; its log goes to `NAME.log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        let log = self.folder.path().join(format!("{name}.log"));
        let file = std::fs::File::options().create(true).append(true).open(&log)?;
        let mut command = self.unlimited_command(&self.knarr);
        command.args(arguments).stdout(file.try_clone()?).stderr(file);
        Ok(Process { child: command.spawn().with_context(|| format!("start {name}"))?, log })
    }

    /// Starts another program beside the cluster, in its namespace and in the folder for the test's own files; its log
    /// goes to `NAME.log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_other(&self, program: &str, arguments: &[&str]) -> Result<Process> {
        let log = self.folder.path().join(format!("{program}.log"));
        let file = std::fs::File::options().create(true).append(true).open(&log)?;
        let mut command = self.unlimited_command(program);
        command.args(arguments).stdout(file.try_clone()?).stderr(file);
        Ok(Process { child: command.spawn().with_context(|| format!("start {program}"))?, log })
    }

    /// Imports an image with busybox under `name`; the cluster need not run.
    ///
    /// # Errors
    /// If there is no busybox on this machine.
    pub fn import_busybox(&mut self, name: &str) -> Result<()> {
        let tar = crate::image::busybox(self.folder.path())?;
        let tar = tar.to_str().context("the folder's name is not UTF-8")?;
        self.knarr(&["image", "import", tar, "--name", name]).map(drop)
    }

    /// Process ids of knarr's own processes whose name starts with `name`: `knarr control-plane`, `knarr node`,
    /// or for the supervisor the binary's path.
    #[must_use]
    pub fn processes(&self, name: &str) -> Vec<i32> {
        let of_cluster = leftovers::processes(&self.data_dir());
        of_cluster
            .filter(|(_, command)| command.starts_with(name))
            .filter_map(|(pid, _)| pid.parse().ok())
            .collect()
    }

    /// The end of the cluster's log, for people.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.data_dir().join("knarr.log")).unwrap_or_default();
        format!("the end of the cluster's log: {}", tail(&log))
    }

    /// Removes the cluster with `knarr reset` and looks whether anything is left.
    ///
    /// # Errors
    /// If something is.
    pub fn remove(mut self) -> Result<()> {
        self.is_removed = true;
        self.reset()
    }

    /// Mounts a disk of the test's own at a folder in the cluster's: `knarr reset` has to leave it alone, and empty.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount_disk(&mut self, at: &Path, size_bytes: u64) -> Result<()> {
        std::fs::create_dir(at)?;
        sys::mount::tmpfs(at, Some(size_bytes), 0o755)?;
        self.disks.push(at.to_owned());
        Ok(())
    }

    /// Takes back a disk of the test's own, and the folders that lead to it.
    fn take_back(&self, disk: &Path) -> Result<()> {
        if !sys::mount::is_mounted(disk)? {
            bail!("`knarr reset` unmounted {}, which is not its own", disk.display());
        }
        if std::fs::read_dir(disk)?.next().is_some() {
            bail!("`knarr reset` left something on {}", disk.display());
        }
        sys::mount::unmount(disk)?;
        for folder in disk.ancestors().take_while(|folder| folder.starts_with(self.data_dir())) {
            std::fs::remove_dir(folder)?;
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        for folder in std::mem::take(&mut self.beside) {
            let output =
                self.command(&self.knarr).args(["reset", "--yes", "--data-dir"]).arg(&folder).output()?;
            if !output.status.success() {
                bail!("`knarr reset` of {} failed: {}", folder.display(), text(&output));
            }
        }
        if self.data_dir().exists() {
            self.knarr(&["reset", "--yes"])?;
        }
        for disk in std::mem::take(&mut self.disks) {
            self.take_back(&disk)?;
        }
        let left = leftovers::look(&self.data_dir(), &self.namespace, HOST_LINK, &self.noted)?;
        if !left.is_empty() {
            bail!("`knarr reset` left something behind:\n  {}", left.join("\n  "));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        let removed = self.reset();
        match removed {
            Ok(()) => {}
            Err(error) if std::thread::panicking() => eprintln!("and then: {error:#}"),
            #[expect(clippy::panic, reason = "a test that leaves something behind has failed")]
            Err(error) => panic!("{error:#}"),
        }
    }
}

/// A namespace that stands for a host with one link.
fn host_namespace() -> Result<NetNs> {
    let namespace = NetNs::anonymous()?;
    namespace.run(|| {
        let mut route = sys::netlink::Route::open()?;
        route.create_bridge(HOST_LINK)?;
        let link = route.index(HOST_LINK)?;
        let ip = std::net::Ipv4Addr::new(192, 0, 2, 1).into();
        route.add_address(sys::netlink::Address { link, ip, prefix: 24 })?;
        route.set_up(HOST_LINK)
    })?;
    Ok(namespace)
}

/// A process beside a cluster; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Ends it as a crash would.
    ///
    /// # Errors
    /// If it had ended before; the message has its log.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it had ended with {status}: {}", self.log());
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// If it fails; the message has its log.
    pub fn stop(mut self) -> Result<()> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("it ended with {status}: {}", self.log());
        }
        Ok(())
    }

    /// Its process id.
    ///
    /// # Errors
    /// If the kernel has given it a number that is none.
    pub fn id(&self) -> Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// `true` if it has not ended yet.
    ///
    /// # Errors
    /// If the kernel cannot say.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// All that it has printed.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of {}: {}", self.log.display(), tail(&self.log()));
        }
        if self.child.kill().and_then(|()| self.child.wait()).is_err() {
            // It had ended before.
        }
    }
}

/// The last lines of a log, and how many there are.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    format!("{} lines\n  {}", lines.len(), last.join("\n  "))
}

/// Everything that a command printed.
#[must_use]
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
