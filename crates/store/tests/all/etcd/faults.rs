//! Three members over TLS, each on a host of its own: killed, stopped, cut off; followers and leaders. Clients write
//! all the while, each its own keys: made, changed, removed, made again.
//!
//! What was acknowledged is there once, under the revision that was said; what was not is there at most once; two
//! watches, begun on different members, see the same changes in the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use store::etcd::{Etcd, Options};
use store::{Expect, Revision, Store, StoreError, Watch};
use testkit::Lan;
use testkit::etcd::{Etcd as Servers, Security};

use super::{connect_to, options};
use crate::writes::{delete, put};

const MEMBERS: u8 = 3;
const WRITERS: usize = 8;
/// Writes that must be acknowledged during each fault.
const WRITES_PER_FAULT: u64 = 200;
/// Within that time.
const TIMEOUT: Duration = Duration::from_secs(90);
/// A key is made, changed so often, and removed.
const CHANGES: u64 = 3;

/// What writers know of their writes.
#[derive(Default)]
struct Book {
    /// Revision to key and value, which is `gone` for a removal.
    acknowledged: BTreeMap<Revision, (String, String)>,
    /// Those of which no answer came.
    unknown: BTreeSet<(String, String)>,
    last: Option<Instant>,
    /// The longest time without an acknowledgement since somebody last asked.
    longest: Duration,
}

struct Writing {
    book: Mutex<Book>,
    count: AtomicU64,
    is_over: AtomicBool,
}

#[test]
fn no_write_and_no_event_is_lost_or_doubled_whatever_happens_to_members() {
    let lan = Lan::new(MEMBERS).unwrap();
    lan.enter().unwrap();
    let mut servers = Servers::on_hosts(&lan, MEMBERS, Security::Tls, &[]).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(&lan, &mut servers));
}

async fn run(lan: &Lan, servers: &mut Servers<'_>) {
    let first = options(servers);
    let second = Options { endpoints: first.endpoints.iter().rev().cloned().collect(), ..first.clone() };
    let (store, other) = (Arc::new(connect_to(first).await), Arc::new(connect_to(second).await));
    let start = store.revision();
    let watches = [store.watch(start).await.unwrap(), other.watch(start).await.unwrap()];
    let watches = watches.map(|watch| tokio::spawn(read_to_the_end(watch)));
    let writing = Arc::new(Writing {
        book: Mutex::default(),
        count: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = if writer % 2 == 0 { Arc::clone(&store) } else { Arc::clone(&other) };
            tokio::spawn(write(store, format!("/registry/w/{writer}"), Arc::clone(&writing)))
        })
        .collect();
    more(&writing, "nothing").await;
    for round in 0..2 {
        for member in 0..usize::from(MEMBERS) {
            servers.kill(member).unwrap();
            more(&writing, &format!("member {member} is dead")).await;
            servers.start(member).unwrap();
            more(&writing, "it is back").await;
        }
        let leader = leader(servers).await;
        servers.pause(leader).unwrap();
        more(&writing, &format!("the leader, {leader}, hangs")).await;
        servers.resume(leader).unwrap();
        more(&writing, "it goes on").await;
        let leader = self::leader(servers).await;
        lan.unplug(leader.try_into().unwrap()).unwrap();
        more(&writing, &format!("the leader, {leader}, is cut off")).await;
        lan.plug(leader.try_into().unwrap()).unwrap();
        more(&writing, "it is back").await;
        println!("round {round} is over");
    }
    writing.is_over.store(true, Ordering::Release);
    for writer in writers {
        writer.await.unwrap();
    }
    store.commit(put(END, Expect::Absent, "")).await.unwrap();
    let mut seen = Vec::new();
    for watch in watches {
        seen.push(watch.await.unwrap());
    }
    assert!(seen[0] == seen[1], "both watches see the same");
    judge(&writing.book.lock().unwrap(), &seen[0]);
}

const END: &str = "/registry/z/end";

/// Waits for the next writes to be acknowledged.
async fn more(writing: &Writing, what: &str) {
    let enough = writing.count.load(Ordering::Acquire) + WRITES_PER_FAULT;
    let begun = Instant::now();
    let wait = async {
        while writing.count.load(Ordering::Acquire) < enough {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("no writes while {what}"));
    let mut book = writing.book.lock().unwrap();
    let longest = std::mem::take(&mut book.longest);
    println!("{what}: {WRITES_PER_FAULT} writes in {:.1?}, longest pause {longest:.1?}", begun.elapsed());
}

async fn leader(servers: &Servers<'_>) -> usize {
    let wait = async {
        loop {
            if let Ok(leader) = servers.leader() {
                return leader;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.expect("a leader")
}

/// One writer: makes, changes and removes one key, over and over; what became of each write goes to the book.
async fn write(store: Arc<Etcd>, key: String, writing: Arc<Writing>) {
    let mut last = Expect::Absent;
    for n in 0.. {
        if writing.is_over.load(Ordering::Acquire) {
            return;
        }
        let (write, value) = match (n % (CHANGES + 2), last) {
            (step, Expect::Revision(revision)) if step == CHANGES + 1 => {
                (delete(&key, revision), "gone".to_owned())
            }
            _ => (put(&key, last, &n.to_string()), n.to_string()),
        };
        match store.commit(write).await {
            Ok(revision) => {
                writing.acknowledge(revision, &key, &value);
                last = if value == "gone" { Expect::Absent } else { Expect::Revision(revision) };
                let read = store.get(&key).await;
                if let Ok(read) = read {
                    let expected = (value != "gone").then_some(revision);
                    assert_eq!(read.map(|entry| entry.revision), expected, "{key} is read as it was written");
                }
            }
            Err(error @ StoreError::Unavailable(_)) => {
                println!("{key}={value}: {error}");
                writing.book.lock().unwrap().unknown.insert((key.clone(), value));
                last = read(&store, &key).await;
            }
            // Nobody else writes this key: only a write of unknown outcome may have got in between.
            Err(error) => {
                let is_known = writing.book.lock().unwrap().unknown.iter().all(|(other, _)| *other != key);
                assert!(!is_known, "{key}={value}: {error}");
                last = read(&store, &key).await;
            }
        }
    }
}

async fn read(store: &Etcd, key: &str) -> Expect {
    loop {
        match store.get(key).await {
            Ok(entry) => return entry.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision)),
            Err(error) => println!("{key} cannot be read yet: {error}"),
        }
    }
}

impl Writing {
    fn acknowledge(&self, revision: Revision, key: &str, value: &str) {
        let mut book = self.book.lock().unwrap();
        let before = book.acknowledged.insert(revision, (key.to_owned(), value.to_owned()));
        assert_eq!(before, None, "revision {revision} was handed out twice");
        let now = Instant::now();
        if let Some(last) = book.last.replace(now) {
            book.longest = book.longest.max(now - last);
        }
        drop(book);
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

/// All changes up to the last, as revision, key and value.
async fn read_to_the_end(mut watch: Watch) -> Vec<(Revision, String, String)> {
    let mut seen = Vec::new();
    loop {
        let batch = watch.batches.recv().await.expect("the watch goes on").expect("nothing is compacted");
        for event in batch.events {
            if event.key == END {
                return seen;
            }
            let value = event
                .entry
                .map_or("gone".to_owned(), |entry| String::from_utf8(entry.value.to_vec()).expect("a text"));
            seen.push((event.revision, event.key, value));
        }
    }
}

fn judge(book: &Book, seen: &[(Revision, String, String)]) {
    assert!(seen.windows(2).all(|two| two[0].0 < two[1].0), "revisions rise, none comes twice");
    let by_revision: BTreeMap<_, _> =
        seen.iter().map(|(revision, key, value)| (*revision, (key.clone(), value.clone()))).collect();
    let lost: Vec<_> = book
        .acknowledged
        .iter()
        .filter(|(revision, write)| by_revision.get(revision) != Some(write))
        .collect();
    let mut times: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for (_, key, value) in seen.iter().filter(|(_, _, value)| value != "gone") {
        *times.entry((key, value)).or_default() += 1;
    }
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    let strange: Vec<_> = by_revision
        .iter()
        .filter(|(revision, write)| {
            !book.acknowledged.contains_key(revision) && !book.unknown.contains(*write)
        })
        .collect();
    println!(
        "acknowledged {}, unknown {}, lost {}, doubled {}",
        book.acknowledged.len(),
        book.unknown.len(),
        lost.len(),
        doubled.len()
    );
    assert!(lost.is_empty() && doubled.is_empty() && strange.is_empty(), "{lost:?} {doubled:?} {strange:?}");
}
