//! kill -9 of any process at any moment: at many random moments of a busy cluster, and of the control plane at each
//! of its writes to disk. Afterwards no acknowledged write is missing, containers that ran have never noticed, and
//! the cluster converges.

pub(crate) mod client;
mod containers;
mod history;
mod node;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use base::Random;
use testkit::{Cluster, Process};

use crate::must;
use client::{Acknowledged, Client};
use containers::Containers;

const IMAGE: &str = "knarr.local/hello";
const KILLS: usize = 40;
/// Between two kills: long enough to come up now and then, short enough to be hit on the way.
const PAUSE_MILLIS_MAX: u64 = 700;
/// One in five is stopped instead, for at most so long.
const STOP_MILLIS_MAX: u64 = 2000;
/// How long a killed process may take to end.
const DEATH_MAX: Duration = Duration::from_secs(10);
/// A seed that always runs; the other is new.
const SEED: u64 = 20_260_101;

/// A process of the cluster: its name, and how its command line begins.
const VICTIMS: [(&str, &str); 4] = [
    ("control plane", "knarr control-plane"),
    ("node", "knarr node"),
    ("supervisor", "knarr server"),
    ("shim", "knarr shim"),
];

/// Of ten kills, one hits the supervisor, which takes control plane and node with it.
fn victim(random: &Random) -> (&'static str, &'static str) {
    VICTIMS[match random.below(10) {
        0..3 => 0,
        3..6 => 1,
        6 => 2,
        _ => 3,
    }]
}

/// Also waits for the end: a process that is dying must not pass for a supervisor that lives.
fn kill(pid: i32) -> bool {
    let Ok(process) = sys::process::PidFd::open(pid) else { return false };
    process.signal(nix::libc::SIGKILL).is_ok() && process.wait(DEATH_MAX).unwrap()
}

/// Stops a process for a while, which is what is done to it here.
fn stop_and_go(pid: i32, random: &Random) {
    let Ok(process) = sys::process::PidFd::open(pid) else { return };
    if process.signal(nix::libc::SIGSTOP).is_ok() {
        std::thread::sleep(Duration::from_millis(random.below(STOP_MILLIS_MAX)));
        // It may have been killed with its supervisor meanwhile.
        process.signal(nix::libc::SIGCONT).ok();
    }
}

/// Whoever finds no supervisor starts the cluster again, as a user would.
fn revive(cluster: &Cluster, up: &mut Option<Process>) {
    let is_starting = up.as_mut().is_some_and(|up| must(up.is_running()));
    if is_starting || !cluster.processes(VICTIMS[2].1).is_empty() {
        return;
    }
    let data_dir = cluster.data_dir().display().to_string();
    *up = Some(must(cluster.start("up", &["up", "--data-dir", &data_dir])));
}

fn kill_at_random(cluster: &Cluster, random: &Random) -> BTreeMap<&'static str, usize> {
    let mut killed = BTreeMap::new();
    let mut up = None;
    while killed.values().sum::<usize>() < KILLS {
        // The moment is what is random here; nothing is waited for.
        std::thread::sleep(Duration::from_millis(random.below(PAUSE_MILLIS_MAX)));
        revive(cluster, &mut up);
        let (name, command) = victim(random);
        let pids = cluster.processes(command);
        let Some(last) = pids.len().checked_sub(1) else { continue };
        let chosen = usize::try_from(random.below(pids.len() as u64)).unwrap_or(last);
        if random.below(5) == 0 {
            stop_and_go(pids[chosen], random);
            continue;
        }
        if kill(pids[chosen]) {
            *killed.entry(name).or_default() += 1;
        }
    }
    // The last `up` may have lost its server; another one must find everything as it should be.
    if let Some(mut up) = up {
        while must(up.is_running()) && !cluster.processes(VICTIMS[2].1).is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let mut up = None;
    revive(cluster, &mut up);
    while up.as_mut().is_some_and(|up| must(up.is_running())) {
        std::thread::sleep(Duration::from_millis(20));
    }
    killed
}

fn survives_kills(seed: u64) {
    eprintln!("kills: seed {seed}");
    let random = Random::seeded(seed);
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up());
    let client = Client::new(&cluster);
    client.create_deployment("steady", 3, IMAGE);
    client.wait_until_available("steady", 3);
    let before = Containers::of(&client, "steady");

    let told = history::listen(&client, seed);
    let writer = client.write_in_background();
    let killed = kill_at_random(&cluster, &random);
    eprintln!("kills: {killed:?}");
    let acknowledged = writer.stop();
    eprintln!("kills: {} writes were acknowledged, {} not", acknowledged.len(), acknowledged.refused);

    told.into_iter().for_each(history::Told::check);
    client.scale("moving", 2);
    client.wait_until_available("moving", 2);
    client.wait_until_available("steady", 3);
    assert_eq!(client.lost(&acknowledged), Vec::<String>::new(), "seed {seed}: acknowledged writes are lost");
    assert_eq!(Containers::of(&client, "steady"), before, "seed {seed}: the same processes run");
    assert!(acknowledged.len() > 4, "seed {seed}: the cluster hardly ever answered");
    must(cluster.remove());
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    torture::seeds(&[SEED], 1).into_iter().for_each(survives_kills);
}

/// Attaches strace to the control plane and has the kernel kill it at its `nth` call of `syscall` from now.
fn kill_at(cluster: &Cluster, syscall: &str, nth: u32) -> Option<std::process::Child> {
    let pid = *cluster.processes(VICTIMS[0].1).first()?;
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={syscall}")]);
    strace.args(["-e", &format!("inject={syscall}:signal=KILL:when={nth}"), "-p", &pid.to_string()]);
    let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(strace.stderr.take().unwrap()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    // Reads to the end, so that strace never waits for us.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    if !first.contains("attached") {
        strace.wait().unwrap();
        return None;
    }
    Some(strace)
}

/// Kills the control plane at every call of `syscall` that a short scenario makes; returns how many those were.
fn kill_at_each(cluster: &Cluster, client: &Client, syscall: &str) -> u32 {
    const CALLS_MAX: u32 = 30;
    let mut all = Acknowledged::default();
    for nth in 1..=CALLS_MAX {
        client.wait_until_ready();
        let before = cluster.processes(VICTIMS[0].1);
        let Some(mut strace) = kill_at(cluster, syscall, nth) else { panic!("strace could not attach") };
        client.scenario(&format!("{syscall}-{nth}"), &mut all);
        let was_killed = cluster.processes(VICTIMS[0].1) != before;
        if !was_killed {
            strace.kill().unwrap();
        }
        strace.wait().unwrap();
        client.wait_until_ready();
        assert_eq!(client.lost(&all), Vec::<String>::new(), "killed at {syscall} number {nth}");
        if !was_killed {
            return nth - 1;
        }
    }
    CALLS_MAX
}

#[test]
fn a_kill_at_each_write_to_disk_loses_nothing() {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.up_with(&["--disable-agent"]));
    let client = Client::new(&cluster);
    for syscall in ["fdatasync", "pwrite64"] {
        let points = kill_at_each(&cluster, &client, syscall);
        eprintln!("kills: {points} points at {syscall}");
        assert!(points > 2, "{syscall} is no longer what the store calls");
    }
    drop(client);
    must(cluster.remove());
}
