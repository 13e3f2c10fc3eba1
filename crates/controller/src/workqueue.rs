//! The queue between what happens and what is decided: deduplicating, delayed, rate-limited.
//!
//! A key is never processed by two workers at once; a key that is added while it is processed runs again
//! afterwards. Memory is bounded by the number of keys. Source: `k8s.io/client-go/util/workqueue`.

mod meter;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use base::Random;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use meter::{QueueMeter, work_histogram};

/// Longest delay at all: who asks for more looks again, and asks again.
const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The delays of a key that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// After the first failure; doubles with each further one.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { first: Duration::from_millis(5), max: Duration::from_secs(60) }
    }
}

/// A queue of keys, each with the revision that last woke it.
#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Mutex<State>,
    changed: Notify,
    meter: QueueMeter,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<String>,
    /// Keys that are in `ready`, or wait for their run to end; with the newest cause.
    dirty: HashMap<String, Waiting>,
    /// Since when each key is processed.
    processing: HashMap<String, Instant>,
    /// Keys that wait for their time, each once, by the earliest that was asked for.
    delayed: BTreeMap<(Instant, String), u64>,
    due: HashMap<String, Instant>,
    failures: HashMap<String, u32>,
    retries: Retries,
}

/// A key that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    cause: u64,
    since: Instant,
}

impl WorkQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue that counts.
    pub(crate) fn metered(meter: QueueMeter) -> Self {
        Self { meter, ..Self::default() }
    }

    /// Has keys wait otherwise after failures from now on.
    pub(crate) fn retry(&self, retries: Retries) {
        self.state.lock().retries = retries;
    }

    /// Adds `key`, woken by `cause` (0: unknown).
    pub fn add(&self, key: String, cause: u64) {
        self.state.lock().add(key, cause, Instant::now(), &self.meter);
        self.changed.notify_one();
    }

    /// Adds `key` after `delay`, or sooner if that was asked for already.
    pub fn add_after(&self, key: String, cause: u64, delay: Duration) {
        self.meter.retries.inc();
        self.state.lock().delay(key, cause, Instant::now() + delay.min(DELAY_MAX));
        self.changed.notify_one();
    }

    /// Adds `key` after a delay that grows with each failure; returns the delay.
    pub fn add_rate_limited(&self, key: String, cause: u64, random: &Random) -> Duration {
        let (failures, retries) = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures += 1;
            (*failures, state.retries)
        };
        let doubled = retries.first.saturating_mul(1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX));
        let delay = doubled.min(retries.max).mul_f64(1.0 + 0.1 * random.unit());
        self.add_after(key, cause, delay);
        delay
    }

    /// Forgets the failures of `key`.
    pub fn forget(&self, key: &str) {
        self.state.lock().failures.remove(key);
    }

    /// Waits for a key and takes it; [`WorkQueue::done`] must follow.
    pub async fn next(&self) -> (String, u64) {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state.lock();
                let now = Instant::now();
                state.promote(now, &self.meter);
                if let Some(taken) = state.take(now, &self.meter) {
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return taken;
                }
                state.delayed.first_key_value().map(|((due, _), _)| *due)
            };
            match due {
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(due) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Ends the run of `key`; if it was added meanwhile, it is ready again.
    pub fn done(&self, key: &str) {
        let mut state = self.state.lock();
        if let Some(since) = state.processing.remove(key) {
            self.meter.worked.observe(since.elapsed().as_secs_f64());
        }
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.to_owned());
            self.changed.notify_one();
        }
    }

    /// Keys that wait to be processed.
    pub fn depth(&self) -> usize {
        self.state.lock().dirty.len()
    }

    /// How long each key that is processed has been so.
    pub(crate) fn running_for(&self) -> Vec<Duration> {
        self.state.lock().processing.values().map(Instant::elapsed).collect()
    }
}

impl State {
    fn add(&mut self, key: String, cause: u64, now: Instant, meter: &QueueMeter) {
        match self.dirty.get_mut(&key) {
            Some(waiting) => waiting.cause = cause.max(waiting.cause),
            None => {
                meter.adds.inc();
                meter.depth.inc();
                self.dirty.insert(key.clone(), Waiting { cause, since: now });
                if !self.processing.contains_key(&key) {
                    self.ready.push_back(key);
                }
            }
        }
    }

    fn delay(&mut self, key: String, cause: u64, due: Instant) {
        match self.due.get_mut(&key) {
            Some(earlier) if *earlier <= due => return,
            Some(later) => {
                self.delayed.remove(&(*later, key.clone()));
                *later = due;
            }
            None => {
                self.due.insert(key.clone(), due);
            }
        }
        self.delayed.insert((due, key), cause);
    }

    fn promote(&mut self, now: Instant, meter: &QueueMeter) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, key), cause) = entry.remove_entry();
            self.due.remove(&key);
            self.add(key, cause, now, meter);
        }
    }

    fn take(&mut self, now: Instant, meter: &QueueMeter) -> Option<(String, u64)> {
        let key = self.ready.pop_front()?;
        let waiting = self.dirty.remove(&key);
        if let Some(waiting) = waiting {
            meter.depth.dec();
            meter.queued.observe(now.duration_since(waiting.since).as_secs_f64());
        }
        self.processing.insert(key.clone(), now);
        Some((key, waiting.map_or(0, |waiting| waiting.cause)))
    }
}

#[cfg(test)]
mod scripts;
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_added_twice_runs_once_with_the_newest_cause() {
        let queue = WorkQueue::new();
        queue.add("a".into(), 1);
        queue.add("a".into(), 4);
        assert_eq!(queue.next().await, ("a".into(), 4));
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test]
    async fn a_key_added_during_its_run_runs_again_after_it() {
        let queue = WorkQueue::new();
        queue.add("a".into(), 1);
        queue.next().await;
        queue.add("a".into(), 2);
        queue.add("b".into(), 3);
        assert_eq!(queue.next().await.0, "b");
        queue.done("a");
        assert_eq!(queue.next().await, ("a".into(), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_for_the_earliest_time_that_was_asked_for() {
        let queue = WorkQueue::new();
        for (cause, seconds) in [(1, 9), (2, u64::MAX), (3, 5), (4, 7)] {
            queue.add_after("a".into(), cause, Duration::from_secs(seconds));
        }
        let began = Instant::now();
        assert_eq!(queue.next().await, ("a".into(), 3));
        assert_eq!(began.elapsed().as_secs(), 5);
        queue.done("a");
        tokio::time::advance(Duration::from_secs(100_000)).await;
        queue.add("b".into(), 5);
        assert_eq!((queue.next().await.0, queue.depth()), ("b".into(), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_with_failures_and_end_when_forgotten() {
        let (queue, random) = (WorkQueue::new(), Random::seeded(1));
        let first = queue.add_rate_limited("a".into(), 1, &random);
        queue.next().await;
        queue.done("a");
        let second = queue.add_rate_limited("a".into(), 1, &random);
        assert!(second > first, "{second:?} after {first:?}");
        queue.forget("a");
        assert!(queue.add_rate_limited("a".into(), 1, &random) < second);
    }

    /// Source of this and of what follows: `queue_test.go`, `delaying_queue_test.go` and `default_rate_limiters_test.go` of
    /// upstream's `client-go/util/workqueue`.
    #[tokio::test]
    async fn keys_that_come_during_a_run_are_one_run_after_it() {
        let queue = WorkQueue::new();
        for key in ["a", "b", "a"] {
            queue.add(key.into(), 1);
        }
        assert_eq!(queue.depth(), 2);
        assert_eq!(queue.next().await.0, "a");
        for cause in [5, 9, 7] {
            queue.add("a".into(), cause);
        }
        assert_eq!((queue.depth(), queue.running_for().len()), (2, 1));
        assert_eq!(queue.next().await.0, "b");
        let waits = tokio::time::timeout(Duration::from_millis(1), queue.next());
        assert!(waits.await.is_err(), "nobody runs twice at once");
        queue.done("a");
        assert_eq!(queue.next().await, ("a".into(), 9));
        queue.done("a");
        queue.done("b");
        queue.done("b");
        assert_eq!((queue.depth(), queue.running_for().len()), (0, 0), "nothing is left of them");
        queue.add("a".into(), 2);
        assert_eq!(queue.next().await, ("a".into(), 2), "it comes again as if it were new");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_come_in_the_order_of_their_times() {
        let queue = WorkQueue::new();
        for (key, milliseconds) in [("third", 500), ("first", 50), ("now", 0), ("second", 300)] {
            queue.add_after(key.into(), 1, Duration::from_millis(milliseconds));
        }
        let began = Instant::now();
        for (key, milliseconds) in [("now", 0), ("first", 50), ("second", 300), ("third", 500)] {
            assert_eq!(queue.next().await.0, key);
            assert_eq!(began.elapsed().as_millis(), milliseconds, "{key}");
            queue.done(key);
        }
        queue.add_after("a".into(), 1, Duration::from_secs(5));
        queue.add("a".into(), 2);
        assert_eq!(queue.next().await, ("a".into(), 2), "at once, though it is to come later, too");
        queue.done("a");
        assert_eq!(queue.next().await, ("a".into(), 1));
        assert_eq!(began.elapsed().as_millis(), 5500);
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_waits_by_its_own_failures_and_never_for_longer_than_said() {
        let (queue, random) = (WorkQueue::new(), Random::seeded(1));
        let (first, max) = (Duration::from_millis(1), Duration::from_secs(1));
        queue.retry(Retries { first, max });
        let delay = |key: &str| {
            let delay = queue.add_rate_limited(key.into(), 1, &random).as_micros();
            // Less than a tenth is chance.
            (0..=11)
                .map(|power| 1000_u128 << power)
                .chain([1_000_000])
                .rfind(|least| *least <= delay && delay < least * 11 / 10)
        };
        for expect in [1, 2, 4, 8, 16] {
            assert_eq!(delay("one"), Some(expect * 1000));
        }
        assert_eq!((delay("two"), delay("two")), (Some(1000), Some(2000)));
        queue.forget("one");
        queue.forget("never added");
        assert_eq!((delay("one"), delay("two")), (Some(1000), Some(4000)));
        let last = (0..100).fold(None, |_, _| delay("one"));
        assert_eq!(last, Some(1_000_000), "however often it fails");
    }
}
