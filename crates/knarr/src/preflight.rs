//! Whether this host can run what was asked for, before anything is changed on it.

pub(crate) mod checks;
pub(crate) mod cis;

use std::fs::File;

use anyhow::Result;
use cli::args::{ProxyArgs, ServerArgs};
use nix::fcntl::Flock;

use crate::components::{Known, Settings, not_of_another};
use crate::host::data_dir;
use crate::layout::Layout;
use crate::supervisor::{self, PartLock};
use checks::Subject;

/// Checks everything that a cluster cannot do without, and makes its folder ours as long as the lock is held.
///
/// # Errors
/// One line: what is missing, why, and what to do.
pub(crate) fn take(args: &ServerArgs, layout: &Layout) -> Result<(Settings, Flock<File>)> {
    cli::validate::server(args)?;
    checks::root()?;
    not_of_another(layout)?;
    data_dir::claim(layout)?;
    let lock = supervisor::lock(layout)?;
    supervisor::wait_for_its_end(layout)?;
    checks::families(args)?;
    let settings = Settings::resolve(args.clone(), layout, Known::Cluster)?;
    checks::demand(&Subject { args, layout, node_ips: settings.node_ips(), is_running: false })?;
    // From here on there will be things on this host.
    data_dir::register(layout)?;
    Ok((settings, lock))
}

/// The same for a Node of a cluster elsewhere, of which nothing is known yet: there is no API server here.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_for_agent(args: ServerArgs, layout: &Layout) -> Result<(Settings, Flock<File>)> {
    cli::validate::node_ip::alone(&args.node_ip)?;
    checks::root()?;
    not_of_another(layout)?;
    data_dir::claim(layout)?;
    let lock = supervisor::lock(layout)?;
    supervisor::wait_for_its_end(layout)?;
    let settings = Settings::resolve(args, layout, Known::Nothing)?;
    let subject = Subject { args: &settings.args, layout, node_ips: settings.node_ips(), is_running: false };
    checks::demand_of_node(&subject)?;
    data_dir::register(layout)?;
    Ok((settings, lock))
}

/// The same for the kubelet alone.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_for_kubelet(layout: &Layout) -> Result<PartLock> {
    take_for_part("kubelet", layout, || checks::demand_of_kubelet(layout))
}

/// The same for the proxy alone.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_for_proxy(args: &ProxyArgs, layout: &Layout) -> Result<PartLock> {
    take_for_part("proxy", layout, || checks::demand_of_proxy(args))
}

fn take_for_part(
    name: &'static str,
    layout: &Layout,
    demand: impl FnOnce() -> Result<()>,
) -> Result<PartLock> {
    checks::root()?;
    data_dir::claim(layout)?;
    let lock = supervisor::lock_part(layout, name)?;
    demand()?;
    data_dir::register(layout)?;
    Ok(lock)
}
