//! `knarr server`: the cluster in the foreground. Prepares the folder and the keys, then supervises the parts.
//!
//! The same command with `KNARR_PART` set is one of the parts.

use anyhow::{Context, Result, bail};
use cli::args::ServerArgs;

use crate::components::{self, Settings};
use crate::host;
use crate::layout::Layout;
use crate::supervisor::{self, PART_VARIABLE, PARTS};

/// Runs until it is told to stop.
pub(crate) fn run(args: ServerArgs) -> Result<()> {
    let layout = Layout::new(&args.data_dir)?;
    match std::env::var(PART_VARIABLE).ok().as_deref() {
        None => supervise(args, &layout),
        Some("control-plane") => components::control_plane(&layout),
        Some("node") => components::node(&layout),
        Some(part) => bail!("there is no part {part:?}; unset {PART_VARIABLE}"),
    }
}

fn supervise(args: ServerArgs, layout: &Layout) -> Result<()> {
    host::check()?;
    std::fs::create_dir_all(layout.root()).with_context(|| format!("create {}", layout.root().display()))?;
    let lock = supervisor::lock(layout)?;
    host::check_port(args.bind_address, args.https_listen_port)?;
    let parts = if args.disable_agent { &PARTS[..1] } else { &PARTS[..] };
    let settings = Settings::resolve(args, layout)?;
    settings.save(layout)?;
    components::prepare(&settings, layout)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(supervisor::run(parts, layout.root()));
    drop(lock);
    ended
}
