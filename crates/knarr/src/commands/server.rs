//! `knarr server`: the cluster in the foreground. Prepares the folder and the keys, then supervises the parts.
//!
//! The same command with `KNARR_PART` set is one of the parts.

use anyhow::{Result, bail};
use cli::args::{CommonArgs, ServerArgs};

use crate::async_runtime::AsyncRuntime;
use crate::components::{self, Settings};
use crate::layout::Layout;
use crate::preflight;
use crate::ready::Ready;
use crate::supervisor::{self, CONTROL_PLANE, INGRESS, NODE, PART_VARIABLE, PartPlan};

/// Runs until it is told to stop.
pub(crate) fn run(args: &ServerArgs, common: &CommonArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    match std::env::var(PART_VARIABLE).ok().as_deref() {
        None => supervisor::told_if_full(supervise(args, common, &layout), &layout),
        Some(CONTROL_PLANE) => supervisor::explained(components::control_plane(&layout), &layout),
        Some(NODE) => supervisor::explained(components::node(&layout), &layout),
        Some(INGRESS) => supervisor::explained(components::ingress(&layout), &layout),
        Some(part) => bail!("there is no part {part:?}; unset {PART_VARIABLE}"),
    }
}

fn supervise(args: &ServerArgs, common: &CommonArgs, layout: &Layout) -> Result<()> {
    let (settings, lock) = preflight::take(args, layout)?;
    settings.save(layout)?;
    components::prepare(&settings, layout)?;
    let taken_back = components::take_back_of_parts(args, layout)?;
    if !taken_back.is_empty() {
        tracing::info!(what = taken_back.join(", "), "taken back what a part has left that is turned off");
    }
    let plan = supervisor::Plan {
        parts: parts(&settings, layout)?,
        layout: layout.clone(),
        awaited: Ready::awaited(&settings.args),
        common_flags: common.flags(),
    };
    let runtime = AsyncRuntime::on_this_thread()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = supervisor::run(plan) => ended,
            () = components::hand_on_encryption(&settings, layout) => Ok(()),
            () = components::hand_on_configurations(&settings, layout) => Ok(()),
        }
    });
    drop(lock);
    ended
}

/// The control plane, and all Nodes of this host on their wire.
fn parts(settings: &Settings, layout: &Layout) -> Result<Vec<PartPlan>> {
    let mut parts = vec![PartPlan::own(CONTROL_PLANE, layout)];
    parts.extend(supervisor::node_parts(&settings.args, layout));
    for (node, network) in components::connect_local_nodes(settings, layout)? {
        let taken_back = || components::take_back_of_parts(&settings.args, &node.layout).map(drop);
        components::in_network(&node, taken_back)?;
        let (name, layout) = (format!("{NODE} {}", node.number), node.layout);
        parts.push(PartPlan { kind: NODE, name, layout, network: Some(network) });
    }
    Ok(parts)
}
