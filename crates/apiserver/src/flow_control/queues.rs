//! Fair queues: who runs now, who waits, who is sent away. Pure.
//!
//! Each priority level has seats. While some are free, a request takes them and nothing else happens. When none is,
//! a flow is dealt a hand of the level's queues (shuffle sharding) and waits in the shortest of them; of the queues
//! with someone in them, the one that has had the least so far goes first (start-time fair queueing). A level may use
//! seats that others have lent and do not use.
//! Source: KEP-1040, `k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing`.

use std::collections::VecDeque;

/// The number of a request.
pub type Id = u64;

/// The treatment of a request that has no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It is sent away.
    Reject,
    /// It waits in one of the queues.
    Queue {
        /// How many queues there are.
        queues: usize,
        /// How many of them a flow may use.
        hand: usize,
        /// How many requests fit into one.
        length_max: usize,
    },
}

/// The settings of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its own seats.
    pub seats: u32,
    /// The number of them that others may use while they are idle.
    pub lendable: u32,
    /// The number of others' that it may use.
    pub borrowing_max: u32,
    /// The treatment when no seat is free.
    pub full: Full,
}

/// A request that waited and runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// At which level.
    pub level: usize,
    /// The id.
    pub id: Id,
    /// On how many seats.
    pub width: u32,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has its seats.
    Run,
    /// It waits; its id will be named by [`Queues::finish`] or [`Queues::abandon`].
    Wait,
    /// There is no room.
    Reject(&'static str),
}

#[derive(Clone, Debug, Default)]
struct Queue {
    waiting: VecDeque<(Id, u32)>,
    /// When its next request would start, in the level's virtual time.
    next_start: u64,
}

#[derive(Clone, Debug)]
struct Level {
    settings: Settings,
    used: u32,
    waiting: usize,
    queues: Vec<Queue>,
    /// The start of the request that was let in last.
    virtual_time: u64,
}

/// All levels.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    levels: Vec<Level>,
}

/// Spreads a hash over the queues: `hand` different ones. Source: `shufflesharding.Dealer`.
fn deal(mut hash: u64, queues: usize, hand: usize) -> Vec<usize> {
    let mut dealt: Vec<usize> = Vec::with_capacity(hand);
    for left in (0..queues).rev().take(hand.min(queues)) {
        let count = left as u64 + 1;
        let mut card = usize::try_from(hash % count).unwrap_or_default();
        hash /= count;
        let mut sorted = dealt.clone();
        sorted.sort_unstable();
        for earlier in sorted {
            if earlier <= card {
                card += 1;
            }
        }
        dealt.push(card);
    }
    dealt
}

impl Queues {
    /// Levels by number, all idle.
    pub fn new(settings: &[Settings]) -> Self {
        let level = |settings: &Settings| Level {
            settings: *settings,
            used: 0,
            waiting: 0,
            queues: match settings.full {
                Full::Reject => Vec::new(),
                Full::Queue { queues, .. } => vec![Queue::default(); queues.max(1)],
            },
            virtual_time: 0,
        };
        Self { levels: settings.iter().map(level).collect() }
    }

    /// Seats in use at a level.
    pub fn used(&self, level: usize) -> u32 {
        self.levels.get(level).map_or(0, |level| level.used)
    }

    /// Requests that wait at a level.
    pub fn waiting(&self, level: usize) -> usize {
        self.levels.get(level).map_or(0, |level| level.waiting)
    }

    /// A request of the flow with this hash asks for `width` seats.
    pub fn arrive(&mut self, level: usize, flow: u64, width: u32, id: Id) -> Verdict {
        let Some(one) = self.levels.get(level) else { return Verdict::Run };
        if one.waiting == 0 && self.has_seats(level, width) {
            if let Some(one) = self.levels.get_mut(level) {
                one.used += width;
            }
            return Verdict::Run;
        }
        self.levels.get_mut(level).map_or(Verdict::Run, |one| one.enqueue(flow, width, id))
    }

    /// Whether a level can give out `width` seats; a request that is wider than all of them runs alone.
    fn has_seats(&self, level: usize, width: u32) -> bool {
        let Some(one) = self.levels.get(level) else { return true };
        let after = one.used + width;
        if after <= one.settings.seats || (one.used == 0 && one.settings.seats > 0) {
            return true;
        }
        after <= one.settings.seats + one.settings.borrowing_max
            && after - one.settings.seats <= self.lent(level)
    }

    /// How many of the others' seats are lent and neither used by them nor by anybody else.
    fn lent(&self, level: usize) -> u32 {
        let others = self.levels.iter().enumerate().filter(|(number, _)| *number != level);
        let mut idle = 0;
        let mut borrowed = 0;
        for (_, other) in others {
            idle += other.settings.seats.saturating_sub(other.used).min(other.settings.lendable);
            borrowed += other.used.saturating_sub(other.settings.seats);
        }
        idle.saturating_sub(borrowed)
    }

    /// A request has ended: gives its seats back and names those who run now.
    pub fn finish(&mut self, level: usize, width: u32) -> Vec<Started> {
        if let Some(one) = self.levels.get_mut(level) {
            one.used = one.used.saturating_sub(width);
        }
        self.dispatch(level)
    }

    /// Lets in who waits: at `first`, then wherever the seats may be borrowed.
    fn dispatch(&mut self, first: usize) -> Vec<Started> {
        let mut started = Vec::new();
        if self.levels.iter().all(|level| level.waiting == 0) {
            return started;
        }
        let others = (0..self.levels.len()).filter(|level| *level != first);
        for level in std::iter::once(first).chain(others) {
            while let Some(queue) = self.levels.get(level).and_then(Level::next) {
                let width = self.levels.get(level).and_then(|one| one.width(queue)).unwrap_or(1);
                if !self.has_seats(level, width) {
                    break;
                }
                let Some(id) = self.levels.get_mut(level).and_then(|one| one.start(queue)) else { break };
                started.push(Started { level, id, width });
            }
        }
        started
    }

    /// A request does not wait any longer; false if it had begun to run.
    pub fn abandon(&mut self, level: usize, id: Id) -> bool {
        let Some(one) = self.levels.get_mut(level) else { return false };
        for queue in &mut one.queues {
            if let Some(at) = queue.waiting.iter().position(|(waiting, _)| *waiting == id) {
                queue.waiting.remove(at);
                one.waiting -= 1;
                return true;
            }
        }
        false
    }
}

impl Level {
    fn enqueue(&mut self, flow: u64, width: u32, id: Id) -> Verdict {
        let Full::Queue { queues, hand, length_max } = self.settings.full else {
            return Verdict::Reject("concurrency-limit");
        };
        let hand = deal(flow, queues.max(1), hand.max(1));
        let length = |queue: &usize| self.queues.get(*queue).map_or(usize::MAX, |queue| queue.waiting.len());
        let Some(chosen) = hand.into_iter().min_by_key(length) else {
            return Verdict::Reject("queue-full");
        };
        let virtual_time = self.virtual_time;
        match self.queues.get_mut(chosen) {
            Some(queue) if queue.waiting.len() < length_max => {
                if queue.waiting.is_empty() {
                    // An idle queue has no claim to what it did not use.
                    queue.next_start = queue.next_start.max(virtual_time);
                }
                queue.waiting.push_back((id, width));
                self.waiting += 1;
                Verdict::Wait
            }
            _ => Verdict::Reject("queue-full"),
        }
    }

    /// The queue whose turn it is.
    fn next(&self) -> Option<usize> {
        let waiting = self.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        waiting.min_by_key(|(_, queue)| queue.next_start).map(|(number, _)| number)
    }

    fn width(&self, queue: usize) -> Option<u32> {
        self.queues.get(queue)?.waiting.front().map(|(_, width)| *width)
    }

    fn start(&mut self, queue: usize) -> Option<Id> {
        let queue = self.queues.get_mut(queue)?;
        let (id, width) = queue.waiting.pop_front()?;
        self.virtual_time = self.virtual_time.max(queue.next_start);
        queue.next_start += u64::from(width);
        self.waiting -= 1;
        self.used += width;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(seats: u32, lendable: u32, length_max: usize) -> Settings {
        let full = Full::Queue { queues: 8, hand: 3, length_max };
        Settings { seats, lendable, borrowing_max: u32::MAX / 4, full }
    }

    /// The flows let in, in order, when seats become free one after the other.
    fn drain(queues: &mut Queues, flows: &[u64]) -> String {
        let mut order = String::new();
        loop {
            let started = queues.finish(0, 1);
            if started.is_empty() {
                return order;
            }
            for one in started {
                let flow = flows[usize::try_from(one.id).unwrap()];
                order.push(char::from(b'a' + u8::try_from(flow % 26).unwrap()));
            }
        }
    }

    #[test]
    fn a_hand_has_different_queues() {
        for hash in [0, 1, 7, 1 << 40, u64::MAX] {
            let mut hand = deal(hash, 8, 5);
            assert_eq!(hand.len(), 5);
            hand.sort_unstable();
            hand.dedup();
            assert_eq!(hand.len(), 5, "{hash}");
            assert!(hand.iter().all(|queue| *queue < 8));
        }
    }

    #[test]
    fn seats_are_taken_then_queues_then_nothing() {
        let mut queues = Queues::new(&[level(1, 0, 1)]);
        let verdicts: Vec<Verdict> = (0..5).map(|id| queues.arrive(0, 0, 1, id)).collect();
        let full = Verdict::Reject("queue-full");
        assert_eq!(verdicts, [Verdict::Run, Verdict::Wait, Verdict::Wait, Verdict::Wait, full]);
        assert_eq!((queues.used(0), queues.waiting(0)), (1, 3));
        assert!(queues.abandon(0, 2) && !queues.abandon(0, 0));
        assert_eq!(queues.finish(0, 1).len(), 1);
        let mut none = Queues::new(&[Settings { full: Full::Reject, ..level(1, 0, 1) }]);
        assert_eq!(none.arrive(0, 0, 1, 0), Verdict::Run);
        assert_eq!(none.arrive(0, 0, 1, 1), Verdict::Reject("concurrency-limit"));
    }

    #[test]
    fn a_loud_flow_does_not_push_a_quiet_one_aside() {
        let mut queues = Queues::new(&[Settings {
            full: Full::Queue { queues: 8, hand: 1, length_max: 100 },
            ..level(1, 0, 0)
        }]);
        queues.arrive(0, 0, 1, 0);
        let mut flows = vec![0];
        for (flow, count) in [(0_u64, 6), (1, 2)] {
            for _ in 0..count {
                assert_eq!(queues.arrive(0, flow, 1, flows.len() as u64), Verdict::Wait);
                flows.push(flow);
            }
        }
        assert_eq!(drain(&mut queues, &flows), "ababaaaa");
    }

    #[test]
    fn idle_seats_are_lent_and_come_back() {
        let mut queues = Queues::new(&[level(2, 1, 10), level(2, 2, 10)]);
        let run = |queues: &mut Queues, level, id| queues.arrive(level, 0, 1, id);
        for id in 0..4 {
            assert_eq!(run(&mut queues, 0, id), Verdict::Run, "two of its own and two lent");
        }
        assert_eq!(run(&mut queues, 0, 4), Verdict::Wait);
        assert_eq!(run(&mut queues, 1, 5), Verdict::Run, "its own seats are its own");
        assert!(queues.finish(0, 1).is_empty(), "what was borrowed is not lent on");
        assert_eq!(queues.finish(0, 1), [Started { level: 0, id: 4, width: 1 }]);
    }

    #[test]
    fn a_wide_request_waits_for_as_many_seats() {
        let mut queues = Queues::new(&[level(4, 0, 10)]);
        assert_eq!(queues.arrive(0, 0, 3, 0), Verdict::Run);
        assert_eq!(queues.arrive(0, 0, 2, 1), Verdict::Wait);
        assert_eq!(queues.arrive(0, 0, 1, 2), Verdict::Wait, "nobody overtakes");
        let started: Vec<Id> = queues.finish(0, 3).iter().map(|one| one.id).collect();
        assert_eq!(started, [1, 2]);
        assert_eq!(Queues::new(&[level(4, 0, 10)]).arrive(0, 0, 9, 0), Verdict::Run, "it runs alone");
    }
}
