//! Containers: life, logs, mounts, devices, resources, stats.
#![allow(unreachable_pub)]

use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::v1;
use sys::mount::{BindOptions, Propagation};
use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};

use super::Spec;
use super::support::{
    DEADLINE, Feature, IMAGE, OUTSIDE, Subject, container, mount, resources, sleeping, wait_until,
};

pub const SPECS: &[Spec] = &[
    ("runtime should support creating, starting, stopping and removing container", |it| Box::pin(life(it))),
    ("runtime should support listing containers with filters", |it| Box::pin(listing(it))),
    ("a container that cannot be started says why", |it| Box::pin(start_errors(it))),
    ("a container ends by its signal, or is killed after its grace", |it| Box::pin(grace(it))),
    ("runtime should support starting container with log", |it| Box::pin(log(it))),
    ("runtime should support reopening container log", |it| Box::pin(reopen(it))),
    ("environment, command and working directory come from image and configuration", |it| {
        Box::pin(process(it))
    }),
    ("runtime should support starting container with volume", |it| Box::pin(volumes(it))),
    ("runtime should support readonly and recursive readonly mounts", |it| Box::pin(readonly(it))),
    ("what an image declares to be a volume can be written to", |it| Box::pin(declared_volumes(it))),
    ("limits that change before the start count", |it| Box::pin(changed_before_start(it))),
    ("a folder of the host can be a container's /dev", |it| Box::pin(own_dev(it))),
    ("runtime should support starting container with devices", |it| Box::pin(devices(it))),
    ("runtime should limit resources, and update them", |it| Box::pin(limits(it))),
    ("runtime should limit huge pages", |it| Box::pin(huge_pages(it))),
    ("runtime should output OOMKilled reason", |it| Box::pin(oom(it))),
    ("runtime should support listing container stats", |it| Box::pin(stats(it))),
    ("runtime should support multiple containers in a pod", |it| Box::pin(several(it))),
    ("links of an image lead nowhere outside it", |it| Box::pin(hostile_links(it))),
    ("what a container does to its processes stays inside", |it| Box::pin(hostile_processes(it))),
    ("a checkpoint is refused", |it| Box::pin(checkpoint(it))),
    ("a container is asked to end by the signal that it is to have", |it| Box::pin(stop_signals(it))),
];

async fn life(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let config = sleeping("main");
    let id = pod.try_create(config.clone()).await.unwrap();
    let status = pod.status(&id).await;
    assert_eq!((status.state(), status.started_at, status.finished_at), (ContainerCreated, 0, 0));
    assert_eq!((&status.metadata, &status.labels), (&config.metadata, &config.labels));
    assert_eq!(status.annotations, config.annotations);
    assert_eq!(status.image.as_ref().unwrap().image, IMAGE);
    assert_eq!(Path::new(&status.log_path), pod.log_path("main"));
    pod.try_start(&id).await.unwrap();
    let status = pod.status(&id).await;
    assert_eq!(status.state(), ContainerRunning);
    assert!(status.created_at > 0 && status.started_at >= status.created_at);
    assert!(pod.try_start(&id).await.is_err(), "it runs already");
    let verbose = v1::ContainerStatusRequest { container_id: id.clone(), verbose: true };
    let info = subject.runtime.container_status(verbose).await.unwrap().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
    let pid = info["pid"].as_i64().unwrap();
    assert!(subject.name == "containerd" || Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
    assert_eq!(info["runtimeSpec"]["process"]["args"][0], "/bin/sh", "{info}");
    pod.wait_log("main", "ready").await;
    pod.stop(&id, 20).await;
    let status = pod.status(&id).await;
    assert_eq!((status.state(), status.exit_code), (ContainerExited, 0));
    assert_eq!(status.reason, "Completed");
    assert!(status.finished_at >= status.started_at);
    let request = v1::RemoveContainerRequest { container_id: id.clone() };
    subject.runtime.remove_container(request).await.unwrap();
    let request =
        v1::ListContainersRequest { filter: Some(v1::ContainerFilter { id, ..Default::default() }) };
    assert_eq!(subject.runtime.list_containers(request).await.unwrap().containers.len(), 0);
    let running = pod.start(sleeping("running")).await;
    let request = v1::RemoveContainerRequest { container_id: running };
    subject.runtime.remove_container(request).await.unwrap();
    pod.remove().await;
}

async fn listing(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let (created, running) = (pod.try_create(sleeping("a")).await.unwrap(), pod.start(sleeping("b")).await);
    let list = async |filter: v1::ContainerFilter| {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let mut ids: Vec<String> = subject
            .runtime
            .list_containers(request)
            .await
            .unwrap()
            .containers
            .into_iter()
            .map(|it| it.id)
            .collect();
        ids.sort();
        ids
    };
    let of_pod = v1::ContainerFilter { pod_sandbox_id: pod.id.clone(), ..Default::default() };
    let mut both = vec![created.clone(), running.clone()];
    both.sort();
    assert_eq!(list(of_pod.clone()).await, both);
    let state = Some(v1::ContainerStateValue { state: ContainerRunning.into() });
    assert_eq!(list(v1::ContainerFilter { state, ..of_pod.clone() }).await, std::slice::from_ref(&running));
    let label_selector = HashMap::from([("app".to_owned(), "a".to_owned())]);
    assert_eq!(
        list(v1::ContainerFilter { label_selector, ..of_pod.clone() }).await,
        std::slice::from_ref(&created)
    );
    assert_eq!(list(v1::ContainerFilter { id: running.clone(), ..of_pod }).await, [running]);
    pod.remove().await;
}

async fn start_errors(subject: Arc<Subject>) {
    let pod = subject.run().await;
    for (name, command, expect) in [
        ("missing", "nothing-here", "executable file not found in $PATH"),
        ("path", "/nothing-here", "no such file or directory"),
        ("mode", "/etc/passwd", "permission denied"),
    ] {
        let mut config = container(name, "");
        config.command = vec![command.to_owned()];
        let id = pod.try_create(config).await.unwrap();
        let error = pod.try_start(&id).await.unwrap_err().to_string();
        let expect = if subject.has(Feature::RuncsWords) { expect } else { "OCI runtime create failed: " };
        assert!(error.contains(expect), "{error}");
        let prefix = "unable to start container process: ";
        assert!(error.contains(prefix) || !subject.has(Feature::RuncsWords), "{error}");
        let status = pod.status(&id).await;
        let end = (status.state(), status.exit_code, status.reason.as_str());
        assert_eq!(end, (ContainerExited, 128, "StartError"));
        assert!(status.message.contains(expect), "{}", status.message);
    }
    let mut config = sleeping("no image");
    config.image = Some(v1::ImageSpec { image: "test.local/nothing:1".into(), ..Default::default() });
    assert!(pod.try_create(config).await.is_err());
    pod.remove().await;
}

async fn grace(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let script = |trap: &str| format!("trap '{trap}' TERM; echo ready; while :; do sleep 0.05; done");
    let polite = pod.start(container("polite", &script("exit 5"))).await;
    let rude = pod.start(container("rude", &script(""))).await;
    pod.wait_log("polite", "ready").await;
    pod.wait_log("rude", "ready").await;
    pod.stop(&polite, 30).await;
    let status = pod.status(&polite).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (5, "Error"));
    let started = Instant::now();
    pod.stop(&rude, 1).await;
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(pod.status(&rude).await.exit_code, 137);
    pod.remove().await;
}

async fn log(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let long = "x".repeat(20_000);
    let script = format!("echo out; echo err >&2; echo {long}; printf end");
    let id = pod.start(container("main", &script)).await;
    pod.wait_exit(&id).await;
    pod.wait_log("main", " end").await;
    let log = pod.log("main");
    for line in log.lines() {
        let mut words = line.splitn(4, ' ');
        assert!(words.next().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
        assert!(["stdout", "stderr"].contains(&words.next().unwrap()), "{line}");
        assert!(["F", "P"].contains(&words.next().unwrap()), "{line}");
    }
    assert!(log.contains(" stdout F out\n") && log.contains(" stderr F err\n"), "{log}");
    let parts: String =
        log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).filter(|it| it.starts_with('x')).collect();
    assert_eq!(parts, long);
    pod.remove().await;
}

async fn reopen(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let script = "echo one; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo two; sleep 1000";
    let id = pod.start(container("main", script)).await;
    pod.wait_log("main", "one").await;
    std::fs::rename(pod.log_path("main"), pod.log_path("main.1")).unwrap();
    let request = v1::ReopenContainerLogRequest { container_id: id.clone() };
    subject.runtime.reopen_container_log(request.clone()).await.unwrap();
    wait_until(|| pod.log_path("main").exists()).await;
    pod.sh(&id, "touch /tmp/go").await;
    pod.wait_log("main", "two").await;
    assert!(!pod.log("main").contains("one") && pod.log("main.1").contains("one"));
    pod.stop(&id, 0).await;
    assert!(subject.runtime.reopen_container_log(request).await.is_err(), "it does not run");
    pod.remove().await;
}

async fn process(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = container("main", "echo $FROM_IMAGE $FROM_CRI $HOSTNAME; pwd; echo $PATH $0 $1");
    config.envs = vec![v1::KeyValue { key: "FROM_CRI".into(), value: "a b".into() }];
    config.working_dir = "/made/here".into();
    config.args = vec!["zero".into(), "one".into()];
    let (code, text) = pod.run(config).await;
    let expect = format!("yes a b {}\n/made/here\n/bin zero one", pod.config.hostname);
    assert_eq!((code, text.as_str()), (0, expect.as_str()));
    pod.remove().await;
}

async fn volumes(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let folder = subject.scratch("volume");
    std::fs::create_dir(folder.join("real")).unwrap();
    std::fs::write(folder.join("real/file"), "text").unwrap();
    symlink("real", folder.join("link")).unwrap();
    let mut config = sleeping("main");
    config.mounts = vec![
        mount(&folder.join("real"), "/mnt/dir"),
        mount(&folder.join("link"), "/mnt/link"),
        mount(&folder.join("real/file"), "/mnt/one-file"),
        mount(&folder.join("made/by/it"), "/mnt/made"),
        mount(&folder.join("real"), "/mnt/dir/nested"),
    ];
    let id = pod.start(config).await;
    let script =
        "cat /mnt/dir/file /mnt/link/file /mnt/one-file /mnt/dir/nested/file; echo hi > /mnt/made/new";
    assert_eq!(pod.sh(&id, script).await, ("texttexttexttext".to_owned(), 0));
    assert_eq!(std::fs::read_to_string(folder.join("made/by/it/new")).unwrap(), "hi\n");
    let status = pod.status(&id).await;
    assert_eq!(status.mounts.len(), 5);
    pod.remove().await;
}

async fn readonly(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let folder = subject.scratch("readonly");
    std::fs::create_dir(folder.join("below")).unwrap();
    sys::mount::tmpfs(&folder.join("below"), Some(1 << 20), 0o777).unwrap();
    let mut config = sleeping("main");
    config.mounts = vec![v1::Mount { readonly: true, ..mount(&folder, "/mnt/plain") }];
    if subject.has(Feature::RecursiveReadOnly) {
        let recursive = v1::Mount { readonly: true, recursive_read_only: true, ..mount(&folder, "/mnt/all") };
        config.mounts.push(recursive);
    }
    let id = pod.start(config).await;
    assert_ne!(pod.sh(&id, "touch /mnt/plain/x").await.1, 0);
    assert_eq!(pod.sh(&id, "touch /mnt/plain/below/x").await.1, 0, "not recursive");
    if subject.has(Feature::RecursiveReadOnly) {
        assert_ne!(pod.sh(&id, "touch /mnt/all/x").await.1, 0);
        assert_ne!(pod.sh(&id, "touch /mnt/all/below/x").await.1, 0);
        let private = v1::MountPropagation::PropagationPrivate;
        for (readonly, propagation, expect) in [
            (false, private, "recursive_read_only must come with readonly"),
            (true, v1::MountPropagation::PropagationHostToContainer, "must come with private propagation"),
            (true, v1::MountPropagation::PropagationBidirectional, "must come with private propagation"),
        ] {
            let mut config = sleeping("contradictory");
            let plain = mount(&folder, "/mnt/it");
            let propagation = propagation.into();
            config.mounts = vec![v1::Mount { readonly, recursive_read_only: true, propagation, ..plain }];
            let error = pod.try_create(config).await.map(drop).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
    pod.remove().await;
    sys::mount::detach(&folder.join("below")).unwrap();
}

async fn stop_signals(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let plain = pod.start(sleeping("plain")).await;
    if subject.has(Feature::StopSignals) {
        assert_eq!(pod.status(&plain).await.stop_signal(), v1::Signal::Sigterm, "nobody asks for another");
        for (asked, number) in [(v1::Signal::Sigusr1, 10), (v1::Signal::Sigrtminplus3, 37)] {
            let script = format!(
                "trap 'exit 3' TERM; trap 'exit 7' {number}; echo ready; while :; do sleep 0.1; done"
            );
            let name = format!("signal-{number}");
            let mut config = container(&name, &script);
            config.stop_signal = asked.into();
            let id = pod.start(config).await;
            assert_eq!(pod.status(&id).await.stop_signal(), asked);
            pod.wait_log(&name, "ready").await;
            pod.stop(&id, 20).await;
            assert_eq!(pod.status(&id).await.exit_code, 7, "{asked:?}");
        }
    }
    pod.remove().await;
}

async fn declared_volumes(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let folder = subject.scratch("declared");
    let script = "cat /declared/full/mark; cd /declared; stat -c '%n %a' empty full new; \
                  for name in empty full new; do echo x > $name/x || exit 1; done; ls full; echo y > /x";
    for mounted in [false, true] {
        let name = format!("declared-{mounted}");
        let mut config = sleeping(&name);
        super::support::security(&mut config).readonly_rootfs = true;
        if mounted {
            config.mounts = vec![mount(&folder, "/declared/new")];
        }
        let id = pod.start(config).await;
        let (text, code) = pod.sh(&id, &format!("({script}) 2>/dev/null")).await;
        assert_eq!((text.as_str(), code), ("of the imageempty 1777\nfull 755\nnew 755\nmark\nx", 1));
        assert_eq!(folder.join("x").exists(), mounted);
    }
    pod.remove().await;
}

async fn changed_before_start(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let uid = pod.config.metadata.clone().unwrap().uid;
    let id = pod.try_create(sleeping("main")).await.unwrap();
    let linux = v1::LinuxContainerResources { memory_limit_in_bytes: 64 << 20, ..Default::default() };
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(linux),
        ..Default::default()
    };
    subject.runtime.update_container_resources(request).await.unwrap();
    pod.try_start(&id).await.unwrap();
    let limit = read(&subject, &uid, &id, "memory", "memory.limit_in_bytes", "memory.max");
    assert_eq!(limit, (64 << 20).to_string());
    pod.remove().await;
}

async fn own_dev(subject: Arc<Subject>) {
    if !subject.has(Feature::HostsDev) {
        return;
    }
    let pod = subject.run_privileged().await;
    let folder = subject.scratch("dev");
    sys::mount::bind(&folder, &folder, BindOptions::default()).unwrap();
    sys::mount::set_propagation(&folder, Propagation::Shared).unwrap();
    let (dev, other) = (folder.join("dev"), folder.join("other"));
    std::fs::create_dir_all(&dev).unwrap();
    for (link, target) in [("fd", "/proc/self/fd"), ("stdout", "/proc/self/fd/1"), ("ptmx", "pts/ptmx")] {
        symlink(target, dev.join(link)).unwrap();
    }
    let null = std::process::Command::new("mknod").arg(dev.join("null")).args(["c", "1", "3"]).status();
    assert!(null.unwrap().success());
    std::fs::write(dev.join("mark"), "").unwrap();
    std::fs::write(&other, "other").unwrap();
    let before = entries(&dev);
    let mut config = sleeping("main");
    super::support::security(&mut config).privileged = true;
    let shared = v1::MountPropagation::PropagationBidirectional.into();
    config.mounts = vec![
        mount(&other, "/dev/a/file"),
        mount(&dev, "/dev"),
        v1::Mount { propagation: shared, ..mount(&folder, "/mnt/shared") },
    ];
    let id = pod.start(config).await;
    assert_eq!(
        pod.sh(&id, "ls /dev/mark; cat /dev/a/file; echo x > /dev/new").await,
        ("/dev/mark\nother".to_owned(), 0)
    );
    assert!(dev.join("new").exists(), "what is made there is made on the host");
    assert_eq!(
        std::fs::metadata(dev.join("a/file")).map_or(0, |meta| meta.len()),
        0,
        "mounted in the container alone"
    );
    let after = entries(&dev);
    assert!(before.iter().all(|name| after.contains(name)), "{before:?} {after:?}");
    assert!(!after.iter().any(|name| name == "zero" || name.starts_with('.')), "{after:?}");
    pod.remove().await;
    sys::mount::detach_below(&folder).unwrap();
}

fn entries(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

async fn devices(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let device = |host: &str, inside: &str, permissions: &str| v1::Device {
        host_path: host.into(),
        container_path: inside.into(),
        permissions: permissions.into(),
    };
    let mut config = sleeping("main");
    config.devices = vec![device("/dev/zero", "/dev/nothing", "r")];
    if subject.name != "containerd" && subject.handler.is_empty() {
        // As `volumeDevices` may ask for it.
        config.devices.push(device("/dev/zero", "/data/disk", "rwm"));
    }
    let id = pod.start(config).await;
    assert_eq!(pod.sh(&id, "head -c 3 /dev/nothing | wc -c").await, ("3".to_owned(), 0));
    if subject.name != "containerd" && subject.handler.is_empty() {
        assert_eq!(pod.sh(&id, "head -c 3 /data/disk | wc -c").await, ("3".to_owned(), 0));
    }
    let (text, code) = pod.sh(&id, "mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg").await;
    assert_ne!(code, 0, "a device that was not given: {text}");
    let mut config = sleeping("missing");
    config.devices = vec![device("/dev/nothing-at-all", "/dev/x", "rwm")];
    assert!(pod.try_create(config).await.is_err());
    pod.remove().await;
}

fn read(subject: &Subject, pod: &str, id: &str, controller: &str, v1: &str, v2: &str) -> String {
    let cgroups = sys::cgroup::Cgroups::detect().unwrap();
    let parent = subject.cgroup.as_str();
    let dir = cgroups.dir_of(controller, &format!("{parent}/{pod}/{id}")).unwrap();
    let file = if cgroups.version() == sys::cgroup::Version::V1 { v1 } else { v2 };
    std::fs::read_to_string(dir.join(file)).unwrap().trim().to_owned()
}

async fn limits(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let uid = pod.config.metadata.clone().unwrap().uid;
    let mut config = sleeping("main");
    let wanted = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 20_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 64 << 20,
        cpuset_cpus: "0".into(),
        ..Default::default()
    };
    *resources(&mut config) = wanted.clone();
    let id = pod.start(config).await;
    let memory = || read(&subject, &uid, &id, "memory", "memory.limit_in_bytes", "memory.max");
    assert_eq!(memory(), (64 << 20).to_string());
    assert_eq!(read(&subject, &uid, &id, "cpuset", "cpuset.cpus", "cpuset.cpus"), "0");
    let is_v1 = sys::cgroup::Cgroups::detect().unwrap().version() == sys::cgroup::Version::V1;
    if is_v1 {
        assert_eq!(read(&subject, &uid, &id, "cpu", "cpu.shares", ""), "512");
        assert_eq!(read(&subject, &uid, &id, "cpu", "cpu.cfs_quota_us", ""), "20000");
    }
    let linux = v1::LinuxContainerResources {
        memory_limit_in_bytes: 80 << 20,
        cpu_shares: 1024,
        cpu_quota: 30_000,
        ..wanted
    };
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(linux),
        ..Default::default()
    };
    subject.runtime.update_container_resources(request).await.unwrap();
    assert_eq!(memory(), (80 << 20).to_string());
    if is_v1 {
        assert_eq!(read(&subject, &uid, &id, "cpu", "cpu.shares", ""), "1024");
        assert_eq!(read(&subject, &uid, &id, "cpu", "cpu.cfs_quota_us", ""), "30000");
    }
    let status = pod.status(&id).await;
    if let Some(linux) = status.resources.and_then(|resources| resources.linux) {
        assert_eq!((linux.memory_limit_in_bytes, linux.cpu_shares), (80 << 20, 1024));
    }
    pod.remove().await;
}

async fn huge_pages(subject: Arc<Subject>) {
    let cgroups = sys::cgroup::Cgroups::detect().unwrap();
    let Some(dir) = cgroups.dir_of("hugetlb", "/") else { return };
    if !dir.join("hugetlb.2MB.limit_in_bytes").exists() && !dir.join("hugetlb.2MB.max").exists() {
        return;
    }
    let pod = subject.run().await;
    let uid = pod.config.metadata.clone().unwrap().uid;
    let mut config = sleeping("main");
    let limit = v1::HugepageLimit { page_size: "2MB".into(), limit: 4 << 20 };
    resources(&mut config).hugepage_limits = vec![limit];
    let id = pod.start(config).await;
    let found = read(&subject, &uid, &id, "hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max");
    assert_eq!(found, (4 << 20).to_string());
    pod.remove().await;
}

async fn oom(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let mut config = container("main", "tail /dev/zero");
    resources(&mut config).memory_limit_in_bytes = 32 << 20;
    let id = pod.start(config).await;
    let status = pod.wait_exit(&id).await;
    assert_eq!(status.exit_code, 137);
    // containerd hears of it apart from the end.
    let started = Instant::now();
    while pod.status(&id).await.reason != "OOMKilled" {
        assert!(started.elapsed() < DEADLINE, "{:?}", pod.status(&id).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pod.remove().await;
}

async fn stats(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let (a, b) = (pod.start(sleeping("a")).await, pod.start(sleeping("b")).await);
    let one = subject.runtime.container_stats(v1::ContainerStatsRequest { container_id: a.clone() }).await;
    let one = one.unwrap().stats.unwrap();
    let attributes = one.attributes.unwrap();
    assert_eq!((attributes.id, attributes.metadata.unwrap().name), (a.clone(), "a".to_owned()));
    let (cpu, memory) = (one.cpu.unwrap(), one.memory.unwrap());
    assert!(cpu.timestamp > 0 && cpu.usage_core_nano_seconds.unwrap().value > 0);
    assert!(memory.timestamp > 0 && memory.working_set_bytes.unwrap().value > 0);
    // containerd measures it now and then.
    if let Some(layer) = one.writable_layer.filter(|layer| layer.timestamp > 0) {
        assert!(!layer.fs_id.unwrap().mountpoint.is_empty() && layer.used_bytes.unwrap().value > 0);
    }
    let list = async |filter: v1::ContainerStatsFilter| {
        let request = v1::ListContainerStatsRequest { filter: Some(filter) };
        let stats = subject.runtime.list_container_stats(request).await.unwrap().stats;
        let mut ids: Vec<String> = stats.into_iter().map(|it| it.attributes.unwrap().id).collect();
        ids.sort();
        ids
    };
    let of_pod = v1::ContainerStatsFilter { pod_sandbox_id: pod.id.clone(), ..Default::default() };
    let mut both = vec![a, b.clone()];
    both.sort();
    assert_eq!(list(of_pod.clone()).await, both);
    let label_selector = HashMap::from([("app".to_owned(), "b".to_owned())]);
    assert_eq!(list(v1::ContainerStatsFilter { label_selector, ..of_pod }).await, std::slice::from_ref(&b));
    assert_eq!(list(v1::ContainerStatsFilter { id: b.clone(), ..Default::default() }).await, [b]);
    pod.remove().await;
}

async fn several(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let server = pod.start(container("server", "while :; do echo served | nc -l -p 8080; done")).await;
    let client = pod.start(sleeping("client")).await;
    let text = pod.wait_sh(&client, "nc -w 3 127.0.0.1 8080 < /dev/null | grep served").await;
    assert_eq!(text, "served");
    assert_eq!(pod.sh(&server, "hostname").await, pod.sh(&client, "hostname").await);
    pod.remove().await;
}

async fn checkpoint(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let location = subject.scratch("checkpoint").join("it.tar").display().to_string();
    let request = v1::CheckpointContainerRequest { container_id: id, location, timeout: 0 };
    assert!(subject.runtime.checkpoint_container(request).await.is_err());
    pod.remove().await;
}

async fn hostile_links(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let folder = subject.scratch("hostile");
    std::fs::write(folder.join("file"), "text").unwrap();
    let mut config = sleeping("main");
    config.mounts = vec![
        mount(&folder, "/escape/folder"),
        mount(&folder.join("file"), "/escape-by-root/file"),
        mount(&folder, "/escape/../../../../up"),
    ];
    config.working_dir = "/escape-by-root/cwd".into();
    let id = pod.start(config).await;
    let script = format!("cat {OUTSIDE}/folder/file {OUTSIDE}/file /escape/file; ls -d {OUTSIDE}/cwd");
    assert_eq!(pod.sh(&id, &script).await, (format!("texttexttext{OUTSIDE}/cwd"), 0));
    assert!(!Path::new(OUTSIDE).exists(), "it was made on the host");
    // Over what the runtime itself needs.
    for target in ["/proc", "/proc/self/fd", "/proc/sys"] {
        let mut config = sleeping(&format!("over{}", target.replace('/', "-")));
        config.mounts = vec![mount(&folder, target)];
        let refused = match pod.try_create(config).await {
            Ok(id) => pod.try_start(&id).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{target}");
    }
    pod.remove().await;
}

async fn hostile_processes(subject: Arc<Subject>) {
    let pod = subject.run().await;
    // It forks as fast as it can, and each of its processes ignores what it can.
    let script = "trap '' TERM HUP INT; b() { for n in 1 2 3 4 5 6 7 8; do (sleep 1000 & sleep 1000) & done; }; b; echo up; wait";
    let id = pod.start(container("bomb", script)).await;
    pod.wait_log("bomb", "up").await;
    let other = pod.start(sleeping("other")).await;
    let (seen, _) = pod.sh(&other, "ps | grep -c 's[l]eep 1000'").await;
    assert_eq!(seen, "0");
    // Programs that are the runtime's own, by what procfs says of them (CVE-2019-5736).
    let make = "cd /tmp; ln -s /proc/self/exe link; printf '#!/proc/self/exe\\n' > script; chmod +x script";
    assert_eq!(pod.sh(&other, make).await, (String::new(), 0));
    for path in ["/proc/self/exe", "/proc/thread-self/exe", "/proc/1/exe", "/tmp/link", "/tmp/script"] {
        let ran = pod.exec(&other, &[path, "sh", "-c", "echo > /proc/$PPID/exe"], 5).await;
        assert!(ran.is_err() || ran.unwrap().exit_code != 0, "{path}");
    }
    pod.stop(&id, 0).await;
    assert_eq!(pod.status(&id).await.exit_code, 137);
    assert_eq!(pod.sh(&other, "echo alive").await, ("alive".to_owned(), 0));
    pod.remove().await;
}
