//! One part alone, against any Kubernetes: what it needs is a kubeconfig.

use std::path::Path;

use anyhow::{Context, Result, bail};
use base::{Clock, Random, Tasks};
use cli::args::KubeletArgs;
use controller::Informers;
use tokio::signal::unix::{SignalKind, signal};

use super::trace;
use crate::{components, host};

/// `knarr controller-manager`
pub(crate) fn controller_manager(kubeconfig: &Path) -> Result<()> {
    run_until_stopped(kubeconfig, "kube-controller-manager", |informers, _| {
        components::start_controllers(&informers, &identity(&informers)?);
        Ok(())
    })
}

/// `knarr scheduler`
pub(crate) fn scheduler(kubeconfig: &Path) -> Result<()> {
    run_until_stopped(kubeconfig, "kube-scheduler", |informers, _| {
        components::start_scheduler(&informers, &identity(&informers)?);
        Ok(())
    })
}

/// `knarr kubelet`
pub(crate) fn kubelet(args: &KubeletArgs) -> Result<()> {
    let args = args.clone();
    run_until_stopped(&args.part.kubeconfig.clone(), "kubelet", move |informers, runtime| {
        runtime.block_on(components::start_kubelet_alone(&args, informers))
    })
}

/// One of a kind, as upstream's: several may run on one host.
fn identity(informers: &Informers) -> Result<String> {
    Ok(format!("{}_{}", host::node_name()?, informers.random().uuid()))
}

fn run_until_stopped(
    kubeconfig: &Path,
    agent: &'static str,
    start: impl FnOnce(Informers, &tokio::runtime::Handle) -> Result<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let tasks = Tasks::new();
    let client = runtime.block_on(trace::client(kubeconfig, agent))?;
    let guard = runtime.enter();
    let informers = Informers::new(client, tasks.clone(), Clock::system(), Random::from_system());
    start(informers, runtime.handle())?;
    drop(guard);
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let is_asked = tokio::select! {
            _ = terminate.recv() => true,
            _ = interrupt.recv() => true,
            () = tasks.stopping() => false,
        };
        tasks.stop_and_wait().await;
        if is_asked { Ok(()) } else { bail!("another process leads now") }
    })
}
