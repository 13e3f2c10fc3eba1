//! `knarr server`: the small root process that starts the two parts and starts them again when they die.
//!
//! The control plane drops its privileges as its first act; the node part stays root. Both die with this
//! process. Containers do not: each Pod has its own shim.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::{Backoff, Random};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::layout::Layout;

/// The parts, in start order.
pub(crate) const PARTS: [&str; 2] = ["control-plane", "node"];
/// Set for the children: which part they are.
pub(crate) const PART_VARIABLE: &str = "KNARR_PART";
/// A part that is asked to stop gets this long.
const STOP_MAX: Duration = Duration::from_secs(10);
/// A part that ran this long starts its backoff over.
const STEADY: Duration = Duration::from_secs(30);
const RESTART_FIRST: Duration = Duration::from_millis(20);
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Takes the cluster's lock, which lasts as long as the returned file is open, and writes our process id to it.
///
/// # Errors
/// If another process has it.
pub(crate) fn lock(layout: &Layout) -> Result<Flock<File>> {
    let Some(mut lock) = try_lock(layout)? else {
        bail!("a cluster already runs in {}; `knarr down` stops it", layout.root().display());
    };
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    Ok(lock)
}

/// Whether no supervisor has the lock.
pub(crate) fn lock_is_free(layout: &Layout) -> Result<bool> {
    Ok(try_lock(layout)?.is_some())
}

fn try_lock(layout: &Layout) -> Result<Option<Flock<File>>> {
    let path = layout.lock();
    let file = File::options().create(true).truncate(false).write(true).read(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

struct Part {
    pid: i32,
    started: Instant,
    backoff: Backoff,
}

/// What a part says or what becomes of it.
enum News {
    Line(String),
    Exited(&'static str, String),
}

struct Supervisor {
    data_dir: PathBuf,
    random: Random,
    news: mpsc::Sender<News>,
    running: BTreeMap<&'static str, Part>,
}

/// Runs the parts until SIGTERM or SIGINT. Lines that the parts print (their readiness) go to stdout.
///
/// Must run on a runtime of one thread: the parts are tied to the thread that started them.
pub(crate) async fn run(parts: &[&'static str], data_dir: &Path) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (news, mut inbox) = mpsc::channel(64);
    let mut supervisor = Supervisor {
        data_dir: data_dir.to_owned(),
        random: Random::from_system(),
        news,
        running: BTreeMap::new(),
    };
    for name in parts {
        supervisor.start(name, Backoff::new(RESTART_FIRST, RESTART_MAX, 0.2))?;
    }
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(item) = inbox.recv() => match item {
                News::Line(line) => say(&line),
                News::Exited(name, how) => supervisor.restart(name, &how).await?,
            },
        }
    }
    supervisor.stop_all(&mut inbox).await;
    Ok(())
}

impl Supervisor {
    fn start(&mut self, name: &'static str, backoff: Backoff) -> Result<()> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg0(format!("knarr {name}")).args(["server", "--data-dir"]).arg(&self.data_dir);
        command.env(PART_VARIABLE, name).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Command::from(command).spawn().with_context(|| format!("start the {name}"))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("the part ended at once")?;
        let stdout = child.stdout.take();
        let news = self.news.clone();
        tokio::spawn(async move {
            if let Some(stdout) = stdout {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if news.send(News::Line(line)).await.is_err() {
                        return;
                    }
                }
            }
            let how = child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
            if news.send(News::Exited(name, how)).await.is_err() {
                tracing::debug!(part = name, "ended after the supervisor");
            }
        });
        self.running.insert(name, Part { pid, started: Instant::now(), backoff });
        Ok(())
    }

    async fn restart(&mut self, name: &'static str, how: &str) -> Result<()> {
        let Some(Part { started, mut backoff, .. }) = self.running.remove(name) else { return Ok(()) };
        if started.elapsed() > STEADY {
            backoff.reset();
        }
        let delay = backoff.next(&self.random);
        tracing::warn!(part = name, how, ?delay, "a part ended and is started again");
        tokio::time::sleep(delay).await;
        self.start(name, backoff)
    }

    /// The node first, so that it can still say goodbye to the API server.
    async fn stop_all(&mut self, inbox: &mut mpsc::Receiver<News>) {
        for name in PARTS.iter().rev() {
            let Some(part) = self.running.remove(name) else { continue };
            signal_part(name, part.pid, Signal::SIGTERM);
            let ended = async {
                loop {
                    match inbox.recv().await {
                        Some(News::Exited(exited, _)) if exited == *name => return,
                        None => return,
                        Some(_) => {}
                    }
                }
            };
            if tokio::time::timeout(STOP_MAX, ended).await.is_err() {
                tracing::warn!(part = name, "did not stop in time and is killed");
                signal_part(name, part.pid, Signal::SIGKILL);
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
