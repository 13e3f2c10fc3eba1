//! One suite for every container runtime, after the specs of upstream's CRI validation: the built-in one in this
//! process, with runc as its handler, behind its socket, and Debian's containerd.
//!
//! A test per runtime runs every spec; `KNARR_TEST_SPEC` picks those whose name has a text. Everything happens in a
//! network and a mount namespace that this program makes first.
//!
//! With the arguments `serve FOLDER` it is a runtime on the socket `FOLDER/run/cri.sock` in the namespaces that it is
//! started in, until it is told to end, for suites of others. `FOLDER/registries.yaml` counts if it is there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "conformance/apart.rs"]
mod apart;
#[path = "conformance/cdi.rs"]
mod cdi;
#[path = "conformance/containers.rs"]
mod containers;
#[path = "conformance/hostile.rs"]
mod hostile;
#[path = "conformance/images.rs"]
mod images;
#[path = "conformance/mounts.rs"]
mod mounts;
#[path = "conformance/network.rs"]
mod network;
#[path = "conformance/sandboxes.rs"]
mod sandboxes;
#[path = "conformance/security.rs"]
mod security;
#[path = "conformance/streams.rs"]
mod streams;
#[path = "conformance/subjects.rs"]
mod subjects;
#[path = "conformance/support.rs"]
mod support;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use nix::sched::{CloneFlags, unshare};
use support::Subject;

/// A spec and its name, which is upstream's where upstream has it.
type Spec = (&'static str, fn(Arc<Subject>) -> Pin<Box<dyn Future<Output = ()>>>);

/// Specs that run at the same time.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "shim") {
        return runtime::shim::main(args.skip(1));
    }
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let [first, folder] = args.as_slice()
        && first == "serve"
    {
        return serve(Path::new(folder));
    }
    let has = |name: &str| args.iter().any(|arg| arg == name);
    if has("--list") {
        if !has("--ignored") {
            subjects::ALL.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    assert!(nix::unistd::geteuid().is_root(), "these tests make namespaces and cgroups: run them as root");
    own_namespaces();
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_named =
        |name: &str, filter: &str| if has("--exact") { filter == name } else { name.contains(filter) };
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| is_named(name, filter));
    let mut failed = false;
    for (name, start) in subjects::ALL.iter().filter(|(name, _)| is_wanted(name)) {
        let started = Instant::now();
        let failures = run(*start);
        println!("test {name} ... {} ({:?})", if failures == 0 { "ok" } else { "FAILED" }, started.elapsed());
        failed |= failures > 0;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Serves the built-in runtime until SIGTERM, and takes back what is left.
fn serve(folder: &Path) -> ExitCode {
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGTERM);
    signals.thread_block().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let running = runtime.block_on(subjects::over_socket(folder));
    signals.wait().unwrap();
    let left = runtime.block_on(running.end());
    left.iter().for_each(|left| println!("left: {left}"));
    if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Nothing that happens here reaches the host's network, and mounts propagate to containers.
fn own_namespaces() {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    sys::mount::own_namespace().unwrap();
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success());
}

/// Runs all specs on a subject; says how many failed.
fn run(start: subjects::Start) -> usize {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let folder = tempfile::tempdir().unwrap();
        // Users of user namespaces pass through.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let running = start(folder.path()).await;
        let subject = running.subject.clone();
        let filter = std::env::var("KNARR_TEST_SPEC").unwrap_or_default();
        let specs = [
            sandboxes::SPECS,
            containers::SPECS,
            images::SPECS,
            mounts::SPECS,
            cdi::SPECS,
            streams::SPECS,
            security::SPECS,
            apart::SPECS,
            hostile::SPECS,
        ]
        .concat();
        let specs = specs.into_iter().filter(|(name, _)| name.contains(&filter));
        let run_one = |(name, spec): Spec| {
            let subject = subject.clone();
            async move {
                let started = Instant::now();
                let result = tokio::task::spawn_local(spec(subject.clone())).await;
                let outcome = if result.is_ok() { "ok" } else { "FAILED" };
                println!("  {}: {name} ... {outcome} ({:?})", subject.name, started.elapsed());
                result.is_err()
            }
        };
        let results: Vec<bool> =
            futures::stream::iter(specs).map(run_one).buffer_unordered(AT_ONCE).collect().await;
        drop(subject);
        let left = running.end().await;
        for left in &left {
            println!("  left: {left}");
        }
        results.into_iter().filter(|failed| *failed).count() + left.len() + leftovers(folder.path()).len()
    })
}

/// Mounts that nobody took back.
fn leftovers(folder: &Path) -> Vec<String> {
    let mounts = sys::mount::mounts().unwrap();
    let left = mounts.into_iter().filter(|mount| mount.target.starts_with(folder));
    left.map(|mount| mount.target.display().to_string()).inspect(|left| println!("  left: {left}")).collect()
}
