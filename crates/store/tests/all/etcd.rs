//! The store on real etcd servers keeps the trait's promises, also when a member dies.

mod faults;

use std::sync::Arc;
use std::time::Duration;

use base::Random;
use bytes::Bytes;
use store::etcd::{ConnectError, Etcd, Options};
use store::{Batch, Change, Expect, Revision, Store, StoreError, Write};
use testkit::etcd::{Etcd as Servers, Security, pretend};
use tokio::sync::watch;

use crate::suite;
use crate::writes::{delete, events, put};

/// How long what must come may take.
const TIMEOUT: Duration = Duration::from_secs(60);

fn servers(security: Security, flags: &[&str]) -> Servers<'static> {
    Servers::on_loopback(1, security, flags).unwrap()
}

async fn connect(servers: &Servers<'_>) -> Etcd {
    connect_to(options(servers)).await
}

/// Connects as soon as a member answers.
async fn connect_to(options: Options) -> Etcd {
    tokio::time::timeout(TIMEOUT, async {
        loop {
            match Etcd::connect(options.clone()).await {
                Ok(store) => return store,
                Err(ConnectError::Unreachable(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
    .unwrap()
}

fn options(servers: &Servers<'_>) -> Options {
    let read = |path: &std::path::Path| std::fs::read(path).unwrap();
    Options {
        authority_pem: servers.tls().map(|tls| read(&tls.authority)),
        identity_pem: servers.tls().map(|tls| (read(&tls.certificate), read(&tls.key))),
        ..at(servers.urls())
    }
}

fn at(endpoints: Vec<String>) -> Options {
    Options { endpoints, authority_pem: None, identity_pem: None, random: Random::from_system() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_suite() {
    let servers = servers(Security::Plain, &[]);
    for case in suite::CASES {
        println!("{}", case.name);
        connect(&servers).await.close().await.unwrap();
        servers.etcdctl(0, &["del", "", "--from-key"]).unwrap();
        (case.run)(Arc::new(connect(&servers).await)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_answers_in_sessions_as_it_must() {
    let servers = servers(Security::Plain, &[]);
    crate::sessions::pass(&|| {
        Box::pin(async {
            connect(&servers).await.close().await.unwrap();
            servers.etcdctl(0, &["del", "", "--from-key"]).unwrap();
            let store: Arc<dyn Store> = Arc::new(connect(&servers).await);
            store
        })
    })
    .await;
}

#[tokio::test]
async fn watches_reach_a_revision_that_a_stranger_made() {
    let servers = servers(Security::Plain, &[]);
    let (store, other) = (connect(&servers).await, connect(&servers).await);
    let mut watch = store.watch(store.revision()).await.unwrap();
    let made = other.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(store.newest().await.unwrap(), made);
    assert_eq!(events(&mut watch, 1).await[0].revision, made);
    servers.etcdctl(0, &["put", "/registry/by-a-kube-apiserver", "2"]).unwrap();
    let event = events(&mut watch, 1).await.remove(0);
    assert_eq!((event.revision, event.cause.len()), (made + 1, 0));
    servers.etcdctl(0, &["put", "/elsewhere", "1"]).unwrap();
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
    tokio::time::timeout(TIMEOUT, reached).await.unwrap();
}

#[tokio::test]
async fn a_full_etcd_refuses_puts_still_reads_and_says_so_until_it_is_mended() {
    // Its quota is held against what is on disk, which by default lags behind by a tenth of a second.
    let quota = ["--quota-backend-bytes", "1000000", "--backend-batch-limit", "1"];
    let servers = servers(Security::Plain, &quota);
    let store = connect(&servers).await;
    assert_eq!(store.faults().await, Vec::<String>::new());
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

    // A look of its own: answers are kept for a while.
    let faults = connect(&servers).await.faults().await;
    assert!(faults.len() == 1 && faults[0].contains("NOSPACE"), "{faults:?}");
    servers.etcdctl(0, &["del", "/registry/big/", "--prefix"]).unwrap();
    store.compact(store.newest().await.unwrap()).await.expect_err("a compaction is a write too");
    servers.etcdctl(0, &["compact", &store.newest().await.unwrap().to_string()]).unwrap();
    servers.etcdctl(0, &["defrag"]).unwrap();
    servers.etcdctl(0, &["alarm", "disarm"]).unwrap();
    store.commit(put("/registry/after", Expect::Absent, "1")).await.unwrap();
    assert_eq!(connect(&servers).await.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn of_several_servers_one_compacts_and_another_when_that_is_gone() {
    let servers = servers(Security::Plain, &[]);
    let (one, other) = (connect(&servers).await, connect(&servers).await);
    let first = one.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    let second = one.commit(put("/registry/a", Expect::Revision(first), "2")).await.unwrap();
    let third = one.commit(put("/registry/a", Expect::Revision(second), "3")).await.unwrap();
    other.newest().await.unwrap();
    one.compact(second).await.unwrap();
    other.compact(third).await.unwrap();
    other.range("/registry/", "/registry0", Some(second), 0).await.expect("it was not its turn");
    let gone = other.range("/registry/", "/registry0", Some(first), 0).await;
    assert!(
        matches!(gone, Err(StoreError::Compacted { oldest, .. }) if oldest == second),
        "it has heard what was compacted: {gone:?}"
    );
    other.compact(third).await.unwrap();
    let gone = one.range("/registry/", "/registry0", Some(second), 0).await;
    assert!(matches!(gone, Err(StoreError::Compacted { .. })), "{gone:?}");
}

#[tokio::test]
async fn servers_that_begin_at_once_agree_on_what_they_share() {
    let servers = servers(Security::Plain, &[]);
    let (one, other) = (connect(&servers).await, connect(&servers).await);
    assert_eq!(one.bootstrap().await.unwrap(), None);
    let ours = Bytes::from_static(b"one's");
    let (a, b) = tokio::join!(
        one.set_bootstrap(0, ours.clone()),
        other.set_bootstrap(0, Bytes::from_static(b"the other's"))
    );
    let (a, b) = (a.unwrap().unwrap(), b.unwrap().unwrap());
    assert_eq!(a, b);
    let next = one.set_bootstrap(a.revision, Bytes::from_static(b"next")).await.unwrap().unwrap();
    assert_eq!(&next.value[..], b"next");
    let late = other.set_bootstrap(a.revision, ours).await.unwrap().unwrap();
    assert_eq!(late, next, "somebody else was quicker");
}

#[tokio::test]
async fn members_that_want_certificates_get_and_show_them() {
    let servers = servers(Security::Tls, &[]);
    let store = connect(&servers).await;
    let revision = store.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(store.get("/registry/a").await.unwrap().unwrap().revision, revision);
    let stranger = Options { identity_pem: None, ..options(&servers) };
    let refused = Etcd::connect(stranger).await.err().unwrap().to_string();
    assert!(refused.contains("no etcd member answers"), "{refused}");
}

#[tokio::test]
async fn a_cluster_that_cannot_be_used_says_why() {
    let rows = [
        (vec![], "no etcd endpoint was given"),
        (vec!["127.0.0.1:2379".to_owned()], "it must begin with http:// or https://"),
        (vec!["not a url".to_owned()], "cannot use the etcd endpoint not a url"),
        (vec!["http://127.0.0.1:1".to_owned()], "no etcd member answers"),
    ];
    for (urls, why) in rows {
        let error = Etcd::connect(at(urls.clone())).await.err().unwrap().to_string();
        assert!(error.contains(why), "{urls:?}: {error}");
    }
}

#[tokio::test]
async fn an_etcd_that_is_too_old_is_refused_with_the_reason() {
    let rows = [
        ("3.3.27", "etcd 3.3.27 is too old, 3.4.0 or newer is needed"),
        ("2.3.8", "etcd 2.3.8 is too old, 3.4.0 or newer is needed"),
        ("unheard of", "it says version \"unheard of\""),
    ];
    for (version, why) in rows {
        let error = Etcd::connect(at(vec![pretend(version).await.unwrap()])).await.err().unwrap().to_string();
        assert!(error.contains(why), "{version}: {error}");
    }
}

/// A connection to etcd that can be cut.
struct Wire {
    url: String,
    is_cut: watch::Sender<bool>,
}

impl Wire {
    async fn to(url: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            is_cut: watch::Sender::new(false),
        };
        let (target, is_cut) = (url.trim_start_matches("http://").to_owned(), wire.is_cut.subscribe());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (target, mut is_cut) = (target.clone(), is_cut.clone());
                tokio::spawn(async move {
                    let copied = async {
                        let mut far = tokio::net::TcpStream::connect(target).await?;
                        tokio::io::copy_bidirectional(&mut near, &mut far).await
                    };
                    tokio::select! {
                        _ = copied => {}
                        _ = is_cut.wait_for(|is_cut| *is_cut) => {}
                    }
                });
            }
        });
        wire
    }
}

/// Cut off while `change` is made of `/registry/a`, which leaves it removed: what the watch tells when it is back.
async fn told_of(
    change: impl AsyncFn(&Etcd, &Servers<'_>, Revision) -> Revision,
) -> (Revision, Result<Batch, StoreError>) {
    let servers = servers(Security::Plain, &[]);
    let wire = Wire::to(&servers.urls()[0]).await;
    let (cut_off, other) = (connect_to(at(vec![wire.url.clone()])).await, connect(&servers).await);
    let made = other.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    let mut watch = cut_off.watch(made - 1).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].revision, made);
    wire.is_cut.send_replace(true);
    let gone = change(&other, &servers, made).await;
    other.commit(put("/registry/b", Expect::Absent, "1")).await.unwrap();
    wire.is_cut.send_replace(false);
    let told = async {
        loop {
            match watch.batches.recv().await.unwrap() {
                // It tells how far it has come.
                Ok(batch) if batch.events.is_empty() => {}
                told => return told,
            }
        }
    };
    (gone, tokio::time::timeout(TIMEOUT, told).await.unwrap())
}

#[tokio::test]
async fn a_removal_that_was_compacted_before_the_watch_was_back_is_not_skipped() {
    let removed =
        async |store: &Etcd, _: &Servers<'_>, made| store.commit(delete("/registry/a", made)).await.unwrap();
    let by_a_stranger = async |store: &Etcd, servers: &Servers<'_>, _| {
        servers.etcdctl(0, &["del", "/registry/a"]).unwrap();
        store.newest().await.unwrap()
    };
    let (gone, told) = told_of(removed).await;
    assert_eq!(told.unwrap().events[0].revision, gone, "the control: nothing is compacted");
    let (gone, told) = told_of(async |store, servers, made| {
        let gone = removed(store, servers, made).await;
        servers.etcdctl(0, &["compact", &gone.to_string()]).unwrap();
        gone
    })
    .await;
    assert!(matches!(told, Err(StoreError::Compacted { .. })), "{gone}: {told:?}");
    let (gone, told) = told_of(async |store, servers, made| {
        let gone = by_a_stranger(store, servers, made).await;
        servers.etcdctl(0, &["compact", &gone.to_string()]).unwrap();
        gone
    })
    .await;
    assert!(matches!(told, Err(StoreError::Compacted { .. })), "{gone}: {told:?}");
}
