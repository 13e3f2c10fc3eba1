//! One part alone, against any Kubernetes: what it needs is a kubeconfig.

use std::path::Path;

use anyhow::{Context, Result};
use base::{Clock, Random, Tasks};
use cli::args::KubeletArgs;
use controller::Informers;
use controller::trace::Reporter;
use tokio::signal::unix::{SignalKind, signal};

use super::trace;
use crate::components;

/// `knarr controller-manager`
pub(crate) fn controller_manager(kubeconfig: &Path) -> Result<()> {
    run_until_stopped(kubeconfig, |informers, _| {
        components::start_controllers(&informers);
        Ok(())
    })
}

/// `knarr scheduler`
pub(crate) fn scheduler(kubeconfig: &Path) -> Result<()> {
    run_until_stopped(kubeconfig, |informers, _| {
        components::start_scheduler(&informers, Reporter::disabled());
        Ok(())
    })
}

/// `knarr kubelet`
pub(crate) fn kubelet(args: &KubeletArgs) -> Result<()> {
    let args = args.clone();
    run_until_stopped(&args.part.kubeconfig.clone(), move |informers, runtime| {
        runtime.block_on(components::start_kubelet_alone(&args, informers))
    })
}

fn run_until_stopped(
    kubeconfig: &Path,
    start: impl FnOnce(Informers, &tokio::runtime::Handle) -> Result<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let tasks = Tasks::new();
    let client = runtime.block_on(trace::client(kubeconfig))?;
    let guard = runtime.enter();
    let informers = Informers::new(client, tasks.clone(), Clock::system(), Random::from_system());
    start(informers, runtime.handle())?;
    drop(guard);
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tasks.stop_and_wait().await;
        Ok(())
    })
}
