//! Servers and members of etcd are killed one after the other while clients write, each request through another
//! server, and watch, each time through another. What they are told must fit together as if there were one server
//! that never dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::Signal;
use testkit::etcd::{Etcd, Security};
use testkit::{Lan, lan};
use torture::api::definition::{Course, Definition, Servers};
use torture::api::{self, Body, Failure};
use torture::check::{Breach, Guarantees};
use torture::workload::Plan;
use torture::{History, Recorder};

use crate::ha::{self, SERVERS, Server, TOKEN};
use crate::must;

const FLAGS: [&str; 1] = ["--disable-agent"];
/// A seed that runs unless the environment gives another.
const SEED: u64 = 20_260_101;
/// How long one server may take to answer again.
const BACK_WITHIN: Duration = Duration::from_secs(120);

/// Every request goes to the next server.
struct Spread {
    clients: Vec<kube::Client>,
    next: AtomicUsize,
}

impl Spread {
    /// To be called on a thread in the wire's namespace, whose runtime the clients then use.
    async fn new(servers: &[Server]) -> Self {
        let mut clients = Vec::new();
        for server in servers {
            let read = Kubeconfig::read_from(server.cluster.kubeconfig()).unwrap();
            let options = KubeConfigOptions::default();
            let mut config = kube::Config::from_custom_kubeconfig(read, &options).await.unwrap();
            config.cluster_url = format!("https://{}:6443", lan::ip(server.number)).parse().unwrap();
            clients.push(kube::Client::try_from(config).unwrap());
        }
        Self { clients, next: AtomicUsize::new(0) }
    }

    /// Waits until a server says that it is ready; how long that took.
    async fn is_ready(&self, number: u8) -> Duration {
        let (client, begun) = (&self.clients[usize::from(number)], Instant::now());
        let ask = || client.request_text(Request::get("/readyz").body(Vec::new()).unwrap());
        let ready = async {
            while !matches!(tokio::time::timeout(Duration::from_secs(2), ask()).await, Ok(Ok(_))) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(BACK_WITHIN, ready).await.unwrap_or_else(|_| panic!("server {number} is away"));
        begun.elapsed()
    }
}

impl api::Server for Spread {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>> {
        let client = self.clients[self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len()].clone();
        let request = request.map(|body| kube::client::Body::from(body.to_vec()));
        async move {
            let answer = client.send(request).await?;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
        .boxed()
    }
}

async fn work(target: api::Client, seed: u64, recorder: Recorder) -> History {
    let plan = Plan {
        world: target.world(),
        clients: 6,
        operations: 250,
        watchers: 3,
        pause: Duration::from_millis(200),
        timeout: Duration::from_secs(90),
        ..Plan::new(seed)
    };
    api::run(&target, &plan, &recorder).await.unwrap();
    recorder.history()
}

#[test]
fn whatever_dies_what_all_servers_tell_fits_together() {
    let [seed] = torture::seeds(&[SEED], 0)[..] else { panic!("one seed") };
    let wire = must(Lan::new(SERVERS));
    let mut etcd = must(Etcd::on_hosts(&wire, SERVERS, Security::Tls, &[]));
    let mut servers = ha::start(&wire, &etcd, &FLAGS);
    // Threads of the runtime are where this one is.
    must(wire.enter());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let spread = Arc::new(runtime.block_on(Spread::new(&servers)));
    let definition = Arc::new(Definition::new(Course::ComesAndGoes, Servers::Several));
    let custom = api::Client::of_custom_kind(Arc::<Spread>::clone(&spread), definition);
    let working = [api::Client::new(Arc::<Spread>::clone(&spread)), custom].map(|target| {
        let recorder = Recorder::in_memory();
        runtime.block_on(target.prepare(&recorder)).unwrap();
        runtime.spawn(work(target, seed, recorder))
    });
    for number in 0..SERVERS {
        servers[usize::from(number)].signal("knarr control-plane", Signal::SIGKILL);
        let took = runtime.block_on(spread.is_ready(number));
        eprintln!("many: control plane {number} was killed and is back after {took:.1?}");
        must(etcd.kill(usize::from(number)));
        for other in 0..SERVERS {
            let took = runtime.block_on(spread.is_ready(other));
            eprintln!("many: without member {number} of etcd, server {other} is ready after {took:.1?}");
        }
        must(etcd.start(usize::from(number)));
        let server = &mut servers[usize::from(number)];
        server.crash();
        must(server.up_with(TOKEN, &FLAGS));
        eprintln!("many: server {number} was killed as a whole and is back");
    }
    for working in working {
        let history = runtime.block_on(working).unwrap();
        let breaches: Vec<Breach> = torture::check(&history, Guarantees::Api);
        assert!(breaches.is_empty(), "seed {seed}: {}", breaches[0]);
        let (writes, ends) = (history.acknowledged(), history.ends());
        eprintln!("many: {writes} writes in a linearizable history, with {ends} ends of its kind");
    }
    drop(spread);
    runtime.shutdown_timeout(Duration::from_secs(5));
    for server in servers {
        must(server.cluster.remove());
    }
}
