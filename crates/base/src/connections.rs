//! The shares of a listener's connections, and the time that one may be held without a request.
//!
//! A connection is a stranger's until somebody has proved on it who they are. Strangers have a share of their own, each source
//! a part of that, and the oldest gives way to the newest: whoever fills it up keeps out nobody who is quick. Those who
//! are known have a share too, and the cluster's own parts one that nobody else can take.

mod stream;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use stream::Kept;

/// What one source has at least, however few there are.
const SHARE_MIN: usize = 8;
/// Strangers of one source at most; nobody needs so many at once before they say who they are.
const STRANGERS_OF_SOURCE_MAX: usize = 512;

/// The number of connections of a standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Of all sources together.
    pub all: usize,
    /// Of one source.
    pub of_source: usize,
}

/// The limits of the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of those who have not said who they are.
    pub strangers: Share,
    /// Of those who have.
    pub known: Share,
    /// Of the cluster's own parts.
    pub own: Share,
    /// `true` if whoever comes from this host's loopback is one of them without further proof.
    pub is_loopback_own: bool,
}

impl Limits {
    /// Shares of all connections that a process can have. Own parts have what is left, and loopback counts as one.
    pub fn of(connections_max: usize) -> Self {
        let share = |part: usize| (connections_max / part).max(SHARE_MIN);
        Self {
            strangers: Share { all: share(4), of_source: share(16).min(STRANGERS_OF_SOURCE_MAX) },
            known: Share { all: share(2), of_source: share(8) },
            own: Share { all: share(1), of_source: share(1) },
            is_loopback_own: true,
        }
    }
}

/// The standing of a client that has proved on a connection who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Anybody.
    Known,
    /// A part of the cluster, or its administrator.
    Own,
}

/// Connections of those who have proved something.
#[derive(Clone, Copy, Debug, Default)]
struct Proven {
    known: usize,
    own: usize,
}

impl Proven {
    fn of(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::Known => &mut self.known,
            Standing::Own => &mut self.own,
        }
    }
}

#[derive(Debug, Default)]
struct Source {
    /// The oldest first.
    strangers: VecDeque<(u64, CancellationToken)>,
    proven: Proven,
}

#[derive(Debug, Default)]
struct Held {
    last: u64,
    strangers: usize,
    proven: Proven,
    sources: HashMap<IpAddr, Source>,
}

/// The connections of one listener.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    held: Mutex<Held>,
}

impl Connections {
    /// None yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, held: Mutex::default() })
    }

    /// A connection's slot.
    pub fn take(self: &Arc<Self>, source: IpAddr) -> Arc<Slot> {
        let (cut, source) = (CancellationToken::new(), source_of(source));
        let is_own = self.limits.is_loopback_own && source.is_loopback();
        let mut held = self.held();
        held.last += 1;
        let id = held.last;
        let standing = Some(Standing::Own).filter(|own| is_own && held.count(source, *own, &self.limits));
        if standing.is_none() {
            held.evict(source, &self.limits);
            held.strangers += 1;
            held.sources.entry(source).or_default().strangers.push_back((id, cut.clone()));
        }
        Arc::new(Slot { all: Arc::clone(self), source, id, cut, standing: Mutex::new(standing) })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The oldest stranger of the source goes, if it has its share; else of whoever has most, if all have theirs.
    fn evict(&mut self, source: IpAddr, limits: &Limits) {
        let own = self.sources.get(&source).map_or(0, |source| source.strangers.len());
        let from = if own >= limits.strangers.of_source {
            Some(source)
        } else if self.strangers >= limits.strangers.all {
            let most = self.sources.iter().max_by_key(|(_, source)| source.strangers.len());
            most.map(|(source, _)| *source)
        } else {
            None
        };
        let oldest = from.and_then(|from| self.sources.get_mut(&from)?.strangers.pop_front());
        if let Some((_, cut)) = oldest {
            self.strangers -= 1;
            cut.cancel();
        }
    }

    /// Counts a connection among those of a standing, if there is room for it.
    fn count(&mut self, source: IpAddr, standing: Standing, limits: &Limits) -> bool {
        let share = match standing {
            Standing::Known => limits.known,
            Standing::Own => limits.own,
        };
        let of_source = self.sources.get_mut(&source).map_or(0, |of| *of.proven.of(standing));
        if *self.proven.of(standing) >= share.all || of_source >= share.of_source {
            return false;
        }
        *self.proven.of(standing) += 1;
        *self.sources.entry(source).or_default().proven.of(standing) += 1;
        true
    }

    fn forget(&mut self, source: IpAddr, standing: Standing) {
        let one = |count: &mut usize| *count = count.saturating_sub(1);
        one(self.proven.of(standing));
        if let Some(of) = self.sources.get_mut(&source) {
            one(of.proven.of(standing));
        }
    }

    fn forget_stranger(&mut self, source: IpAddr, id: u64) {
        let Some(of) = self.sources.get_mut(&source) else { return };
        let before = of.strangers.len();
        of.strangers.retain(|(one, _)| *one != id);
        self.strangers -= before - of.strangers.len();
    }

    fn forget_source(&mut self, source: IpAddr) {
        let is_empty = |of: &Source| of.strangers.is_empty() && of.proven.known + of.proven.own == 0;
        if self.sources.get(&source).is_some_and(is_empty) {
            self.sources.remove(&source);
        }
    }
}

/// One connection's slot; dropping the last reference gives it back.
#[derive(Debug)]
pub struct Slot {
    all: Arc<Connections>,
    source: IpAddr,
    id: u64,
    cut: CancellationToken,
    /// A stranger's has none.
    standing: Mutex<Option<Standing>>,
}

impl Slot {
    /// Somebody has proved who they are. Where their like have their share already, the connection stays a stranger's; and
    /// it stays what it was proved to be first.
    pub fn prove(&self, proved: Standing) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if standing.is_some() || self.cut.is_cancelled() {
            return;
        }
        let mut held = self.all.held();
        if held.count(self.source, proved, &self.all.limits) {
            *standing = Some(proved);
            held.forget_stranger(self.source, self.id);
        }
    }

    /// Ends when the connection has to give way to another.
    pub async fn gives_way(&self) {
        self.cut.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let standing = *self.standing.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.all.held();
        match standing {
            None => held.forget_stranger(self.source, self.id),
            Some(standing) => held.forget(self.source, standing),
        }
        held.forget_source(self.source);
    }
}

/// Whom a connection counts for: an IPv6 network of 64 bits is one host's as easily as one address is.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from(u128::from(ip) & (u128::MAX << 64)).into(),
        other => other,
    }
}

/// The number of requests under way on a connection.
#[derive(Clone, Debug)]
pub struct Activity(watch::Sender<Requests>);

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    under_way: usize,
    has_begun: bool,
}

impl Activity {
    /// A connection on which nothing was asked yet.
    pub fn begin() -> Self {
        Self(watch::Sender::new(Requests::default()))
    }

    /// A request, until what is given is dropped.
    pub fn request(&self) -> Underway {
        self.0.send_modify(|requests| {
            requests.under_way += 1;
            requests.has_begun = true;
        });
        Underway(self.0.clone())
    }

    /// Ends when nothing was asked for `first`, or nothing more for `idle`.
    pub async fn is_idle(&self, first: Duration, idle: Duration) {
        let mut requests = self.0.subscribe();
        loop {
            let Requests { under_way, has_begun } = *requests.borrow_and_update();
            let limit = if has_begun { idle } else { first };
            tokio::select! {
                // The sender lives as long as this does.
                _ = requests.changed() => {}
                () = tokio::time::sleep(limit), if under_way == 0 => return,
            }
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Underway(watch::Sender<Requests>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.send_modify(|requests| requests.under_way = requests.under_way.saturating_sub(1));
    }
}

/// The number of descriptors that this process may have, by the soft limit; `otherwise` where the kernel does not say.
pub fn descriptors_max(otherwise: usize) -> usize {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        strangers: Share { all: 6, of_source: 3 },
        known: Share { all: 4, of_source: 2 },
        own: Share { all: 5, of_source: 5 },
        is_loopback_own: true,
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn take(all: &Arc<Connections>, source: &str, count: usize) -> Vec<Arc<Slot>> {
        (0..count).map(|_| all.take(ip(source))).collect()
    }

    fn cut(slots: &[Arc<Slot>]) -> Vec<bool> {
        slots.iter().map(|slot| slot.cut.is_cancelled()).collect()
    }

    /// Own ones, known ones and strangers.
    fn counts(all: &Connections) -> (usize, usize, usize) {
        let held = all.held();
        (held.proven.own, held.proven.known, held.strangers)
    }

    fn is_empty(all: &Connections) -> bool {
        let held = all.held();
        held.sources.is_empty() && held.strangers + held.proven.known + held.proven.own == 0
    }

    #[test]
    fn the_oldest_stranger_of_a_source_gives_way() {
        let all = Connections::new(LIMITS);
        let taken = take(&all, "192.0.2.1", 5);
        assert_eq!(cut(&taken), [true, true, false, false, false]);
        taken[0].prove(Standing::Own);
        assert_eq!(counts(&all).0, 0, "what has given way proves nothing any more");
        drop(taken);
        assert!(is_empty(&all));
    }

    #[test]
    fn who_has_most_gives_way_to_others() {
        let all = Connections::new(LIMITS);
        let first = take(&all, "192.0.2.1", 3);
        let others: Vec<_> = (2..7).flat_map(|n| take(&all, &format!("192.0.2.{n}"), 1)).collect();
        assert_eq!(cut(&first), [true, true, false]);
        assert!(!cut(&others).contains(&true));
    }

    #[test]
    fn who_is_known_is_not_cut_and_has_a_share() {
        let all = Connections::new(LIMITS);
        let known = take(&all, "192.0.2.1", 3);
        known.iter().for_each(|slot| slot.prove(Standing::Known));
        let own = take(&all, "192.0.2.1", 1);
        own[0].prove(Standing::Own);
        let strangers = take(&all, "192.0.2.1", 3);
        assert_eq!(cut(&known), [false, false, true], "the third had no share and stayed a stranger");
        assert_eq!(cut(&own), [false]);
        assert_eq!(counts(&all), (1, 2, 3));
        drop((known, strangers, own));
        assert!(is_empty(&all));
    }

    #[test]
    fn own_parts_get_in_while_everybody_else_has_their_shares() {
        let all = Connections::new(LIMITS);
        let strangers: Vec<_> = (1..20).flat_map(|n| take(&all, &format!("192.0.2.{n}"), 5)).collect();
        let known: Vec<_> = (1..20).flat_map(|n| take(&all, &format!("198.51.100.{n}"), 3)).collect();
        known.iter().for_each(|slot| slot.prove(Standing::Known));
        let mut own = Vec::new();
        for n in 0..8 {
            let slot = all.take(ip("203.0.113.1"));
            slot.prove(Standing::Own);
            slot.prove(Standing::Known);
            own.push(slot);
            assert_eq!(counts(&all).0, (n + 1).min(LIMITS.own.all), "and there is an end");
        }
        assert!(all.held().proven.known <= LIMITS.known.all, "it stays what it was first");
        assert!(all.held().strangers <= LIMITS.strangers.all);
        drop((strangers, known, own));
        assert!(is_empty(&all));
    }

    #[test]
    fn loopback_is_a_stranger_only_where_it_is_said_to_be() {
        for (is_loopback_own, expect) in [(true, (5, 0, 0)), (false, (0, 0, 3))] {
            let all = Connections::new(Limits { is_loopback_own, ..LIMITS });
            for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                let taken = take(&all, address, 5);
                assert_eq!(counts(&all), expect, "{address}");
                drop(taken);
                assert!(is_empty(&all));
            }
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        assert_eq!(source_of(ip("2001:db8::1")), source_of(ip("2001:db8::2:3")));
        assert_ne!(source_of(ip("2001:db8::1")), source_of(ip("2001:db8:0:1::1")));
        assert_eq!(source_of(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_is_asked() {
        let (first, idle) = (Duration::from_secs(32), Duration::from_secs(90));
        let activity = Activity::begin();
        let start = tokio::time::Instant::now();
        activity.is_idle(first, idle).await;
        assert_eq!(start.elapsed(), first);
        let request = activity.request();
        let answered = async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(request);
        };
        let start = tokio::time::Instant::now();
        tokio::join!(activity.is_idle(first, idle), answered);
        assert_eq!(start.elapsed(), Duration::from_secs(690));
    }

    #[test]
    fn shares_are_parts_of_what_a_process_may_have() {
        for (connections_max, expect) in [
            (0, [8, 8, 8, 8, 8]),
            (100, [25, 8, 50, 12, 100]),
            (1024, [256, 64, 512, 128, 1024]),
            (1_048_576, [262_144, 512, 524_288, 131_072, 1_048_576]),
        ] {
            let Limits { strangers, known, own, .. } = Limits::of(connections_max);
            let found = [strangers.all, strangers.of_source, known.all, known.of_source, own.all];
            assert_eq!(found, expect, "{connections_max}");
        }
    }

    #[test]
    fn a_process_knows_how_many_descriptors_it_may_have() {
        assert!(descriptors_max(0) > 0);
    }
}
