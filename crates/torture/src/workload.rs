//! Clients of a store or an API server, and watchers of a store, who write down what they are told.
//!
//! Each client's choices follow from the seed and from what it was told. Values are unique, conditions are sometimes
//! stale on purpose, and keys lie so that a range with a wrong end shows.

mod client;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base::{Random, Tasks};
use futures::future::BoxFuture;
use store::{Revision, Store, StoreError};

use crate::history::{Call, Keep, Line, Outcome, Recorder};

pub use client::{ask, work};
pub use watcher::{Manner, follow};

/// The keys of a workload.
#[derive(Debug)]
pub struct World {
    /// The folders of keys, and the durability that is promised for them.
    pub folders: &'static [(&'static str, Keep)],
    /// Of the folders, how many are durable; these come first.
    pub durable: u64,
    /// Ranges that are listed; some of their ends are others' beginnings. The first has all keys in it.
    pub ranges: &'static [(&'static str, &'static str)],
}

/// Keys of a store.
pub const KEYS: World = World {
    folders: &[
        ("/registry/configmaps/a/", Keep::Durably),
        ("/registry/configmaps/a-b/", Keep::Durably),
        ("/registry/configmaps/b/", Keep::Durably),
        ("/registry/secrets/a/", Keep::Durably),
        ("/registry/leases/a/", Keep::Loosely),
        ("/registry/events/a/", Keep::ForAWhile),
    ],
    durable: 4,
    ranges: &[
        ("/registry/", "/registry0"),
        ("/registry/configmaps/", "/registry/configmaps0"),
        ("/registry/configmaps/a/", "/registry/configmaps/a0"),
        ("/registry/configmaps/a-b/", "/registry/configmaps/a-b0"),
        ("/registry/secrets/", "/registry/secrets0"),
    ],
};

/// Objects of an API server.
pub const OBJECTS: World = World {
    folders: &[
        ("/registry/configmaps/a/", Keep::Durably),
        ("/registry/configmaps/a-b/", Keep::Durably),
        ("/registry/configmaps/b/", Keep::Durably),
    ],
    durable: 3,
    ranges: &[
        ("/registry/configmaps/", "/registry/configmaps0"),
        ("/registry/configmaps/a/", "/registry/configmaps/a0"),
        ("/registry/configmaps/a-b/", "/registry/configmaps/a-b0"),
    ],
};

/// Objects of a custom kind.
pub const CUSTOM_OBJECTS: World = World {
    folders: &[
        ("/registry/torture.example.com/things/a/", Keep::Durably),
        ("/registry/torture.example.com/things/a-b/", Keep::Durably),
        ("/registry/torture.example.com/things/b/", Keep::Durably),
    ],
    durable: 3,
    ranges: &[
        ("/registry/torture.example.com/things/", "/registry/torture.example.com/things0"),
        ("/registry/torture.example.com/things/a/", "/registry/torture.example.com/things/a0"),
        ("/registry/torture.example.com/things/a-b/", "/registry/torture.example.com/things/a-b0"),
    ],
};

/// A target that clients ask.
pub trait Target: Send + Sync {
    /// Asks for one thing; what is told beside the outcome is taken down.
    fn call<'a>(&'a self, call: Call, recorder: &'a Recorder) -> BoxFuture<'a, Outcome>;
}

/// The plan of a workload.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything that is chosen follows from it.
    pub seed: u64,
    /// Tells this run's values from those of other runs on the same store.
    pub name: String,
    /// The number of clients.
    pub clients: u64,
    /// The number of operations of each client.
    pub operations: u64,
    /// The number of keys in each folder.
    pub keys: u64,
    /// The number of watchers beside the one that sees everything.
    pub watchers: u64,
    /// The keys that there are.
    pub world: &'static World,
    /// Between two operations of a client passes at most this long; none passes if it is zero.
    pub pause: Duration,
    /// `true` if some keys may be lost by a crash, and some go by themselves.
    pub is_loose: bool,
    /// Of a hundred operations, how many compact the history.
    pub compact_percent: u64,
    /// The time that what must come may take.
    pub timeout: Duration,
    /// Clients end when it is set, whatever they still had to do.
    pub is_over: Arc<AtomicBool>,
}

impl Plan {
    /// A busy one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            name: "w".to_owned(),
            clients: 6,
            operations: 100,
            keys: 4,
            watchers: 4,
            world: &KEYS,
            pause: Duration::ZERO,
            is_loose: true,
            compact_percent: 2,
            timeout: Duration::from_secs(30),
            is_over: Arc::default(),
        }
    }
}

/// A key, and what is promised for it.
fn key(random: &Random, plan: &Plan) -> (String, Keep) {
    let folders = if plan.is_loose { plan.world.folders.len() as u64 } else { plan.world.durable };
    let folder = usize::try_from(random.below(folders)).unwrap_or(0);
    let (folder, keep) = plan.world.folders.get(folder).copied().unwrap_or(("/", Keep::Durably));
    (format!("{folder}k{}", random.below(plan.keys)), keep)
}

/// Runs a workload to its end, then waits until every watcher has seen all of it from `start` on.
pub async fn run(store: &Arc<dyn Store>, plan: &Plan, start: Revision, recorder: &Recorder) {
    let tasks = Tasks::new();
    let mut watchers = vec![watcher::spawn(store, recorder, &tasks, start, Manner::Steady)];
    for number in 0..plan.watchers {
        let manner = if number % 2 == 0 { Manner::Restless } else { Manner::Slow };
        watchers.push(watcher::spawn(store, recorder, &tasks, start, manner));
    }
    let clients = (0..plan.clients).map(|number| client::work(store, plan, number, recorder));
    futures::future::join_all(clients).await;
    read_everything(store, plan.world, recorder).await;
    let newest = settled(store).await;
    for watcher in watchers {
        watcher.finish(newest, plan.timeout, recorder).await;
    }
    tasks.stop_and_wait().await;
}

/// One more write, of a key that nobody else writes.
pub async fn write_once(store: &Arc<dyn Store>, name: &str, recorder: &Recorder) {
    let key = format!("/registry/configmaps/a/{name}");
    let value = format!("{name}.once");
    ask(store, recorder, Call::Create { key, value, keep: Keep::Durably }).await;
}

/// The newest revision, as soon as anybody can say it.
async fn settled(store: &Arc<dyn Store>) -> Revision {
    store.newest().await.unwrap_or_else(|_| store.revision())
}

pub(crate) async fn read_everything(target: &dyn Target, world: &World, recorder: &Recorder) {
    for (start, end) in world.ranges {
        let (start, end) = ((*start).to_owned(), (*end).to_owned());
        ask(target, recorder, Call::List { start, end, at: None, limit: 0 }).await;
    }
}

/// Says how a store that was opened again goes on, with all that can still be seen of its history; answers up to where
/// that is.
///
/// # Errors
/// If the store cannot be watched or read.
pub async fn take_stock(store: &Arc<dyn Store>, recorder: &Recorder) -> Result<Revision, StoreError> {
    let mut left = note_restart(store, recorder).await?;
    read_everything(store, &KEYS, recorder).await;
    // Keys may have expired meanwhile.
    let (more, upto) = read_to(&mut left.watch, left.upto, settled(store).await).await?;
    watcher::note_all(recorder, left.after, &[left.events, more].concat(), upto);
    Ok(upto)
}

/// The part of a store's history that can be seen.
pub struct Left {
    /// It begins after this revision.
    pub after: Revision,
    /// The events since.
    pub events: Vec<store::Event>,
    upto: Revision,
    watch: store::Watch,
}

/// Reads what a store remembers of its history, up to `newest`.
///
/// # Errors
/// If the store cannot be watched.
pub async fn remembered(store: &dyn Store, newest: Revision) -> Result<Left, StoreError> {
    let mut after = 0;
    let mut watch = loop {
        match store.watch(after).await {
            Ok(watch) => break watch,
            Err(StoreError::Compacted { oldest, .. }) if oldest > after => after = oldest,
            Err(error) => return Err(error),
        }
    };
    let (events, upto) = read_to(&mut watch, after, newest).await?;
    Ok(Left { after, events, upto, watch })
}

/// Says how a store that was opened again goes on.
///
/// # Errors
/// If the store cannot be watched or read.
pub async fn note_restart(store: &Arc<dyn Store>, recorder: &Recorder) -> Result<Left, StoreError> {
    let newest = store.revision();
    let left = remembered(&**store, newest).await?;
    let kept = left.events.iter().map(|event| event.revision).filter(|revision| *revision <= newest).max();
    recorder.note(Line::Restart { newest, kept: kept.unwrap_or(left.after) });
    Ok(left)
}

/// The events of a watch up to a revision.
async fn read_to(
    watch: &mut store::Watch,
    mut upto: Revision,
    newest: Revision,
) -> Result<(Vec<store::Event>, Revision), StoreError> {
    let mut events = Vec::new();
    while upto < newest {
        let batch = watch.batches.recv().await.unwrap_or(Err(StoreError::Failed("it ended".to_owned())))?;
        events.extend(batch.events);
        upto = batch.upto;
    }
    Ok((events, upto))
}
