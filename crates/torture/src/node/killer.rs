//! Whoever kills: which process, and when.
//!
//! At a random moment, or as `strace` sees it enter its n-th call of a kind: counted by thread. A node is traced with
//! its threads alone, or with all that it starts: then shims and containers that are coming up are killed as well.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base::Random;
use nix::sys::signal::Signal;
use sys::process::PidFd;
use testkit::cluster::{NODE_IP, NODE_NAME};
use testkit::{Cluster, Process};

use super::processes::without_forks;
use super::report::Kill;
use super::view::View;

/// Between two kills: long enough to come up now and then, short enough to be hit on the way.
const PAUSE_MILLIS_MAX: u64 = 900;
/// How long a traced process has to come to its call.
const TRACE_MAX: Duration = Duration::from_secs(2);
/// How long a killed process may take to end.
const DEATH_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Calls to the kernel at which things begin to be, or end: a name, and the calls.
pub const CALLS: [(&str, &str); 11] = [
    ("mount", "mount,umount2,move_mount,open_tree,mount_setattr"),
    ("fork", "clone,clone3,vfork,fork"),
    ("exec", "execve"),
    ("unlink", "unlink,unlinkat,rmdir"),
    ("rename", "rename,renameat,renameat2"),
    ("mkdir", "mkdir,mkdirat"),
    ("link", "link,linkat,symlink,symlinkat,mknodat"),
    ("netlink", "sendto,sendmsg"),
    ("namespace", "setns,unshare"),
    ("owner", "chown,fchown,fchownat,chmod,fchmod,fchmodat"),
    ("signal", "kill,pidfd_send_signal"),
];

/// A process of the cluster: its name, how its command line begins, and how many of a hundred kills hit it.
const VICTIMS: [(&str, &str, u64); 5] = [
    ("node", "knarr node", 45),
    ("shim", "knarr shim /", 20),
    ("zygote", "knarr shim zygote", 5),
    ("control plane", "knarr control-plane", 15),
    ("supervisor", SUPERVISOR, 15),
];
const SUPERVISOR: &str = "knarr server";

/// Kills the processes of a cluster, and starts it again when its supervisor was among them.
pub(super) struct Killer<'c> {
    cluster: &'c Cluster,
    view: &'c Arc<View>,
    random: &'c Random,
    up: Option<Process>,
}

impl<'c> Killer<'c> {
    pub(super) fn new(cluster: &'c Cluster, view: &'c Arc<View>, random: &'c Random) -> Self {
        Self { cluster, view, random, up: None }
    }

    /// Waits for a random moment and tries a kill; what came of it, if anything.
    pub(super) fn kill(&mut self) -> Result<Vec<Kill>> {
        // The moment is what is random here; nothing is waited for.
        std::thread::sleep(Duration::from_millis(self.random.below(PAUSE_MILLIS_MAX)));
        self.revive()?;
        let (victim, command) = self.victim();
        let pids = without_forks(&self.cluster.processes(command));
        let Some(pid) = self.one_of(&pids) else { return Ok(Vec::new()) };
        let stage = self.view.stage();
        if victim == "shim" {
            self.view.lose_a_shim();
        }
        let is_traced = !matches!(victim, "supervisor" | "control plane") && self.random.below(100) < 40;
        let kills = if is_traced { self.kill_at_call(victim, pid)? } else { kill_now(victim, pid)? };
        let kills: Vec<Kill> = kills.into_iter().map(|(victim, how)| Kill { victim, how, stage }).collect();
        for Kill { victim, how, .. } in &kills {
            eprintln!("torture: killed: {victim} {pid}, {how}");
        }
        Ok(kills)
    }

    fn victim(&self) -> (&'static str, &'static str) {
        let mut at = self.random.below(100);
        for (name, command, share) in VICTIMS {
            if at < share {
                return (name, command);
            }
            at -= share;
        }
        (VICTIMS[0].0, VICTIMS[0].1)
    }

    fn one_of(&self, pids: &[i32]) -> Option<i32> {
        let count = u64::try_from(pids.len()).ok().filter(|count| *count > 0)?;
        pids.get(usize::try_from(self.random.below(count)).ok()?).copied()
    }

    /// Whoever finds no supervisor starts the cluster again, as a user would.
    fn revive(&mut self) -> Result<()> {
        let is_starting = self.up.as_mut().map(Process::is_running).transpose()?.unwrap_or_default();
        if is_starting || !self.cluster.processes(SUPERVISOR).is_empty() {
            return Ok(());
        }
        let data_dir = self.cluster.data_dir().display().to_string();
        // With the flags that it was started with: it is to be the same cluster, also in the list of processes.
        let flags = ["--node-ip", NODE_IP, "--node-name", NODE_NAME, "--data-dir", &data_dir];
        self.up = Some(self.cluster.start("up", &[&["up"], &flags[..]].concat())?);
        Ok(())
    }

    /// Kills no more, and waits until the cluster is up.
    pub(super) fn bring_back(&mut self) -> Result<()> {
        loop {
            self.revive()?;
            let Some(up) = &mut self.up else { return Ok(()) };
            if !up.is_running()? && !self.cluster.processes(SUPERVISOR).is_empty() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn kill_at_call(&self, victim: &'static str, pid: i32) -> Result<Vec<(&'static str, &'static str)>> {
        let at = usize::try_from(self.random.below(CALLS.len() as u64)).unwrap_or(0);
        let (name, calls) = CALLS.get(at).copied().unwrap_or(CALLS[0]);
        let nth = 1 + self.random.below(8);
        let with_children = victim != "node" || self.random.below(2) == 0;
        let log = self.cluster.scratch().join("strace");
        let mut strace = Command::new("strace");
        strace.arg("-o").arg(&log).args(["-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:signal=KILL:when={nth}")]);
        if with_children {
            strace.args(["-f", "-p", &pid.to_string()]);
        } else {
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                strace.arg("-p").arg(thread.file_name());
            }
        }
        let Ok(process) = PidFd::open(pid) else { return Ok(Vec::new()) };
        if with_children {
            self.view.trace(true);
        }
        let traced = attach(strace)?;
        let has_died = match &traced {
            Some(_) => process.wait(TRACE_MAX)?,
            None => false,
        };
        traced.map_or(Ok(()), detach)?;
        if with_children {
            self.view.trace(false);
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let killed = text.lines().filter(|line| line.contains("+++ killed by SIGKILL +++"));
        let of_others = killed.filter(|line| with_children && !line.starts_with(&format!("{pid} "))).count();
        let mut kills = Vec::new();
        kills.extend(has_died.then_some((victim, name)));
        // Its threads are told of like children; when it lives, they were children.
        kills.extend((!has_died && of_others > 0).then_some(("what it started", name)));
        Ok(kills)
    }
}

/// Also waits for the end: a process that is dying must not pass for one that lives.
fn kill_now(victim: &'static str, pid: i32) -> Result<Vec<(&'static str, &'static str)>> {
    let Ok(process) = PidFd::open(pid) else { return Ok(Vec::new()) };
    let has_died = process.signal(Signal::SIGKILL as i32).is_ok() && process.wait(DEATH_MAX)?;
    Ok(has_died.then_some((victim, "at random")).into_iter().collect())
}

/// `None` if there is nothing to attach to any more.
fn attach(mut strace: Command) -> Result<Option<Child>> {
    let mut strace = strace
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("run strace")?;
    let mut lines = BufReader::new(strace.stderr.take().context("no output")?).lines();
    let first = lines.next().and_then(std::result::Result::ok).unwrap_or_default();
    // Reads to the end, so that strace never waits for us.
    std::thread::spawn(move || lines.map_while(std::result::Result::ok).for_each(drop));
    if !first.contains("attached") {
        strace.wait()?;
        return Ok(None);
    }
    Ok(Some(strace))
}

/// What is still traced goes on without. By force: asked to let go, `strace` waits for a thread that waits for the
/// program that it has just started, which `strace` holds.
fn detach(mut strace: Child) -> Result<()> {
    // It may have ended with what it traced.
    if strace.try_wait()?.is_none() {
        strace.kill()?;
        strace.wait()?;
    }
    Ok(())
}
