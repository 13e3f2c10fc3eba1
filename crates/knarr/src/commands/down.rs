//! `knarr down`: stops the cluster. Its objects stay, and so do running containers: the next `up` finds them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::layout::Layout;
use crate::supervisor;

/// The supervisor waits this long for its parts, and a little more.
const STOP_MAX: Duration = Duration::from_secs(25);

/// Stops the cluster in `data_dir`; one that does not run is fine.
pub(crate) fn run(data_dir: &Path) -> Result<()> {
    let layout = Layout::new(data_dir)?;
    if !layout.root().exists() {
        bail!("there is no cluster in {}; `knarr up` makes one", layout.root().display());
    }
    if running_pid(&layout)?.is_some() && !nix::unistd::geteuid().is_root() {
        bail!("only root stops a cluster; run this as root (`sudo knarr down`)");
    }
    match stop_all(&layout)? {
        0 => eprintln!("no cluster runs in {}", layout.root().display()),
        _ => eprintln!(
            "the cluster is stopped; what runs in Pods goes on, and `knarr up` finds it (`knarr reset` ends it)"
        ),
    }
    Ok(())
}

/// The supervisor's process id, if it runs; that of a part that runs alone, if there is one.
pub(crate) fn running_pid(layout: &Layout) -> Result<Option<i32>> {
    Ok(supervisor::holders(layout)?.first().copied())
}

/// Asks all that run in the folder to stop and waits until they have. Returns how many there were.
pub(crate) fn stop_all(layout: &Layout) -> Result<usize> {
    let pids = supervisor::holders(layout)?;
    pids.iter().try_for_each(|pid| stop(*pid))?;
    Ok(pids.len())
}

/// Asks one to stop and waits until it has.
pub(crate) fn stop(pid: i32) -> Result<()> {
    let process = match sys::process::PidFd::open(pid) {
        Ok(process) => process,
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    process.signal(Signal::SIGTERM as i32)?;
    if !process.wait(STOP_MAX)? {
        bail!("process {pid} did not stop within {} s; see its log", STOP_MAX.as_secs());
    }
    Ok(())
}
