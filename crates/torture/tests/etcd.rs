//! The workload and its checker on a real etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::Random;
use store::Store;
use store::etcd::{ConnectError, Etcd, Options};
use torture::check::Promise;
use torture::workload::{self, Plan};
use torture::{Recorder, check};

/// Ends with this.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

fn start(data: &std::path::Path) -> (Member, String) {
    let ports: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let [url, peer] = [0, 1].map(|n: usize| format!("http://{}", ports[n].local_addr().unwrap()));
    drop(ports);
    let mut etcd = Command::new("etcd");
    etcd.args(["--name", "m", "--log-level", "error", "--initial-cluster", &format!("m={peer}")]);
    etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer]);
    etcd.args(["--initial-advertise-peer-urls", &peer, "--data-dir"]).arg(data);
    let child = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    (Member(child.expect("etcd: the Debian package etcd-server is needed")), url)
}

async fn connect(url: &str) -> Etcd {
    let endpoints = vec![url.to_owned()];
    let options =
        Options { endpoints, authority_pem: None, identity_pem: None, random: Random::from_system() };
    let connected = async {
        loop {
            match Etcd::connect(options.clone()).await {
                Ok(store) => return store,
                Err(ConnectError::Unreachable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), connected).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_and_watchers_of_etcd_are_told_fits_together() {
    let data = torture::folder().unwrap();
    let (_member, url) = start(&data.path().join("etcd"));
    let store: Arc<dyn Store> = Arc::new(connect(&url).await);
    let again = std::env::var("KNARR_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in [1, again.unwrap_or_else(|| Random::from_system().below(1 << 32))] {
        // The cause of a revision expires by itself, so revisions are not contiguous here.
        let recorder = Recorder::in_memory();
        let start = store.newest().await.unwrap();
        let plan = Plan { name: format!("s{seed}"), operations: 60, is_loose: false, ..Plan::new(seed) };
        empty(&store).await;
        let start = store.newest().await.unwrap().max(start);
        workload::run(&store, &plan, start, &recorder).await;
        let history = recorder.history();
        let breaches = check(&history, Promise::Store);
        assert!(breaches.is_empty(), "KNARR_TEST_SEED={seed}: {}", breaches[0]);
        assert!(history.acknowledged() > 20, "{} acknowledged writes", history.acknowledged());
    }
    store.close().await.unwrap();
}

/// A history begins with nothing.
async fn empty(store: &Arc<dyn Store>) {
    for entry in store.range("/registry/", "/registry0", None, 0).await.unwrap().entries {
        store.commit(store::suite::delete(&entry.key, entry.revision)).await.unwrap();
    }
}
