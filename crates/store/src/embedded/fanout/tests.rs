use super::*;

/// Changes of one key with these revisions.
fn changes(revisions: std::ops::RangeInclusive<Revision>) -> Vec<Event> {
    let change = |revision| Event {
        revision,
        key: "/registry/a".to_owned(),
        entry: None,
        previous: None,
        cause: bytes::Bytes::new(),
    };
    revisions.map(change).collect()
}

/// A reader that may be late by so many batches.
struct Reader {
    id: u64,
    batches: mpsc::Receiver<Delivery>,
    fell_behind: oneshot::Receiver<Revision>,
}

impl Reader {
    fn new(all: &mut Subscribers, late_max: usize) -> Self {
        let (sender, batches) = mpsc::channel(late_max);
        let (id, fell_behind) = all.add(&sender);
        Self { id, batches, fell_behind }
    }

    /// The revisions of what has come, and how far each batch goes.
    fn heard(&mut self) -> Vec<(Vec<Revision>, Revision)> {
        let of = |batch: Delivery| {
            let batch = batch.unwrap();
            (batch.events.iter().map(|event| event.revision).collect(), batch.upto)
        };
        std::iter::from_fn(|| self.batches.try_recv().ok()).map(of).collect()
    }
}

#[test]
fn every_live_reader_hears_the_same_and_how_far_it_goes() {
    let mut all = Subscribers::default();
    let mut readers = [8, 2].map(|late_max| Reader::new(&mut all, late_max));
    all.send(&changes(5..=7));
    all.send(&[]);
    all.send(&changes(8..=8));
    for reader in &mut readers {
        assert_eq!(reader.heard(), [(vec![5, 6, 7], 7), (vec![8], 8)]);
        assert!(reader.fell_behind.try_recv().is_err());
    }
    let mut late = Reader::new(&mut all, 1);
    all.send(&changes(9..=9));
    assert_eq!(late.heard(), [(vec![9], 9)], "from where it came");
}

#[test]
fn a_reader_that_is_too_late_is_told_where_it_was_and_holds_up_nobody() {
    let mut all = Subscribers::default();
    let (mut slow, mut quick) = (Reader::new(&mut all, 2), Reader::new(&mut all, BATCHES_MAX));
    for first in [10, 20, 30, 40] {
        all.send(&changes(first..=first + 9));
    }
    assert_eq!(slow.fell_behind.try_recv(), Ok(29), "what came before the batch that it could not take");
    assert_eq!(slow.heard().len(), 2);
    all.send(&changes(50..=50));
    assert!(slow.heard().is_empty(), "it reads the log until it has caught up");
    assert_eq!(quick.heard().len(), 5);
    let (sender, batches) = mpsc::channel(1);
    let (_, fell_behind) = all.add(&sender);
    let mut again = Reader { id: 0, batches, fell_behind };
    all.send(&changes(51..=51));
    assert_eq!(again.heard(), [(vec![51], 51)]);
}

/// As many as a live reader may be late by, and not one more.
#[test]
fn what_waits_for_a_reader_is_bounded() {
    let mut all = Subscribers::default();
    let mut reader = Reader::new(&mut all, BATCHES_MAX);
    let count = BATCHES_MAX as u64;
    (1..=count).for_each(|revision| all.send(&changes(revision..=revision)));
    assert!(reader.fell_behind.try_recv().is_err());
    all.send(&changes(count + 1..=count + 1));
    assert_eq!(reader.fell_behind.try_recv(), Ok(count));
    assert!(all.live.is_empty());
    assert_eq!(reader.heard().len(), BATCHES_MAX);
}

#[test]
fn readers_that_leave_are_forgotten_and_no_others() {
    let mut all = Subscribers::default();
    let (gone, mut left, removed) =
        (Reader::new(&mut all, 4), Reader::new(&mut all, 4), Reader::new(&mut all, 4));
    assert_ne!(left.id, removed.id);
    all.remove(removed.id);
    all.remove(removed.id);
    all.remove(99);
    drop(gone);
    all.send(&changes(1..=1));
    assert_eq!((all.live.len(), left.heard().len()), (1, 1));
}

#[test]
fn a_store_that_closes_ends_all_watches_those_to_come_included() {
    let mut all = Subscribers::default();
    let mut before = Reader::new(&mut all, 4);
    all.send(&changes(1..=1));
    all.close();
    let mut after = Reader::new(&mut all, 4);
    all.send(&changes(2..=2));
    assert_eq!(before.heard(), [(vec![1], 1)], "what was said is heard");
    for reader in [&mut before, &mut after] {
        assert_eq!(reader.batches.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
        assert_eq!(reader.fell_behind.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
