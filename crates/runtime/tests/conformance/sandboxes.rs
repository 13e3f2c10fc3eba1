//! Runtime info, Pod sandboxes, their network and namespaces.
#![allow(unreachable_pub)]

use std::collections::HashMap;
use std::sync::Arc;

use cri::{CriError, v1};
use v1::NamespaceMode;

use super::Spec;
use super::support::{Feature, Subject, container, namespaces, security, sleeping};

pub const SPECS: &[Spec] = &[
    ("runtime should return version info", |it| Box::pin(version(it))),
    ("runtime should return runtime conditions", |it| Box::pin(conditions(it))),
    ("runtime should return its cgroup driver", |it| Box::pin(runtime_config(it))),
    ("runtime should support running, stopping and removing PodSandbox", |it| Box::pin(lifecycle(it))),
    ("runtime should support listing PodSandbox with filters", |it| Box::pin(listing(it))),
    ("stop and remove are idempotent", |it| Box::pin(idempotence(it))),
    ("a name is one PodSandbox's and one container's", |it| Box::pin(names(it))),
    ("what is not there is not found", |it| Box::pin(not_found(it))),
    ("an unknown runtime handler is an error", |it| Box::pin(unknown_handler(it))),
    ("runtime should support DNS config", |it| Box::pin(dns(it))),
    ("runtime should support port mapping", |it| Box::pin(port_mapping(it))),
    ("runtime should support HostNetwork", |it| Box::pin(host_network(it))),
    ("runtime should support HostIPC", |it| Box::pin(host_ipc(it))),
    ("runtime should support HostPID, PodPID and ContainerPID", |it| Box::pin(pid_namespaces(it))),
    ("runtime should support a target's PID namespace", |it| Box::pin(target_pid(it))),
    ("runtime should support safe and unsafe sysctls", |it| Box::pin(sysctls(it))),
    ("runtime should send events", |it| Box::pin(events(it))),
    ("runtime should take a PodSandbox's new resources", |it| Box::pin(resources(it))),
    ("runtime should support PodSandbox stats", |it| Box::pin(stats(it))),
];

async fn version(subject: Arc<Subject>) {
    let version = subject.runtime.version(v1::VersionRequest { version: "v1".into() }).await.unwrap();
    assert_eq!((version.version.as_str(), version.runtime_api_version.as_str()), ("0.1.0", "v1"));
    assert!(!version.runtime_name.is_empty() && !version.runtime_version.is_empty());
}

async fn conditions(subject: Arc<Subject>) {
    let status = subject.runtime.status(v1::StatusRequest { verbose: true }).await.unwrap();
    let conditions = status.status.unwrap().conditions;
    for name in ["RuntimeReady", "NetworkReady"] {
        assert!(conditions.iter().any(|it| it.r#type == name && it.status), "{conditions:?}");
    }
    assert!(status.info.contains_key("config"), "{:?}", status.info.keys());
    if !subject.handler.is_empty() {
        let handler = status.runtime_handlers.iter().find(|it| it.name == subject.handler).unwrap();
        let has = handler.features.unwrap_or_default().recursive_read_only_mounts;
        assert_eq!(has, subject.has(Feature::RecursiveReadOnly));
    }
}

async fn runtime_config(subject: Arc<Subject>) {
    if !subject.has(Feature::RuntimeConfig) {
        return;
    }
    let config = subject.runtime.runtime_config(v1::RuntimeConfigRequest {}).await.unwrap();
    assert_eq!(config.linux.unwrap().cgroup_driver(), v1::CgroupDriver::Cgroupfs);
    let network_config = Some(v1::NetworkConfig { pod_cidr: String::new() });
    let request =
        v1::UpdateRuntimeConfigRequest { runtime_config: Some(v1::RuntimeConfig { network_config }) };
    subject.runtime.update_runtime_config(request).await.unwrap();
}

async fn lifecycle(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let status = pod.sandbox_status().await;
    assert_eq!(status.state(), v1::PodSandboxState::SandboxReady);
    assert_eq!(status.metadata, pod.config.metadata);
    assert_eq!((&status.labels, &status.annotations), (&pod.config.labels, &pod.config.annotations));
    assert_eq!(status.runtime_handler, subject.handler);
    assert!(status.created_at > 1_600_000_000_000_000_000, "{}", status.created_at);
    let options = status.linux.unwrap().namespaces.unwrap().options.unwrap();
    assert_eq!(options.pid(), NamespaceMode::Container);
    assert!(status.network.unwrap().ip.starts_with("10.42.0."));
    let verbose = v1::PodSandboxStatusRequest { pod_sandbox_id: pod.id.clone(), verbose: true };
    let info = subject.runtime.pod_sandbox_status(verbose).await.unwrap().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
    assert!(info["pid"].as_i64().unwrap() > 0, "{info}");
    let id = pod.start(sleeping("main")).await;
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
    subject.runtime.stop_pod_sandbox(stop.clone()).await.unwrap();
    assert_eq!(pod.sandbox_status().await.state(), v1::PodSandboxState::SandboxNotready);
    assert_eq!(pod.status(&id).await.state(), v1::ContainerState::ContainerExited);
    assert!(pod.try_create(sleeping("late")).await.is_err());
    subject.runtime.stop_pod_sandbox(stop).await.unwrap();
    pod.remove().await;
    let request = v1::ContainerStatusRequest { container_id: id, verbose: false };
    assert!(matches!(subject.runtime.container_status(request).await, Err(CriError::NotFound(_))));
}

async fn listing(subject: Arc<Subject>) {
    let (ready, stopped) = (subject.run().await, subject.run().await);
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: stopped.id.clone() };
    subject.runtime.stop_pod_sandbox(stop).await.unwrap();
    let list = async |filter: v1::PodSandboxFilter| {
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let items = subject.runtime.list_pod_sandbox(request).await.unwrap().items;
        items.into_iter().map(|item| item.id).collect::<Vec<_>>()
    };
    let by_id = v1::PodSandboxFilter { id: ready.id.clone(), ..Default::default() };
    assert_eq!(list(by_id.clone()).await, std::slice::from_ref(&ready.id));
    let not_ready = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxNotready.into() };
    assert_eq!(list(v1::PodSandboxFilter { state: Some(not_ready), ..by_id.clone() }).await, [""; 0]);
    let label_selector = stopped.config.labels.clone();
    let by_label = v1::PodSandboxFilter { label_selector, ..Default::default() };
    assert_eq!(list(by_label.clone()).await, std::slice::from_ref(&stopped.id));
    assert_eq!(list(v1::PodSandboxFilter { id: ready.id.clone(), ..by_label.clone() }).await, [""; 0]);
    assert_eq!(
        list(v1::PodSandboxFilter { state: Some(not_ready), ..by_label }).await,
        std::slice::from_ref(&stopped.id)
    );
    let all = list(v1::PodSandboxFilter::default()).await;
    assert!(all.contains(&ready.id) && all.contains(&stopped.id));
    ready.remove().await;
    stopped.remove().await;
}

async fn idempotence(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let stop = v1::StopContainerRequest { container_id: id.clone(), timeout: 5 };
    let remove = v1::RemoveContainerRequest { container_id: id.clone() };
    for _ in 0..2 {
        subject.runtime.stop_container(stop.clone()).await.unwrap();
    }
    subject.runtime.remove_container(remove.clone()).await.unwrap();
    subject.runtime.remove_container(remove).await.unwrap();
    pod.remove().await;
    let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.id.clone() };
    subject.runtime.remove_pod_sandbox(remove).await.unwrap();
    if subject.has(Feature::StopOfUnknown) {
        subject.runtime.stop_container(stop).await.unwrap();
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
        subject.runtime.stop_pod_sandbox(stop).await.unwrap();
    }
}

/// Of two at once one is made, and of what could not be made the name is free.
async fn names(subject: Arc<Subject>) {
    let config = subject.sandbox_config();
    let both = futures::join!(subject.try_run(config.clone()), subject.try_run(config.clone()));
    let (pod, error) = match both {
        (Ok(pod), Err(error)) | (Err(error), Ok(pod)) => (pod, error),
        (first, second) => panic!("{:?} {:?}", first.map(|it| it.id), second.map(|it| it.id)),
    };
    let metadata = config.metadata.clone().unwrap();
    let name = format!("{}_default_{}_2", metadata.name, metadata.uid);
    let refused =
        format!("failed to reserve sandbox name {name:?}: name {name:?} is reserved for {:?}", pod.id);
    assert_eq!(error.to_string(), refused);
    let mut next = config.clone();
    next.metadata.as_mut().unwrap().attempt += 1;
    let next = subject.try_run(next).await.unwrap();

    let mut unknown = sleeping("main");
    unknown.image.as_mut().unwrap().image = "test.local/none:1".into();
    pod.try_create(unknown).await.unwrap_err();
    let both = futures::join!(pod.try_create(sleeping("main")), next.try_create(sleeping("main")));
    let (id, error) = match both {
        (Ok(id), Err(error)) | (Err(error), Ok(id)) => (id, error),
        both => panic!("{both:?}"),
    };
    let name = format!("main_{}_default_{}_3", metadata.name, metadata.uid);
    let refused = format!("failed to reserve container name {name:?}: name {name:?} is reserved for {id:?}");
    assert_eq!(error.to_string(), refused);
    let remove = v1::RemoveContainerRequest { container_id: id };
    subject.runtime.remove_container(remove).await.unwrap();
    pod.try_create(sleeping("main")).await.unwrap();
    pod.remove().await;
    next.remove().await;
    subject.try_run(config).await.unwrap().remove().await;
}

async fn not_found(subject: Arc<Subject>) {
    let id = "0123456789".to_owned();
    let runtime = &subject.runtime;
    let sandbox = v1::PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false };
    let container = v1::ContainerStatusRequest { container_id: id.clone(), verbose: false };
    let stats = v1::ContainerStatsRequest { container_id: id.clone() };
    let start = v1::StartContainerRequest { container_id: id.clone() };
    let exec = v1::ExecSyncRequest { container_id: id, cmd: vec!["true".into()], timeout: 1 };
    let errors = [
        runtime.pod_sandbox_status(sandbox).await.map(drop).unwrap_err(),
        runtime.container_status(container).await.map(drop).unwrap_err(),
        runtime.container_stats(stats).await.map(drop).unwrap_err(),
        runtime.start_container(start).await.map(drop).unwrap_err(),
        runtime.exec_sync(exec).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, CriError::NotFound(_)), "{error:?}");
    }
}

async fn unknown_handler(subject: Arc<Subject>) {
    let request = v1::RunPodSandboxRequest {
        config: Some(subject.sandbox_config()),
        runtime_handler: "nobodys".into(),
    };
    let error = subject.runtime.run_pod_sandbox(request).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("no runtime for \"nobodys\" is configured"), "{error}");
}

async fn dns(subject: Arc<Subject>) {
    let dns = v1::DnsConfig {
        servers: vec!["10.10.10.10".into()],
        searches: vec!["google.com".into()],
        options: vec!["ndots:8".into()],
    };
    let pod = subject.run_with(|config| config.dns_config = Some(dns)).await;
    let (text, _) = pod.says(sleeping("main"), "cat /etc/resolv.conf; hostname; cat /etc/hostname").await;
    let lines: Vec<&str> = text.lines().collect();
    let name = pod.config.hostname.as_str();
    assert_eq!(lines, ["search google.com", "nameserver 10.10.10.10", "options ndots:8", name, name]);
    pod.remove().await;
}

async fn port_mapping(subject: Arc<Subject>) {
    let number = subject.sandboxes.load(std::sync::atomic::Ordering::Relaxed);
    let host_port = 12_000 + i32::try_from(number).unwrap();
    let mapping = |host_port| v1::PortMapping { container_port: 80, host_port, ..Default::default() };
    let mapped = subject.run_with(|config| config.port_mappings = vec![mapping(host_port)]).await;
    let plain = subject.run_with(|config| config.port_mappings = vec![mapping(0)]).await;
    let serve = "while :; do echo served | nc -l -p 80; done";
    mapped.start(container("main", serve)).await;
    plain.start(container("main", serve)).await;
    let caller = subject.run_with(on_host).await;
    let mut config = sleeping("main");
    security(&mut config).namespace_options.as_mut().unwrap().network = NamespaceMode::Node as i32;
    let id = caller.start(config).await;
    let ip = plain.sandbox_status().await.network.unwrap().ip;
    for target in [format!("{ip} 80"), format!("10.42.0.1 {host_port}")] {
        let text = caller.wait_sh(&id, &format!("nc -w 3 {target} < /dev/null | grep served")).await;
        assert_eq!(text, "served", "{target}");
    }
    for pod in [mapped, plain, caller] {
        pod.remove().await;
    }
}

/// Without a host name of its own, as the kubelet asks for it.
fn on_host(config: &mut v1::PodSandboxConfig) {
    namespaces(config).network = NamespaceMode::Node as i32;
    config.hostname = String::new();
}

async fn host_network(subject: Arc<Subject>) {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    for (mode, is_host) in [(NamespaceMode::Node, true), (NamespaceMode::Pod, false)] {
        let pod = match mode {
            NamespaceMode::Node => subject.run_with(on_host).await,
            _ => subject.run().await,
        };
        let mut config = sleeping("main");
        security(&mut config).namespace_options.as_mut().unwrap().network = mode as i32;
        let (text, _) = pod.says(config, "readlink /proc/self/ns/net").await;
        assert_eq!(text == own, is_host, "{mode:?}: {text} {own}");
        pod.remove().await;
    }
}

async fn host_ipc(subject: Arc<Subject>) {
    let own = std::fs::read_link("/proc/self/ns/ipc").unwrap().display().to_string();
    for (mode, is_host) in [(NamespaceMode::Node, true), (NamespaceMode::Pod, false)] {
        let pod = subject.run_with(|config| namespaces(config).ipc = mode as i32).await;
        let mut config = sleeping("main");
        security(&mut config).namespace_options.as_mut().unwrap().ipc = mode as i32;
        // The host's is that of others, too, who do the same at the same time.
        let mark = format!("/dev/shm/mark-{}", pod.id);
        let (text, _) = pod.says(config.clone(), &format!("readlink /proc/self/ns/ipc; touch {mark}")).await;
        assert_eq!(text == own, is_host, "{mode:?}: {text} {own}");
        config.metadata.as_mut().unwrap().name = "second".into();
        let (shared, code) = pod.says(config, &format!("ls {mark}; rm {mark}")).await;
        assert_eq!(code, 0, "{shared}");
        pod.remove().await;
    }
}

async fn pid_namespaces(subject: Arc<Subject>) {
    for mode in [NamespaceMode::Container, NamespaceMode::Pod, NamespaceMode::Node] {
        let pod = subject.run_with(|config| namespaces(config).pid = mode as i32).await;
        let with = |name: &str| {
            let mut config = sleeping(name);
            security(&mut config).namespace_options.as_mut().unwrap().pid = mode as i32;
            config
        };
        let (first, _) = pod.says(with("first"), "readlink /proc/self/ns/pid").await;
        let (second, _) = pod.says(with("second"), "readlink /proc/self/ns/pid").await;
        assert_eq!(first == second, mode != NamespaceMode::Container, "{mode:?}");
        let (init, _) = pod.says(with("third"), "cat /proc/1/cmdline | tr '\\0' ' ' | cut -c1-12").await;
        assert_eq!(init.starts_with("/bin/sh -c"), mode == NamespaceMode::Container, "{mode:?}: {init}");
        pod.remove().await;
    }
}

async fn target_pid(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let target = pod.start(sleeping("target")).await;
    let mut config = sleeping("debug");
    let options = security(&mut config).namespace_options.as_mut().unwrap();
    (options.pid, options.target_id) = (NamespaceMode::Target as i32, target.clone());
    let (inside, _) = pod.says(config, "readlink /proc/self/ns/pid; readlink /proc/self/ns/mnt").await;
    let (theirs, _) = pod.sh(&target, "readlink /proc/self/ns/pid; readlink /proc/self/ns/mnt").await;
    let (inside, theirs): (Vec<&str>, Vec<&str>) = (inside.lines().collect(), theirs.lines().collect());
    assert_eq!(inside[0], theirs[0]);
    assert_ne!(inside[1], theirs[1]);
    let mut config = sleeping("lost");
    let options = security(&mut config).namespace_options.as_mut().unwrap();
    (options.pid, options.target_id) = (NamespaceMode::Target as i32, "nobody".into());
    assert!(pod.try_create(config).await.is_err());
    pod.remove().await;
}

async fn sysctls(subject: Arc<Subject>) {
    let wanted = HashMap::from([
        ("kernel.shm_rmid_forced".to_owned(), "1".to_owned()),
        ("net.ipv4.ip_local_port_range".to_owned(), "1024\t65000".to_owned()),
        ("fs.mqueue.msg_max".to_owned(), "100".to_owned()),
    ]);
    let pod = subject.run_with(|config| config.linux.as_mut().unwrap().sysctls = wanted).await;
    let script = "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_local_port_range \
                  /proc/sys/fs/mqueue/msg_max";
    let (text, _) = pod.says(sleeping("main"), script).await;
    assert_eq!(text, "1\n1024\t65000\n100");
    if subject.has(Feature::UnprivilegedPorts) {
        let script = "cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start ping_group_range";
        assert_eq!(pod.says(sleeping("ports"), script).await.0, "0\n0\t2147483647");
    }
    pod.remove().await;
}

async fn events(subject: Arc<Subject>) {
    use futures::StreamExt;
    use v1::ContainerEventType::{
        ContainerCreatedEvent, ContainerDeletedEvent, ContainerStartedEvent, ContainerStoppedEvent,
    };
    if !subject.has(Feature::Events) {
        return;
    }
    let mut events = subject.runtime.get_container_events(v1::GetEventsRequest {}).await.unwrap();
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    pod.stop(&id, 5).await;
    pod.remove().await;
    let mut seen = Vec::new();
    let all = [
        (pod.id.clone(), ContainerStartedEvent),
        (id.clone(), ContainerCreatedEvent),
        (id.clone(), ContainerStartedEvent),
        (id.clone(), ContainerStoppedEvent),
        (pod.id.clone(), ContainerStoppedEvent),
        (id.clone(), ContainerDeletedEvent),
        (pod.id.clone(), ContainerDeletedEvent),
    ];
    let reading = async {
        while seen.len() < all.len() {
            let event = events.next().await.unwrap().unwrap();
            if event.container_id == id || event.container_id == pod.id {
                assert!(event.created_at > 0 && event.pod_sandbox_status.is_some());
                seen.push((event.container_id.clone(), event.container_event_type()));
            }
        }
    };
    tokio::time::timeout(super::support::DEADLINE, reading).await.expect("the events must come");
    assert_eq!(seen, all);
}

async fn stats(subject: Arc<Subject>) {
    let pod = subject.run().await;
    let id = pod.start(sleeping("main")).await;
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: pod.id.clone() };
    let stats = subject.runtime.pod_sandbox_stats(request).await.unwrap().stats.unwrap();
    let attributes = stats.attributes.unwrap();
    assert_eq!((&attributes.id, &attributes.labels), (&pod.id, &pod.config.labels));
    let linux = stats.linux.unwrap();
    assert!(linux.cpu.unwrap().usage_core_nano_seconds.is_some());
    assert_eq!(linux.network.unwrap().default_interface.unwrap().name, "eth0");
    assert!(linux.containers.iter().any(|it| it.attributes.as_ref().unwrap().id == id));
    let filter = v1::PodSandboxStatsFilter { id: String::new(), label_selector: pod.config.labels.clone() };
    let request = v1::ListPodSandboxStatsRequest { filter: Some(filter) };
    let listed = subject.runtime.list_pod_sandbox_stats(request).await.unwrap().stats;
    assert_eq!(listed.len(), 1);
    if subject.has(Feature::Metrics) {
        let described = subject.runtime.list_metric_descriptors(v1::ListMetricDescriptorsRequest {}).await;
        let described = described.unwrap().descriptors.into_iter();
        let labels: HashMap<String, Vec<String>> = described.map(|it| (it.name, it.label_keys)).collect();
        let is_described =
            |metric: &v1::Metric| labels.get(&metric.name).map(Vec::len) == Some(metric.label_values.len());
        let listed = subject.runtime.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {}).await;
        let metrics = listed.unwrap().pod_metrics.into_iter().find(|it| it.pod_sandbox_id == pod.id).unwrap();
        let of_container = &metrics.container_metrics[0];
        assert_eq!(of_container.container_id, id);
        assert!(of_container.metrics.iter().all(is_described) && metrics.metrics.iter().all(is_described));
        let names: Vec<&str> = of_container.metrics.iter().map(|metric| metric.name.as_str()).collect();
        for name in [
            "container_cpu_usage_seconds_total",
            "container_memory_working_set_bytes",
            "container_memory_cache",
            "container_memory_failures_total",
            "container_fs_usage_bytes",
            "container_processes",
            "container_start_time_seconds",
            "container_oom_events_total",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let processes = of_container.metrics.iter().find(|it| it.name == "container_processes").unwrap();
        assert!(processes.value.unwrap().value >= 1);
        let metadata = pod.config.metadata.clone().unwrap();
        let of_pod = [metadata.name, metadata.namespace];
        assert_eq!(processes.label_values[..2], of_pod);
        assert_eq!(processes.label_values[2..4], ["main".to_owned(), id.clone()]);
        let received = metrics.metrics.iter().find(|it| it.name == "container_network_receive_bytes_total");
        let received = &received.unwrap().label_values;
        assert_eq!(received[..2], of_pod);
        assert_eq!(received[2..], ["", &pod.id, "", "eth0"].map(str::to_owned));
        let eth0 = metrics.metrics.iter().filter(|it| it.label_values.last().is_some_and(|it| it == "eth0"));
        let mut counted: Vec<&str> = eth0.map(|it| it.name.as_str()).collect();
        counted.sort_unstable();
        let counters = ["bytes", "errors", "packets_dropped", "packets"];
        let all = ["receive", "transmit"]
            .map(|way| counters.map(|it| format!("container_network_{way}_{it}_total")));
        assert_eq!(counted, all.concat());
    }
    pod.remove().await;
}

async fn resources(subject: Arc<Subject>) {
    if !subject.has(Feature::PodResources) {
        return;
    }
    let pod = subject.run().await;
    let wanted = v1::LinuxContainerResources {
        cpu_shares: 512,
        memory_limit_in_bytes: 64 << 20,
        ..Default::default()
    };
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: pod.id.clone(),
        overhead: None,
        resources: Some(wanted),
    };
    subject.runtime.update_pod_sandbox_resources(request).await.unwrap();
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: pod.id.clone(), verbose: true };
    let info = subject.runtime.pod_sandbox_status(request).await.unwrap().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
    assert_eq!(info["resources"]["cpu"]["shares"], 512);
    assert_eq!(info["resources"]["memory"]["limit"], 64 << 20);
    pod.remove().await;
}
