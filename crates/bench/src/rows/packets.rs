//! Packets between two Pods of the built-in network, each in a namespace of its own: straight, and through one of many
//! Services in each of the proxy's modes that this host has. Nothing else runs, and there is no route out.
//!
//! CPU is that of this process, which is both ends, and of the kernel on its behalf.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cni::{Attachment, BuiltinConfig, Network};
use proxy::{Changed, IpvsOptions, Kernel, Mode};
use sys::netns::NetNs;

use super::proxy::{config, endpoints_of, network, objects, service_ip};
use crate::bench::Bench;
use crate::load::as_f64;
use crate::processes;
use crate::tcp::{self, Server};

const CLIENTS: usize = 8;
/// Of Pods; those of Services are 80.
const PORT: u16 = 8080;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let pods = Pods::new()?;
    measure_way(bench, "no proxy, to a Pod", &pods, (pods.server_ip, PORT).into())?;
    let options = IpvsOptions { scheduler: "rr".to_owned(), exclude_cidrs: Vec::new(), strict_arp: false };
    for (name, mode) in
        [("nftables", Mode::Nftables), ("iptables", Mode::Iptables), ("ipvs", Mode::Ipvs(options))]
    {
        let pods = Pods::new()?;
        if let Err(missing) = pods.host.run(|| Ok(proxy::try_mode(&mode, &network("10.128.0.0/9")?)))? {
            eprintln!("bench:   this host does not have {name}: {missing:?}");
            continue;
        }
        let services = u32::try_from(bench.extent.of(1_000, 50))?;
        pods.host.run(|| pods.lead_to_server(services, mode))?;
        measure_way(bench, &format!("{name}, to a Pod"), &pods, (pods.server_ip, PORT).into())?;
        let of_last = (IpAddr::V4(service_ip(services - 1)), 80).into();
        measure_way(bench, &format!("{name}, to one of {services} Services"), &pods, of_last)?;
    }
    Ok(())
}

/// A host with two Pods.
struct Pods {
    host: NetNs,
    client: NetNs,
    server: NetNs,
    server_ip: IpAddr,
    _folder: tempfile::TempDir,
}

impl Pods {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let host = NetNs::anonymous().context("make a network namespace: run this as root")?;
        let network = BuiltinConfig {
            cluster_id: "bench".into(),
            pod_cidrs: "10.42.0.0/24".parse()?,
            cluster_cidrs: "10.42.0.0/16".parse()?,
            mtu: None,
            state_dir: folder.path().join("cni"),
            bin_dirs: Vec::new(),
            own_bin_dir: None,
            is_fallback: true,
        };
        let joined = host.run(|| {
            let wrong = |error| sys::Error::new("attach a Pod", std::io::Error::other(error));
            let network = Network::load(&folder.path().join("none"), network).map_err(wrong)?;
            let attach = |name: &str| attach(&network, folder.path(), name);
            Ok((attach("client")?, attach("server")?))
        });
        let ((client, _), (server, server_ip)) = joined?;
        Ok(Self { host, client, server, server_ip, _folder: folder })
    }

    /// Gives the kernel so many Services, of which the last one leads to the server alone; in the host's namespace.
    fn lead_to_server(&self, services: u32, mode: Mode) -> sys::Result<()> {
        let mut changed = Changed::default();
        for number in 0..services {
            let (service, mut slice) = objects(number, 0)?;
            if number + 1 == services {
                slice = endpoints_of(number, &[self.server_ip])?;
            }
            changed.services.push((format!("bench/service-{number}"), None, Some(service)));
            changed.slices.push((format!("bench/service-{number}"), None, Some(slice)));
        }
        Kernel::new(config(mode)?, &base::metrics::Metrics::new()).program(changed).map(drop)
    }
}

/// A Pod in the network of the calling thread's namespace.
fn attach(network: &Network, folder: &Path, name: &str) -> sys::Result<(NetNs, IpAddr)> {
    let netns_path = folder.join(name);
    let namespace = NetNs::create(&netns_path)?;
    let attachment = Attachment {
        container_id: name.to_owned(),
        netns_path: netns_path.clone(),
        ifname: "eth0".to_owned(),
        ..Attachment::default()
    };
    let wrong = |error: &str| sys::Error::new("attach a Pod", std::io::Error::other(error));
    let added = network.add(&attachment).map_err(|error| wrong(&error.to_string()))?;
    sys::netns::delete(&netns_path)?;
    let ip = added.pod_ips("eth0").first().copied().ok_or_else(|| wrong("it has no address"))?;
    Ok((namespace, ip))
}

/// What one of a series of equal measurements gave.
#[derive(Default)]
struct Samples {
    rates: Vec<f64>,
    cpu: Vec<f64>,
}

impl Samples {
    /// So much was done.
    fn add(&mut self, amount: f64, took: Duration, cpu: Duration, cpu_unit_seconds: f64) {
        self.rates.push(amount / took.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() / cpu_unit_seconds / amount);
    }
}

fn measure_way(bench: &mut Bench, way: &str, pods: &Pods, to: SocketAddr) -> Result<()> {
    eprintln!("bench:   {way}");
    let _server = Server::start(&pods.server, PORT, CLIENTS)?;
    let count = bench.extent.of(16_000, 400);
    let mebibytes = bench.extent.of(2_048, 64);
    let (mut opened, mut sent, mut each) = (Samples::default(), Samples::default(), Vec::new());
    for _ in 0..bench.extent.of(5, 2) {
        let (took, cpu, answered) = with_cpu(|| tcp::connections(&pods.client, to, CLIENTS, count))?;
        opened.add(as_f64(answered.len()), took, cpu, 1e-6);
        each.extend(answered);
        let (_, cpu, took) = with_cpu(|| tcp::stream(&pods.client, to, mebibytes << 20))?;
        sent.add(as_f64(mebibytes) / 1_024.0, took, cpu, 1e-3);
    }
    let report = &mut bench.report;
    report.samples(&format!("{way}: new connections"), "1/s", None, &opened.rates);
    report.samples("  CPU of both ends", "us", None, &opened.cpu);
    report.durations("  until the first answer", None, &each);
    report.samples(&format!("{way}: one stream"), "GiB/s", None, &sent.rates);
    report.samples("  CPU of both ends, of a GiB", "ms", None, &sent.cpu);
    Ok(())
}

/// How long it took, and the CPU that this process took meanwhile.
fn with_cpu<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, Duration, T)> {
    let own = [i32::try_from(std::process::id())?];
    let before = processes::usage(&own)?.cpu;
    let began = Instant::now();
    let done = work()?;
    Ok((began.elapsed(), processes::usage(&own)?.cpu - before, done))
}
