//! The store on real etcd servers keeps the trait's promises, also when a member dies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::Random;
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use store::etcd::{ConnectError, Etcd, Options};
use store::suite::{self, events, put};
use store::{Change, Expect, Store, StoreError, Write};
use tempfile::TempDir;

/// How long what must come may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Pem = Vec<u8>;

/// Real members on loopback; they end with this.
struct Cluster {
    members: Vec<Child>,
    urls: Vec<String>,
    /// Whom to trust, and who we are, if the members want to know.
    identity: Option<(Pem, (Pem, Pem))>,
    _data: TempDir,
}

impl Cluster {
    fn start(count: usize, flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let ports: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let scheme = if flags.contains(&"--cert-file") { "https" } else { "http" };
        let url = |scheme: &str, n: usize| format!("{scheme}://{}", ports[n].local_addr().unwrap());
        let urls: Vec<_> = (0..count).map(|n| url(scheme, n)).collect();
        let peers: Vec<_> = (count..2 * count).map(|n| url("http", n)).collect();
        drop(ports);
        let all: Vec<_> = peers.iter().enumerate().map(|(n, peer)| format!("m{n}={peer}")).collect();
        let members =
            (0..count).map(|n| member(data.path(), n, &urls[n], &peers[n], &all.join(","), flags)).collect();
        Self { members, urls, identity: None, _data: data }
    }

    async fn connect(&self) -> Etcd {
        let mut options = options(&self.urls);
        if let Some((authority, identity)) = self.identity.clone() {
            (options.authority_pem, options.identity_pem) = (Some(authority), Some(identity));
        }
        tokio::time::timeout(PATIENCE, async {
            loop {
                match Etcd::connect(options.clone()).await {
                    Ok(store) => return store,
                    Err(ConnectError::Unreachable(why)) => println!("not yet: {why}"),
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await
        .unwrap()
    }

    fn etcdctl(&self, args: &[&str]) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.urls[0]]).args(args);
        let status = command.stdout(Stdio::null()).status();
        assert!(status.expect("etcdctl: the Debian package etcd-client is needed").success(), "{args:?}");
    }

    fn kill(&mut self, member: usize) {
        self.members[member].kill().unwrap();
        self.members[member].wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}

fn member(data: &Path, n: usize, url: &str, peer: &str, all: &str, flags: &[&str]) -> Child {
    let name = format!("m{n}");
    Command::new("etcd")
        .args(["--name", &name, "--data-dir", data.join(&name).to_str().unwrap()])
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", all])
        .args(["--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "500"])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd: the Debian package etcd-server is needed")
}

fn options(urls: &[String]) -> Options {
    Options {
        endpoints: urls.to_vec(),
        authority_pem: None,
        identity_pem: None,
        random: Random::from_system(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_suite() {
    let cluster = Cluster::start(1, &[]);
    for case in suite::CASES {
        println!("{}", case.name);
        cluster.connect().await.close().await.unwrap();
        cluster.etcdctl(&["del", "", "--from-key"]);
        (case.run)(Arc::new(cluster.connect().await)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_and_no_event_is_lost_or_doubled_when_members_die() {
    let mut cluster = Cluster::start(3, &[]);
    let store = Arc::new(cluster.connect().await);
    let mut watch = store.watch(store.revision()).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (key, mut last, mut made) = (format!("/registry/w/{writer}"), Expect::Absent, Vec::new());
                for n in 0..150 {
                    let revision = store.commit(put(&key, last, &n.to_string())).await.unwrap();
                    (last, made) = (Expect::Revision(revision), [made, vec![revision]].concat());
                }
                (key, made)
            })
        })
        .collect();
    let mut seen = events(&mut watch, 200).await;
    cluster.kill(0);
    seen.extend(events(&mut watch, 1000).await);
    let mut expected = BTreeMap::new();
    for writer in writers {
        let (key, made) = writer.await.unwrap();
        expected.extend(made.into_iter().map(|revision| (revision, key.clone())));
    }
    let found: Vec<_> = seen.iter().map(|event| (event.revision, event.key.clone())).collect();
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    assert!(seen.iter().all(|event| event.cause.starts_with(b"cause of ")), "causes come with their events");
}

#[tokio::test]
async fn watches_reach_a_revision_that_a_stranger_made() {
    let cluster = Cluster::start(1, &[]);
    let (store, other) = (cluster.connect().await, cluster.connect().await);
    let mut watch = store.watch(store.revision()).await.unwrap();
    let made = other.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(store.newest().await.unwrap(), made);
    assert_eq!(events(&mut watch, 1).await[0].revision, made);
    cluster.etcdctl(&["put", "/registry/by-a-kube-apiserver", "2"]);
    let event = events(&mut watch, 1).await.remove(0);
    assert_eq!((event.revision, event.cause.len()), (made + 1, 0));
    cluster.etcdctl(&["put", "/elsewhere", "1"]);
    let newest = store.newest().await.unwrap();
    assert_eq!(newest, made + 2);
    let reached = async {
        loop {
            let batch = watch.batches.recv().await.unwrap().unwrap();
            assert!(batch.events.is_empty(), "nothing of ours has changed");
            if batch.upto >= newest {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
}

#[tokio::test]
async fn a_full_etcd_refuses_puts_and_still_reads() {
    let cluster = Cluster::start(1, &["--quota-backend-bytes", "1000000"]);
    let store = cluster.connect().await;
    let filler = Change::Put { value: Bytes::from(vec![b'x'; 100_000]), ttl_seconds: None };
    let mut refused = None;
    for n in 0..40 {
        let key = format!("/registry/big/{n}");
        match store.commit(Write { change: filler.clone(), ..put(&key, Expect::Absent, "") }).await {
            Ok(_) => {}
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(StoreError::NoSpace)), "{refused:?}");
    assert!(store.get("/registry/big/0").await.unwrap().is_some());
    let huge = Change::Put { value: Bytes::from(vec![b'x'; 2 << 20]), ttl_seconds: None };
    let refused = store.commit(Write { change: huge, ..put("/registry/huge", Expect::Absent, "") }).await;
    assert!(matches!(refused, Err(StoreError::TooLarge)), "{refused:?}");
}

#[tokio::test]
async fn members_that_want_certificates_get_and_show_them() {
    let keys = tempfile::tempdir().unwrap();
    let path = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, pem: String| {
        std::fs::write(path(name), &pem).unwrap();
        pem.into_bytes()
    };
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = CertifiedIssuer::self_signed(authority, key).unwrap();
    let authority_pem = write("ca.crt", authority.pem());
    let identity = |name: &str| {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap().pem();
        (write(&format!("{name}.crt"), certificate), write(&format!("{name}.key"), key.serialize_pem()))
    };
    identity("server");
    let files = ["ca.crt", "server.crt", "server.key"].map(path);
    let flags = [
        "--client-cert-auth",
        "--trusted-ca-file",
        &files[0],
        "--cert-file",
        &files[1],
        "--key-file",
        &files[2],
    ];
    let mut cluster = Cluster::start(1, &flags);
    let stranger = Options { authority_pem: Some(authority_pem.clone()), ..options(&cluster.urls) };
    cluster.identity = Some((authority_pem, identity("client")));
    let store = cluster.connect().await;
    let revision = store.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(store.get("/registry/a").await.unwrap().unwrap().revision, revision);
    let refused = Etcd::connect(stranger).await.err().unwrap().to_string();
    assert!(refused.contains("no etcd member answers"), "{refused}");
}

#[tokio::test]
async fn a_cluster_that_cannot_be_used_says_why() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rows = [
        (vec![], "no etcd endpoint was given"),
        (vec!["127.0.0.1:2379".to_owned()], "it must begin with http:// or https://"),
        (vec!["not a url".to_owned()], "cannot use the etcd endpoint not a url"),
        (vec![format!("http://{nowhere}")], "no etcd member answers"),
    ];
    for (urls, why) in rows {
        let error = Etcd::connect(options(&urls)).await.err().unwrap().to_string();
        assert!(error.contains(why), "{urls:?}: {error}");
    }
}
