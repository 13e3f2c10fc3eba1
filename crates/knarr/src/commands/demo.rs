//! `knarr demo`: the tour. A throw-away cluster, a Deployment and a Service, the chain of events as it happens,
//! one container killed and one Pod deleted, then everything taken down and looked for.
//!
//! It runs in a network namespace of its own, so that nothing of it touches the host's network.

mod chain;
mod checks;
mod leftovers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cli::Progress;
use cli::args::{CommonArgs, DemoArgs, ServerArgs};
use nix::sched::CloneFlags;

use crate::commands::{down, reset, up};
use crate::layout::Layout;
use crate::preflight;
use leftovers::Leftovers;

/// The host's address inside the demo's network namespace (RFC 5737: documentation only).
const HOST_IP: &str = "192.0.2.1";
const HOST_LINK: &str = "demo0";
/// Flags of the demo's kubelet: a cluster of a few seconds does not care how full the disk is that it borrows.
const KUBELET_FLAGS: [&str; 2] = [
    "eviction-hard=memory.available<100Mi,nodefs.available<0%,imagefs.available<0%",
    "image-gc-high-threshold=100",
];

/// Runs the tour; fails if anything that it shows does not hold.
pub(crate) fn run(args: &DemoArgs, common: &CommonArgs) -> Result<()> {
    preflight::checks::root()?;
    if args.replicas == 0 || args.replicas > 50 {
        bail!("--replicas must be between 1 and 50");
    }
    let data_dir = std::env::temp_dir().join(format!("knarr-demo-{}", std::process::id()));
    let layout = Layout::new(&data_dir)?;
    let mut progress = Progress::new();
    progress.section("A cluster, in a network namespace of its own");
    enter_namespace()?;
    let before = Leftovers::look(&layout)?;
    progress.done("network namespace");
    let toured = tour(args, common, &layout, &mut progress);
    if let Err(error) = &toured {
        progress.failed(&format!("{error:#}"));
        progress.note(&tail_of_log(&layout));
    }
    progress.section("Everything is taken down");
    let cleaned = take_down(&layout, &before, &mut progress);
    toured?;
    cleaned?;
    progress.section(&format!("All of it held, in {}.", cli::progress::duration(progress.elapsed())));
    progress.note("A cluster that stays: `sudo knarr up`, then `kubectl create deployment web --image=knarr.local/hello`.");
    Ok(())
}

fn enter_namespace() -> Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
    let mut route = sys::netlink::Route::open()?;
    route.loopback_up()?;
    route.create_bridge(HOST_LINK)?;
    let link = route.index(HOST_LINK)?;
    route.add_address(sys::netlink::Address { link, ip: HOST_IP.parse()?, prefix: 24 })?;
    route.set_up(HOST_LINK)?;
    Ok(())
}

fn tour(args: &DemoArgs, common: &CommonArgs, layout: &Layout, progress: &mut Progress) -> Result<()> {
    let server = server_args(layout.root(), args.nodes)?;
    let (_, lock) = preflight::take(&server, layout)?;
    drop(lock);
    let child = up::start(&server, common, layout)?;
    let pid = i32::try_from(child.id()).context("the server's process id")?;
    let child = up::wait_until_ready(child, layout, &server, &mut |step| progress.done(step.describe()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let story = runtime.block_on(chain::tell(args.replicas, layout, progress));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(child);
    progress.section("Stop");
    down::stop(pid)?;
    progress.done("control plane and node stopped");
    story
}

fn server_args(data_dir: &Path, nodes: u16) -> Result<ServerArgs> {
    use clap::Parser;
    let arguments = ["knarr", "server", "--node-ip", HOST_IP, "--node-name", "demo", "--data-dir"];
    let arguments = arguments.into_iter().map(PathBuf::from).chain([data_dir.to_owned()]);
    match cli::Cli::try_parse_from(arguments)?.command {
        cli::Command::Server(args) => {
            let kubelet_arg = KUBELET_FLAGS.map(str::to_owned).to_vec();
            Ok(ServerArgs { nodes: Some(nodes), kubelet_arg, ..args })
        }
        _ => bail!("the demo's own arguments are not those of `server`"),
    }
}

fn take_down(layout: &Layout, before: &Leftovers, progress: &mut Progress) -> Result<()> {
    if layout.version().exists() {
        down::stop_all(layout)?;
        reset::remove_everything(layout, &mut |what| progress.done(&format!("removed {what}")))?;
    } else if layout.root().exists() {
        std::fs::remove_dir_all(layout.root())?;
    }
    let left = Leftovers::look(layout)?.beyond(before);
    if !left.is_empty() {
        bail!("something is left: {}", left.join("; "));
    }
    progress.done("no process, mount, link, nft rule, cgroup, netns or file is left");
    Ok(())
}

fn tail_of_log(layout: &Layout) -> String {
    let text = std::fs::read_to_string(layout.log()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(25)..).unwrap_or_default();
    format!("the end of the cluster's log:\n{}", tail.join("\n"))
}
