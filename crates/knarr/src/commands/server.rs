//! `knarr server`: the cluster in the foreground. Prepares the folder and the keys, then supervises the parts.
//!
//! The same command with `KNARR_PART` set is one of the parts.

use anyhow::{Result, bail};
use cli::args::{CommonArgs, Part, ServerArgs};

use crate::components::{self, Ready};
use crate::host;
use crate::layout::Layout;
use crate::supervisor::{self, PART_VARIABLE, PARTS};

/// Runs until it is told to stop.
pub(crate) fn run(args: &ServerArgs, common: &CommonArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    match std::env::var(PART_VARIABLE).ok().as_deref() {
        None => supervisor::told_if_full(supervise(args, common, &layout), &layout),
        Some("control-plane") => supervisor::explained(components::control_plane(&layout), &layout),
        Some("node") => supervisor::explained(components::node(&layout), &layout),
        Some(part) => bail!("there is no part {part:?}; unset {PART_VARIABLE}"),
    }
}

fn supervise(args: &ServerArgs, common: &CommonArgs, layout: &Layout) -> Result<()> {
    let (settings, lock) = host::take(args, layout)?;
    settings.save(layout)?;
    components::prepare(&settings, layout)?;
    let taken_back = components::take_back_of_parts(args, layout)?;
    if !taken_back.is_empty() {
        tracing::info!(what = taken_back.join(", "), "taken back what a part has left that is turned off");
    }
    let parts = if args.runs(Part::Agent) { PARTS.to_vec() } else { PARTS[..1].to_vec() };
    let plan = supervisor::Plan {
        parts,
        layout: layout.clone(),
        awaited: Ready::awaited(args),
        common_flags: common.flags(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
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
