//! A route that is served: its backends with their endpoints, and whose turn it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::endpoint::Endpoint;
use crate::table::{Action, Backend, Route, Weighted};

/// See the module.
pub(super) struct Live {
    pub(super) route: Arc<Route>,
    backends: Vec<Pool>,
    mirrors: Vec<Pool>,
    turns: Turns,
}

/// The endpoints of a backend.
pub(super) struct Pool {
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    turn: AtomicUsize,
    asked: AtomicU64,
}

impl Pool {
    fn of(endpoints: Vec<Arc<Endpoint>>) -> Self {
        Self { endpoints, turn: AtomicUsize::new(0), asked: AtomicU64::new(0) }
    }

    /// Whether it is its turn: so many times of so many.
    pub(super) fn is_turn(&self, numerator: u64, denominator: u64) -> bool {
        let count = self.asked.fetch_add(1, Ordering::Relaxed) % denominator.max(1);
        (count * numerator) % denominator.max(1) < numerator
    }

    /// One after the other; those that could not be connected to a moment ago come last.
    pub(super) fn in_turn(&self) -> Vec<Arc<Endpoint>> {
        let count = self.endpoints.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count.max(1);
        let turn = (0..count).filter_map(|offset| self.endpoints.get((first + offset) % count));
        let (shunned, well): (Vec<_>, Vec<_>) = turn.cloned().partition(|endpoint| endpoint.is_shunned());
        well.into_iter().chain(shunned).collect()
    }
}

impl Live {
    pub(super) fn of(route: &Arc<Route>, mut endpoints: impl FnMut(&Backend) -> Vec<Arc<Endpoint>>) -> Self {
        let (mut backends, mut mirrors, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        if let Action::Forward(forward) = &route.action {
            weights.extend(forward.backends.iter().map(|one| one.weight));
            backends.extend(forward.backends.iter().map(|one| Pool::of(endpoints(&one.backend))));
            mirrors.extend(forward.mirrors.iter().map(|one| Pool::of(endpoints(&one.backend))));
        }
        Self { route: Arc::clone(route), backends, mirrors, turns: Turns::of(&weights) }
    }

    /// The backend whose turn it is, of those that requests are led on to.
    pub(super) fn choose<'a>(&'a self, all: &'a [Weighted]) -> Option<(&'a Weighted, &'a Pool)> {
        let index = self.turns.next();
        all.get(index).zip(self.backends.get(index))
    }

    /// The mirrors, in their order.
    pub(super) fn mirrors(&self) -> &[Pool] {
        &self.mirrors
    }
}

/// Whose turn it is, in proportion to weights: exactly so after as many turns as there are weights in all, and nearly so
/// at any time.
struct Turns {
    /// Of each backend, with all before it.
    bounds: Vec<u64>,
    stride: u64,
    count: AtomicU64,
}

impl Turns {
    fn of(weights: &[u32]) -> Self {
        let divisor = weights.iter().fold(0, |divisor, weight| common(divisor, u64::from(*weight))).max(1);
        let sums = weights.iter().scan(0, |sum, weight| {
            *sum += u64::from(*weight) / divisor;
            Some(*sum)
        });
        let bounds: Vec<u64> = sums.collect();
        Self { stride: stride(bounds.last().copied().unwrap_or(1)), bounds, count: AtomicU64::new(0) }
    }

    fn next(&self) -> usize {
        let total = self.bounds.last().copied().unwrap_or(1).max(1);
        let turn = self.count.fetch_add(1, Ordering::Relaxed) % total;
        // Weights are at most a million each, and a rule has few backends.
        let place = turn * self.stride % total;
        self.bounds.partition_point(|bound| *bound <= place)
    }
}

/// The greatest divisor of both.
fn common(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common(other, one % other) }
}

/// A step that leads to all of so many places, and scatters them: the nearest to the golden section.
fn stride(total: u64) -> u64 {
    let section = total.saturating_mul(618) / 1000;
    (section.max(1)..=total.max(1)).find(|step| common(*step, total.max(1)) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(weights: &[u32], turns: u64) -> Vec<u64> {
        let chosen = Turns::of(weights);
        let mut counts = vec![0; weights.len()];
        for _ in 0..turns {
            counts[chosen.next()] += 1;
        }
        counts
    }

    #[test]
    fn requests_are_given_out_by_weight() {
        assert_eq!(counts(&[1], 5), [5]);
        assert_eq!(counts(&[90, 10], 100), [90, 10]);
        assert_eq!(counts(&[70, 30, 1], 101), [70, 30, 1]);
        assert_eq!(counts(&[1_000_000, 1_000_000], 10), [5, 5]);
        assert_eq!(counts(&[1, 1, 1], 9), [3, 3, 3]);
        let many = counts(&[999_999, 1_000_000, 3], 10_000);
        assert!((4_990..=5_010).contains(&many[0]) && (4_990..=5_010).contains(&many[1]), "{many:?}");
    }

    #[test]
    fn no_backend_waits_for_long() {
        let chosen = Turns::of(&[90, 10]);
        let turns: Vec<usize> = (0..100).map(|_| chosen.next()).collect();
        let longest = turns.split(|index| *index == 1).map(<[usize]>::len).max();
        assert!(longest <= Some(18), "{turns:?}");
    }
}
