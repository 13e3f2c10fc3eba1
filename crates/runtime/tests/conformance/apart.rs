//! What namespaces keep from containers: the host's files from those that share processes, and one user namespace from
//! the next.
#![allow(unreachable_pub)]

use std::sync::Arc;

use cri::{CriError, v1};
use v1::NamespaceMode;

use super::Spec;
use super::support::{Feature, Subject, namespaces, security, sleeping};

pub const SPECS: &[Spec] = &[
    ("the first process of a shared PID namespace leads to nothing of the host", |it| {
        Box::pin(first_process(it))
    }),
    ("a pod with a user namespace may share processes", |it| Box::pin(users_and_processes(it))),
    ("user namespaces of other kinds are refused", |it| Box::pin(other_user_namespaces(it))),
];

fn sharing(name: &str) -> v1::ContainerConfig {
    let mut config = sleeping(name);
    security(&mut config).namespace_options.as_mut().unwrap().pid = NamespaceMode::Pod as i32;
    config
}

async fn first_process(subject: Arc<Subject>) {
    let pod = subject.run_with(|config| namespaces(config).pid = NamespaceMode::Pod as i32).await;
    let marked = subject.scratch("of-the-host");
    let mut config = sharing("tracing");
    let wanted = v1::Capability { add_capabilities: vec!["SYS_PTRACE".into()], ..Default::default() };
    security(&mut config).capabilities = Some(wanted);
    let script = format!("readlink /proc/1/ns/pid && test ! -e /proc/1/root{}", marked.display());
    let (text, code) = pod.says(config, &script).await;
    assert_eq!(code, 0, "it may trace the process, and finds nothing of the host there: {text}");
    if subject.name != "containerd" {
        // containerd's has an image's files, of which nobody minds the reading.
        let (text, _) = pod.says(sharing("plain"), "ls /proc/1/root/").await;
        assert!(text.contains("Permission denied"), "{text}");
        let (text, _) = pod.says(sharing("own"), "grep -E 'Cap(Eff|Prm|Bnd)' /proc/1/status | cut -f2").await;
        assert_eq!(text, ["0000000000000000"; 3].join("\n"));
    }
    pod.remove().await;
}

fn mapped(length: u32) -> v1::UserNamespace {
    let mapping = v1::IdMapping { host_id: 131_072, container_id: 0, length };
    v1::UserNamespace { mode: NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] }
}

async fn users_and_processes(subject: Arc<Subject>) {
    if !subject.has(Feature::UserNamespaces) {
        return;
    }
    let change = |config: &mut v1::PodSandboxConfig| {
        let options = namespaces(config);
        options.pid = NamespaceMode::Pod as i32;
        options.userns_options = Some(mapped(65536));
    };
    let pod = subject.run_with(change).await;
    let with = |name: &str| {
        let mut config = sharing(name);
        security(&mut config).namespace_options.as_mut().unwrap().userns_options = Some(mapped(65536));
        config
    };
    let (first, code) = pod.says(with("first"), "readlink /proc/self/ns/pid").await;
    assert_eq!(code, 0, "{first}");
    let second = pod.start(with("second")).await;
    assert_eq!(pod.sh(&second, "readlink /proc/self/ns/pid").await, (first, 0));
    let (text, _) = pod
        .sh(
            &second,
            "stat -c %u /proc/1/status; readlink /proc/self/ns/user; cat /proc/self/uid_map | tr -s ' '",
        )
        .await;
    assert!(text.contains(" 0 131072 65536"), "{text}");
    // A container more, as `kubectl debug --target` starts it.
    let mut config = with("debug");
    let options = security(&mut config).namespace_options.as_mut().unwrap();
    (options.pid, options.target_id) = (NamespaceMode::Target as i32, second.clone());
    // All three; a fork on its way to `sleep` looks like one more.
    let (text, code) = pod.says(config, "ps; test $(ps | grep -c 'echo read[y]') -ge 3").await;
    assert_eq!(code, 0, "{text}");
    pod.remove().await;
}

async fn other_user_namespaces(subject: Arc<Subject>) {
    if !subject.has(Feature::UserNamespaces) {
        return;
    }
    let two = v1::IdMapping { host_id: 300_000, container_id: 65536, length: 1 };
    let mut of_node = mapped(65536);
    of_node.mode = NamespaceMode::Node.into();
    let mut twice = mapped(65536);
    twice.uids.push(two);
    let mut without_root = mapped(65536);
    without_root.uids[0].container_id = 1;
    let of_mode = |mode: NamespaceMode| v1::UserNamespace { mode: mode.into(), ..Default::default() };
    for (wanted, expect) in [
        (of_mode(NamespaceMode::Container), "mode CONTAINER is not supported"),
        (of_mode(NamespaceMode::Target), "mode TARGET is not supported"),
        (of_node, "mode NODE must have no mappings"),
        (twice, "uids must be one mapping"),
        (without_root, "uids must be one mapping"),
    ] {
        let mut config = subject.sandbox_config();
        namespaces(&mut config).userns_options = Some(wanted);
        let error = subject.try_run(config).await.map(drop).unwrap_err();
        assert!(matches!(&error, CriError::InvalidArgument(text) if text.contains(expect)), "{error:?}");
    }
}
