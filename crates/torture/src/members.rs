//! Three real members of etcd, each on a host of its own: killed, stopped, cut off, on a slow disk, while clients go
//! through a store for each member.
//!
//! Every trouble shows that it is one before it counts: whoever is dead does not answer, whoever led leads no more,
//! the disk's flushes were late.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use store::Store;
use store::etcd::{ConnectError, Etcd, Options};
use testkit::Lan;
use testkit::etcd::{Etcd as Servers, Security};

use crate::check::{Breach, Rule};
use crate::history::Recorder;
use crate::mutants::{Liar, Lie};
use crate::scenario::Report;
use crate::several::Several;
use crate::workload::{self, Plan};

const MEMBERS: u8 = 3;
/// Answers that clients must get during each trouble, and after it.
const ANSWERS: u64 = 100;
/// What must come gets this long.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Between two operations of a client: they last as long as the troubles do.
const PAUSE: Duration = Duration::from_millis(20);
/// How much later each flush of a slow disk is.
const SLOW_MICROS: u32 = 100_000;

/// A fault of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A follower's process is killed, and started again.
    FollowerKilled,
    /// The leader's is.
    LeaderKilled,
    /// The leader stands still for a while; its connections stay.
    LeaderStopped,
    /// No packet reaches a follower.
    FollowerCutOff,
    /// None reaches the leader.
    LeaderCutOff,
    /// The leader's disk takes a while for each flush.
    SlowDisk,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::FollowerKilled,
        Self::LeaderKilled,
        Self::LeaderStopped,
        Self::FollowerCutOff,
        Self::LeaderCutOff,
        Self::SlowDisk,
    ];

    /// Whether somebody else leads in the course of it.
    fn ends_a_lead(self) -> bool {
        matches!(self, Self::LeaderKilled | Self::LeaderStopped | Self::LeaderCutOff)
    }
}

/// Runs a workload through these troubles, on stores that tell this lie.
///
/// # Errors
/// If members cannot be started, or a trouble cannot be made.
pub fn run(seed: u64, lie: Lie, troubles: &[Trouble]) -> Result<Report> {
    // A thread of its own, because it moves to the wire for good.
    let ran = std::thread::scope(|scope| scope.spawn(|| on_a_wire(seed, lie, troubles)).join());
    ran.map_err(|_| anyhow!("the clients' thread panicked"))?
}

fn on_a_wire(seed: u64, lie: Lie, troubles: &[Trouble]) -> Result<Report> {
    let lan = Lan::new(MEMBERS)?;
    lan.enter()?;
    let mut cluster = Cluster { servers: Servers::on_hosts(&lan, MEMBERS, Security::Plain, &[])?, lan: &lan };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(work_through(&mut cluster, seed, lie, troubles))
}

async fn work_through(
    cluster: &mut Cluster<'_>,
    seed: u64,
    lie: Lie,
    troubles: &[Trouble],
) -> Result<Report> {
    let several = Arc::new(Several::new(connect_to_each(&cluster.servers.urls()).await?));
    let store: Arc<dyn Store> = Arc::new(Liar::new(several, lie));
    let recorder = Recorder::in_memory();
    // Causes of revisions expire by themselves, so nothing else may.
    let plan = Plan {
        name: format!("m{seed}"),
        operations: u64::MAX,
        pause: PAUSE,
        is_loose: false,
        timeout: TIMEOUT,
        ..Plan::new(seed)
    };
    let start = store.newest().await?;
    let working = tokio::spawn({
        let (store, plan, recorder) = (Arc::clone(&store), plan.clone(), recorder.clone());
        async move { workload::run(&store, &plan, start, &recorder).await }
    });
    let random = Random::seeded(seed);
    let mut report = Report::default();
    for trouble in troubles {
        eprintln!("torture: {trouble:?}");
        if let Err(why) = cluster.go_through(*trouble, &random, &recorder).await? {
            let place = format!("{trouble:?}, seed {seed}");
            report.breaches.push((place, Breach { rule: Rule::Progress, what: why.to_string() }));
        }
        report.troubles += 1;
    }
    answers(&recorder, ANSWERS).await?;
    plan.is_over.store(true, Ordering::Relaxed);
    working.await?;
    store.close().await?;
    report.judge(&format!("etcd, {troubles:?}, seed {seed}"), &recorder.history());
    Ok(report)
}

/// A store that prefers the first member, one that prefers the second, and so on.
async fn connect_to_each(urls: &[String]) -> Result<Vec<Arc<dyn Store>>> {
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for first in 0..urls.len() {
        let endpoints = urls.iter().cycle().skip(first).take(urls.len()).cloned().collect();
        let options =
            Options { endpoints, authority_pem: None, identity_pem: None, random: Random::from_system() };
        let started = Instant::now();
        let store = loop {
            match Etcd::connect(options.clone()).await {
                Ok(store) => break store,
                Err(ConnectError::Unreachable(_)) if started.elapsed() < TIMEOUT => {}
                Err(error) => return Err(error.into()),
            }
        };
        stores.push(Arc::new(store));
    }
    Ok(stores)
}

/// Waits for so many more answers; says since when there was none if they do not come.
async fn answers(recorder: &Recorder, more: u64) -> Result<()> {
    let mut answers = recorder.answers();
    let enough = *answers.borrow() + more;
    let wait = tokio::time::timeout(TIMEOUT, answers.wait_for(|count| *count >= enough)).await;
    match wait {
        Ok(_) => Ok(()),
        Err(_) => bail!("clients got fewer than {more} answers in {TIMEOUT:?}"),
    }
}

struct Cluster<'l> {
    servers: Servers<'l>,
    lan: &'l Lan,
}

impl Cluster<'_> {
    /// From the beginning of a trouble until all is well again. The inner error is the store's fault.
    async fn go_through(
        &mut self,
        trouble: Trouble,
        random: &Random,
        recorder: &Recorder,
    ) -> Result<Result<()>> {
        let leader = self.leader()?;
        let follower = (leader + 1 + usize::try_from(random.below(2))?) % usize::from(MEMBERS);
        let victim = match trouble {
            Trouble::FollowerKilled | Trouble::FollowerCutOff => follower,
            _ => leader,
        };
        let number = u8::try_from(victim)?;
        let mut slow = None;
        match trouble {
            Trouble::FollowerKilled | Trouble::LeaderKilled => self.servers.kill(victim)?,
            Trouble::LeaderStopped => self.servers.pause(victim)?,
            Trouble::FollowerCutOff | Trouble::LeaderCutOff => self.lan.unplug(number)?,
            Trouble::SlowDisk => slow = Some(SlowDisk::begin(self.servers.pid(victim)?)?),
        }
        let went_on = answers(recorder, ANSWERS).await;
        if slow.is_none() {
            ensure!(self.servers.etcdctl(victim, &["get", "/"]).is_err(), "{trouble:?} has no effect");
        }
        if trouble.ends_a_lead() {
            // Of those that answer.
            ensure!(self.leader()? != victim, "{trouble:?}: it leads on");
        }
        match trouble {
            Trouble::FollowerKilled | Trouble::LeaderKilled => self.servers.start(victim)?,
            Trouble::LeaderStopped => self.servers.resume(victim)?,
            Trouble::FollowerCutOff | Trouble::LeaderCutOff => self.lan.plug(number)?,
            Trouble::SlowDisk => {}
        }
        if let Some(slow) = slow {
            slow.end()?;
        }
        Ok(match went_on {
            Ok(()) => answers(recorder, ANSWERS).await,
            Err(why) => Err(why),
        })
    }

    /// Waits until somebody leads.
    fn leader(&self) -> Result<usize> {
        let started = Instant::now();
        loop {
            match self.servers.leader() {
                Ok(leader) => return Ok(leader),
                Err(error) if started.elapsed() > TIMEOUT => return Err(error),
                Err(_) => {}
            }
        }
    }
}

/// `strace` between a process and its disk, to hold up each flush.
struct SlowDisk {
    strace: Child,
    log: tempfile::NamedTempFile,
}

impl SlowDisk {
    fn begin(pid: u32) -> Result<Self> {
        let log = tempfile::NamedTempFile::new()?;
        let mut strace = std::process::Command::new("strace");
        strace.args(["-f", "-e", "trace=fdatasync,fsync", "-e"]);
        strace.arg(format!("inject=fdatasync,fsync:delay_enter={SLOW_MICROS}"));
        strace.arg("-o").arg(log.path()).args(["-p", &pid.to_string()]);
        let strace = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut strace = strace.context("hold up a disk; is strace there?")?;
        let mut lines = BufReader::new(strace.stderr.take().context("no output")?).lines();
        let first = lines.next().context("strace says nothing")??;
        if !first.contains("attached") {
            strace.wait()?;
            bail!("strace does not attach: {first}");
        }
        // Reads to the end, so that strace never waits for us.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Self { strace, log })
    }

    /// Lets go of the process, which goes on at its own speed.
    fn end(mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.strace.id())?), Signal::SIGTERM)?;
        self.strace.wait()?;
        let log = std::fs::read_to_string(self.log.path())?;
        ensure!(log.contains("(DELAYED)"), "no flush was held up");
        Ok(())
    }
}
