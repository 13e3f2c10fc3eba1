//! Changing what a running container may use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cri::{CriError, CriResult, v1};
use prost::Message;
use serde_json::Value;
use sys::cgroup::Limits;

use crate::shim::layout;
use crate::shim::protocol::Call;
use crate::state::{Container, Inner, Status, blocking, internal};

impl Inner {
    /// Sets what `wanted` names, in the kernel and in the container's configuration; 0 is "as it is".
    pub(crate) async fn update_container(
        self: &Arc<Self>,
        id: &str,
        wanted: v1::LinuxContainerResources,
    ) -> CriResult<()> {
        let container = self.container(id)?;
        if matches!(*container.status.borrow(), Status::Exited { .. }) {
            return Err(CriError::FailedPrecondition(format!("container {} has ended", container.id)));
        }
        let mut config = container.config.clone();
        let resources = config.linux.get_or_insert_default().resources.get_or_insert_default();
        merge(resources, &wanted);
        let (this, cgroup) = (Arc::clone(self), container.record.cgroup.clone());
        let (dir, encoded) = (self.container_dir(&container), config.encode_to_vec());
        let is_created = *container.status.borrow() == Status::Created;
        let limited = update_document(&config);
        blocking(move || {
            let used = this.cgroups.usage(&cgroup).working_set_bytes;
            let limit = wanted.memory_limit_in_bytes;
            // The kernel would make room by killing.
            if u64::try_from(limit).is_ok_and(|limit| limit > 0 && limit < used) {
                return Err(CriError::FailedPrecondition(format!(
                    "the memory limit {limit} is below the current usage {used}"
                )));
            }
            let unavailable = this.cgroups.set_limits(&cgroup, &limits(&wanted)).map_err(internal)?;
            if is_created {
                write_into_spec(&dir.join(layout::SPEC), &limited).map_err(internal)?;
            } else if !unavailable.is_empty() {
                tracing::warn!(cgroup, ?unavailable, "the host has not all controllers of a resize");
            }
            layout::write_whole(&dir.join("config.pb"), &encoded).map_err(internal)
        })
        .await?;
        self.update_external(&container, &config).await?;
        if let Some(container) = self.tables.lock().containers.get_mut(&container.id) {
            container.config = config;
        }
        Ok(())
    }

    /// Notes what the kubelet has given the Pod's own cgroup: verbose status shows it, also after a restart.
    pub(crate) async fn update_sandbox(
        self: &Arc<Self>,
        wanted: v1::UpdatePodSandboxResourcesRequest,
    ) -> CriResult<()> {
        let sandbox = self.sandbox(&wanted.pod_sandbox_id)?;
        let mut config = sandbox.config.clone();
        let linux = config.linux.get_or_insert_default();
        linux.overhead = wanted.overhead.or(linux.overhead.take());
        linux.resources = wanted.resources.or(linux.resources.take());
        let (path, encoded) = (self.sandbox_dir(&sandbox.id).join("config.pb"), config.encode_to_vec());
        blocking(move || layout::write_whole(&path, &encoded).map_err(internal)).await?;
        if let Some(sandbox) = self.tables.lock().sandboxes.get_mut(&sandbox.id) {
            sandbox.config = config;
        }
        Ok(())
    }

    /// An external runtime keeps books of its own.
    async fn update_external(
        self: &Arc<Self>,
        container: &Container,
        config: &v1::ContainerConfig,
    ) -> CriResult<()> {
        let is_running = matches!(*container.status.borrow(), Status::Running(_));
        if self.sandbox(&container.sandbox)?.record.handler.is_empty() || !is_running {
            return Ok(());
        }
        let resources = self.container_dir(container).join("resources.json");
        layout::write_json(&resources, &update_document(config)).map_err(internal)?;
        let call = Call::Update { container: container.id.clone(), resources };
        self.shim_of(container)?.ask(call, Vec::new()).await?;
        Ok(())
    }
}

/// A container that has not begun has no cgroup: its start reads the limits from here.
fn write_into_spec(path: &Path, limited: &Value) -> io::Result<()> {
    let Some(mut spec) = layout::read_json::<Value>(path)? else { return Ok(()) };
    let resources = &mut spec["linux"]["resources"];
    for (name, limits) in limited.as_object().into_iter().flatten() {
        resources[name] = limits.clone();
    }
    layout::write_json(path, &spec)
}

/// What an external runtime is told of a container's new limits.
fn update_document(config: &v1::ContainerConfig) -> Value {
    let wanted = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    wanted.map(crate::oci::limits).unwrap_or_default()
}

fn merge(resources: &mut v1::LinuxContainerResources, wanted: &v1::LinuxContainerResources) {
    let set = |old: &mut i64, new: i64| {
        if new != 0 {
            *old = new;
        }
    };
    set(&mut resources.cpu_period, wanted.cpu_period);
    set(&mut resources.cpu_quota, wanted.cpu_quota);
    set(&mut resources.cpu_shares, wanted.cpu_shares);
    set(&mut resources.memory_limit_in_bytes, wanted.memory_limit_in_bytes);
    set(&mut resources.memory_swap_limit_in_bytes, wanted.memory_swap_limit_in_bytes);
    let say = |old: &mut String, new: &String| {
        if !new.is_empty() {
            old.clone_from(new);
        }
    };
    say(&mut resources.cpuset_cpus, &wanted.cpuset_cpus);
    say(&mut resources.cpuset_mems, &wanted.cpuset_mems);
    for limit in &wanted.hugepage_limits {
        resources.hugepage_limits.retain(|old| old.page_size != limit.page_size);
        resources.hugepage_limits.push(limit.clone());
    }
    resources.unified.extend(wanted.unified.clone());
}

fn limits(wanted: &v1::LinuxContainerResources) -> Limits {
    let some = |number: i64| (number != 0).then_some(number);
    let said = |text: &String| (!text.is_empty()).then(|| text.clone());
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    Limits {
        cpu_shares: positive(wanted.cpu_shares),
        cpu_quota_us: some(wanted.cpu_quota),
        cpu_period_us: positive(wanted.cpu_period),
        memory_max_bytes: some(wanted.memory_limit_in_bytes),
        memory_and_swap_max_bytes: some(wanted.memory_swap_limit_in_bytes),
        pids_max: None,
        cpuset_cpus: said(&wanted.cpuset_cpus),
        cpuset_mems: said(&wanted.cpuset_mems),
        huge_pages: wanted.hugepage_limits.iter().map(|it| (it.page_size.clone(), it.limit)).collect(),
        unified: wanted.unified.clone().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(size: &str, limit: u64) -> v1::HugepageLimit {
        v1::HugepageLimit { page_size: size.into(), limit }
    }

    #[test]
    fn only_what_is_named_changes() {
        let mut resources = v1::LinuxContainerResources {
            cpu_shares: 102,
            memory_limit_in_bytes: 1 << 20,
            oom_score_adj: 7,
            hugepage_limits: vec![pages("2MB", 1), pages("1GB", 2)],
            cpuset_mems: "0".into(),
            ..Default::default()
        };
        let wanted = v1::LinuxContainerResources {
            cpu_shares: 204,
            cpu_quota: 20_000,
            cpuset_cpus: "0-1".into(),
            hugepage_limits: vec![pages("2MB", 3)],
            ..Default::default()
        };
        merge(&mut resources, &wanted);
        assert_eq!((resources.cpu_shares, resources.cpu_quota), (204, 20_000));
        assert_eq!((resources.memory_limit_in_bytes, resources.oom_score_adj), (1 << 20, 7));
        assert_eq!((resources.cpuset_cpus.as_str(), resources.cpuset_mems.as_str()), ("0-1", "0"));
        assert_eq!(resources.hugepage_limits, [pages("1GB", 2), pages("2MB", 3)]);
        let limits = limits(&wanted);
        assert_eq!((limits.cpuset_cpus.as_deref(), limits.cpuset_mems), (Some("0-1"), None));
        assert_eq!(limits.huge_pages, [("2MB".to_owned(), 3)].into());
        assert_eq!(
            (limits.cpu_shares, limits.cpu_quota_us, limits.memory_max_bytes),
            (Some(204), Some(20_000), None)
        );
    }
}
