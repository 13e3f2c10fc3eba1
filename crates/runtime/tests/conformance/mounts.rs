//! Mounts that cross into and out of containers.
#![allow(unreachable_pub)]

use std::sync::Arc;

use cri::v1;
use sys::mount::{BindOptions, Propagation};
use v1::MountPropagation::{PropagationBidirectional, PropagationHostToContainer, PropagationPrivate};
use v1::NamespaceMode;

use super::Spec;
use super::support::{Feature, Subject, mount, sleeping};

pub const SPECS: &[Spec] = &[
    ("mount propagation should be private, slave or shared", |it| Box::pin(propagation(it))),
    ("a container sees its own cgroups, and changes them if privileged", |it| Box::pin(cgroups(it))),
    ("propagation that the host's mount does not have is refused", |it| Box::pin(private(it))),
];

async fn cgroups(subject: Arc<Subject>) {
    use super::support::{namespaces, resources, security};
    const LIMIT_BYTES: i64 = 96 << 20;
    let is_v1 = sys::cgroup::Cgroups::detect().unwrap().version() == sys::cgroup::Version::V1;
    let (folder, limit) = match is_v1 {
        true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        false => ("/sys/fs/cgroup", "memory.max"),
    };
    for (mode, is_privileged) in
        [(NamespaceMode::Container, false), (NamespaceMode::Pod, false), (NamespaceMode::Pod, true)]
    {
        let pod = subject
            .run_with(|config| {
                namespaces(config).pid = mode.into();
                config.linux.as_mut().unwrap().security_context.as_mut().unwrap().privileged = is_privileged;
            })
            .await;
        let mut config = sleeping("main");
        resources(&mut config).memory_limit_in_bytes = LIMIT_BYTES;
        let context = security(&mut config);
        context.privileged = is_privileged;
        context.namespace_options.as_mut().unwrap().pid = mode.into();
        let id = pod.start(config).await;
        // A privileged container has no cgroup namespace: with v2 it sees the host's.
        if is_v1 || !is_privileged {
            let seen = pod.sh(&id, &format!("cat {folder}/{limit}")).await;
            assert_eq!(seen, (LIMIT_BYTES.to_string(), 0), "{mode:?}");
            assert_eq!(pod.sh(&id, &format!("echo 0 > {folder}/cgroup.procs")).await.1 == 0, is_privileged);
        }
        let above = subject.has(Feature::ReadOnlyCgroupFolder).then_some("/sys/fs/cgroup");
        for folder in [Some(folder), above].into_iter().flatten() {
            let made = pod.sh(&id, &format!("mkdir {folder}/made")).await;
            assert_eq!(made.1 == 0, is_privileged, "{folder} {mode:?}: {made:?}");
        }
        pod.remove().await;
    }
}

async fn propagation(subject: Arc<Subject>) {
    let pod = subject.run_privileged().await;
    for (mode, inwards, outwards) in [
        (PropagationPrivate, false, false),
        (PropagationHostToContainer, true, false),
        (PropagationBidirectional, true, true),
    ] {
        let folder = subject.scratch("propagation");
        sys::mount::bind(&folder, &folder, BindOptions::default()).unwrap();
        sys::mount::set_propagation(&folder, Propagation::Shared).unwrap();
        for name in ["from-host", "from-container"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        let mut config = sleeping(&format!("{mode:?}"));
        super::support::security(&mut config).privileged = true;
        config.mounts = vec![v1::Mount { propagation: mode.into(), ..mount(&folder, "/mnt/it") }];
        let id = pod.start(config).await;
        sys::mount::tmpfs(&folder.join("from-host"), Some(1 << 20), 0o777).unwrap();
        std::fs::write(folder.join("from-host/mark"), "").unwrap();
        assert_eq!(pod.sh(&id, "test -e /mnt/it/from-host/mark").await.1 == 0, inwards, "{mode:?} inwards");
        let inside = "mount -t tmpfs none /mnt/it/from-container && touch /mnt/it/from-container/mark";
        assert_eq!(pod.sh(&id, inside).await, (String::new(), 0));
        assert_eq!(folder.join("from-container/mark").exists(), outwards, "{mode:?} outwards");
        pod.sh(&id, "umount /mnt/it/from-container").await;
        pod.stop(&id, 0).await;
        sys::mount::detach_below(&folder).unwrap();
    }
    pod.remove().await;
}

async fn private(subject: Arc<Subject>) {
    if !subject.has(Feature::PrivateMounts) {
        return;
    }
    let pod = subject.run().await;
    let folder = subject.scratch("private");
    sys::mount::bind(&folder, &folder, BindOptions::default()).unwrap();
    sys::mount::set_propagation(&folder, Propagation::Private).unwrap();
    let wanted = [
        (PropagationBidirectional, "but it is not a shared mount"),
        (PropagationHostToContainer, "but it is not a shared or slave mount"),
    ];
    for (mode, expect) in wanted {
        let mut config = sleeping(&format!("{mode:?}"));
        config.mounts = vec![v1::Mount { propagation: mode.into(), ..mount(&folder, "/mnt/it") }];
        let error = pod.try_create(config).await.unwrap_err().to_string();
        assert!(error.contains(expect) && error.contains("is mounted on"), "{error}");
    }
    pod.remove().await;
    sys::mount::detach_below(&folder).unwrap();
}
