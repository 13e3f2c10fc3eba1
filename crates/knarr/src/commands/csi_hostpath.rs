//! `knarr csi-hostpath`: the host-path driver alone, for any kubelet.

use anyhow::{Context, Result};
use base::Tasks;
use cli::args::CsiHostpathArgs;
use tokio::signal::unix::{SignalKind, signal};

use crate::async_runtime::AsyncRuntime;
use crate::host;

/// Serves until a signal says to stop. What is mounted stays.
pub(crate) fn run(args: &CsiHostpathArgs) -> Result<()> {
    let config = csi::driver::Config {
        name: args.driver_name.clone(),
        node_id: host::node_name_or_own(args.node_name.as_deref())?,
        folder: args.state_dir.clone(),
        socket: args.endpoint.clone(),
        registration_socket: args.registration_endpoint.clone(),
        volumes_max: args.max_volumes_per_node,
    };
    let runtime = AsyncRuntime::on_threads("csi-hostpath")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let tasks = Tasks::new();
        csi::driver::start(&config, &tasks)
            .with_context(|| format!("serve the driver at {}", config.socket.display()))?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tasks.stop_and_wait().await;
        Ok(())
    })
}
