//! The negative controls: every lie that a store can tell is caught, and the truth is not.

use std::sync::Arc;
use std::time::Duration;

use store::Store;
use store::embedded::{Embedded, Options};
use torture::check::{Breach, Guarantees, Rule};
use torture::mutants::{Liar, Lie};
use torture::workload::{self, Plan};
use torture::{Recorder, check};

/// A lie is told by chance; it gets this many to be told.
const SEEDS: std::ops::Range<u64> = 1..6;

fn breaches(lie: Lie, seed: u64) -> Vec<Breach> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = torture::folder().unwrap();
        let options = Options { relaxed_flush: Duration::from_millis(20), ..Options::default() };
        let inner = Arc::new(Embedded::open(dir.path(), options).unwrap());
        let store: Arc<dyn Store> = Arc::new(Liar::new(inner, lie));
        let timeout = Duration::from_secs(if lie == Lie::StuckWatch { 1 } else { 30 });
        let recorder = Recorder::in_memory();
        let start = store.revision();
        workload::run(&store, &Plan { timeout, ..Plan::new(seed) }, start, &recorder).await;
        store.close().await.unwrap();
        check(&recorder.history(), Guarantees::Store)
    })
}

fn check_caught(lie: Lie, rules: &[Rule]) {
    let mut seen = Vec::new();
    for seed in SEEDS {
        let found = breaches(lie, seed);
        if found.iter().any(|breach| rules.contains(&breach.rule)) {
            return;
        }
        seen.extend(found);
    }
    panic!("{lie:?} was not caught as {rules:?}: {seen:?}");
}

#[test]
fn the_truth_is_believed() {
    for seed in SEEDS {
        let found = breaches(Lie::None, seed);
        assert!(found.is_empty(), "seed {seed}: {}", found[0]);
    }
}

macro_rules! lies {
    ($($name:ident: $lie:ident => $($rule:ident)|+;)*) => {
        $(#[test]
        fn $name() {
            check_caught(Lie::$lie, &[$(Rule::$rule),+]);
        })*
    };
}

lies! {
    a_lost_update_is_caught: LostUpdate => Linearizable;
    a_create_that_replaces_is_caught: CreateOverExisting => Linearizable;
    a_write_that_was_not_made_is_caught: NotWritten => OneChangePerRevision | WatchesAreWhole;
    a_refused_write_that_was_made_is_caught: WrittenAfterAll => NothingInvented;
    a_revision_that_is_handed_out_twice_is_caught: RevisionTwice => OneChangePerRevision;
    a_deleted_key_that_comes_back_is_caught: DeletedKeyComesBack => OneChangePerRevision;
    a_refusal_that_shows_the_past_is_caught: RefusalShowsThePast => Linearizable;
    a_stale_read_is_caught: StaleGet => Linearizable;
    a_read_that_finds_nothing_is_caught: BlindGet => Linearizable;
    a_list_that_misses_a_key_is_caught: ListMissesKey => ListsAreWhole;
    a_list_with_a_deleted_key_is_caught: ListHasDeletedKey => ListsAreWhole;
    a_list_that_ignores_its_revision_is_caught: ListIgnoresItsRevision => ListsAreWhole;
    a_list_with_another_namespace_in_it_is_caught: WrongRange => ListsAreWhole;
    a_list_whose_revision_is_ahead_is_caught: ListRevisionAhead => ListsAreWhole | ListsAreFresh;
    a_stale_list_is_caught: StaleList => ListsAreFresh;
    a_stale_newest_revision_is_caught: StaleNewest => ListsAreFresh;
    a_wrong_count_of_what_remains_is_caught: WrongRemaining => ListsAreWhole;
    a_forgotten_creation_is_caught: CreationForgotten => ListsAreWhole;
    a_dropped_event_is_caught: DroppedEvent => WatchesAreWhole;
    a_doubled_event_is_caught: DoubledEvent => WatchesAreWhole;
    reordered_events_are_caught: ReorderedEvents => WatchesAreWhole;
    a_watch_that_starts_one_too_late_is_caught: WatchStartsLate => WatchesAreWhole;
    a_watch_that_starts_one_too_early_is_caught: WatchStartsEarly => WatchesAreWhole;
    an_event_without_what_was_before_is_caught: PreviousMissing => EventsTellThePast;
    an_event_with_a_wrong_past_is_caught: PreviousWrong => EventsTellThePast | OneChangePerRevision;
    progress_ahead_of_events_is_caught: ProgressAhead => WatchesAreWhole;
    an_event_with_another_value_is_caught: WrongValue => OneChangePerRevision;
    a_deletion_that_looks_like_an_update_is_caught: DeletionAsUpdate => OneChangePerRevision | WatchesAreWhole;
    a_watch_that_skips_what_was_compacted_is_caught: SkipsCompacted => WatchesAreWhole;
    a_watch_that_goes_to_sleep_is_caught: StuckWatch => Progress;
    compaction_that_removes_a_live_key_is_caught: CompactionEatsLiveKey => ListsAreWhole | Linearizable;
    compaction_that_forgets_too_much_is_caught: CompactsTooMuch => HistoryIsKept;
    a_cache_that_waits_for_nobody_is_caught: CachedReads => Linearizable | ListsAreFresh;
}
