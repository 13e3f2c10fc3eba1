//! The process that serves Ingresses and Gateways: it answers everybody who reaches the host, and so has nothing that is worth taking.
//!
//! Its first act, once it has taken its ports and read its key, is to give up root for a user that owns nothing, and all
//! files, programs and ports that need a right. To the API it can say nothing; it reads what routes are made of, and
//! certificates. Ports of Gateways, which need no right, come and go later (`ingress/listeners.rs`).

use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use auth::pki::{Subject, self_signed};
use base::connections::{Connections, Limits as Places, Share, descriptors_max};
use base::{Backoff, Clock, Random, Tasks};
use cli::args::IngressArgs;
use controller::{ClientMetrics, Informers};
use ingress::certificates::{Certificates, certified};
use ingress::metrics::Metrics;
use ingress::serve::{AccessLog, Limits, Options, Plane, Port, Scheme, listen};
use ingress::table::Entrance;
use listeners::Listeners;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use sys::denied_calls;
use sys::landlock::{self, Access, Allowed, TcpPorts};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::servers::Servers;
use super::users::INGRESS_UID;
use super::{Settings, serving};
use crate::async_runtime::AsyncRuntime;
use crate::kube_client;
use crate::layout::Layout;

mod listeners;
mod ports;

pub(super) use ports::of_gateways;

/// What it reads of the host: about itself, and how many processors there are.
const READ: [&str; 4] = ["/proc/self", "/sys/fs/cgroup", "/sys/devices/system/cpu", "/dev/urandom"];
/// Of all descriptors, a client's connection and the one to its backend.
const DESCRIPTORS_OF_REQUEST: usize = 2;
const DESCRIPTORS_MAX: usize = 1024;
/// Between looks at a port that somebody else has.
const TAKEN_FIRST: Duration = Duration::from_secs(1);
const TAKEN_MAX: Duration = Duration::from_secs(30);

/// What was taken while it could be.
struct Ports {
    clients: Vec<(StdListener, Scheme)>,
    metrics: Option<StdListener>,
    /// Somebody else's.
    missing: Vec<u16>,
}

/// Serves Ingresses until it is told to stop.
pub(crate) fn ingress(layout: &Layout) -> Result<()> {
    let parent = nix::unistd::getppid();
    let settings = Settings::load(layout)?;
    let ports = Ports::take(&settings.args.ingress);
    let servers = Servers::load(super::node::home(&settings), layout)?.forgetful();
    let runtime = AsyncRuntime::on_this_thread()?;
    let connection = runtime.block_on(kube_client::config(&layout.ingress_kubeconfig(), "knarr-ingress"))?;
    drop(runtime);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("ask how many descriptors there may be")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("have as many descriptors as there may be")?;
    std::env::set_current_dir("/").context("leave the folder")?;
    sys::process::drop_privileges(INGRESS_UID, INGRESS_UID)?;
    // The change of user has undone what the supervisor had arranged.
    sys::process::die_with_parent(Signal::SIGKILL as i32)?;
    if nix::unistd::getppid() != parent {
        bail!("the supervisor has ended");
    }
    confine()?;
    let runtime = AsyncRuntime::on_threads("ingress")?;
    runtime.block_on(run(&settings, ports, (servers, connection)))
}

/// Gives up the rest, for good: files, programs, and calls to the kernel that no server makes.
fn confine() -> Result<()> {
    let mut paths = vec![(PathBuf::from("/dev/null"), Access::Write)];
    paths.extend(READ.map(|path| (PathBuf::from(path), Access::Read)));
    let allowed = Allowed { paths, tcp_ports: TcpPorts::OfUser };
    if landlock::restrict(&allowed).context("confine the Ingress controller to no files")?.is_none() {
        tracing::info!("this kernel has no Landlock: the Ingress controller may read what everybody may");
    }
    if !denied_calls::refuse().context("confine the Ingress controller to a server's system calls")? {
        tracing::info!("system calls are not filtered on this machine");
    }
    Ok(())
}

impl Ports {
    /// Takes what is free. What is not is told, and does not keep the rest from being served.
    fn take(args: &IngressArgs) -> Self {
        let wanted = [
            ("--ingress-http-port", args.ingress_http_port, Scheme::Http),
            ("--ingress-https-port", args.ingress_https_port, Scheme::Https),
        ];
        let (mut clients, mut missing) = (Vec::new(), Vec::new());
        for (flag, port, scheme) in wanted.into_iter().filter(|(_, port, _)| *port != 0) {
            match base::listen::blocking((Ipv4Addr::UNSPECIFIED, port).into()) {
                Ok(listener) => clients.push((listener, scheme)),
                Err(error) => {
                    tracing::warn!(
                        port,
                        %error,
                        "Ingresses are not served on this port, which is tried again: end who has it (`ss -ltnp`), choose \
                         another with {flag}, or turn this off with --disable ingress"
                    );
                    missing.push(port);
                }
            }
        }
        let metrics = args.ingress_metrics_port;
        let metrics = (metrics != 0).then(|| StdListener::bind((Ipv4Addr::LOCALHOST, metrics)));
        let metrics = metrics.and_then(|bound| {
            let told = |error: &std::io::Error| {
                tracing::warn!(%error, "metrics of Ingresses are not served (--ingress-metrics-port)");
            };
            bound.inspect_err(told).ok()
        });
        Self { clients, metrics, missing }
    }
}

/// Who may hold how many connections. Those whose request led somewhere do not give way; one source may be many clients.
fn places() -> Places {
    let all = descriptors_max(DESCRIPTORS_MAX) / DESCRIPTORS_OF_REQUEST;
    Places {
        strangers: Share { all: all / 4, of_source: all / 8 },
        known: Share { all: all / 2, of_source: all / 3 },
        own: Share { all: 0, of_source: 0 },
        is_loopback_own: false,
    }
}

async fn run(
    settings: &Settings,
    ports: Ports,
    (servers, connection): (Servers, kube::Config),
) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (clock, random, tasks) = (Clock::system(), Random::from_system(), Tasks::new());
    let registry = base::Metrics::new();
    let metrics = ClientMetrics::new(&registry).of_part("ingress");
    let name = "knarr-ingress";
    let own = self_signed(&Subject::server(name, name, vec![name.to_owned()], Vec::new()), clock.now())?;
    let own = certified(own.certificate_pem.as_bytes(), own.key_pem.as_bytes());
    let certificates = Arc::new(Certificates::new(own.context("make the default certificate")?));
    let args = &settings.args.ingress;
    let options = Options {
        access_log: if args.ingress_access_log { AccessLog::On } else { AccessLog::Off },
        https_port: args.ingress_https_port,
        limits: Limits::default(),
    };
    let plane = Plane::new(options, certificates, Metrics::new(&registry), tasks.clone());
    let client = servers.client(&connection)?;
    let informers = Informers::metered(client, tasks.clone(), clock, random.clone(), metrics);
    tasks.spawn("API servers", servers.follow(informers.clone()));
    if let Some(listener) = ports.metrics {
        serving::start_plain(async_listener(listener)?, &informers);
    }
    let mut tables = ingress::run::run(&informers, Arc::clone(&plane), of_gateways(&settings.args));
    let serve = async {
        // Who comes before there is a table waits for it, and is not told that there is nothing.
        tables.count.wait_for(|tables| *tables > 0).await.context("routes ended before they had begun")?;
        let connections = Connections::new(places());
        for (listener, scheme) in ports.clients {
            let entrance = match scheme {
                Scheme::Http => Entrance::Http,
                Scheme::Https => Entrance::Https,
            };
            let listener = async_listener(listener)?;
            let (connections, tasks) = (Arc::clone(&connections), tasks.clone());
            let port = Port { listener, scheme, entrance, tasks, connections };
            listen(&plane, port).context("set up TLS")?;
        }
        tracing::info!(missing = ?ports.missing, "Ingresses are served");
        let listeners = Listeners::new(Arc::clone(&plane), connections, random.clone());
        tasks.spawn("gateway listeners", listeners.follow(tables.ports));
        let backoff = Backoff::new(TAKEN_FIRST, TAKEN_MAX, 0.2);
        ports::one_is_free(&ports.missing, backoff, &random).await;
        // Only whoever begins as root can take it.
        tracing::info!("a port is free that was not: Ingresses are served anew");
        anyhow::Ok(())
    };
    let ended = tokio::select! {
        ended = serve => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    tasks.stop_and_wait().await;
    ended
}

fn async_listener(listener: StdListener) -> Result<TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener)?)
}
