//! Whether informers follow the store, and the check of the part that they are of.
//!
//! An informer follows when it has its list and a watch that stays open. One that does not for [`STALLED_AFTER`] is told
//! in the log, and fails the check of its part. So does one whose watch stays open without a word, until something comes
//! on another one.

use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time that an informer may not follow before its part is unhealthy.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How long a watch must have stayed open to be one that lasts, if nothing came on it.
const LASTING_AFTER: Duration = Duration::from_secs(15);

/// The state of one informer: the time since when it does not follow the store.
pub(crate) struct Follower {
    /// Such as `services` or `deployments.apps`.
    resource: String,
    progress: Mutex<Progress>,
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
    pub(crate) fn new(resource: String) -> Self {
        let progress = Progress {
            failing_since: Some(Instant::now()),
            open_since: None,
            cause: "the first list has not come".to_owned(),
            is_told: false,
            is_silent: false,
        };
        Self { resource, progress: Mutex::new(progress) }
    }

    /// There is a watch now; whether it lasts is not known yet.
    pub(crate) fn opened(&self) {
        self.progress.lock().open_since = Some(Instant::now());
    }

    /// Something was taken in, or there is nothing to follow.
    pub(crate) fn followed(&self) {
        let mut progress = self.progress.lock();
        progress.failing_since = None;
        progress.is_silent = false;
        if std::mem::take(&mut progress.is_told) {
            tracing::info!(resource = %self.resource, "the informer follows again");
        }
    }

    /// The list or the watch failed.
    pub(crate) fn failed(&self, cause: &dyn Display) {
        let now = Instant::now();
        let mut progress = self.progress.lock();
        if progress.follows(now) {
            progress.failing_since = None;
        }
        self.note(&mut progress, now, cause);
    }

    /// A watch is open, and nothing has come on it since then though something should have.
    pub(crate) fn heard_nothing(&self, since: Instant, cause: &dyn Display) {
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
    pub(crate) fn add(&self, follower: &Arc<Follower>) {
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
        let follower = Arc::new(Follower::new(resource.to_owned()));
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
}
