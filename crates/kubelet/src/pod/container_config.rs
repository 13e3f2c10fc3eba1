//! What the runtime is asked for: sandbox and container configurations made from a Pod's spec.
//!
//! Pure. Sources: `kuberuntime_sandbox_linux.go`, `kuberuntime_container_linux.go` and
//! `security_context.go` of upstream.

pub(crate) mod security;

use std::collections::HashMap;
use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::config::Config;
use crate::pod::env::expand::expand;
use crate::pod::files::{self, ClusterDns, Complaint, dns_config, kernel_name, names};
use crate::pod::identity::identity;
use crate::pod::identity::spec_hash;
use crate::pod::{labels, qos};
use security::RunsAsRoot;

fn cluster_dns(config: &Config) -> ClusterDns {
    let loopback = |ip: &String| if ip.contains(':') { "::1".to_owned() } else { "127.0.0.1".to_owned() };
    let has_host = !config.resolv_conf.as_os_str().is_empty();
    ClusterDns {
        servers: config.cluster_dns.clone(),
        domain: config.cluster_domain.clone(),
        loopback: config.node_ips.iter().filter(|_| !has_host).map(loopback).collect(),
    }
}

/// What of the Pod's name server settings is not as it should be: for events.
pub(crate) fn dns_complaints(config: &Config, pod: &Pod, resolv_conf: &str) -> Vec<Complaint> {
    let (_, namespace, _) = identity(pod);
    let of = |spec| files::dns_complaints(&namespace, spec, &cluster_dns(config), resolv_conf);
    pod.spec.as_ref().map(of).unwrap_or_default()
}

/// The sandbox for `pod`. `resolv_conf` is the text of the host's file.
pub fn sandbox_config(config: &Config, pod: &Pod, attempt: u32, resolv_conf: &str) -> v1::PodSandboxConfig {
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let (name, namespace, uid) = identity(pod);
    let cluster = cluster_dns(config);
    let (short, _) = names(&name, &namespace, spec, &config.cluster_domain);
    let hostname = kernel_name(&name, &namespace, spec, &config.cluster_domain).unwrap_or(short);
    let mut labels = HashMap::from([
        (labels::POD_NAME.to_owned(), name.clone()),
        (labels::POD_NAMESPACE.to_owned(), namespace.clone()),
        (labels::POD_UID.to_owned(), uid.clone()),
    ]);
    for (key, value) in pod.metadata.labels.iter().flatten() {
        labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    v1::PodSandboxConfig {
        hostname: if spec.host_network == Some(true) { String::new() } else { hostname },
        log_directory: config.log_dir(&namespace, &name, &uid).display().to_string(),
        dns_config: Some(dns_config(&namespace, spec, &cluster, resolv_conf)),
        port_mappings: port_mappings(spec),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: qos::cgroup_parent(&config.cgroup_root, pod),
            security_context: Some(security::sandbox(spec)),
            sysctls: security::sysctls(spec),
            overhead: Some(qos::sandbox_overhead(spec)),
            resources: Some(qos::sandbox_resources(spec)),
        }),
        windows: None,
        metadata: Some(v1::PodSandboxMetadata { name, uid, namespace, attempt }),
    }
}

fn port_mappings(spec: &PodSpec) -> Vec<v1::PortMapping> {
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports
        .map(|port| v1::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => v1::Protocol::Udp,
                Some("SCTP") => v1::Protocol::Sctp,
                _ => v1::Protocol::Tcp,
            }
            .into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

/// What is known about a container when it is about to be created.
#[derive(Clone, Debug, Default)]
pub struct ContainerInput {
    /// Its restart count.
    pub attempt: u32,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Its mounts.
    pub mounts: Vec<v1::Mount>,
    /// The runtime's reference of its image.
    pub image_ref: String,
    /// The container whose PID namespace it enters. Source: `EphemeralContainer.targetContainerName`.
    pub target_id: Option<String>,
    /// Groups of its first process beside those that the Pod names: its volumes' files are for them.
    pub extra_groups: Vec<i64>,
    /// The node's memory in bytes.
    pub memory_capacity: i64,
    /// Whether the runtime said who the image runs as.
    pub image_user: Option<ImageUser>,
}

/// Who an image runs as if nobody says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageUser {
    /// By number.
    Uid(i64),
    /// By name: nobody knows the number.
    Name(String),
}

/// The container that `spec` describes.
///
/// # Errors
/// It must not run like that.
pub fn container_config(
    config: &Config,
    pod: &Pod,
    spec: &Container,
    input: ContainerInput,
) -> Result<v1::ContainerConfig, RunsAsRoot> {
    let empty = PodSpec::default();
    let pod_spec = pod.spec.as_ref().unwrap_or(&empty);
    security::verify_non_root(pod, pod_spec, spec, input.image_user.as_ref())?;
    let (name, namespace, uid) = identity(pod);
    let lookup = |name: &str| input.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let expand_all =
        |items: &Option<Vec<String>>| items.iter().flatten().map(|item| expand(item, &lookup)).collect();
    let image = spec.image.clone().unwrap_or_default();
    let security_context = security_context(config, pod_spec, spec, &input);
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: spec.name.clone(), attempt: input.attempt }),
        image: Some(v1::ImageSpec {
            image: if input.image_ref.is_empty() { image.clone() } else { input.image_ref.clone() },
            user_specified_image: image,
            ..v1::ImageSpec::default()
        }),
        command: expand_all(&spec.command),
        args: expand_all(&spec.args),
        working_dir: spec.working_dir.clone().unwrap_or_default(),
        mounts: input.mounts,
        labels: HashMap::from([
            (labels::POD_NAME.to_owned(), name),
            (labels::POD_NAMESPACE.to_owned(), namespace),
            (labels::POD_UID.to_owned(), uid),
            (labels::CONTAINER_NAME.to_owned(), spec.name.clone()),
        ]),
        annotations: annotations(config, pod_spec, spec, input.attempt),
        log_path: Path::new(&spec.name).join(format!("{}.log", input.attempt)).display().to_string(),
        stdin: spec.stdin == Some(true),
        stdin_once: spec.stdin_once == Some(true),
        tty: spec.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(qos::container_resources(pod_spec, spec, input.memory_capacity)),
            security_context: Some(security_context),
        }),
        envs: input.env.into_iter().map(|(key, value)| v1::KeyValue { key, value }).collect(),
        ..v1::ContainerConfig::default()
    })
}

fn security_context(
    config: &Config,
    pod: &PodSpec,
    spec: &Container,
    input: &ContainerInput,
) -> v1::LinuxContainerSecurityContext {
    let mut context = security::container(pod, spec, config.seccomp_default);
    context.supplemental_groups.extend(&input.extra_groups);
    if let Some(profile) = context.seccomp.as_mut().filter(|profile| !profile.localhost_ref.is_empty()) {
        let path = config.root_dir.join("seccomp").join(&profile.localhost_ref);
        profile.localhost_ref = path.display().to_string();
    }
    // Runtimes take no group without a user.
    if context.run_as_user.is_none() && context.run_as_group.is_some() {
        match &input.image_user {
            Some(ImageUser::Name(name)) => context.run_as_username.clone_from(name),
            Some(ImageUser::Uid(uid)) => context.run_as_user = Some(v1::Int64Value { value: *uid }),
            None => context.run_as_user = Some(v1::Int64Value { value: 0 }),
        }
    }
    if let (Some(target_id), Some(namespaces)) = (&input.target_id, &mut context.namespace_options) {
        namespaces.set_pid(v1::NamespaceMode::Target);
        namespaces.target_id.clone_from(target_id);
    }
    context
}

/// Where a container leaves its last words if its spec does not say.
pub(crate) const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";

fn annotations(config: &Config, pod: &PodSpec, spec: &Container, attempt: u32) -> HashMap<String, String> {
    let path = spec.termination_message_path.clone().unwrap_or_else(|| TERMINATION_MESSAGE_PATH.into());
    let policy = spec.termination_message_policy.clone().unwrap_or_else(|| "File".into());
    let mut annotations = HashMap::from([
        (labels::CONTAINER_HASH.to_owned(), spec_hash(spec)),
        (labels::RESTART_COUNT.to_owned(), attempt.to_string()),
        (labels::TERMINATION_MESSAGE_PATH.to_owned(), path),
        (labels::TERMINATION_MESSAGE_POLICY.to_owned(), policy),
        (cri::annotations::LOG_FILE_BYTES_MAX.to_owned(), config.container_log_max_size.to_string()),
        (cri::annotations::LOG_FILES_MAX.to_owned(), config.container_log_max_files.to_string()),
    ]);
    if let Some(grace) = pod.termination_grace_period_seconds {
        annotations.insert(labels::POD_GRACE_PERIOD.to_owned(), grace.to_string());
    }
    annotations
}

#[cfg(test)]
mod tests;
