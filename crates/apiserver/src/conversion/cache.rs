//! The converted objects, for those who ask again: bounded in bytes, and forgotten when nobody has asked for a while.
//!
//! Two generations: what is asked for moves to the young one, and when that is full, or enough time has passed, it becomes
//! the old one, whose memory ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use parking_lot::Mutex;
use store::Revision;

use crate::object::CachedObject;

/// How much both generations may have together, of all definitions.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// What an entry takes beside the object's JSON.
const ENTRY_BYTES: usize = 512;
/// After so long, or twice as long, what nobody has asked for is forgotten.
const GENERATION: Duration = Duration::from_secs(5 * 60);

/// What an object was converted to, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) conversion: u64,
    pub(super) to: Arc<str>,
    pub(super) key: Arc<str>,
    pub(super) revision: Revision,
}

/// What was converted.
pub(super) struct ConversionCache {
    kept: Arc<Mutex<Generations>>,
    tasks: Tasks,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Id, Arc<CachedObject>>,
    old: HashMap<Id, Arc<CachedObject>>,
    /// Of the young one.
    bytes: usize,
    /// Whether a task makes them age.
    is_aging: bool,
}

impl Generations {
    fn put(&mut self, id: Id, object: Arc<CachedObject>, bytes_max: usize) {
        let size = object.json.len() + ENTRY_BYTES;
        if self.bytes + size > bytes_max / 2 {
            self.age();
        }
        if size <= bytes_max / 2 && self.young.insert(id, object).is_none() {
            self.bytes += size;
        }
    }

    fn get(&mut self, id: &Id, bytes_max: usize) -> Option<Arc<CachedObject>> {
        if let Some(found) = self.young.get(id) {
            return Some(Arc::clone(found));
        }
        let (id, found) = self.old.remove_entry(id)?;
        self.put(id, Arc::clone(&found), bytes_max);
        Some(found)
    }

    fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.bytes = 0;
    }

    fn forget(&mut self, conversion: u64) {
        self.old.retain(|id, _| id.conversion != conversion);
        self.young.retain(|id, _| id.conversion != conversion);
        self.bytes = self.young.values().map(|object| object.json.len() + ENTRY_BYTES).sum();
    }
}

impl ConversionCache {
    pub(super) fn new(tasks: Tasks) -> Self {
        Self { kept: Arc::default(), tasks }
    }

    pub(super) fn get(&self, id: &Id) -> Option<Arc<CachedObject>> {
        self.kept.lock().get(id, BYTES_MAX)
    }

    pub(super) fn keep(&self, id: Id, object: &Arc<CachedObject>) {
        let mut kept = self.kept.lock();
        kept.put(id, Arc::clone(object), BYTES_MAX);
        if !std::mem::replace(&mut kept.is_aging, true) {
            self.tasks.spawn("conversions", age(Arc::clone(&self.kept)));
        }
    }

    /// Forgets what a conversion made that is no more.
    pub(super) fn forget(&self, conversion: u64) {
        self.kept.lock().forget(conversion);
    }
}

/// Lets what is kept age until nothing is left.
async fn age(kept: Arc<Mutex<Generations>>) {
    loop {
        tokio::time::sleep(GENERATION).await;
        let mut kept = kept.lock();
        kept.age();
        if kept.old.is_empty() {
            kept.is_aging = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(conversion: u64, revision: Revision) -> Id {
        Id { conversion, to: "a.b/v1".into(), key: "/registry/a.b/ws/n".into(), revision }
    }

    fn object(bytes: usize) -> Arc<CachedObject> {
        let stored = format!(r#"{{"metadata":{{}},"data":"{}"}}"#, "x".repeat(bytes));
        Arc::new(CachedObject::from_stored("k".into(), stored.as_bytes(), 1).unwrap())
    }

    fn kept(all: &mut Generations, max: u64) -> Vec<u64> {
        (0..max)
            .filter(|revision| {
                all.young.contains_key(&id(0, *revision)) || all.old.contains_key(&id(0, *revision))
            })
            .collect()
    }

    #[test]
    fn what_nobody_asks_for_makes_room() {
        let mut all = Generations::default();
        // Three fit into a generation.
        let max = 2 * 3 * (object(1000).json.len() + ENTRY_BYTES);
        for revision in 0..7 {
            all.put(id(0, revision), object(1000), max);
            assert!(all.get(&id(0, 0), max).is_some(), "it is asked for all the time");
        }
        assert_eq!(kept(&mut all, 7), [0, 3, 4, 5, 6]);
        all.put(id(0, 9), object(max), max);
        assert!(all.get(&id(0, 9), max).is_none(), "what is larger than all is not kept");
    }

    #[test]
    fn what_a_conversion_made_ends_with_it() {
        let mut all = Generations::default();
        all.put(id(0, 1), object(10), BYTES_MAX);
        all.age();
        all.put(id(0, 2), object(10), BYTES_MAX);
        all.put(id(1, 1), object(10), BYTES_MAX);
        all.forget(0);
        assert!(kept(&mut all, 3).is_empty() && all.get(&id(1, 1), BYTES_MAX).is_some());
        all.forget(1);
        assert_eq!(all.bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_forgotten_after_a_while_and_the_task_ends() {
        let memo = ConversionCache::new(Tasks::new());
        memo.keep(id(0, 1), &object(10));
        tokio::time::sleep(GENERATION + Duration::from_secs(1)).await;
        assert!(memo.get(&id(0, 1)).is_some());
        tokio::time::sleep(2 * GENERATION + Duration::from_secs(1)).await;
        assert!(memo.get(&id(0, 1)).is_none());
        tokio::time::sleep(2 * GENERATION).await;
        assert!(!memo.kept.lock().is_aging);
        memo.keep(id(0, 1), &object(10));
        assert!(memo.kept.lock().is_aging);
    }
}
