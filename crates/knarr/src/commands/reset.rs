//! `knarr reset`: removes every trace of a cluster from this host.

use std::io::{IsTerminal, Write, stdin};

use anyhow::{Context, Result, bail};
use cli::args::ResetArgs;

use crate::commands::down;
use crate::components;
use crate::layout::Layout;

/// Lists what goes, asks, and removes it.
pub(crate) fn run(args: &ResetArgs) -> Result<()> {
    let layout = Layout::new(&args.data.data_dir)?;
    if !layout.root().exists() {
        eprintln!("there is no cluster in {}", layout.root().display());
        return Ok(());
    }
    if !layout.config().exists() {
        bail!("{} is not a cluster's folder; nothing was removed", layout.root().display());
    }
    eprintln!("this removes the cluster in {}:", layout.root().display());
    for what in
        ["every Pod and its containers", "links, addresses, nft tables and cgroups", "all objects and keys"]
    {
        eprintln!("  {what}");
    }
    if !args.yes && !confirmed()? {
        bail!("nothing was removed");
    }
    if let Some(pid) = down::running_pid(&layout)? {
        down::stop(pid)?;
    }
    remove_everything(&layout, &mut |what| eprintln!("removed {what}"))
}

fn confirmed() -> Result<bool> {
    if !stdin().is_terminal() {
        bail!("nobody is there to confirm; say --yes");
    }
    eprint!("Go on? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// Takes back everything that the cluster did to this host; tells each part to `on_step`.
pub(crate) fn remove_everything(layout: &Layout, on_step: &mut dyn FnMut(&str)) -> Result<()> {
    components::remove_pods(layout).context("remove the Pods")?;
    on_step("Pods, containers and cgroups");
    components::remove_network(layout).context("remove the network")?;
    on_step("links, addresses and nft tables");
    sys::mount::detach_below(layout.root())?;
    std::fs::remove_dir_all(layout.root()).with_context(|| format!("remove {}", layout.root().display()))?;
    on_step("objects, keys and files");
    Ok(())
}
