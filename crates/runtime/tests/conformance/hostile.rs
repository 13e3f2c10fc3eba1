//! Containers that mean harm: none of it has an effect outside their Pod.
#![allow(unreachable_pub)]

use std::os::unix::fs::symlink;
use std::sync::Arc;

use cri::v1;
use cri::v1::NamespaceMode;
use sys::cgroup::{Cgroups, Limits};

use super::Spec;
use super::support::{Feature, Subject, container, mount, namespaces, security, sleeping};

pub const SPECS: &[Spec] = &[
    ("a link in the place of /dev/null does not lay bare what is masked", |it| Box::pin(false_null(it))),
    ("a link in the place of a masked or read-only path leads nowhere", |it| Box::pin(false_paths(it))),
    ("a mount point that is a link stays inside", |it| Box::pin(linked_mount_point(it))),
    ("a link in the place of a terminal does not lay bare what is masked", |it| Box::pin(false_console(it))),
    ("what is written to a process by its path goes nowhere else", |it| Box::pin(false_process(it))),
    ("what enters a container shows it nothing of the host", |it| Box::pin(watched_exec(it))),
    ("what makes processes without end stays within its pod", |it| Box::pin(fork_bomb(it))),
    ("what writes without end after its container's end holds nobody up", |it| Box::pin(endless_output(it))),
    ("folders deeper than a path can be are counted and taken back", |it| Box::pin(deep_folders(it))),
    ("a mount point that changes all the time stays inside", |it| Box::pin(changing_mount_point(it))),
    ("devices and pipes that are made in a container lead to nothing", |it| Box::pin(made_devices(it))),
];

/// Source: CVE-2025-31133.
async fn false_null(subject: Arc<Subject>) {
    if !subject.has(Feature::RealNull) {
        return;
    }
    let pod = subject.run().await;
    let folder = subject.scratch("null");
    for name in ["null", "zero", "console", "ptmx", "core"] {
        symlink("/data/secret", folder.join(name)).unwrap();
    }
    let mut config = container("main", "cat /proc/kcore; echo over > /proc/kcore; cat /data/secret");
    config.mounts = vec![mount(&folder, "/dev"), mount(&secret(&subject), "/data")];
    security(&mut config).masked_paths = vec!["/proc/kcore".into()];
    let id = pod.try_create(config).await;
    let started = match &id {
        Ok(id) => pod.try_start(id).await,
        Err(error) => Err(error.clone()),
    };
    if let (Ok(id), Ok(())) = (&id, &started) {
        pod.wait_exit(id).await;
        assert_eq!(pod.log("main").matches("secret").count(), 1, "{}", pod.log("main"));
    }
    pod.remove().await;
}

fn secret(subject: &Subject) -> std::path::PathBuf {
    let folder = subject.scratch("secret");
    std::fs::write(folder.join("secret"), "secret\n").unwrap();
    folder
}

async fn false_paths(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let folder = subject.scratch("paths");
    symlink("/proc/sys", folder.join("masked")).unwrap();
    symlink("../../../../../etc", folder.join("readonly")).unwrap();
    let host = std::fs::read("/etc/passwd").unwrap();
    let mut config = container("main", "ls /links/masked/ | wc -l; echo x >> /links/readonly/passwd");
    config.mounts = vec![mount(&folder, "/links")];
    let context = security(&mut config);
    context.masked_paths = vec!["/links/masked".into()];
    context.readonly_paths = vec!["/links/readonly".into()];
    if let Ok(id) = pod.try_create(config).await
        && pod.try_start(&id).await.is_ok()
    {
        pod.wait_exit(&id).await;
    }
    assert_eq!(std::fs::read("/etc/passwd").unwrap(), host);
    assert!(std::fs::read_dir("/proc/sys").unwrap().count() > 0, "the host's own is not masked");
    pod.remove().await;
}

async fn linked_mount_point(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let (folder, links) = (subject.scratch("mounted"), subject.scratch("links"));
    std::fs::write(folder.join("marker"), "here").unwrap();
    let outside = subject.scratch("outside");
    symlink(&outside, links.join("out")).unwrap();
    symlink("../../../../../../tmp", links.join("up")).unwrap();
    for (name, point) in [("absolute", "/links/out/point"), ("relative", "/links/up/point")] {
        let mut config = container(name, &format!("cat {point}/marker"));
        config.mounts = vec![mount(&links, "/links"), mount(&folder, point)];
        if let Ok(id) = pod.try_create(config).await
            && pod.try_start(&id).await.is_ok()
        {
            assert_eq!((pod.wait_exit(&id).await.exit_code, pod.text(name).await), (0, "here".to_owned()));
        }
        assert!(!outside.join("point").exists(), "{name}");
        assert!(!std::path::Path::new("/tmp/point").exists(), "{name}");
    }
    pod.remove().await;
}

/// The terminal is mounted at `/dev/console`: neither what is mounted nor where may be chosen by a link. Source:
/// CVE-2025-52565.
async fn false_console(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let secrets = secret(&subject);
    for (name, point) in [("console", "/dev"), ("pts", "/dev/pts")] {
        let folder = subject.scratch(name);
        std::fs::create_dir(folder.join("pts")).unwrap();
        let numbers: Vec<String> = (0..16).map(|number| number.to_string()).collect();
        for terminal in numbers.iter().map(String::as_str).chain(["console", "ptmx"]) {
            symlink("/data/secret", folder.join(terminal)).unwrap();
            symlink("/data/secret", folder.join("pts").join(terminal)).unwrap();
        }
        let mut config =
            container(name, "(echo over > /dev/console) 2>/dev/null; cat /data/secret; echo end");
        config.tty = true;
        config.mounts = vec![mount(&folder, point), read_only(mount(&secrets, "/data"))];
        security(&mut config).masked_paths = vec!["/data/secret".into()];
        if let Ok(id) = pod.try_create(config).await
            && pod.try_start(&id).await.is_ok()
        {
            pod.wait_exit(&id).await;
            assert!(!pod.log(name).contains("secret\r\n"), "{name}: {}", pod.log(name));
        }
        assert_eq!(std::fs::read_to_string(secrets.join("secret")).unwrap(), "secret\n", "{name}");
    }
    pod.remove().await;
}

fn read_only(mount: v1::Mount) -> v1::Mount {
    v1::Mount { readonly: true, ..mount }
}

/// Labels, the score of the kernel's killer and the like are written to files of a process; in a container those may be
/// anybody's. Source: CVE-2025-52881.
async fn false_process(subject: Arc<Subject>) {
    const FILES: [&str; 9] = [
        "attr/exec",
        "attr/current",
        "attr/keycreate",
        "attr/apparmor/exec",
        "oom_score_adj",
        "setgroups",
        "uid_map",
        "timens_offsets",
        "loginuid",
    ];
    let pod = subject.run().await;
    let (secrets, folder) = (secret(&subject), subject.scratch("process"));
    for process in ["self", "thread-self", "1"] {
        std::fs::create_dir_all(folder.join(process).join("attr/apparmor")).unwrap();
        FILES.iter().for_each(|file| symlink("/data/secret", folder.join(process).join(file)).unwrap());
    }
    let mut config = container("main", "sleep 1000");
    config.mounts = vec![mount(&folder, "/proc"), mount(&secrets, "/data")];
    let profile = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault as i32,
        ..Default::default()
    };
    security(&mut config).apparmor = Some(profile);
    if let Ok(id) = pod.try_create(config).await
        && pod.try_start(&id).await.is_ok()
    {
        // It may be refused.
        drop(pod.exec(&id, &["true"], 10).await);
        pod.stop(&id, 0).await;
    }
    assert_eq!(std::fs::read_to_string(secrets.join("secret")).unwrap(), "secret\n");
    pod.remove().await;
}

/// A process on its way into a container is, for a while, the runtime's program with the runtime's files. Source:
/// CVE-2019-5736, CVE-2024-21626.
async fn watched_exec(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let watch = "cd /tmp; while [ ! -e stop ]; do for p in /proc/[0-9]*; do \
        readlink $p/exe; readlink $p/cwd; readlink $p/root; for f in $p/fd/*; do readlink $f; done; \
        (echo spoiled >> $p/exe) 2>/dev/null && echo WRITTEN; done; done >> seen 2>/dev/null; echo done";
    let id = pod.start(container("main", watch)).await;
    let program = std::env::current_exe().unwrap();
    let before = std::fs::metadata(&program).unwrap();
    for _ in 0..30 {
        assert_eq!(pod.sh(&id, "echo hello").await, ("hello".to_owned(), 0));
    }
    let (seen, _) = pod.sh(&id, "touch /tmp/stop; cat /tmp/seen | sort -u").await;
    let is_inside = |line: &&str| {
        ["/bin/", "/tmp", "/dev/", "pipe:", "socket:", "/proc/", "anon_inode:"]
            .iter()
            .any(|start| line.starts_with(start))
            || matches!(*line, "/" | "")
    };
    let outside: Vec<&str> = seen.lines().filter(|line| !is_inside(line)).collect();
    assert!(outside.is_empty(), "{outside:?}");
    // The container's own output has a name there.
    let is_own = |line: &&str| line.ends_with("/stdout") || line.ends_with("/stderr");
    let mut others = seen.lines().filter(|line| !is_own(line));
    assert!(!others.any(|line| line.contains(subject.folder.to_str().unwrap())), "{seen}");
    let after = std::fs::metadata(&program).unwrap();
    assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
    pod.remove().await;
}

async fn fork_bomb(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let other = subject.run().await;
    let calm = other.start(sleeping("calm")).await;
    let cgroups = Cgroups::detect().unwrap();
    let parent = pod.config.linux.clone().unwrap().cgroup_parent;
    cgroups.create(&parent).unwrap();
    let limits = Limits { pids_max: Some(80), ..Limits::default() };
    assert_eq!(cgroups.set_limits(&parent, &limits).unwrap(), [""; 0], "without this it would not end");
    // The shell ends when it cannot fork; what it has made stays, and so does the first process.
    let bomb = "(while :; do sleep 1000 & done) & exec sleep 1000";
    let id = pod.start(container("bomb", bomb)).await;
    super::support::wait_until(|| cgroups.usage(&parent).threads >= 70).await;
    assert_eq!(other.sh(&calm, "echo calm").await, ("calm".to_owned(), 0));
    pod.stop(&id, 0).await;
    assert_eq!(pod.status(&id).await.state, v1::ContainerState::ContainerExited as i32);
    super::support::wait_until(|| cgroups.processes(&parent).len() <= 1).await;
    pod.remove().await;
    other.remove().await;
}

async fn endless_output(subject: Arc<Subject>) {
    let pod = subject.run_with(|config| namespaces(config).pid = NamespaceMode::Pod as i32).await;
    let sharing = |mut config: v1::ContainerConfig| {
        security(&mut config).namespace_options.as_mut().unwrap().pid = NamespaceMode::Pod as i32;
        config
    };
    let calm = pod.start(sharing(sleeping("calm"))).await;
    let id = pod.start(sharing(container("main", "yes & exit 3"))).await;
    assert_eq!(pod.wait_exit(&id).await.exit_code, 3);
    assert_eq!(pod.sh(&calm, "echo calm").await, ("calm".to_owned(), 0));
    pod.remove().await;
}

async fn deep_folders(subject: Arc<Subject>) {
    if !subject.has(Feature::DeepFolders) {
        return;
    }
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let script = "cd /tmp; step=$(seq -s / 1000); \
        for n in $(seq 3); do mkdir -p $step && cd -P $step 2> /dev/null || exit 1; done; echo x > file";
    assert_eq!(pod.sh(&id, script).await, (String::new(), 0));
    let request = v1::ContainerStatsRequest { container_id: id.clone() };
    let stats = subject.runtime.container_stats(request).await.unwrap().stats.unwrap();
    let inodes = stats.writable_layer.unwrap().inodes_used.unwrap().value;
    assert!(inodes >= 3_001, "{inodes}");
    pod.remove().await;
}

/// Source: CVE-2021-30465.
async fn changing_mount_point(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let (volume, inner, outside) =
        (subject.scratch("volume"), subject.scratch("inner"), subject.scratch("outside"));
    std::fs::write(inner.join("marker"), "here").unwrap();
    let shared = mount(&volume, "/volume");
    let mut config = container(
        "changing",
        &format!(
            "cd /volume; while :; do rm -rf point aside link; mkdir point; ln -s ../../../../../../../..{} link; \
             echo ready; mv point aside; mv link point; mv point link; mv aside point; done",
            outside.display()
        ),
    );
    config.mounts = vec![shared.clone()];
    pod.start(config).await;
    pod.wait_log("changing", "ready").await;
    for number in 0..20 {
        let mut config = container(&format!("mounting-{number}"), "cat /volume/point/inner/marker");
        config.mounts = vec![shared.clone(), mount(&inner, "/volume/point/inner")];
        if let Ok(id) = pod.try_create(config).await
            && pod.try_start(&id).await.is_ok()
        {
            pod.wait_exit(&id).await;
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "attempt {number}");
    }
    pod.remove().await;
}

/// Of the image, or made by who may make them: of a container's own devices there are few.
async fn made_devices(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    assert_eq!(pod.sh(&id, "mknod /tmp/memory c 1 1; mknod /tmp/disk b 7 0").await, (String::new(), 0));
    for device in ["/node-memory", "/node-disk", "/tmp/memory", "/tmp/disk"] {
        let (text, code) = pod.sh(&id, &format!("head -c 1 {device}")).await;
        assert!(code != 0 && text.ends_with("Operation not permitted"), "{device}: {text}");
    }
    assert_eq!(pod.sh(&id, "echo through > /node-pipe & cat /node-pipe").await, ("through".to_owned(), 0));
    pod.remove().await;
}
