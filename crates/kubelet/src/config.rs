//! What a kubelet is told at start.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

pub use configuration::{ConfigurationError, Sources};
pub use cpu_set::{CpuSet, ParseError};
pub use image_gc::ImageGcPolicy;
pub use images::{Allowed, ImagePulls, PatternError, PullRate, Verification};
pub use reserved::{Enforced, Reserved, ReservedCgroup};
pub use shutdown::ShutdownPeriod;
pub use static_policies::{ReservedMemory, StaticPolicy};

use crate::config::alignment::Alignment;
use crate::config::eviction::Policy as EvictionPolicy;

pub mod alignment;
pub(crate) mod configuration;
mod cpu_set;
mod duration;
pub mod eviction;
mod fields;
pub(crate) mod flag;
mod image_gc;
mod images;
mod reserved;
mod resources;
mod shutdown;
mod static_policies;

/// The least priority of a critical Pod. Source: `scheduling.SystemCriticalPriority`.
pub(crate) const CRITICAL_PRIORITY: i64 = 2_000_000_000;
/// The least number of users that a Pod of its own has. Source: `userNsUnitLength`.
pub(crate) const USERS_OF_POD: u32 = 65_536;
/// The longest wait of a container that ends again and again. Source: `MaxCrashLoopBackOff`.
pub const CRASH_LOOP_MAX: Duration = Duration::from_secs(300);

/// Whether containers may be swapped. Source: `memorySwap.swapBehavior`, KEP-2400.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapBehavior {
    /// Nothing of them: `NoSwap`.
    #[default]
    None,
    /// Those of Burstable Pods, by their share of the memory: `LimitedSwap`.
    Limited,
}

/// A kubelet's settings, under upstream's names where it has them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Node's name, and who the kubelet is: `system:node:<name>`.
    pub node_name: String,
    /// The node's addresses, the primary one first.
    pub node_ips: Vec<String>,
    /// Whether a cloud says of the Node what it is, and where. Source: `--cloud-provider external`.
    pub has_cloud: bool,
    /// Those of the node's addresses that an operator has given: a cloud is told of them.
    pub provided_node_ips: Vec<String>,
    /// What the cloud calls the machine; empty if it says so itself. Source: `providerID`.
    pub provider_id: String,
    /// Extra labels for the Node.
    pub node_labels: BTreeMap<String, String>,
    /// Taints that the Node is registered with, as `key=value:Effect`.
    pub register_with_taints: Vec<String>,
    /// Pod directories are in `pods/` below.
    pub root_dir: PathBuf,
    /// Container logs are below: `<namespace>_<name>_<uid>/<container>/<restart count>.log`.
    pub pod_logs_dir: PathBuf,
    /// The cgroup under which `kubepods` is made; `/` for the host's root.
    pub cgroup_root: String,
    /// Addresses of the cluster's DNS.
    pub cluster_dns: Vec<String>,
    /// Such as `cluster.local`.
    pub cluster_domain: String,
    /// The host's resolver settings, for Pods that use them.
    pub resolv_conf: PathBuf,
    /// Most Pods on this node.
    pub max_pods: u32,
    /// Users of the host's that a Pod with `hostUsers: false` gets.
    pub users_of_pod: u32,
    /// Where the kubelet's HTTPS server listens; `None` for no server.
    pub server: Option<ServerConfig>,
    /// When the certificate ends that the API server knows the kubelet by; `None` if there is none.
    pub client_certificate_ends: Option<Timestamp>,
    /// What `nodeInfo.kubeletVersion` says, such as `v1.35.0+knarr`.
    pub version: String,
    /// Containers without a seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// A container's log file is rotated at this size, in bytes.
    pub container_log_max_size: u64,
    /// So many log files are kept of a container, with the one that is written.
    pub container_log_max_files: u32,
    /// How often the logs of a runtime are looked at that does not rotate them by itself.
    pub container_log_monitor_interval: Duration,
    /// How images are pulled.
    pub image_pulls: ImagePulls,
    /// Most images that the Node's status lists; `None` for any number. Source: `nodeStatusMaxImages`.
    pub node_status_max_images: Option<u32>,
    /// When images are collected.
    pub image_gc: crate::config::ImageGcPolicy,
    /// How long exec, attach and port-forward may be silent before they end; zero is for ever.
    pub streaming_connection_idle_timeout: Duration,
    /// A file or a folder with Pods that run whatever the API says. Source: `staticPodPath`.
    pub static_pod_path: Option<PathBuf>,
    /// What of the machine Pods cannot have.
    pub reserved: Reserved,
    /// Whether each Pod has a cgroup of its own, below those of the quality-of-service classes.
    pub cgroups_per_qos: bool,
    /// What of the node's cgroups is held below what it may have. Source: `enforceNodeAllocatable`.
    pub enforced: Enforced,
    /// When Pods must go for the node to live.
    pub eviction: EvictionPolicy,
    /// Processes and threads that a Pod may have; `-1` for any number. Source: `podPidsLimit`.
    pub pod_pids_limit: i64,
    /// Whether limits of CPU are held to. Source: `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// Whether containers may be swapped; only on cgroup v2. Source: `memorySwap.swapBehavior`.
    pub swap_behavior: SwapBehavior,
    /// Whether a process that the kernel kills for lack of memory dies alone; on cgroup v2 all of its container die with
    /// it if nobody says so. Source: `singleProcessOOMKill`.
    pub single_process_oom_kill: Option<bool>,
    /// The longest wait before a container is started again. Source: `crashLoopBackOff.maxContainerRestartPeriod`.
    pub crash_loop_max: Duration,
    /// Whether Guaranteed containers with whole CPUs have them for themselves. Source: `cpuManagerPolicy: static`.
    pub exclusive_cpus: Option<StaticPolicy>,
    /// Whether Guaranteed containers have memory of certain NUMA nodes, and what of it nobody gets.
    /// Source: `memoryManagerPolicy: Static`, `reservedMemory`.
    pub reserved_memory: Option<ReservedMemory>,
    /// Whether what containers have alone must lie together. Source: `topologyManagerPolicy`, `topologyManagerScope`.
    pub alignment: Alignment,
    /// How long Pods may take to end when the machine goes down, lowest priority first; empty for not at all.
    /// Source: `shutdownGracePeriodByPodPriority`, `shutdownGracePeriod`.
    pub shutdown: Vec<ShutdownPeriod>,
    /// The D-Bus address of the system bus; `None` for the usual one.
    pub system_bus: Option<String>,
    /// Whether `/logs/` shows `/var/log`. Source: `enableSystemLogHandler`.
    pub shows_logs: bool,
    /// Sysctls that are not safe and still allowed; a `*` at the end stands for anything.
    /// Source: `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// How often the lease is renewed follows from this. Source: `nodeLeaseDurationSeconds`.
    pub node_lease_duration_seconds: i64,
    /// How often volumes are looked after of which nobody tells. Source: `syncFrequency`.
    pub sync_frequency: Duration,
    /// How often the status is written when nothing changes. Source: `nodeStatusReportFrequency`.
    pub node_status_report_frequency: Duration,
    /// What `/configz` shows: the configuration with everything that was not said filled in.
    pub configz: Value,
}

/// The kubelet's HTTPS server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The addresses where it listens, the Node's main one first.
    pub ips: Vec<IpAddr>,
    /// The port at all of them; 0 takes one that is free at the first.
    pub port: u16,
    /// Certificate, and the CA that client certificates are checked against.
    pub tls: Arc<rustls::ServerConfig>,
    /// When that certificate ends.
    pub certificate_ends: Option<Timestamp>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: "localhost".into(),
            node_ips: vec!["127.0.0.1".into()],
            has_cloud: false,
            provided_node_ips: Vec::new(),
            provider_id: String::new(),
            node_labels: BTreeMap::new(),
            register_with_taints: Vec::new(),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cgroup_root: "/".into(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            max_pods: 110,
            users_of_pod: USERS_OF_POD,
            server: None,
            client_certificate_ends: None,
            version: machinery::version::GIT_VERSION.into(),
            seccomp_default: true,
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            container_log_monitor_interval: Duration::from_secs(10),
            image_pulls: ImagePulls::default(),
            node_status_max_images: Some(configuration::images::NODE_STATUS_MAX_IMAGES),
            image_gc: crate::config::ImageGcPolicy::default(),
            streaming_connection_idle_timeout: Duration::from_secs(4 * 3600),
            static_pod_path: None,
            reserved: Reserved::default(),
            cgroups_per_qos: true,
            enforced: Enforced { pods: true, ..Enforced::default() },
            eviction: EvictionPolicy::default(),
            pod_pids_limit: -1,
            cpu_cfs_quota: true,
            swap_behavior: SwapBehavior::None,
            single_process_oom_kill: None,
            crash_loop_max: CRASH_LOOP_MAX,
            exclusive_cpus: None,
            reserved_memory: None,
            alignment: Alignment::default(),
            shutdown: Vec::new(),
            system_bus: None,
            shows_logs: true,
            allowed_unsafe_sysctls: Vec::new(),
            node_lease_duration_seconds: 40,
            sync_frequency: Duration::from_secs(60),
            node_status_report_frequency: Duration::from_secs(300),
            configz: Value::Null,
        }
    }
}

impl Config {
    /// The directory of one Pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }

    /// The directory of one Pod's logs.
    pub fn log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.pod_logs_dir.join(format!("{namespace}_{name}_{uid}"))
    }
}
