//! The peer of the store: etcd's own durable puts of 1 kB on the same disk, where etcd is installed.
//!
//! Through its JSON gateway, without TLS: no gRPC client is needed for it, and the rate is of the same order. Its CPU
//! includes the gateway's.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::json;
use testkit::Cluster;
use tokio::time::timeout;

use super::creates::CLIENTS;
use crate::bench::{Bench, inside};
use crate::load::{self, Call, Door, STEP_MAX, as_f64};
use crate::processes;

const ADDRESS: &str = "127.0.0.1:2379";
const PEERS: &str = "http://127.0.0.1:2380";
const START_MAX: Duration = Duration::from_secs(20);

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&paths).any(|folder| folder.join("etcd").is_file()) {
        eprintln!("bench:   etcd is not installed (Debian: etcd-server); left out");
        return Ok(());
    }
    // Only its folder and its network namespace are used.
    let mut place = Cluster::new(&bench.knarr)?;
    let measured = inside(&mut place, async |place: &mut Cluster| {
        let mut etcd = start(place)?;
        let measured = puts(bench, &etcd).await;
        etcd.kill().context("stop etcd")?;
        etcd.wait().context("stop etcd")?;
        measured
    });
    let removed = place.remove();
    measured.and(removed)
}

/// Starts it in the calling thread's network namespace.
fn start(place: &Cluster) -> Result<Child> {
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(place.scratch().join("etcd"));
    command.args(["--listen-client-urls", &format!("http://{ADDRESS}")]);
    command.args(["--advertise-client-urls", &format!("http://{ADDRESS}")]);
    command.args(["--listen-peer-urls", PEERS, "--initial-advertise-peer-urls", PEERS]);
    command.args(["--initial-cluster", &format!("default={PEERS}")]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("start etcd")
}

async fn puts(bench: &mut Bench, etcd: &Child) -> Result<()> {
    let door = Door::plain(ADDRESS);
    let is_up = async {
        while door.call(Call::get("/health".to_owned())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if timeout(START_MAX, is_up).await.is_err() {
        bail!("etcd did not start");
    }
    let process = [i32::try_from(etcd.id())?];
    let puts = bench.extent.of(2_000, 500);
    for (index, clients) in CLIENTS.into_iter().enumerate() {
        let connected = door.clients(clients).await?;
        let before = processes::usage(&process)?;
        let started = Instant::now();
        let run = load::run(connected, index * puts..(index + 1) * puts, Arc::new(put));
        timeout(STEP_MAX, run).await.context("puts took too long")??;
        let elapsed = started.elapsed().as_secs_f64();
        let cpu = (processes::usage(&process)?.cpu - before.cpu).as_secs_f64() * 1e3 / as_f64(puts);
        bench.report.value(
            &format!("etcd: 1 kB put, {clients} clients"),
            "1/s",
            None,
            as_f64(puts) / elapsed,
        );
        bench.report.value(&format!("  CPU of etcd, {clients} clients"), "ms", None, cpu);
    }
    Ok(())
}

fn put(number: usize) -> Call {
    let key = STANDARD.encode(format!("/registry/configmaps/bench/load-{number}"));
    let value = STANDARD.encode(format!("{number:0>1000}"));
    let body = json!({ "key": key, "value": value }).to_string();
    Call { wanted: StatusCode::OK, ..Call::post("/v3/kv/put".to_owned(), body) }
}
