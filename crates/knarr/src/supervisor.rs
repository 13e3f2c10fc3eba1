//! `knarr server`: the small root process that starts the parts, control plane and Nodes, and starts them again when they
//! die.
//!
//! The control plane drops its privileges as its first act; a Node's part stays root. All die with this
//! process. Containers do not: each Pod has its own shim. Nothing here waits without listening: a signal to stop
//! is heard while a part is yet to be started again.

mod last_run;
mod lock;
mod notify;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::{Backoff, Random};
use cli::args::{Part as Runs, ServerArgs};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sys::netns::NetNs;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::layout::Layout;
use crate::ready::Ready;
pub(crate) use last_run::wait_for_its_end;
pub(crate) use lock::{PartLock, holders, lock, lock_part, wait_for_holder};

/// The part that has the store and the API server.
pub(crate) const CONTROL_PLANE: &str = "control-plane";
/// A Node's part.
pub(crate) const NODE: &str = "node";
/// What serves Ingresses. The cluster is one without it.
pub(crate) const INGRESS: &str = "ingress";
/// Set for a server in the background: `--token`, which its parts need not know.
pub(crate) const TOKEN_VARIABLE: &str = "KNARR_TOKEN";
/// Set for the children: which part they are.
pub(crate) const PART_VARIABLE: &str = "KNARR_PART";
/// What a part's line begins with that says why it ends.
const FAILED: &str = "failed: ";
/// The same, where it is no use to start the part again; and the supervisor's own.
pub(crate) const HOPELESS: &str = "failed for good: ";
/// A part that is asked to stop gets this long.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Between starts of a part that ends before it is ready; one that was ready is started again at once.
const RESTART_FIRST: Duration = Duration::from_millis(20);
const RESTART_MAX: Duration = Duration::from_secs(10);
/// A cluster whose parts give up this often before it was ever ready will not be.
const FAILED_STARTS_MAX: u32 = 5;

/// The parts of a Node with these flags in this folder, in start order.
pub(crate) fn node_parts(args: &ServerArgs, layout: &Layout) -> Vec<PartPlan> {
    let parts =
        [(Runs::Agent, NODE), (Runs::Ingress, INGRESS)].into_iter().filter(|(part, _)| args.runs(*part));
    parts.map(|(_, kind)| PartPlan::own(kind, layout)).collect()
}

/// What is run.
pub(crate) struct Plan {
    /// In start order.
    pub(crate) parts: Vec<PartPlan>,
    /// The cluster's folder.
    pub(crate) layout: Layout,
    /// What must be said before the cluster is ready.
    pub(crate) awaited: Vec<Ready>,
    /// The flags that say what is logged.
    pub(crate) common_flags: Vec<OsString>,
}

/// One process that is run.
pub(crate) struct PartPlan {
    /// [`CONTROL_PLANE`], [`NODE`] or [`INGRESS`].
    pub(crate) kind: &'static str,
    /// For people.
    pub(crate) name: String,
    /// The folder that it works in.
    pub(crate) layout: Layout,
    /// The network that it is in, if that is not the host's: then it is one Node of several, and has a log of its own.
    pub(crate) network: Option<NetNs>,
}

impl PartPlan {
    /// A part of the cluster in this folder.
    pub(crate) fn own(kind: &'static str, layout: &Layout) -> Self {
        Self { kind, name: kind.to_owned(), layout: layout.clone(), network: None }
    }
}

/// Which part of the plan.
type Index = usize;

/// A part's life.
enum Part {
    Running { pid: i32, backoff: Backoff },
    Waiting { until: Instant, backoff: Backoff },
}

/// What a part says or what becomes of it.
enum News {
    Line(Index, String),
    Exited(Index, std::io::Result<ExitStatus>),
}

struct Supervisor {
    plan: Plan,
    random: Random,
    news: mpsc::Sender<News>,
    parts: BTreeMap<Index, Part>,
    /// Why a part is about to end, in its own words.
    reasons: BTreeMap<Index, Reason>,
    /// The Nodes beside the first that were never Ready.
    missing: BTreeSet<Index>,
    failed_starts: u32,
}

/// A part's own words.
struct Reason {
    text: String,
    is_final: bool,
}

/// In a part: has the supervisor know why it ends.
///
/// # Errors
/// What it was given; or that a disk is full, and what to do.
pub(crate) fn explained(result: Result<()>, layout: &Layout) -> Result<()> {
    told_if_full(result, layout).inspect_err(|error| {
        let line = format!("{error:#}").replace('\n', " ");
        say(&format!("{}{line}", if error.is::<DiskFull>() { HOPELESS } else { FAILED }));
    })
}

/// An error that comes of a full disk, as one that says so, and what to do.
///
/// # Errors
/// What it was given, if there was room.
pub(crate) fn told_if_full(result: Result<()>, layout: &Layout) -> Result<()> {
    result.map_err(|error| if is_full(&error) { DiskFull::new(&error, layout).into() } else { error })
}

/// A disk is full.
#[derive(Debug)]
struct DiskFull {
    folder: PathBuf,
    free: String,
    doing: String,
}

impl DiskFull {
    fn new(error: &anyhow::Error, layout: &Layout) -> Self {
        let stats = sys::process::fs_stats(layout.root()).ok();
        let free = stats.map_or_else(|| "nothing".into(), |stats| cli::status::size(stats.available_bytes));
        Self { folder: layout.root().to_owned(), free, doing: error.to_string() }
    }
}

impl std::fmt::Display for DiskFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, free, doing } = self;
        let folder = folder.display();
        write!(
            f,
            "no space is left on the disk of {folder} to {doing} ({free} free); make room, or choose another "
        )?;
        f.write_str("folder with --data-dir")
    }
}

impl std::error::Error for DiskFull {}

/// Whether a disk is full, or the user's share of it.
fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let of_kernel = cause.downcast_ref::<nix::Error>();
        matches!(of_io, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
            || matches!(of_kernel, Some(nix::Error::ENOSPC | nix::Error::EDQUOT))
    })
}

/// Runs the parts until SIGTERM or SIGINT. Lines that the parts print (their readiness) go to stdout.
///
/// Must run on a runtime of one thread: the parts are tied to the thread that started them.
///
/// # Errors
/// If the parts give up again and again before the cluster was ever ready.
pub(crate) async fn run(plan: Plan) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (news, mut received) = mpsc::channel(64);
    let beside = plan.parts.iter().enumerate().filter(|(_, part)| part.network.is_some());
    let missing = beside.map(|(index, _)| index).collect();
    let count = plan.parts.len();
    let mut supervisor = Supervisor {
        plan,
        random: Random::from_system(),
        news,
        parts: BTreeMap::new(),
        reasons: BTreeMap::new(),
        missing,
        failed_starts: 0,
    };
    for index in 0..count {
        supervisor.start(index, Backoff::new(RESTART_FIRST, RESTART_MAX, 0.2));
    }
    let ended = loop {
        let due = supervisor.next_start();
        tokio::select! {
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                supervisor.start_due();
            }
            Some(item) = received.recv() => match item {
                News::Line(index, line) => supervisor.hear(index, &line),
                News::Exited(index, how) => if let Err(error) = supervisor.ended(index, how) { break Err(error) },
            },
        }
    };
    notify::tell("STOPPING=1");
    supervisor.stop_all(&mut received).await;
    ended
}

impl Reason {
    fn parse(line: &str) -> Option<Self> {
        let parsed = |prefix, is_final| {
            line.strip_prefix(prefix).map(|text: &str| Self { text: text.to_owned(), is_final })
        };
        parsed(HOPELESS, true).or_else(|| parsed(FAILED, false))
    }
}

impl Supervisor {
    fn start(&mut self, index: Index, mut backoff: Backoff) {
        let Some(plan) = self.plan.parts.get(index) else { return };
        let part = match self.spawn(index, plan) {
            Ok(pid) => Part::Running { pid, backoff },
            Err(error) => {
                let delay = backoff.next(&self.random);
                tracing::error!(
                    part = plan.name,
                    error = format!("{error:#}"),
                    ?delay,
                    "a part could not be started"
                );
                Part::Waiting { until: Instant::now() + delay, backoff }
            }
        };
        self.parts.insert(index, part);
        let running = self.parts.values().filter_map(|part| match part {
            Part::Running { pid, .. } => Some(*pid),
            Part::Waiting { .. } => None,
        });
        if let Err(error) = last_run::note(&self.plan.layout, running) {
            tracing::warn!(%error, "whoever starts the cluster next will not know these parts");
        }
    }

    fn spawn(&self, index: Index, plan: &PartPlan) -> Result<i32> {
        let name = &plan.name;
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg0(format!("knarr {name}")).args(["server", "--data-dir"]).arg(plan.layout.root());
        command.args(&self.plan.common_flags).env(PART_VARIABLE, plan.kind).env_remove(notify::VARIABLE);
        command.env_remove(TOKEN_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if plan.network.is_some() {
            let log = plan.layout.log();
            let log = File::options().create(true).append(true).open(&log);
            command.stderr(log.with_context(|| format!("open the log of the {name}"))?);
        }
        // From the first moment on: a part must not outlive us, for it would keep the store and the ports.
        let setup = sys::process::ChildSetup {
            parent_death_signal: Some(Signal::SIGKILL as i32),
            network: plan.network.as_ref().map(|network| network.as_fd().as_raw_fd()),
            ..sys::process::ChildSetup::default()
        };
        sys::process::set_up_child(&mut command, setup);
        let mut child = Command::from(command).spawn().with_context(|| format!("start the {name}"))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("the part ended at once")?;
        let stdout = child.stdout.take();
        let news = self.news.clone();
        tokio::spawn(async move {
            if let Some(stdout) = stdout {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if news.send(News::Line(index, line)).await.is_err() {
                        return;
                    }
                }
            }
            if news.send(News::Exited(index, child.wait().await)).await.is_err() {
                tracing::debug!(pid, "a part ended after the supervisor");
            }
        });
        Ok(pid)
    }

    fn hear(&mut self, index: Index, line: &str) {
        if let Some(reason) = Reason::parse(line) {
            self.reasons.insert(index, reason);
            return;
        }
        let ready = Ready::parse(line);
        if let Some(Part::Running { backoff, .. }) = self.parts.get_mut(&index)
            && ready.is_some()
        {
            backoff.reset();
        }
        if self.plan.parts.get(index).is_none_or(|part| part.network.is_none()) {
            say(line);
            return ready.map_or((), |ready| self.reached(ready));
        }
        // What one of several Nodes can do is no news before all can.
        let is_there = matches!(ready, Some(Ready::Node | Ready::Registered));
        if is_there && self.missing.remove(&index) && self.missing.is_empty() {
            Ready::Nodes.announce();
            self.reached(Ready::Nodes);
        }
    }

    fn reached(&mut self, ready: Ready) {
        let before = self.plan.awaited.len();
        self.plan.awaited.retain(|awaited| *awaited != ready);
        if before > 0 && self.plan.awaited.is_empty() {
            notify::tell("READY=1\nSTATUS=the cluster is ready");
        }
    }

    fn name_of(&self, index: Index) -> &str {
        self.plan.parts.get(index).map_or(NODE, |part| &part.name)
    }

    fn ended(&mut self, index: Index, how: std::io::Result<ExitStatus>) -> Result<()> {
        let Some(Part::Running { mut backoff, .. }) = self.parts.remove(&index) else { return Ok(()) };
        let gave_up = how.as_ref().is_ok_and(|status| status.code().is_some());
        let how = how.map_or_else(|error| error.to_string(), |status| status.to_string());
        let reason = self.reasons.remove(&index).unwrap_or(Reason { text: how, is_final: false });
        let how = reason.text;
        let is_needed = self.plan.parts.get(index).is_none_or(|part| part.kind != INGRESS);
        if gave_up && is_needed && !self.plan.awaited.is_empty() {
            if reason.is_final {
                say(&format!("{HOPELESS}{how}"));
                bail!(how);
            }
            self.failed_starts += 1;
            if self.failed_starts >= FAILED_STARTS_MAX {
                let name = self.name_of(index);
                bail!("the {name} ended {FAILED_STARTS_MAX} times before it was ready: {how}");
            }
        }
        let delay = backoff.next(&self.random);
        tracing::warn!(part = self.name_of(index), how, ?delay, "a part ended and is started again");
        self.parts.insert(index, Part::Waiting { until: Instant::now() + delay, backoff });
        Ok(())
    }

    /// When the next part is to be started again.
    fn next_start(&self) -> Option<Instant> {
        let waiting = self.parts.values().filter_map(|part| match part {
            Part::Waiting { until, .. } => Some(*until),
            Part::Running { .. } => None,
        });
        waiting.min()
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        for index in 0..self.plan.parts.len() {
            let is_due = matches!(self.parts.get(&index), Some(Part::Waiting { until, .. }) if *until <= now);
            if is_due && let Some(Part::Waiting { backoff, .. }) = self.parts.remove(&index) {
                self.start(index, backoff);
            }
        }
    }

    /// The Nodes first, all at once, so that they can still say goodbye to the API server.
    async fn stop_all(&mut self, received: &mut mpsc::Receiver<News>) {
        for kind in [NODE, CONTROL_PLANE] {
            self.stop(kind, received).await;
        }
    }

    async fn stop(&mut self, kind: &str, received: &mut mpsc::Receiver<News>) {
        let mut ending = BTreeMap::new();
        for (index, plan) in self.plan.parts.iter().enumerate().filter(|(_, plan)| plan.kind == kind) {
            let Some(Part::Running { pid, .. }) = self.parts.remove(&index) else { continue };
            signal_part(&plan.name, pid, Signal::SIGTERM);
            ending.insert(index, pid);
        }
        let ended = async {
            while !ending.is_empty() {
                match received.recv().await {
                    Some(News::Exited(index, _)) => {
                        ending.remove(&index);
                        self.parts.remove(&index);
                    }
                    None => return,
                    Some(News::Line(..)) => {}
                }
            }
        };
        if tokio::time::timeout(STOP_MAX, ended).await.is_err() {
            for (index, pid) in ending {
                tracing::warn!(part = self.name_of(index), "did not stop in time and is killed");
                signal_part(self.name_of(index), pid, Signal::SIGKILL);
            }
        }
    }
}

fn signal_part(name: &str, pid: i32, signal: Signal) {
    if let Err(error) = nix::sys::signal::kill(Pid::from_raw(pid), signal) {
        tracing::debug!(part = name, %error, "it had ended already");
    }
}

fn say(line: &str) {
    let mut stdout = std::io::stdout();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        // `knarr up` has heard what it waited for and is gone.
    }
}
