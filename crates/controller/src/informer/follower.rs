//! The state of one informer: the time since when it does not follow the store, and the objects that it had to leave
//! out.
//!
//! An informer follows when it has its list and a watch that stays open. One that does not for [`STALLED_AFTER`] is told
//! in the log, and fails the check of its part. So does one whose watch stays open without a word, until something comes
//! on another one. An object that cannot be decoded stops nobody: it is left out alone, told
//! once for each of its versions, in the log and as an event on the object, and tried again when it changes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::decode::Identity;

/// The time that an informer may not follow before its part is unhealthy.
pub const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How long a watch must have stayed open to be one that lasts, if nothing came on it.
const LASTING_AFTER: Duration = Duration::from_secs(15);

/// Tells of an object that was left out, and why.
pub(super) type Tell = Box<dyn Fn(&Identity, &str) + Send + Sync>;

/// See the module.
pub(crate) struct Follower {
    /// Such as `services` or `deployments.apps`.
    resource: String,
    progress: Mutex<Progress>,
    /// By key, with the version that could not be decoded.
    left_out: Mutex<BTreeMap<String, u64>>,
    /// What all informers of this resource in this part have left out.
    meter: Gauge,
    tell: Tell,
}

struct Progress {
    /// Since when it does not follow.
    failing_since: Option<Instant>,
    /// Since when it has a watch.
    open_since: Option<Instant>,
    cause: String,
    is_told: bool,
    /// The last watch brought nothing: that the next one is open says nothing.
    is_silent: bool,
}

impl Follower {
    pub(super) fn new(resource: String, meter: Gauge, tell: Tell) -> Self {
        let progress = Progress {
            failing_since: Some(Instant::now()),
            open_since: None,
            cause: "the first list has not come".to_owned(),
            is_told: false,
            is_silent: false,
        };
        Self { resource, progress: Mutex::new(progress), left_out: Mutex::default(), meter, tell }
    }

    /// One that nobody asks, for informers over fixed objects.
    pub(super) fn unwatched() -> Self {
        Self::new(String::new(), Gauge::default(), Box::new(|_, _| {}))
    }

    /// There is a watch now; whether it lasts is not known yet.
    pub(super) fn opened(&self) {
        self.progress.lock().open_since = Some(Instant::now());
    }

    /// Something was taken in, or there is nothing to follow.
    pub(super) fn followed(&self) {
        let mut progress = self.progress.lock();
        progress.failing_since = None;
        progress.is_silent = false;
        if std::mem::take(&mut progress.is_told) {
            tracing::info!(resource = %self.resource, "the informer follows again");
        }
    }

    /// The list or the watch failed.
    pub(super) fn failed(&self, cause: &dyn Display) {
        let now = Instant::now();
        let mut progress = self.progress.lock();
        if progress.follows(now) {
            progress.failing_since = None;
        }
        self.note(&mut progress, now, cause);
    }

    /// A watch is open, and nothing has come on it since then though something should have.
    pub(super) fn heard_nothing(&self, since: Instant, cause: &dyn Display) {
        let mut progress = self.progress.lock();
        progress.is_silent = true;
        self.note(&mut progress, since, cause);
    }

    fn note(&self, progress: &mut Progress, since: Instant, cause: &dyn Display) {
        progress.open_since = None;
        let since = *progress.failing_since.get_or_insert(since);
        progress.cause = cause.to_string();
        if !progress.is_told && since.elapsed() >= STALLED_AFTER {
            progress.is_told = true;
            tracing::warn!(resource = %self.resource, cause = %progress.cause, "the informer does not follow");
        }
    }

    /// Why it has not followed for too long.
    fn stalled(&self, now: Instant) -> Option<String> {
        let progress = self.progress.lock();
        let since = progress.failing_since.filter(|_| !progress.follows(now))?;
        let seconds = now.duration_since(since).as_secs();
        let is_stalled = seconds >= STALLED_AFTER.as_secs();
        is_stalled.then(|| format!("{} not followed for {seconds} s", self.resource))
    }

    /// Leaves out this version of an object.
    pub(super) fn leave_out(&self, identity: &Identity, cause: &dyn Display) {
        let mut left_out = self.left_out.lock();
        let before = left_out.insert(identity.key(), identity.revision);
        drop(left_out);
        match before {
            Some(revision) if revision == identity.revision => return,
            Some(_) => {}
            None => {
                self.meter.inc();
            }
        }
        let (key, revision) = (identity.key(), identity.revision);
        tracing::warn!(resource = %self.resource, key, revision, %cause, "an object cannot be decoded");
        (self.tell)(identity, &cause.to_string());
    }

    /// The object under `key` was decoded, or is gone.
    pub(super) fn take_in(&self, key: &str) {
        let mut left_out = self.left_out.lock();
        if !left_out.is_empty() && left_out.remove(key).is_some() {
            self.meter.dec();
        }
    }

    /// Of what was left out, only these are there.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut left_out = self.left_out.lock();
        let before = left_out.len();
        left_out.retain(|key, _| is_there(key));
        self.meter.dec_by(count(before - left_out.len()));
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.meter.dec_by(count(self.left_out.get_mut().len()));
    }
}

fn count(objects: usize) -> i64 {
    i64::try_from(objects).unwrap_or(i64::MAX)
}

impl Progress {
    /// Whether nothing fails, or a watch has lasted since.
    fn follows(&self, now: Instant) -> bool {
        let lasts = |since| now.duration_since(since) >= LASTING_AFTER;
        self.failing_since.is_none() || (!self.is_silent && self.open_since.is_some_and(lasts))
    }
}

/// The informers that have not followed for too long, each with how long.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join(", "))]
pub(crate) struct Stalled(Vec<String>);

/// The informers of one part.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Follower>>>);

impl Followers {
    pub(super) fn add(&self, follower: &Arc<Follower>) {
        let mut all = self.0.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(follower));
    }

    /// What the part's check says.
    ///
    /// # Errors
    /// Which informers have not followed for too long.
    pub(crate) fn check(&self) -> Result<(), Stalled> {
        let now = Instant::now();
        let all = self.0.lock();
        let mut stalled: Vec<String> =
            all.iter().filter_map(Weak::upgrade).filter_map(|follower| follower.stalled(now)).collect();
        stalled.sort();
        if stalled.is_empty() { Ok(()) } else { Err(Stalled(stalled)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(followers: &Followers, resource: &str) -> Arc<Follower> {
        let follower = Arc::new(Follower::new(resource.to_owned(), Gauge::default(), Box::new(|_, _| {})));
        followers.add(&follower);
        follower
    }

    async fn after(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_fails_by_the_informers_that_have_not_followed_for_thirty_seconds() {
        let followers = Followers::default();
        let (pods, services) = (follower(&followers, "pods"), follower(&followers, "services"));
        after(20).await;
        pods.opened();
        pods.followed();
        assert_eq!(followers.check(), Ok(()));
        after(10).await;
        assert_eq!(followers.check(), Err(Stalled(vec!["services not followed for 30 s".to_owned()])));
        drop(services);
        assert_eq!(followers.check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_breaks_off_at_the_same_place_again_and_again_does_not_follow() {
        let followers = Followers::default();
        let pods = follower(&followers, "pods");
        pods.followed();
        for _ in 0..4 {
            pods.opened();
            after(10).await;
            pods.failed(&"decode");
        }
        assert_eq!(followers.check(), Err(Stalled(vec!["pods not followed for 30 s".to_owned()])));
        pods.opened();
        after(15).await;
        assert_eq!(followers.check(), Ok(()));
        pods.failed(&"closed");
        after(29).await;
        assert_eq!(followers.check(), Ok(()));
        after(1).await;
        assert_eq!(followers.check(), Err(Stalled(vec!["pods not followed for 30 s".to_owned()])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_brings_nothing_does_not_follow_until_one_brings_something() {
        let followers = Followers::default();
        let pods = follower(&followers, "pods");
        pods.followed();
        let heard = Instant::now();
        pods.opened();
        after(150).await;
        assert_eq!(followers.check(), Ok(()));
        pods.heard_nothing(heard, &"silence");
        assert_eq!(followers.check(), Err(Stalled(vec!["pods not followed for 150 s".to_owned()])));
        pods.opened();
        after(20).await;
        assert_eq!(followers.check(), Err(Stalled(vec!["pods not followed for 170 s".to_owned()])));
        pods.failed(&"refused");
        assert_eq!(followers.check(), Err(Stalled(vec!["pods not followed for 170 s".to_owned()])));
        pods.opened();
        pods.followed();
        assert_eq!(followers.check(), Ok(()));
    }

    #[test]
    fn an_object_is_told_once_for_each_version() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = told.clone();
        let tell: Tell = Box::new(move |identity, cause| {
            teller.lock().push((identity.key(), identity.revision, cause.to_owned()));
        });
        let meter = Gauge::default();
        let follower = Follower::new("pods".into(), meter.clone(), tell);
        let version =
            |name: &str, revision| Identity { name: name.to_owned(), revision, ..Identity::default() };
        for (name, revision) in [("a", 1), ("a", 1), ("b", 1), ("a", 2)] {
            follower.leave_out(&version(name, revision), &"why");
        }
        let expect = [("a", 1), ("b", 1), ("a", 2)].map(|(key, at)| (key.to_owned(), at, "why".to_owned()));
        assert_eq!((told.lock().as_slice(), meter.get()), (expect.as_slice(), 2));
        follower.take_in("a");
        follower.take_in("c");
        assert_eq!(meter.get(), 1);
        follower.leave_out(&version("c", 3), &"why");
        follower.retain(|key| key == "c");
        assert_eq!(meter.get(), 1);
        drop(follower);
        assert_eq!(meter.get(), 0);
    }
}
