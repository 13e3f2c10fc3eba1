//! All that is known about one Pod at one moment: the input of [`crate::pod::next_actions`] and [`crate::pod::status`].
//!
//! One worker owns and changes it; the deciders only read it. What can be read back from the runtime after a
//! restart (sandboxes, containers, attempts, exit codes) is never kept anywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, ContainerStatus, Pod, PodSpec};
use serde::{Deserialize, Serialize};

use super::crash_backoff::CrashBackoff;
use super::failure_reason::FailureReason;
use super::job::JobKey;
use super::resize::Resize;
use super::roles::{Role, init_role};
use super::time::{after, nanos};

/// What stands for the code of a container that is lost.
pub(super) const LOST_CODE: i32 = 137;
/// Why it has ended.
pub(super) const LOST_REASON: &str = "ContainerStatusUnknown";

/// One Pod's state.
#[derive(Clone, Debug, Default)]
pub struct PodSnapshot {
    /// The newest object seen, with the resources that the node has agreed to.
    pub pod: Arc<Pod>,
    /// The object is gone from the API although its containers may still run.
    pub removed_from_api: bool,
    /// What the runtime has, oldest first.
    pub sandboxes: Vec<Sandbox>,
    /// What the runtime has, oldest first.
    pub containers: Vec<Container>,
    /// Whether the Pod's directories and mounts are there.
    pub volumes: Step,
    /// Whether drivers have prepared the Pod's claims.
    pub claims: Step,
    /// A driver may have something to take back: the Pod is not over before it has.
    pub holds_claims: bool,
    /// By image name, as the spec has it.
    pub images: BTreeMap<String, Step>,
    /// The last failure to bring a sandbox up.
    pub sandbox_failure: Option<Failure>,
    /// By container name: the last failure to create or start it.
    pub failures: BTreeMap<String, Failure>,
    /// By container name.
    pub probes: BTreeMap<String, ProbeResults>,
    /// By container name.
    pub crashes: BTreeMap<String, CrashBackoff>,
    /// How far its resize is.
    pub resize: Resize,
    /// Actions that are being carried out, by [`crate::pod::next_actions::PodAction::key`].
    pub busy: BTreeSet<JobKey>,
    /// Why the Pod has failed whatever its containers do; `None` if it has not.
    pub ending: Option<Ending>,
    /// The object that shows a static Pod in the API, and that its status is written to.
    pub mirror: Option<Arc<Pod>>,
    /// Its volumes and cgroup are taken back, though containers and logs may be left.
    pub is_released: bool,
    /// Everything on the node is taken back.
    pub is_cleaned: bool,
    /// The API server has the status that this snapshot gives.
    pub is_status_written: bool,
}

/// Why the node is done with a Pod before its containers are: it was not taken, or had to go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Source: `PodStatus.reason`.
    pub reason: String,
    /// Source: `PodStatus.message`.
    pub message: String,
    /// Seconds that its containers have at most; `None` for what the Pod says.
    pub grace: Option<i64>,
    /// The node drove it out: it says so in the condition `DisruptionTarget` (KEP-3329).
    pub is_disruption: bool,
    /// It was never taken: nothing of it was made.
    pub is_rejection: bool,
}

/// How a Pod ends that this node does not take.
pub(crate) fn rejected(reason: String, message: String) -> Ending {
    let message = format!("Pod was rejected: {message}");
    Ending { reason, message, is_rejection: true, ..Ending::default() }
}

/// Something to be prepared once: volumes, an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Not tried.
    #[default]
    Missing,
    /// Done; for an image, the text is its reference.
    Ready(String),
    /// Tried in vain.
    Failed(Failure),
}

impl Step {
    /// Whether it is done.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    /// Why it is not done.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// A failure with the time of the next try.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The reason of `ContainerStateWaiting`, or of an event.
    pub reason: FailureReason,
    /// For people.
    pub message: String,
    /// When it happened.
    pub at: Timestamp,
    /// How long to wait before the next try.
    pub delay: Duration,
}

impl Failure {
    /// When to try again.
    pub fn retry_at(&self) -> Timestamp {
        after(self.at, self.delay)
    }
}

/// A sandbox as the runtime reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// Counts from 0 over the Pod's life.
    pub attempt: u32,
    /// Up, with its network.
    pub is_ready: bool,
    /// The Pod's addresses; empty on the host's network.
    pub ips: Vec<String>,
    /// Its network has no address; on the host's, that is as it should be.
    pub lacks_ip: bool,
}

/// A container as the runtime reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// The runtime's id.
    pub id: String,
    /// The name in the spec.
    pub name: String,
    /// Where it runs.
    pub sandbox_id: String,
    /// Counts from 0 over the Pod's life: the restart count while it is the newest.
    pub attempt: u32,
    /// What it does.
    pub state: ContainerState,
    /// What the spec named.
    pub image: String,
    /// The runtime's digest reference.
    pub image_ref: String,
    /// Of the spec it was made from; empty if unknown.
    pub hash: String,
    /// User and groups of its first process, if the runtime says so.
    pub user: Option<(i64, i64, Vec<i64>)>,
    /// What the kernel has been told, if the runtime says so.
    pub resources: Option<v1::LinuxContainerResources>,
    /// Where it has mounts that are read-only with all that is mounted below them.
    pub recursive_mounts: Vec<String>,
}

/// Source: CRI `ContainerState` with the fields that belong to each.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerState {
    /// Created and not started.
    Created,
    /// Its first process lives.
    Running {
        /// Since when.
        started_at: Timestamp,
    },
    /// Its first process has ended.
    Exited(Exit),
    /// The runtime lost it.
    Unknown,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exit {
    /// 128 plus the signal if a signal killed it.
    pub code: i32,
    /// `OOMKilled` if the kernel did it; else what the runtime says.
    pub reason: String,
    /// The termination message.
    pub message: String,
    /// When it was started; the epoch if it never was.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
}

impl Exit {
    /// Of a container that ran and that the runtime has no more: nobody knows how it ended.
    ///
    /// Source: `convertToAPIContainerStatuses` of upstream's `pkg/kubelet/kubelet_pods.go` for code and words.
    pub(crate) fn lost(started_at: Timestamp, finished_at: Timestamp) -> Self {
        let message = "The container could not be located when the pod was terminated".into();
        Self { code: LOST_CODE, reason: LOST_REASON.into(), message, started_at, finished_at }
    }
}

impl Container {
    /// Whether its first process lives.
    pub fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            ContainerState::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// From the runtime's report.
    pub fn from_cri(status: &v1::ContainerStatus, sandbox_id: &str) -> Self {
        let metadata = status.metadata.clone().unwrap_or_default();
        let image = status.image.clone().unwrap_or_default();
        let user = status.user.as_ref().and_then(|u| u.linux.as_ref());
        Self {
            id: status.id.clone(),
            name: metadata.name,
            sandbox_id: sandbox_id.to_owned(),
            attempt: metadata.attempt,
            state: state_from_cri(status),
            image: if image.user_specified_image.is_empty() {
                image.image
            } else {
                image.user_specified_image
            },
            image_ref: status.image_ref.clone(),
            hash: status.annotations.get(crate::pod::labels::CONTAINER_HASH).cloned().unwrap_or_default(),
            user: user.map(|u| (u.uid, u.gid, u.supplemental_groups.clone())),
            resources: status.resources.as_ref().and_then(|resources| resources.linux.clone()),
            recursive_mounts: status
                .mounts
                .iter()
                .filter(|mount| mount.recursive_read_only)
                .map(|mount| mount.container_path.clone())
                .collect(),
        }
    }
}

fn state_from_cri(status: &v1::ContainerStatus) -> ContainerState {
    match v1::ContainerState::try_from(status.state) {
        Ok(v1::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(v1::ContainerState::ContainerRunning) => {
            ContainerState::Running { started_at: nanos(status.started_at) }
        }
        Ok(v1::ContainerState::ContainerExited) => ContainerState::Exited(Exit {
            code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            started_at: nanos(status.started_at),
            finished_at: nanos(status.finished_at),
        }),
        Ok(v1::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

/// What the probes of one container say. `None`: no result yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeResults {
    /// The container that the results are about.
    pub container_id: String,
    /// Has it come up?
    pub startup: Option<bool>,
    /// Is it alive?
    pub liveness: Option<bool>,
    /// May it get traffic?
    pub readiness: Option<bool>,
}

impl PodSnapshot {
    /// The Pod's spec; an empty one if the object has none.
    pub fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
        self.pod.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
    }

    /// The Pod's uid; empty if it has none.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether the Pod comes from a file.
    pub fn is_static(&self) -> bool {
        crate::pod::identity::is_static(&self.pod)
    }

    /// The uid of the object that the status is written to; `None` if there is none.
    pub fn status_uid(&self) -> Option<&str> {
        if self.is_static() { self.mirror.as_ref()?.metadata.uid.as_deref() } else { Some(self.uid()) }
    }

    /// Deletion was asked for, or the object is gone.
    pub fn is_terminating(&self) -> bool {
        self.removed_from_api || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Something of the Pod runs, or is about to. Source: `CouldHaveRunningContainers` of upstream's kubelet.
    pub fn may_run(&self) -> bool {
        self.containers.iter().any(Container::is_running) || self.busy.iter().any(JobKey::starts_something)
    }

    /// Under which addresses the Pod is reached: of one on the host's network, those of the node; of another, the first of
    /// each family, that of the node's primary one first. Source: `sortPodIPs` of upstream's
    /// `pkg/kubelet/kubelet_pods.go`.
    pub fn addresses(&self, host_ips: &[String]) -> Vec<String> {
        match self.sandboxes.last() {
            _ if self.spec().host_network == Some(true) => self.addresses_of_host(host_ips),
            Some(sandbox) => in_order(&sandbox.ips, host_ips),
            None => Vec::new(),
        }
    }

    /// What was told of them stays, whatever becomes of the node's; a node that gets a second family adds that one.
    /// Source: `generateAPIPodStatus` of upstream's `pkg/kubelet/kubelet_pods.go`.
    fn addresses_of_host(&self, host_ips: &[String]) -> Vec<String> {
        let status = self.pod.status.iter();
        let recorded = status.flat_map(|status| status.pod_ips.iter().flatten());
        let mut ips: Vec<String> = recorded.map(|known| known.ip.clone()).collect();
        if ips.is_empty() && !self.sandboxes.is_empty() {
            return host_ips.to_vec();
        }
        if let ([first], [_, second]) = (ips.as_slice(), host_ips)
            && is_v6(first) != is_v6(second)
        {
            ips.push(second.clone());
        }
        ips
    }

    /// What the API server has about the container of that name.
    pub fn recorded(&self, name: &str) -> Option<&ContainerStatus> {
        let status = self.pod.status.as_ref()?;
        let regular = status.container_statuses.iter().chain(&status.init_container_statuses);
        let all = regular.chain(&status.ephemeral_container_statuses).flatten();
        all.into_iter().find(|s| s.name == name)
    }

    /// The phase that the API server has.
    pub fn recorded_phase(&self) -> &str {
        self.pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
    }

    /// The newest sandbox if it is up, alone, and can be reached: any other is taken down and made anew.
    ///
    /// Source: `PodSandboxChanged` of upstream's `pkg/kubelet/kuberuntime/util`.
    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        let (newest, older) = self.sandboxes.split_last()?;
        let is_alone = older.iter().all(|sandbox| !sandbox.is_ready);
        let is_reachable = !newest.lacks_ip || self.spec().host_network == Some(true);
        Some(newest).filter(|newest| newest.is_ready && is_alone && is_reachable)
    }

    /// The newest container of that name.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().rev().find(|c| c.name == name)
    }

    /// The newest container of that name in the sandbox that is up.
    pub fn current(&self, name: &str) -> Option<&Container> {
        let sandbox = self.ready_sandbox()?;
        self.latest(name).filter(|c| c.sandbox_id == sandbox.id)
    }

    /// The container of that definition that was made and never started: a kubelet ended in between.
    pub fn unstarted(&self, spec: &ContainerSpec) -> Option<&Container> {
        let made = self.current(&spec.name).filter(|c| c.state == ContainerState::Created);
        made.filter(|c| c.hash == crate::pod::identity::spec_hash(spec))
    }

    /// The results that belong to this very container.
    pub fn probe_results(&self, container: &Container) -> Option<&ProbeResults> {
        self.probes.get(&container.name).filter(|p| p.container_id == container.id)
    }

    /// Whether the container is up as far as its startup probe knows.
    pub fn is_started(&self, spec: &ContainerSpec, container: &Container) -> bool {
        container.is_running()
            && !self.busy.contains(&JobKey::Start(spec.name.clone()))
            && (spec.startup_probe.is_none()
                || self.probe_results(container).and_then(|p| p.startup).unwrap_or(false))
    }

    /// Any main container was ever created in the sandbox that is up.
    pub fn has_begun_main(&self) -> bool {
        self.spec().containers.iter().any(|c| self.current(&c.name).is_some())
    }

    /// All init containers have ended, or had before a main container was created.
    pub fn is_initialized(&self) -> bool {
        let spec = self.spec();
        self.has_begun_main() || spec.init_containers.iter().flatten().all(|c| self.is_init_done(c))
    }

    fn is_init_done(&self, spec: &ContainerSpec) -> bool {
        let Some(container) = self.current(&spec.name) else { return false };
        match init_role(spec) {
            Role::Sidecar => self.is_started(spec, container),
            _ => container.exit().is_some_and(|e| e.code == 0),
        }
    }
}

/// The first of each family, that of the node's primary one first.
pub(crate) fn in_order(ips: &[String], host_ips: &[String]) -> Vec<String> {
    let prefers_v6 = host_ips.first().and_then(|ip| is_v6(ip)).unwrap_or(false);
    let of = |family: bool| ips.iter().find(|ip| is_v6(ip) == Some(family)).cloned();
    of(prefers_v6).into_iter().chain(of(!prefers_v6)).collect()
}

/// `None` if the text is no address.
fn is_v6(ip: &str) -> Option<bool> {
    ip.parse().ok().map(|ip: std::net::IpAddr| ip.is_ipv6())
}

#[cfg(test)]
mod tests;
