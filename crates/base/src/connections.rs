//! Who may hold how many of a listener's connections, and for how long without asking anything.
//!
//! A connection is a stranger's until somebody has proved on it who they are. Strangers have a share of their own, each source
//! a part of that, and the oldest gives way to the newest: whoever fills it up keeps out nobody who is quick. Those who
//! are known have a share per source too, and what is left is for the cluster's own parts, which nobody else can take.
//! Loopback counts as one of them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

/// What one source has at least, however few there are.
const SHARE_MIN: usize = 8;
/// Strangers of one source at most; nobody needs so many at once before they say who they are.
const STRANGERS_OF_SOURCE_MAX: usize = 512;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of those who have not said who they are.
    pub strangers: usize,
    /// Of these, from one source.
    pub strangers_of_source: usize,
    /// Of those who have, the cluster's own parts apart.
    pub known: usize,
    /// Of these, from one source.
    pub known_of_source: usize,
}

impl Limits {
    /// Shares of all connections that a process can have.
    pub fn of(connections_max: usize) -> Self {
        let share = |part: usize| (connections_max / part).max(SHARE_MIN);
        Self {
            strangers: share(4),
            strangers_of_source: share(16).min(STRANGERS_OF_SOURCE_MAX),
            known: share(2),
            known_of_source: share(8),
        }
    }
}

/// Who has proved on a connection who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Anybody.
    Known,
    /// A part of the cluster, or its administrator.
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Stranger,
    Known,
    Own,
}

#[derive(Debug, Default)]
struct Source {
    /// The oldest first.
    strangers: VecDeque<(u64, oneshot::Sender<()>)>,
    known: usize,
}

#[derive(Debug, Default)]
struct Held {
    last: u64,
    strangers: usize,
    known: usize,
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

    /// A connection's place, and what ends when it has to give way to another.
    pub fn take(self: &Arc<Self>, source: IpAddr) -> (Arc<Place>, oneshot::Receiver<()>) {
        let (sender, cut) = oneshot::channel();
        let source = source_of(source);
        let mut held = self.held();
        held.last += 1;
        let id = held.last;
        let is_own = source.is_loopback();
        if is_own {
            drop(sender);
        } else {
            held.make_room(source, &self.limits);
            held.strangers += 1;
            held.sources.entry(source).or_default().strangers.push_back((id, sender));
        }
        let rank = Mutex::new(if is_own { Rank::Own } else { Rank::Stranger });
        (Arc::new(Place { all: Arc::clone(self), source, id, rank }), cut)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The oldest stranger of the source goes, if it has its share; else of whoever has most, if all have theirs.
    fn make_room(&mut self, source: IpAddr, limits: &Limits) {
        let own = self.sources.get(&source).map_or(0, |source| source.strangers.len());
        let from = if own >= limits.strangers_of_source {
            Some(source)
        } else if self.strangers >= limits.strangers {
            let most = self.sources.iter().max_by_key(|(_, source)| source.strangers.len());
            most.map(|(source, _)| *source)
        } else {
            None
        };
        let oldest = from.and_then(|from| self.sources.get_mut(&from)?.strangers.pop_front());
        if let Some((_, cut)) = oldest {
            self.strangers -= 1;
            // It may be gone by itself.
            cut.send(()).unwrap_or_default();
        }
    }

    fn forget_stranger(&mut self, source: IpAddr, id: u64) {
        let Some(of) = self.sources.get_mut(&source) else { return };
        let before = of.strangers.len();
        of.strangers.retain(|(one, _)| *one != id);
        self.strangers -= before - of.strangers.len();
    }

    fn forget_source(&mut self, source: IpAddr) {
        if self.sources.get(&source).is_some_and(|of| of.strangers.is_empty() && of.known == 0) {
            self.sources.remove(&source);
        }
    }
}

/// One connection's place; dropping the last reference gives it back.
#[derive(Debug)]
pub struct Place {
    all: Arc<Connections>,
    source: IpAddr,
    id: u64,
    rank: Mutex<Rank>,
}

impl Place {
    /// Somebody has proved who they are. Where their source has its share already, the connection stays a stranger's.
    pub fn prove(&self, standing: Standing) {
        let mut rank = self.rank.lock().unwrap_or_else(PoisonError::into_inner);
        if *rank != Rank::Stranger {
            return;
        }
        let mut held = self.all.held();
        if standing == Standing::Known {
            let limits = &self.all.limits;
            let of_source = held.sources.get(&self.source).map_or(0, |source| source.known);
            if held.known >= limits.known || of_source >= limits.known_of_source {
                return;
            }
            held.known += 1;
            held.sources.entry(self.source).or_default().known += 1;
            *rank = Rank::Known;
        } else {
            *rank = Rank::Own;
        }
        held.forget_stranger(self.source, self.id);
        held.forget_source(self.source);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let rank = *self.rank.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.all.held();
        match rank {
            Rank::Stranger => held.forget_stranger(self.source, self.id),
            Rank::Known => {
                held.known = held.known.saturating_sub(1);
                if let Some(source) = held.sources.get_mut(&self.source) {
                    source.known = source.known.saturating_sub(1);
                }
            }
            Rank::Own => {}
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

/// How many requests are under way on a connection.
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

/// How many descriptors this process may have, by the soft limit; `otherwise` where the kernel does not say.
pub fn descriptors_max(otherwise: usize) -> usize {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { strangers: 6, strangers_of_source: 3, known: 4, known_of_source: 2 };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_oldest_stranger_of_a_source_gives_way() {
        let all = Connections::new(LIMITS);
        let mut taken: Vec<_> = (0..5).map(|_| all.take(ip("192.0.2.1"))).collect();
        let cut: Vec<bool> = taken.iter_mut().map(|(_, cut)| cut.try_recv().is_ok()).collect();
        assert_eq!(cut, [true, true, false, false, false]);
        drop(taken);
        assert!(all.held().sources.is_empty() && all.held().strangers == 0);
    }

    #[test]
    fn who_has_most_gives_way_to_others() {
        let all = Connections::new(LIMITS);
        let mut first: Vec<_> = (0..3).map(|_| all.take(ip("192.0.2.1"))).collect();
        let mut others: Vec<_> = (2..7).map(|n| all.take(ip(&format!("192.0.2.{n}")))).collect();
        let is_cut = |(_, cut): &mut (_, oneshot::Receiver<()>)| cut.try_recv().is_ok();
        assert_eq!(first.iter_mut().filter_map(|one| is_cut(one).then_some(())).count(), 2);
        assert!(!others.iter_mut().any(is_cut));
    }

    #[test]
    fn who_is_known_is_not_cut_and_has_a_share() {
        let all = Connections::new(LIMITS);
        let mut known: Vec<_> = (0..3).map(|_| all.take(ip("192.0.2.1"))).collect();
        known.iter().for_each(|(place, _)| place.prove(Standing::Known));
        let (own, mut own_cut) = all.take(ip("192.0.2.1"));
        own.prove(Standing::Own);
        let strangers: Vec<_> = (0..3).map(|_| all.take(ip("192.0.2.1"))).collect();
        let cut: Vec<bool> = known.iter_mut().map(|(_, cut)| cut.try_recv().is_ok()).collect();
        assert_eq!(cut, [false, false, true], "the third had no share and stayed a stranger");
        assert!(own_cut.try_recv().is_err());
        assert_eq!(all.held().known, 2);
        assert_eq!(all.held().strangers, 3);
        drop((known, strangers, own));
        assert!(all.held().sources.is_empty() && all.held().known == 0);
    }

    #[test]
    fn loopback_is_never_a_stranger() {
        let all = Connections::new(LIMITS);
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let taken: Vec<_> = (0..20).map(|_| all.take(ip(address))).collect();
            assert_eq!((taken.len(), all.held().strangers), (20, 0));
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
    fn a_process_knows_how_many_descriptors_it_may_have() {
        assert!(descriptors_max(0) > 0);
    }
}
