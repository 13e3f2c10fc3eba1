//! What the specs are run on: a runtime behind the two traits, and an image.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cri::{CriResult, ImageService, RuntimeService, v1};
use tokio::io::{AsyncRead, AsyncReadExt};
use v1::NamespaceMode;

pub const IMAGE: &str = "test.local/busybox:1";
/// What links of the image lead to, if they lead out of it.
pub const OUTSIDE: &str = "/tmp/knarr-hostile-image";
/// Longest wait for anything.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What not every runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    Events,
    /// containerd 1.6 answers with an error for what is not there.
    StopOfUnknown,
    RecursiveReadOnly,
    GroupsPolicy,
    UserNamespaces,
    RuntimeConfig,
    Metrics,
    /// Of Pods with their own network namespace: containerd 1.6 has the host's as well.
    HostPath,
    /// A wrong name of a capability is an error when the container is created.
    CapabilityNames,
    /// Low ports and pings are for everybody in a Pod: containerd since 2.0.
    UnprivilegedPorts,
    /// What is executed in a container has the container's seccomp profile.
    SeccompOfExec,
    /// `/dev` from the host has its links already.
    HostsDev,
    /// What is masked is masked by the real `/dev/null` only: runc since 1.2.8.
    RealNull,
    /// `UpdatePodSandboxResources`: since CRI of v1.33.
    PodResources,
    /// `ContainerConfig.stop_signal`: since CRI of v1.33.
    StopSignals,
    /// `ContainerConfig.CDI_devices`: containerd since 1.7.
    Cdi,
    /// What the suite makes private is private for it: containerd has mounts of its own here, in step with the suite's.
    PrivateMounts,
    /// containerd lists all images, whichever are asked for.
    ImageFilters,
    /// What cannot be run is told of in runc's words: crun and youki have their own.
    RuncsWords,
    /// Folders in folders without end are measured and removed: Go's library opens all of them at once.
    DeepFolders,
    /// The folder of cgroups is read-only: containerd 1.6 leaves the file system in memory writable, with cgroup v1.
    ReadOnlyCgroupFolder,
}

/// A runtime that is put to the test.
pub struct Subject {
    pub name: &'static str,
    pub runtime: Arc<dyn RuntimeService>,
    pub images: Arc<dyn ImageService>,
    pub handler: &'static str,
    pub folder: PathBuf,
    pub cgroup: String,
    pub lacks: &'static [Feature],
    pub sandboxes: AtomicU32,
}

impl Subject {
    pub fn has(&self, feature: Feature) -> bool {
        !self.lacks.contains(&feature)
    }

    /// A folder of its own below the subject's.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let number = self.sandboxes.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join("scratch").join(format!("{name}-{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub fn sandbox_config(&self) -> v1::PodSandboxConfig {
        let number = self.sandboxes.fetch_add(1, Ordering::Relaxed);
        let uid = format!("uid-{number}");
        let mut config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{number}"),
                uid: uid.clone(),
                namespace: "default".into(),
                attempt: 2,
            }),
            hostname: format!("pod-{number}"),
            log_directory: self.folder.join("logs").join(&uid).display().to_string(),
            labels: HashMap::from([("uid".to_owned(), uid.clone())]),
            annotations: HashMap::from([("note".to_owned(), "text".to_owned())]),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{uid}", self.cgroup),
                ..Default::default()
            }),
            ..Default::default()
        };
        namespaces(&mut config).pid = NamespaceMode::Container as i32;
        std::fs::create_dir_all(&config.log_directory).unwrap();
        config
    }

    pub async fn run(self: &Arc<Self>) -> Pod {
        self.run_with(|_| {}).await
    }

    pub async fn run_with(self: &Arc<Self>, change: impl FnOnce(&mut v1::PodSandboxConfig)) -> Pod {
        let mut config = self.sandbox_config();
        change(&mut config);
        self.try_run(config).await.unwrap()
    }

    /// Its containers may be privileged.
    pub async fn run_privileged(self: &Arc<Self>) -> Pod {
        let privileged = |config: &mut v1::PodSandboxConfig| {
            let linux = config.linux.get_or_insert_default();
            linux.security_context.get_or_insert_default().privileged = true;
        };
        self.run_with(privileged).await
    }

    pub async fn try_run(self: &Arc<Self>, config: v1::PodSandboxConfig) -> CriResult<Pod> {
        let runtime_handler = self.handler.to_owned();
        let request = v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler };
        let id = self.runtime.run_pod_sandbox(request).await?.pod_sandbox_id;
        Ok(Pod { id, config, subject: self.clone() })
    }
}

pub fn namespaces(config: &mut v1::PodSandboxConfig) -> &mut v1::NamespaceOption {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().namespace_options.get_or_insert_default()
}

/// A container that sleeps, or runs a script.
pub fn container(name: &str, script: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 3 }),
        image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: format!("{name}.log"),
        labels: HashMap::from([("app".to_owned(), name.to_owned())]),
        annotations: HashMap::from([("note".to_owned(), name.to_owned())]),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources::default()),
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: NamespaceMode::Container as i32,
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

pub fn sleeping(name: &str) -> v1::ContainerConfig {
    container(name, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done")
}

/// Its security context.
pub fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    config.linux.get_or_insert_default().security_context.get_or_insert_default()
}

/// Its resources.
pub fn resources(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerResources {
    config.linux.get_or_insert_default().resources.get_or_insert_default()
}

/// A mount of `host` at `inside`.
pub fn mount(host: &Path, inside: &str) -> v1::Mount {
    v1::Mount {
        host_path: host.display().to_string(),
        container_path: inside.to_owned(),
        ..Default::default()
    }
}

/// A sandbox that runs.
pub struct Pod {
    pub id: String,
    pub config: v1::PodSandboxConfig,
    pub subject: Arc<Subject>,
}

impl Pod {
    fn runtime(&self) -> &dyn RuntimeService {
        &*self.subject.runtime
    }

    pub async fn try_create(&self, config: v1::ContainerConfig) -> CriResult<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        Ok(self.runtime().create_container(request).await?.container_id)
    }

    pub async fn try_start(&self, id: &str) -> CriResult<()> {
        let request = v1::StartContainerRequest { container_id: id.into() };
        self.runtime().start_container(request).await.map(drop)
    }

    pub async fn start(&self, config: v1::ContainerConfig) -> String {
        let id = self.try_create(config).await.unwrap();
        self.try_start(&id).await.unwrap();
        id
    }

    /// Runs it to its end: exit code and log.
    pub async fn run(&self, config: v1::ContainerConfig) -> (i32, String) {
        let name = config.metadata.clone().unwrap().name;
        let id = self.start(config).await;
        let status = self.wait_exit(&id).await;
        (status.exit_code, self.text(&name).await)
    }

    pub async fn status(&self, id: &str) -> v1::ContainerStatus {
        let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.runtime().container_status(request).await.unwrap().status.unwrap()
    }

    pub async fn sandbox_status(&self) -> v1::PodSandboxStatus {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: self.id.clone(), verbose: false };
        self.runtime().pod_sandbox_status(request).await.unwrap().status.unwrap()
    }

    pub async fn wait_exit(&self, id: &str) -> v1::ContainerStatus {
        let started = Instant::now();
        loop {
            let status = self.status(id).await;
            if status.state == v1::ContainerState::ContainerExited as i32 {
                return status;
            }
            assert!(started.elapsed() < DEADLINE, "the container must end: {}", self.text_of(&status));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn text_of(&self, status: &v1::ContainerStatus) -> String {
        std::fs::read_to_string(&status.log_path).unwrap_or_default()
    }

    pub async fn exec(&self, id: &str, command: &[&str], timeout: i64) -> CriResult<v1::ExecSyncResponse> {
        let cmd = command.iter().map(|it| (*it).to_owned()).collect();
        let request = v1::ExecSyncRequest { container_id: id.into(), cmd, timeout };
        self.runtime().exec_sync(request).await
    }

    /// What a script says in a container, and whether it succeeds.
    pub async fn sh(&self, id: &str, script: &str) -> (String, i32) {
        let ran = self.exec(id, &["/bin/sh", "-c", script], 30).await.unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        (String::from_utf8_lossy(&text).trim_end().to_owned(), ran.exit_code)
    }

    /// What a script says in a container of this configuration.
    pub async fn says(&self, config: v1::ContainerConfig, script: &str) -> (String, i32) {
        let id = self.start(config).await;
        self.sh(&id, script).await
    }

    pub async fn stop(&self, id: &str, timeout: i64) {
        let request = v1::StopContainerRequest { container_id: id.into(), timeout };
        self.runtime().stop_container(request).await.unwrap();
    }

    pub fn log_path(&self, name: &str) -> PathBuf {
        Path::new(&self.config.log_directory).join(format!("{name}.log"))
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_path(name)).unwrap_or_default()
    }

    /// The log's text, once its container has ended: some runtimes write it after they have said so.
    pub async fn text(&self, name: &str) -> String {
        let mut last = self.log(name);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(if self.subject.name == "containerd" { 50 } else { 1 }))
                .await;
            let now = self.log(name);
            if now == last && !now.is_empty() {
                break;
            }
            last = now;
        }
        let line = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        self.log(name).lines().map(line).collect::<Vec<_>>().join("\n")
    }

    pub async fn wait_log(&self, name: &str, text: &str) {
        wait_until(|| self.log(name).contains(text)).await;
    }

    /// Until the script succeeds.
    pub async fn wait_sh(&self, id: &str, script: &str) -> String {
        let started = Instant::now();
        loop {
            let (text, code) = self.sh(id, script).await;
            if code == 0 {
                return text;
            }
            assert!(started.elapsed() < DEADLINE, "{script}: {text}");
        }
    }

    pub async fn remove(&self) {
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: self.id.clone() };
        let mut stopped = self.runtime().stop_pod_sandbox(stop.clone()).await;
        // containerd cannot reach a shim that ends while it asks; a kubelet asks again, too.
        if stopped.is_err() && self.subject.name == "containerd" {
            stopped = self.runtime().stop_pod_sandbox(stop).await;
        }
        stopped.unwrap();
        let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: self.id.clone() };
        self.runtime().remove_pod_sandbox(remove).await.unwrap();
    }
}

pub async fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited too long");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads until what came has `text` in it.
pub async fn read_until(reader: &mut (impl AsyncRead + Unpin), text: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        let mut chunk = [0; 4096];
        while !String::from_utf8_lossy(&read).contains(text) {
            let len = reader.read(&mut chunk).await.unwrap();
            assert!(len > 0, "ended after {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&chunk[..len]);
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("the text must come");
    String::from_utf8_lossy(&read).into_owned()
}

/// A docker-archive of busybox with a few users.
pub fn archive() -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let layer = layer();
    let digest: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = format!(
        r#"{{"architecture": "{architecture}", "os": "linux",
            "config": {{"Cmd": ["sleep", "1000000"], "Env": ["PATH=/bin", "FROM_IMAGE=yes"],
                        "Volumes": {{"/declared/empty": {{}}, "/declared/full": {{}}, "/declared/new": {{}}}}}},
            "rootfs": {{"type": "layers", "diff_ids": ["sha256:{digest}"]}}}}"#
    );
    let manifest =
        format!(r#"[{{"Config": "config.json", "RepoTags": ["{IMAGE}"], "Layers": ["layer.tar"]}}]"#);
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in
        [("manifest.json", manifest.as_bytes()), ("config.json", config.as_bytes()), ("layer.tar", &layer)]
    {
        add(&mut tar, name, tar::EntryType::Regular, 0o644, data, "");
    }
    tar.into_inner().unwrap()
}

fn layer() -> Vec<u8> {
    use tar::EntryType::{Directory, Regular, Symlink};
    let mut tar = tar::Builder::new(Vec::new());
    for (dir, mode) in
        [("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("root", 0o700), ("data", 0o755), ("suid", 0o755)]
    {
        add(&mut tar, dir, Directory, mode, &[], "");
    }
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = places.iter().find_map(|path| std::fs::read(path).ok()).expect("busybox-static");
    add(&mut tar, "bin/busybox", Regular, 0o755, &busybox, "");
    // A copy of its own: the set-uid bit must count for it alone.
    add(&mut tar, "suid/busybox", Regular, 0o4755, &busybox, "");
    for applet in [
        "sh", "sleep", "echo", "cat", "id", "touch", "grep", "cut", "sort", "wc", "ls", "tail", "head",
        "hostname", "readlink", "yes", "tr", "unshare", "true", "false", "date", "stty", "tty", "ps",
        "mount", "umount", "pwd", "brctl", "chmod", "chown", "mkdir", "nc", "ip", "sysctl", "kill", "stat",
        "env", "dd", "mknod", "ipcs", "rm", "ln", "mkfifo", "seq", "ping", "nslookup", "su",
    ] {
        add(&mut tar, &format!("bin/{applet}"), Symlink, 0o777, &[], "busybox");
    }
    for (name, kind, (major, minor)) in [
        ("node-memory", tar::EntryType::Char, (1, 1)),
        ("node-disk", tar::EntryType::Block, (7, 0)),
        ("node-pipe", tar::EntryType::Fifo, (0, 0)),
    ] {
        let mut header = header(kind, 0o666, 0);
        header.set_device_major(major).unwrap();
        header.set_device_minor(minor).unwrap();
        tar.append_data(&mut header, name, std::io::empty()).unwrap();
    }
    add(&mut tar, "declared", Directory, 0o755, &[], "");
    add(&mut tar, "declared/empty", Directory, 0o1777, &[], "");
    add(&mut tar, "declared/full", Directory, 0o755, &[], "");
    add(&mut tar, "declared/full/mark", Regular, 0o644, b"of the image", "");
    // What a hostile image has where something is mounted, or made.
    add(&mut tar, "escape", Symlink, 0o777, &[], &format!("../../../../../../../..{OUTSIDE}"));
    add(&mut tar, "escape-by-root", Symlink, 0o777, &[], OUTSIDE);
    let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:1001:1001:web:/home/web:/bin/sh\n";
    add(&mut tar, "etc/passwd", Regular, 0o644, passwd.as_bytes(), "");
    let group = "root:x:0:\nweb:x:1001:\nlogs:x:50000:web\n";
    add(&mut tar, "etc/group", Regular, 0o644, group.as_bytes(), "");
    tar.into_inner().unwrap()
}

fn add(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    data: &[u8],
    link: &str,
) {
    let mut header = header(kind, mode, data.len() as u64);
    match link {
        "" => tar.append_data(&mut header, path, data).unwrap(),
        link => tar.append_link(&mut header, path, link).unwrap(),
    }
}

fn header(kind: tar::EntryType, mode: u32, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
