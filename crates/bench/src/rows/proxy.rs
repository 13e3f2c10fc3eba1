//! The Service proxy alone, in this process and a network namespace of its own: no API, and no packets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery::net::Cidrs;
use proxy::{Changed, Config, IpvsOptions, Kernel, Mode, NodePortAddresses};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use sys::netlink::Route;
use sys::netns::NetNs;

use crate::bench::Bench;
use crate::processes;

const ENDPOINTS: u32 = 10;
/// Changes of one Service each.
const CHANGES: u32 = 200;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let many = u32::try_from(bench.extent.of(10_000, 500))?;
    let most = u32::try_from(bench.extent.of(30_000, 1_000))?;
    for services in [10, many, most] {
        let outcome =
            NetNs::anonymous().context("make a network namespace: run this as root")?.run(|| {
                Route::open()?.loopback_up()?;
                run(services, Mode::Nftables)
            })?;
        let (goal, memory) = if services == many { (Some("3,000"), Some("120")) } else { (None, None) };
        let what = format!("{services} Services with {ENDPOINTS} endpoints: first programming");
        bench.report.value(&what, "ms", goal, outcome.first.as_secs_f64() * 1_000.0);
        bench.report.value("  memory of it, objects included", "MiB", memory, outcome.mebibytes);
        bench.report.durations("  a change of one, decided", None, &outcome.decided);
        bench.report.durations("  a change of one, with the kernel's commit", Some("5"), &outcome.changed);
    }
    compare(bench)
}

/// What each mode that this host has makes of the same Services.
fn compare(bench: &mut Bench) -> Result<()> {
    let services = u32::try_from(bench.extent.of(2_000, 100))?;
    let options = IpvsOptions { scheduler: "rr".to_owned(), exclude_cidrs: Vec::new(), strict_arp: false };
    for (name, mode) in
        [("nftables", Mode::Nftables), ("iptables", Mode::Iptables), ("ipvs", Mode::Ipvs(options))]
    {
        let in_mode = || {
            Route::open()?.loopback_up()?;
            // A host without a mode is no failure of those that it has.
            match proxy::try_mode(&mode, &network("10.128.0.0/9")?) {
                Ok(()) => run(services, mode.clone()).map(Some),
                Err(_) => Ok(None),
            }
        };
        let namespace = NetNs::anonymous().context("make a network namespace: run this as root")?;
        let Some(outcome) = namespace.run(in_mode)? else { continue };
        let what = format!("{name}: {services} Services with {ENDPOINTS} endpoints: first programming");
        bench.report.value(&what, "ms", None, outcome.first.as_secs_f64() * 1_000.0);
        bench.report.durations("  a change of one, decided", None, &outcome.decided);
        bench.report.durations("  a change of one, with the kernel's commit", None, &outcome.changed);
    }
    Ok(())
}

pub(super) fn network(text: &str) -> sys::Result<Cidrs> {
    text.parse().map_err(|error| sys::Error::new("read a network", std::io::Error::other(error)))
}

struct Outcome {
    first: Duration,
    mebibytes: f64,
    decided: Vec<Duration>,
    changed: Vec<Duration>,
}

/// The address of the Service with this number.
pub(super) fn service_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + number + 1)
}

/// The Service with this number, and its endpoints, of which one is another in each version.
pub(super) fn objects(number: u32, version: u32) -> sys::Result<(Arc<Service>, Arc<EndpointSlice>)> {
    let service = json!({"metadata": {"namespace": "bench", "name": format!("service-{number}")},
        "spec": {"clusterIP": service_ip(number).to_string(), "ports": [{"port": 80}]}});
    let first = Ipv4Addr::new(10, 0, 0, 0).to_bits() + number * ENDPOINTS;
    let pod = |index| if index == 0 { first + (version << 20) } else { first + index };
    let pods: Vec<IpAddr> = (0..ENDPOINTS).map(|index| Ipv4Addr::from_bits(pod(index)).into()).collect();
    Ok((read(service)?, endpoints_of(number, &pods)?))
}

/// These endpoints of the Service with this number.
pub(super) fn endpoints_of(number: u32, pods: &[IpAddr]) -> sys::Result<Arc<EndpointSlice>> {
    let name = format!("service-{number}");
    let endpoint = |ip| json!({"addresses": [ip], "nodeName": "other", "conditions": {"ready": true}});
    let endpoints: Vec<_> = pods.iter().map(endpoint).collect();
    read(
        json!({"metadata": {"namespace": "bench", "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints}),
    )
}

fn read<T: DeserializeOwned>(object: Value) -> sys::Result<Arc<T>> {
    let read =
        from_value(object).map_err(|error| sys::Error::new("make objects", std::io::Error::other(error)));
    read.map(Arc::new)
}

/// A proxy in this mode.
pub(super) fn config(mode: Mode) -> sys::Result<Config> {
    Ok(Config {
        cluster_id: "bench".to_owned(),
        node_name: "own".to_owned(),
        node_ips: vec![Ipv4Addr::LOCALHOST.into()],
        service_cidrs: network("10.128.0.0/9")?,
        cluster_cidrs: network("10.0.0.0/9")?,
        local_addresses: Vec::new(),
        mode,
        node_port_addresses: NodePortAddresses::Primary,
        healthz_address: None,
        metrics_address: None,
    })
}

fn run(services: u32, mode: Mode) -> sys::Result<Outcome> {
    let memory = || processes::rss_bytes(std::process::id() as i32).map_or(0.0, processes::mebibytes);
    let before = memory();
    let mut changed = Changed::default();
    for number in 0..services {
        let (service, slice) = objects(number, 0)?;
        changed.services.push((format!("bench/service-{number}"), None, Some(service)));
        changed.slices.push((format!("bench/service-{number}"), None, Some(slice)));
    }
    let mut kernel = Kernel::new(config(mode)?, &base::metrics::Metrics::new());
    let began = Instant::now();
    kernel.program(changed)?;
    let mut outcome = Outcome {
        first: began.elapsed(),
        mebibytes: memory() - before,
        decided: Vec::new(),
        changed: Vec::new(),
    };
    for version in 1..=CHANGES {
        let number = version * 7 % services;
        let (old, new) = (objects(number, 0)?.1, objects(number, 1)?.1);
        for (old, new) in [(old.clone(), new.clone()), (new, old)] {
            let news = (format!("bench/service-{number}"), Some(old), Some(new));
            let took = kernel.program(Changed { slices: vec![news], ..Changed::default() })?;
            outcome.decided.push(took.deciding);
            outcome.changed.push(took.all);
        }
    }
    Ok(outcome)
}
