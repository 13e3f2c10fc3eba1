//! `knarr reset`: removes every trace of a cluster from this host.

use std::io::{IsTerminal, Write, stdin};

use anyhow::{Context, Result, bail};
use cli::args::ResetArgs;

use crate::commands::down;
use crate::components;
use crate::host::data_dir;
use crate::layout::Layout;

/// Lists what goes, asks, and removes it.
pub(crate) fn run(args: &ResetArgs) -> Result<()> {
    let layout = Layout::new(&args.data.data_dir)?;
    let root = layout.root().display();
    if layout.root().exists() {
        if !layout.version().exists() {
            bail!("{root} is not a cluster's folder; nothing was removed");
        }
    } else if !data_dir::is_registered(&layout) {
        eprintln!("there is no cluster in {root}");
        return Ok(());
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
    match components::remove_foreign_pods(layout) {
        Ok(0) => {}
        Ok(count) => on_step(&format!("{count} Pods of the container runtime")),
        // The rest is removed all the same: the runtime may be gone for good.
        Err(error) => eprintln!("what the container runtime has of the cluster is left: {error:#}"),
    }
    components::remove_pods(layout).context("remove the Pods")?;
    if let Err(error) = components::release_volumes(layout) {
        eprintln!("what the cluster's Pods had of iSCSI targets is left: {error:#}");
    }
    components::remove_mounts(layout).context("remove the mounts")?;
    on_step("Pods, containers and cgroups");
    if let Err(error) = components::detach_pods(layout) {
        eprintln!("what network plugins have of the cluster's Pods is left: {error:#}");
    }
    components::remove_network(layout).context("remove the network")?;
    on_step("links, addresses and nft tables");
    sys::mount::detach_below(layout.root())?;
    if layout.root().exists() {
        remove_folder(layout).with_context(|| format!("remove {}", layout.root().display()))?;
    }
    data_dir::forget(layout)?;
    on_step("objects, keys and files");
    Ok(())
}

/// What says that the folder is a cluster's goes last, so that a reset that was cut off can be repeated.
fn remove_folder(layout: &Layout) -> std::io::Result<()> {
    for entry in std::fs::read_dir(layout.root())? {
        let entry = entry?;
        if entry.path() == layout.version() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            sys::tree::remove(&entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    sys::tree::remove(layout.root())
}
