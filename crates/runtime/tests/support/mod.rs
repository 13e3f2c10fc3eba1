//! What the container tests stand on: a host with a runtime, a Pod, and a small test runner.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod uml;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cri::{CriResult, RuntimeService, v1};
use futures::StreamExt;
use futures::stream::BoxStream;
use runtime::images::import::Hints;
use runtime::{Config, Runtime};

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(60);

pub type Test = (&'static str, fn(Host) -> Pin<Box<dyn Future<Output = ()>>>);
pub type Events = BoxStream<'static, CriResult<v1::ContainerEventResponse>>;

/// Runs the tests that the arguments of cargo and nextest select.
pub fn run(args: Vec<OsString>, tests: &[Test]) -> ExitCode {
    let args: Vec<String> = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    if has("--list") {
        if !has("--ignored") {
            tests.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("these tests make namespaces and cgroups: run them as root");
        return ExitCode::FAILURE;
    }
    if !Path::new("/bin/busybox").exists() && !Path::new("/usr/bin/busybox").exists() {
        eprintln!("these tests run busybox: install it with `apt-get install busybox-static`");
        return ExitCode::FAILURE;
    }
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let selected = |name: &str| {
        filters.is_empty()
            || filters
                .iter()
                .any(|filter| if has("--exact") { *filter == name } else { name.contains(*filter) })
    };
    let mut failed = false;
    for (name, test) in tests.iter().filter(|(name, _)| selected(name)) {
        let started = Instant::now();
        let ran = std::panic::catch_unwind(|| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async {
                let host = Host::new().await;
                let guard = host.0.clone();
                let test = local.spawn_local(test(host));
                let result = test.await;
                let cleaned = Host(guard).clean_up().await;
                result.unwrap();
                assert_eq!(cleaned, Vec::<String>::new(), "something is left");
            });
        });
        println!("test {name} ... {} ({:?})", if ran.is_ok() { "ok" } else { "FAILED" }, started.elapsed());
        failed |= ran.is_err();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct State {
    dir: tempfile::TempDir,
    cgroup: String,
    runtime: RefCell<Option<(Runtime, base::Tasks)>>,
    pods: Cell<u32>,
}

/// A host of containers: a data directory, a cgroup, and the runtime on them.
#[derive(Clone)]
pub struct Host(Rc<State>);

impl Host {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let cgroup = format!("/knarr-test-{name}");
        let host = Self(Rc::new(State { dir, cgroup, runtime: RefCell::new(None), pods: Cell::new(0) }));
        let host = host.restart().await;
        let hints = Hints { name: Some("busybox".into()), ..Hints::default() };
        host.runtime().import_image(std::io::Cursor::new(busybox_tar()), hints).await.unwrap();
        host
    }

    pub async fn restart(self) -> Self {
        let tasks = base::Tasks::new();
        let config = Config::new(self.0.dir.path().join("data"), self.0.cgroup.clone(), tasks.clone());
        let runtime = Runtime::open(config).await.unwrap();
        *self.0.runtime.borrow_mut() = Some((runtime, tasks));
        self
    }

    /// As after a kill of this process: nothing is told to anyone.
    pub fn without_runtime(self) -> Self {
        let (runtime, tasks) = self.0.runtime.borrow_mut().take().unwrap();
        tasks.stop();
        drop(runtime);
        self
    }

    pub fn runtime(&self) -> Runtime {
        self.0.runtime.borrow().as_ref().unwrap().0.clone()
    }

    pub async fn events(&self) -> Events {
        self.runtime().get_container_events(v1::GetEventsRequest {}).await.unwrap()
    }

    pub fn container_file(&self, sandbox: &str, id: &str, name: &str) -> PathBuf {
        self.0.dir.path().join("data/sandboxes").join(sandbox).join("containers").join(id).join(name)
    }

    /// The cgroup of a container of [`Pod::run`].
    pub fn cgroup_of(&self, id: &str) -> String {
        format!("{}/pods/pod-1/{id}", self.0.cgroup)
    }

    pub fn rootfs_of(&self, sandbox: &str, id: &str) -> PathBuf {
        self.container_file(sandbox, id, "rootfs")
    }

    pub fn shim_memory(&self, sandbox: &str) -> String {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains(&format!("sandboxes/{sandbox}")) {
                return std::fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
            }
        }
        String::new()
    }

    /// A file in a sandbox's directory.
    pub fn sandbox_file(&self, sandbox: &str, name: &str) -> PathBuf {
        self.0.dir.path().join("data/sandboxes").join(sandbox).join(name)
    }

    /// The shim of a sandbox, found by its command line.
    pub fn shim_of(&self, sandbox: &str) -> Option<i32> {
        self.shims_of(sandbox).first().copied()
    }

    /// All of them: there should be one.
    pub fn shims_of(&self, sandbox: &str) -> Vec<i32> {
        let path = self.sandbox_file(sandbox, "").to_string_lossy().trim_end_matches('/').to_owned();
        processes(|command| command.trim_end_matches(['\0', '/']).ends_with(&path))
    }

    /// The processes that shims are forks of.
    pub fn zygotes(&self) -> Vec<i32> {
        let words = format!("shim\0zygote\0{}\0", self.0.dir.path().join("data").display());
        processes(|command| command.contains(&words))
    }

    /// Kills the shim of a sandbox.
    pub fn kill_shim(&self, sandbox: &str) {
        let pid = self.shim_of(sandbox).unwrap_or_else(|| panic!("no shim of {sandbox}"));
        let shim = sys::process::PidFd::open(pid).unwrap();
        shim.signal(nix::libc::SIGKILL).unwrap();
        assert!(shim.wait(DEADLINE).unwrap());
    }

    /// The processes in a container's cgroup.
    pub fn processes_of(&self, id: &str) -> Vec<i32> {
        let cgroups = sys::cgroup::Cgroups::detect().unwrap();
        let Some(dir) = cgroups.dir_of("pids", &self.cgroup_of(id)) else { return Vec::new() };
        let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    pub async fn finish(self) {}

    /// Removes everything and says what is left.
    async fn clean_up(self) -> Vec<String> {
        if self.0.runtime.borrow().is_none() {
            drop(self.clone().restart().await);
        }
        let (runtime, tasks) = self.0.runtime.borrow_mut().take().unwrap();
        runtime.remove_everything().await.unwrap();
        tasks.stop_and_wait().await;
        // That of a runtime that was only dropped ends in its own time.
        wait_until(|| self.zygotes().is_empty()).await;
        let data = self.0.dir.path().to_string_lossy().into_owned();
        let mut left: Vec<String> = std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .filter(|line| line.contains(&data))
            .map(str::to_owned)
            .collect();
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            let group = hierarchy.path().join(self.0.cgroup.trim_start_matches('/'));
            if group.exists() {
                left.push(group.display().to_string());
            }
        }
        left
    }
}

/// A root file system with busybox for everything.
fn busybox_tar() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind: tar::EntryType, mode: u32, data: &[u8], link: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(data.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        if link.is_empty() {
            tar.append_data(&mut header, path, data).unwrap();
        } else {
            tar.append_link(&mut header, path, link).unwrap();
        }
    };
    use tar::EntryType::{Directory, Regular, Symlink};
    for (dir, mode) in [("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("root", 0o700)] {
        add(dir, Directory, mode, &[], "");
    }
    let busybox =
        ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|path| std::fs::read(path).ok()).unwrap();
    add("bin/busybox", Regular, 0o755, &busybox, "");
    for applet in [
        "sh", "sleep", "echo", "cat", "id", "touch", "grep", "cut", "sort", "wc", "ls", "tail", "head",
        "hostname", "readlink", "yes", "tr", "unshare", "true", "date", "stty", "tty", "ps", "mount", "pwd",
    ] {
        add(&format!("bin/{applet}"), Symlink, 0o777, &[], "busybox");
    }
    add("broken", Regular, 0o755, b"\x00\x01", "");
    add("etc/passwd", Regular, 0o644, b"root:x:0:0:root:/root:/bin/sh\n", "");
    tar.into_inner().unwrap()
}

/// A container that is wanted.
#[derive(Clone)]
pub struct Wanted(v1::ContainerConfig);

pub fn container(name: &str, command: &[&str]) -> Wanted {
    Wanted(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "busybox".into(), ..Default::default() }),
        command: command.iter().map(|it| (*it).to_owned()).collect(),
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                oom_score_adj: -500,
                cpu_shares: 100,
                ..Default::default()
            }),
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: v1::NamespaceMode::Container as i32,
                    ..Default::default()
                }),
                masked_paths: ["/proc/kcore", "/proc/keys", "/sys/firmware"].map(String::from).into(),
                readonly_paths: ["/proc/sys", "/proc/sysrq-trigger"].map(String::from).into(),
                ..Default::default()
            }),
        }),
        ..Default::default()
    })
}

impl Wanted {
    fn security(mut self, f: impl FnOnce(&mut v1::LinuxContainerSecurityContext)) -> Self {
        f(self.0.linux.as_mut().unwrap().security_context.as_mut().unwrap());
        self
    }

    fn capability(self, f: impl FnOnce(&mut v1::Capability)) -> Self {
        self.security(|context| f(context.capabilities.get_or_insert_default()))
    }

    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.0.envs.push(v1::KeyValue { key: key.into(), value: value.into() });
        self
    }

    pub fn image(mut self, name: &str) -> Self {
        self.0.image.as_mut().unwrap().image = name.into();
        self
    }

    pub fn cwd(mut self, path: &str) -> Self {
        self.0.working_dir = path.into();
        self
    }

    pub fn tty(mut self) -> Self {
        self.0.tty = true;
        self
    }

    pub fn stdin_once(mut self) -> Self {
        self.0.stdin = true;
        self.0.stdin_once = true;
        self
    }

    pub fn log_limits(mut self, file_bytes_max: u64, files_max: usize) -> Self {
        let limits = [
            (cri::annotations::LOG_FILE_BYTES_MAX, file_bytes_max.to_string()),
            (cri::annotations::LOG_FILES_MAX, files_max.to_string()),
        ];
        self.0.annotations.extend(limits.map(|(name, value)| (name.to_owned(), value)));
        self
    }

    pub fn memory(mut self, bytes: i64) -> Self {
        self.0.linux.as_mut().unwrap().resources.as_mut().unwrap().memory_limit_in_bytes = bytes;
        self
    }

    pub fn readonly(self) -> Self {
        self.security(|context| context.readonly_rootfs = true)
    }

    pub fn privileged(self) -> Self {
        self.security(|context| context.privileged = true)
    }

    pub fn no_new_privs(self) -> Self {
        self.security(|context| context.no_new_privs = true)
    }

    pub fn seccomp(self) -> Self {
        self.security(|context| context.seccomp = Some(v1::SecurityProfile::default()))
    }

    pub fn user(self, uid: i64) -> Self {
        self.security(|context| context.run_as_user = Some(v1::Int64Value { value: uid }))
    }

    pub fn groups(self, groups: &[i64]) -> Self {
        self.security(|context| context.supplemental_groups = groups.to_vec())
    }

    pub fn pod_pid(self) -> Self {
        self.security(|context| {
            context.namespace_options.as_mut().unwrap().pid = v1::NamespaceMode::Pod as i32;
        })
    }

    pub fn drop_caps(self, names: &[&str]) -> Self {
        self.capability(|it| it.drop_capabilities = names.iter().map(|name| (*name).to_owned()).collect())
    }

    pub fn add_caps(self, names: &[&str]) -> Self {
        self.capability(|it| it.add_capabilities = names.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// A sandbox that runs.
pub struct Pod {
    pub id: String,
    host: Host,
}

pub fn namespaces(config: &mut v1::PodSandboxConfig) -> &mut v1::NamespaceOption {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().namespace_options.get_or_insert_default()
}

impl Pod {
    /// Its containers may be privileged.
    pub async fn run(host: &Host) -> Self {
        let privileged = |config: &mut v1::PodSandboxConfig| {
            let linux = config.linux.get_or_insert_default();
            linux.security_context.get_or_insert_default().privileged = true;
        };
        Self::run_with(host, privileged).await
    }

    pub async fn run_with(host: &Host, change: impl FnOnce(&mut v1::PodSandboxConfig)) -> Self {
        Self::try_run_with(host, change).await.unwrap()
    }

    pub async fn try_run_with(
        host: &Host,
        change: impl FnOnce(&mut v1::PodSandboxConfig),
    ) -> CriResult<Self> {
        let number = host.0.pods.replace(host.0.pods.get() + 1);
        let mut config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "pod".into(),
                uid: format!("uid-{number}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: "pod".into(),
            log_directory: host.0.dir.path().join("logs").to_string_lossy().into_owned(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/pods/pod-1", host.0.cgroup),
                sysctls: HashMap::from([("kernel.shm_rmid_forced".to_owned(), "1".to_owned())]),
                ..Default::default()
            }),
            ..Default::default()
        };
        namespaces(&mut config).pid = v1::NamespaceMode::Container as i32;
        change(&mut config);
        let started = Instant::now();
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
        let id = host.runtime().run_pod_sandbox(request).await?.pod_sandbox_id;
        eprintln!("sandbox: {:?}", started.elapsed());
        Ok(Self { id, host: host.clone() })
    }

    pub fn on(self, host: &Host) -> Self {
        Self { id: self.id, host: host.clone() }
    }

    pub async fn create(&self, wanted: Wanted) -> String {
        self.try_create(wanted).await.unwrap()
    }

    pub async fn try_create(&self, wanted: Wanted) -> CriResult<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(wanted.0),
            sandbox_config: None,
        };
        Ok(self.host.runtime().create_container(request).await?.container_id)
    }

    pub async fn try_start(&self, id: &str) -> CriResult<()> {
        let request = v1::StartContainerRequest { container_id: id.into() };
        self.host.runtime().start_container(request).await.map(drop)
    }

    pub async fn start(&self, wanted: Wanted) -> String {
        let started = Instant::now();
        let id = self.create(wanted).await;
        self.try_start(&id).await.unwrap();
        eprintln!("create and start: {:?}", started.elapsed());
        id
    }

    pub async fn status(&self, id: &str) -> v1::ContainerStatus {
        let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.host.runtime().container_status(request).await.unwrap().status.unwrap()
    }

    pub async fn wait_exit(&self, id: &str) -> v1::ContainerStatus {
        let mut events = self.host.events().await;
        let exited = v1::ContainerState::ContainerExited as i32;
        let wait = async {
            loop {
                let status = self.status(id).await;
                if status.state == exited {
                    return status;
                }
                events.next().await.unwrap().unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, wait).await.expect("the container must end")
    }

    pub async fn exec(&self, id: &str, command: &[&str], timeout: i64) -> CriResult<v1::ExecSyncResponse> {
        let cmd = command.iter().map(|it| (*it).to_owned()).collect();
        self.host.runtime().exec_sync(v1::ExecSyncRequest { container_id: id.into(), cmd, timeout }).await
    }

    /// Until the script succeeds.
    pub async fn wait_exec(&self, id: &str, script: &str) {
        let started = Instant::now();
        while self.exec(id, &["sh", "-c", script], 0).await.unwrap().exit_code != 0 {
            assert!(started.elapsed() < DEADLINE, "{script}");
        }
    }

    pub async fn stop(&self, id: &str, timeout: i64) {
        let request = v1::StopContainerRequest { container_id: id.into(), timeout };
        self.host.runtime().stop_container(request).await.unwrap();
    }

    pub fn log_path(&self, name: &str) -> PathBuf {
        self.host.0.dir.path().join("logs").join(format!("{name}.log"))
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_path(name)).unwrap_or_default()
    }

    pub async fn wait_log(&self, name: &str, text: &str) {
        wait_until(|| self.log(name).contains(text)).await;
    }

    pub async fn stop_sandbox(&self) {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: self.id.clone() };
        self.host.runtime().stop_pod_sandbox(request).await.unwrap();
    }

    pub async fn remove(&self) {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: self.id.clone() };
        self.host.runtime().remove_pod_sandbox(request).await.unwrap();
    }
}

/// Those whose command line is such, and that are not on their way to be a container.
fn processes(is_wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_string_lossy().parse::<i32>().ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        (is_wanted(&String::from_utf8_lossy(&command)) && !is_of_container(pid)).then_some(pid)
    });
    pids.collect()
}

/// Whether a process is on its way to be a container: it has a shim's command line until then.
fn is_of_container(pid: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.starts_with("youki:")
}

/// Whether a process's exit code can be read after another has reaped it: Linux 6.15 and newer.
pub fn kernel_keeps_exit_codes() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 15)
}

pub async fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited too long");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn next_event(events: &mut Events, id: &str, kind: v1::ContainerEventType) {
    let wait = async {
        while let Some(event) = events.next().await {
            let event = event.unwrap();
            if event.container_id == id && event.container_event_type == kind as i32 {
                return;
            }
        }
        panic!("the events ended");
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("the event must come");
}

pub fn output(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
