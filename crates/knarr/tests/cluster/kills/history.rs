//! What clients and watchers of the real server are told while it is killed, over TLS; it must fit together.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use torture::api::definition::{Course, Definition, Servers};
use torture::api::{self, Body, Failure, Server};
use torture::check::{Breach, Guarantees};
use torture::workload::Plan;
use torture::{History, Recorder};

use super::client::Client;

/// A client of the real server.
struct Outside(kube::Client);

impl Server for Outside {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>> {
        let request = request.map(|body| kube::client::Body::from(body.to_vec()));
        async move {
            let answer = self.0.send(request).await?;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        }
        .boxed()
    }
}

/// A workload under way.
pub(crate) struct Told {
    seed: u64,
    result: mpsc::Receiver<Result<History, String>>,
}

/// Starts clients and watchers of ConfigMaps, and of a custom kind that comes and goes. They go on for about as long as the
/// kills do.
pub(crate) fn listen(client: &Client, seed: u64) -> [Told; 2] {
    let server = || Arc::new(Outside(client.kube()));
    let definition = Arc::new(Definition::new(Course::ComesAndGoes, Servers::One));
    [api::Client::new(server()), api::Client::of_custom_kind(server(), definition)]
        .map(|target| listen_to(client, seed, target))
}

fn listen_to(client: &Client, seed: u64, target: api::Client) -> Told {
    let (send, result) = mpsc::channel();
    let plan = Plan {
        world: target.world(),
        clients: 4,
        operations: 150,
        watchers: 3,
        pause: Duration::from_millis(200),
        timeout: Duration::from_secs(90),
        ..Plan::new(seed)
    };
    client.spawn(async move {
        let recorder = Recorder::in_memory();
        let ran = async {
            target.prepare(&recorder).await?;
            api::run(&target, &plan, &recorder).await
        };
        let ran = ran.await.map_err(|failure| failure.to_string());
        send.send(ran.map(|()| recorder.history())).unwrap();
    });
    Told { seed, result }
}

impl Told {
    /// Waits for the end, and checks all of it.
    pub(crate) fn check(self) {
        let history = self.result.recv().unwrap().unwrap();
        let breaches: Vec<Breach> = torture::check(&history, Guarantees::Api);
        assert!(breaches.is_empty(), "seed {}: {}", self.seed, breaches[0]);
        let (writes, ends) = (history.acknowledged(), history.ends());
        eprintln!("kills: {writes} writes in a linearizable history, with {ends} ends of its kind");
    }
}
