//! One part alone, against any Kubernetes: what it needs is a kubeconfig.

use std::path::Path;

use anyhow::{Context, Result, bail};
use base::Tasks;
use cli::args::{CloudControllerManagerArgs, ControllerManagerArgs, KubeletArgs, ProxyArgs, SchedulerArgs};
use tokio::signal::unix::{SignalKind, signal};

use crate::async_runtime::AsyncRuntime;
use crate::components::{self, Connection};
use crate::layout::Layout;
use crate::preflight;

/// `knarr controller-manager`
pub(crate) fn controller_manager(args: &ControllerManagerArgs) -> Result<()> {
    cli::validate::leader_election(&components::election_of_controllers(args))?;
    run_until_stopped(&args.part.kubeconfig, "kube-controller-manager", async |connection| {
        components::start_controllers(args, &connection).await
    })
}

/// `knarr cloud-controller-manager`
pub(crate) fn cloud_controller_manager(args: &CloudControllerManagerArgs) -> Result<()> {
    cli::validate::leader_election(&components::election_of_cloud_controllers(args))?;
    run_until_stopped(&args.part.kubeconfig, "cloud-controller-manager", async |connection| {
        components::start_cloud_controllers(args, &connection).await
    })
}

/// `knarr scheduler`
pub(crate) fn scheduler(args: &SchedulerArgs) -> Result<()> {
    let (configuration, kubeconfig) = components::scheduler_of_flags(args)?;
    run_until_stopped(&kubeconfig, "kube-scheduler", async |connection| {
        components::start_scheduler(&args.serving, configuration, &connection).await
    })
}

/// `knarr kubelet`
pub(crate) fn kubelet(args: &KubeletArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    let _lock = preflight::take_for_kubelet(&layout)?;
    run_until_stopped(&args.part.kubeconfig, "kubelet", async |connection| {
        components::start_kubelet(args, &layout, connection).await
    })
}

/// `knarr proxy`
pub(crate) fn proxy(args: &ProxyArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    let _lock = preflight::take_for_proxy(args, &layout)?;
    run_until_stopped(&args.part.kubeconfig, "kube-proxy", async |connection| {
        components::start_proxy(args, &layout, connection).await
    })
}

/// Starts a part, and stops it when a signal asks for it, be it started or not.
fn run_until_stopped(
    kubeconfig: &Path,
    agent: &'static str,
    start: impl AsyncFnOnce(Connection) -> Result<()>,
) -> Result<()> {
    let runtime = AsyncRuntime::on_threads("part")?;
    let tasks = Tasks::new();
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let work = async {
            start(Connection::new(kubeconfig, agent, &tasks).await?).await?;
            tasks.stopping().await;
            bail!("this process does not lead any more, or cannot; the log says why")
        };
        let ended = tokio::select! {
            ended = work => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
        tasks.stop_and_wait().await;
        ended
    })
}
