//! The Pod's namespaces: made by its first shim, joined by each later one.
//!
//! The network namespace has a path. IPC and UTS namespaces have none: they live as long as a process is in them,
//! which is where a later shim finds them. If nobody is in them any more, new ones are as good.

use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use sys::process::PidFd;

use super::error::{Error, system};
use super::layout::{self, Exited, PodPlan, Started};
use super::pause::Pause;

/// Enters them; returns the process that holds the shared PID namespace if the Pod has one.
pub(super) fn enter(sandbox: &Path, plan: &PodPlan) -> Result<Option<Pause>, Error> {
    if let Some(path) = &plan.netns {
        let file = std::fs::File::open(path).map_err(system("open the pod's network namespace"))?;
        setns(file, CloneFlags::CLONE_NEWNET).map_err(system("enter the pod's network namespace"))?;
    }
    let pause = Pause::find(sandbox).map_err(system("find the pause process"))?;
    let mut wanted = CloneFlags::empty();
    wanted.set(CloneFlags::CLONE_NEWIPC, plan.own_ipc);
    wanted.set(CloneFlags::CLONE_NEWUTS, plan.hostname.is_some());
    let inhabitants = match &pause {
        Some(pause) => vec![pause.handle().map_err(system("find the pause process"))?],
        None => containers(sandbox),
    };
    if plan.has_userns {
        join_kept(sandbox, plan)?;
    } else if !wanted.is_empty() && !join(inhabitants, wanted)? {
        make(plan, wanted)?;
    }
    for (name, value) in &plan.sysctls {
        sys::netns::set_sysctl(&path_of(name), value).map_err(system("set the pod's sysctls"))?;
    }
    match pause {
        None if plan.shared_pid => {
            let userns = sandbox.join(layout::USERNS);
            let started = Pause::start(sandbox, plan.has_userns.then_some(&userns));
            started.map(Some).map_err(system("start the pause process"))
        }
        found => Ok(found),
    }
}

/// Below `/proc/sys`: dots between the parts become slashes, and slashes in them dots; a name with slashes is a path already.
fn path_of(sysctl: &str) -> String {
    let is_path = sysctl.find(['.', '/']).is_some_and(|i| sysctl[i..].starts_with('/'));
    if is_path {
        return sysctl.to_owned();
    }
    sysctl
        .chars()
        .map(|c| match c {
            '.' => '/',
            '/' => '.',
            c => c,
        })
        .collect()
}

/// Those of a Pod with a user namespace are its own, and have names.
fn join_kept(sandbox: &Path, plan: &PodPlan) -> Result<(), Error> {
    for (name, kind) in
        [(layout::IPC_NAMESPACE, CloneFlags::CLONE_NEWIPC), (layout::UTS_NAMESPACE, CloneFlags::CLONE_NEWUTS)]
    {
        let file = std::fs::File::open(sandbox.join(name)).map_err(system("open the pod's namespaces"))?;
        setns(file, kind).map_err(system("enter the pod's namespaces"))?;
    }
    if let Some(hostname) = &plan.hostname {
        nix::unistd::sethostname(hostname).map_err(system("set the pod's host name"))?;
    }
    Ok(())
}

fn make(plan: &PodPlan, wanted: CloneFlags) -> Result<(), Error> {
    unshare(wanted).map_err(system("make the pod's namespaces"))?;
    if let Some(hostname) = &plan.hostname {
        nix::unistd::sethostname(hostname).map_err(system("set the pod's host name"))?;
    }
    Ok(())
}

/// Enters the namespaces of the first of these processes that is in any; false if none is.
fn join(inhabitants: Vec<PidFd>, wanted: CloneFlags) -> Result<bool, Error> {
    for process in inhabitants {
        match setns(process, wanted) {
            Ok(()) => return Ok(true),
            // It has ended meanwhile.
            Err(Errno::ESRCH) => {}
            Err(errno) => return Err(system("enter the pod's namespaces")(errno)),
        }
    }
    Ok(false)
}

/// The containers of the Pod that an earlier shim started and of whose end nobody knows.
fn containers(sandbox: &Path) -> Vec<PidFd> {
    let entries = std::fs::read_dir(sandbox.join("containers")).into_iter().flatten().flatten();
    let running = entries.filter_map(|entry| {
        let exited: Option<Exited> = layout::read_json(&entry.path().join(layout::EXITED)).ok()?;
        let started: Started = layout::read_json(&entry.path().join(layout::STARTED)).ok()??;
        if exited.is_some() { None } else { started.process() }
    });
    running.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_is_a_path_whichever_separator_it_has() {
        for (name, expect) in [
            ("net.core.somaxconn", "net/core/somaxconn"),
            ("net/core/somaxconn", "net/core/somaxconn"),
            ("net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
            ("net/ipv4/conf/eth0.100/rp_filter", "net/ipv4/conf/eth0.100/rp_filter"),
        ] {
            assert_eq!(path_of(name), expect, "{name}");
        }
    }
}
