//! A Pod's resize: asks the node whether there is room, and carries out what was agreed.

use std::sync::Arc;
use std::time::Instant;

use controller::EventType;
use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::Worker;
use super::outcome::Outcome;
use crate::kubelet::Kubelet;
use crate::kubelet::step_error::StepError;
use crate::metrics::{Count, Measure};
use crate::node_resources::cgroups::{Which, limit_pod};
use crate::pod::in_place::differences;
use crate::pod::job::JobKey;
use crate::pod::lifecycle::is_finished;
use crate::pod::qos::{self, QosClass, class_of};
use crate::pod::resize::{self, RefusalReason, Refused};
use crate::pod::snapshot::Container;

impl Worker {
    /// Takes a newer object; of its resources only those that the node has agreed to count.
    pub(super) fn take_pod(&mut self, pod: Arc<Pod>) {
        // An ephemeral container may name more of them.
        self.objects.follow(&self.context.volumes, &pod, &self.tasks, &self.inbox);
        let allocated = resize::resources(&self.snapshot.pod);
        let mut asked = allocated.clone();
        asked.extend(self.snapshot.resize.wanted.clone());
        for operation in resize::operations(&asked, &resize::resources(&pod)) {
            self.context.metrics.count(Count::ResizesRequested, &operation);
        }
        let (agreed, wanted) = resize::split(&pod, &allocated);
        self.snapshot.pod = agreed.map_or(pod, Arc::new);
        if wanted != self.snapshot.resize.wanted {
            let has = resize::requests(self.snapshot.spec());
            self.context.resources.allocations.withdraw(self.snapshot.uid(), has);
            self.snapshot.resize.refused = None;
            self.snapshot.resize.wanted = wanted;
        }
    }

    /// Asks for room for what is wanted.
    pub(super) fn try_resize(&mut self, now: Timestamp) {
        let is_over = self.snapshot.is_terminating() || is_finished(&self.snapshot);
        if is_over {
            let (allocations, uid) = (&self.context.resources.allocations, self.snapshot.uid());
            match self.snapshot.removed_from_api || !self.snapshot.may_run() {
                true => allocations.remove(uid),
                false => allocations.set_leaving(uid),
            }
            self.snapshot.resize = resize::Resize::default();
            return;
        }
        self.report_completion();
        if self.snapshot.resize.wanted.is_empty() {
            self.snapshot.resize.deferred_until = None;
            return;
        }
        let mut spec = self.snapshot.spec().clone();
        resize::put(&mut spec, &self.snapshot.resize.wanted);
        let asked = resize::requests(&spec);
        let resized = Pod { spec: Some(spec), ..(*self.snapshot.pod).clone() };
        if self.context.resources.unified.is_swap_resized(&self.snapshot.pod, &resized) {
            let message = "In-place resize of containers with swap is not supported.".to_owned();
            self.refuse(Refused { reason: RefusalReason::Infeasible, message, detail: "swap_limitation" });
            return;
        }
        if let Some((manager, policy, detail)) = self.fixed_by() {
            let message =
                format!("Resize is infeasible for Guaranteed Pods alongside {manager} policy \"{policy}\"");
            self.refuse(Refused { reason: RefusalReason::Infeasible, message, detail });
            return;
        }
        let since = resize::waiting_since(&self.snapshot.pod).unwrap_or(now);
        match self.context.resources.allocations.change(self.snapshot.uid(), asked, since) {
            Ok(()) => {
                self.snapshot.pod = Arc::new(resized);
                // Files may say what containers have.
                self.is_volume_update_due = true;
                if let Some(why) = self.snapshot.resize.deferred_until {
                    self.context.metrics.count(Count::ResizesDeferredAccepted, &[why]);
                }
                self.snapshot.resize = resize::Resize { is_started: true, ..resize::Resize::default() };
                let text = resize::event_text(&self.snapshot.pod, "started", "");
                self.context.event(&self.snapshot.pod, None, EventType::Normal, "ResizeStarted", text);
            }
            Err(refused) => self.refuse(refused),
        }
    }

    /// Why the Pod can have no more and no less than it has, if that is so: whose policy, and its name for metrics.
    ///
    /// Source: `InPlacePodVerticalScalingExclusiveCPUs` and `...ExclusiveMemory`, off in v1.35.
    fn fixed_by(&self) -> Option<(&'static str, &'static str, &'static str)> {
        if class_of(self.snapshot.spec()) != QosClass::Guaranteed {
            return None;
        }
        let changed =
            resize::operations(&resize::resources(&self.snapshot.pod), &self.snapshot.resize.wanted);
        let changes = |name: &str| changed.iter().any(|[resource, ..]| *resource == name);
        if self.context.resources.cpus.is_some() && changes("cpu") {
            return Some(("CPU Manager", "static", "guaranteed_pod_cpu_manager_static_policy"));
        }
        (self.context.resources.memory.is_some() && changes("memory")).then_some((
            "Memory Manager",
            "Static",
            "guaranteed_pod_memory_manager_static_policy",
        ))
    }

    /// Moves containers that share CPUs to those that are shared now.
    pub(super) fn update_cpus(&mut self) {
        if self.context.resources.cpus.is_none() {
            return;
        }
        let running = self.snapshot.containers.iter().filter(|container| container.is_running());
        let running: Vec<_> =
            running.map(|container| (container.id.clone(), container.name.clone())).collect();
        for (id, name) in running {
            let (context, uid) = (self.context.clone(), self.snapshot.uid().to_owned());
            self.spawn(JobKey::Cpus(id.clone()), async move {
                let cpus =
                    context.resources.cpus.as_ref().map(|cpus| cpus.cpus(&uid, &name)).unwrap_or_default();
                let linux = v1::LinuxContainerResources { cpuset_cpus: cpus, ..Default::default() };
                let request = v1::UpdateContainerResourcesRequest {
                    container_id: id,
                    linux: Some(linux),
                    ..v1::UpdateContainerResourcesRequest::default()
                };
                match context.runtime.update_container_resources(request).await {
                    Ok(_) | Err(cri::CriError::NotFound(_)) => Outcome::Nothing,
                    Err(error) => Outcome::Failed(error.into()),
                }
            });
        }
    }

    fn refuse(&mut self, refused: Refused) {
        let before = self.snapshot.resize.refused.as_ref().map(|refused| refused.reason);
        if before != Some(refused.reason) {
            let reason = match refused.reason {
                RefusalReason::Infeasible => "ResizeInfeasible",
                RefusalReason::Deferred => "ResizeDeferred",
            };
            let what = refused.reason.as_str();
            let mut wanted = Pod::clone(&self.snapshot.pod);
            if let Some(spec) = &mut wanted.spec {
                resize::put(spec, &self.snapshot.resize.wanted);
            }
            let text = resize::event_text(&wanted, what, &refused.message);
            self.context.event(&self.snapshot.pod, None, EventType::Warning, reason, text);
            if !refused.detail.is_empty() {
                self.context.metrics.count(Count::ResizesInfeasible, &[refused.detail]);
            }
        }
        // Whoever gets room is told why; else it was another wish.
        self.snapshot.resize.deferred_until =
            (refused.reason == RefusalReason::Deferred).then_some("pod_updated");
        self.snapshot.resize.refused = Some(refused);
    }

    fn report_completion(&mut self) {
        let resize = &self.snapshot.resize;
        if !resize.is_started || !differences(&self.snapshot).is_empty() {
            return;
        }
        let pod = &self.snapshot.pod;
        let text = resize::event_text(pod, "completed", "");
        self.context.event(pod, None, EventType::Normal, "ResizeCompleted", text);
        (self.snapshot.resize.is_started, self.snapshot.resize.error) = (false, None);
    }

    pub(super) fn launch_resize(&mut self, key: JobKey, id: String, resources: v1::LinuxContainerResources) {
        let (context, pod) = (self.context.clone(), self.pod());
        let container = self.snapshot.containers.iter().find(|container| container.id == id);
        let before = container.and_then(|container| container.resources.as_ref());
        let growing = before.map_or(Which::ALL, |before| growing(before, &resources));
        let taken_from = container.filter(|container| takes_memory(container, &resources));
        let taken_from = taken_from.map(|container| container.name.clone());
        let sandbox = self.snapshot.ready_sandbox().map(|sandbox| sandbox.id.clone());
        self.spawn(key, async move {
            let start = Instant::now();
            let carry_out = async {
                if let Some(name) = taken_from {
                    check_memory(&context, &id, &name, resources.memory_limit_in_bytes).await?;
                }
                // Before, to make room for more; afterwards, to take back what is less: the kernel lets no part have
                // more than the whole.
                limit_pod(&context.resources, &pod, growing).await?;
                let request = v1::UpdateContainerResourcesRequest {
                    container_id: id.clone(),
                    linux: Some(resources),
                    ..v1::UpdateContainerResourcesRequest::default()
                };
                let updated = context.runtime.update_container_resources(request).await;
                updated?;
                limit_pod(&context.resources, &pod, Which::ALL).await?;
                tell_runtime(&context, &pod, sandbox).await;
                let request = v1::ContainerStatusRequest { container_id: id.clone(), verbose: false };
                let answer = context.runtime.container_status(request).await;
                Ok(answer?)
            };
            let carried_out: Result<_, StepError> = carry_out.await;
            let success = if carried_out.is_ok() { "true" } else { "false" };
            let milliseconds = start.elapsed().as_secs_f64() * 1000.0;
            context.metrics.measure(Measure::PodResize, &[success], milliseconds);
            Outcome::Resized(carried_out.map(|answer| Box::new(answer.status.unwrap_or_default())))
        });
    }
}

/// What a container may have more of than before. Numbers below 1 are no limit.
fn growing(before: &v1::LinuxContainerResources, wanted: &v1::LinuxContainerResources) -> Which {
    let grows = |before: i64, wanted: i64| before > 0 && (wanted <= 0 || wanted > before);
    Which {
        cpu: grows(before.cpu_quota, wanted.cpu_quota),
        memory: grows(before.memory_limit_in_bytes, wanted.memory_limit_in_bytes),
    }
}

/// Whether the container may have less memory than before.
fn takes_memory(container: &Container, wanted: &v1::LinuxContainerResources) -> bool {
    let before = container.resources.as_ref().map_or(0, |actual| actual.memory_limit_in_bytes);
    let limit = wanted.memory_limit_in_bytes;
    limit > 0 && (before == 0 || limit < before)
}

/// Nobody is killed for memory that they have: they keep it until they use less. The container by id and name.
///
/// Source: `validateMemoryResizeAction` of upstream's `pkg/kubelet/kuberuntime`.
async fn check_memory(context: &Kubelet, id: &str, name: &str, limit: i64) -> Result<(), StepError> {
    let request = v1::ContainerStatsRequest { container_id: id.to_owned() };
    let answer = context.runtime.container_stats(request).await?;
    leave_memory(name, answer.stats.and_then(|stats| stats.memory?.usage_bytes).map(|used| used.value), limit)
}

/// Whether a container that has so much can be left with `limit`.
fn leave_memory(name: &str, used: Option<u64>, limit: i64) -> Result<(), StepError> {
    match used {
        None => Err(StepError::MemoryUnknown { name: name.to_owned() }),
        Some(used) if i128::from(used) >= i128::from(limit) => {
            Err(StepError::MemoryInUse { name: name.to_owned(), limit, used })
        }
        Some(_) => Ok(()),
    }
}

/// What the Pod's own cgroup has been given. A runtime need not care, and may not know of this. Source: KEP-1287.
async fn tell_runtime(context: &Kubelet, pod: &Pod, sandbox: Option<String>) {
    let (Some(pod_sandbox_id), Some(spec)) = (sandbox, &pod.spec) else { return };
    let overhead = Some(qos::sandbox_overhead(spec));
    // What the sandbox takes itself is told apart.
    let resources = Some(qos::pod_resources(&PodSpec { overhead: None, ..spec.clone() }));
    let request = v1::UpdatePodSandboxResourcesRequest { pod_sandbox_id, overhead, resources };
    if let Err(error) = context.runtime.update_pod_sandbox_resources(request).await {
        tracing::debug!(%error, "the runtime was not told of a pod's new resources");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_grows_is_given_to_the_pod_first() {
        let of = |(cpu_quota, memory_limit_in_bytes)| v1::LinuxContainerResources {
            cpu_quota,
            memory_limit_in_bytes,
            ..Default::default()
        };
        let table = [
            ((50_000, 64), (30_000, 128), (false, true)),
            ((50_000, 64), (60_000, 32), (true, false)),
            ((50_000, 64), (50_000, 64), (false, false)),
            ((50_000, 64), (-1, 0), (true, true)),
            ((0, 0), (50_000, 64), (false, false)),
        ];
        for (before, wanted, (cpu, memory)) in table {
            assert_eq!(growing(&of(before), &of(wanted)), Which { cpu, memory }, "{before:?} {wanted:?}");
        }
    }

    /// Source: `TestValidatePodResizeAction` of upstream's `pkg/kubelet/kuberuntime`.
    #[test]
    fn nobody_is_left_with_less_memory_than_they_have() {
        let below = |used: u64| {
            format!("attempting to set container \"a\" memory limit (100) below current usage ({used})")
        };
        for (name, before, limit, used, expect) in [
            ("no limit, none wanted", 0, 0, None, String::new()),
            ("one that is not reached", 0, 100, Some(10), String::new()),
            ("one that is exceeded", 0, 100, Some(200), below(200)),
            ("one that is reached", 0, 100, Some(100), below(100)),
            ("nobody says what is used", 0, 100, None, "missing container \"a\" memory usage".into()),
            ("more", 100, 200, Some(300), String::new()),
            ("the same", 100, 100, Some(300), String::new()),
            ("less, and enough", 200, 100, Some(20), String::new()),
            ("less than is used", 200, 100, Some(150), below(150)),
            ("no more limit", 200, 0, Some(150), String::new()),
        ] {
            let of = |memory_limit_in_bytes| v1::LinuxContainerResources {
                memory_limit_in_bytes,
                ..Default::default()
            };
            let mut container = Container::from_cri(&v1::ContainerStatus::default(), "sandbox");
            container.resources = Some(of(before));
            let checked = match takes_memory(&container, &of(limit)) {
                true => leave_memory("a", used, limit),
                false => Ok(()),
            };
            let found = checked.err().map(|error| error.to_string()).unwrap_or_default();
            let expect =
                if expect.is_empty() { expect } else { format!("cannot decrease memory limits: {expect}") };
            assert_eq!(found, expect, "{name}");
        }
    }
}
