//! The overlay on its way to disk, without what was replaced within it.

use std::collections::HashMap;
use std::sync::Arc;

use super::coalesced::Coalesced;
use super::overlay::Overlay;
use super::record::Record;
use crate::Revision;

/// How the overlay goes to disk.
pub(super) struct Thinned {
    /// What is written, in order.
    pub(super) records: Vec<Arc<Record>>,
    /// What memory has from then on.
    pub(super) coalesced: Arc<Coalesced>,
    /// History on disk is whole from here on; `None` if nothing was left out.
    pub(super) whole: Option<Revision>,
}

/// Leaves out what is replaced within the overlay, as long as there is room to remember it.
pub(super) fn thinned(overlay: &Overlay, coalesced: &Arc<Coalesced>) -> Thinned {
    if overlay.records.len() == overlay.latest.len() {
        return whole(overlay, coalesced);
    }
    let (mut records, mut begin, mut remembered) = (Vec::new(), None, Coalesced::clone(coalesced));
    let mut before: HashMap<&str, Revision> = HashMap::new();
    for record in overlay.records.values() {
        let oldest = *before.entry(&record.key).or_insert(record.before);
        let is_newest =
            overlay.latest.get(&record.key).is_none_or(|newest| newest.revision == record.revision);
        if !is_newest {
            remembered.keep(Arc::clone(record), false);
            continue;
        }
        if oldest == record.before {
            records.push(Arc::clone(record));
            continue;
        }
        remembered.keep(Arc::clone(record), true);
        begin = Some(record.revision);
        records.push(Arc::new(Record { before: oldest, ..Record::clone(record) }));
    }
    if remembered.is_overfull() {
        return whole(overlay, coalesced);
    }
    Thinned { records, coalesced: Arc::new(remembered), whole: begin }
}

/// Leaves out nothing.
pub(super) fn whole(overlay: &Overlay, coalesced: &Arc<Coalesced>) -> Thinned {
    let records = overlay.records.values().cloned().collect();
    Thinned { records, coalesced: Arc::clone(coalesced), whole: None }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::coalesced::RECORDS_MAX;
    use super::*;

    /// `key:revision<before`, `-` behind it for a removal.
    fn overlay(rows: &[&str]) -> Overlay {
        let mut overlay = Overlay::default();
        for row in rows {
            let (key, rest) = row.split_once(':').unwrap();
            let (revision, before) = rest.trim_end_matches('-').split_once('<').unwrap();
            let record = Record {
                revision: revision.parse().unwrap(),
                key: key.to_owned(),
                value: (!row.ends_with('-')).then(|| Bytes::from_static(b"v")),
                create_revision: 1,
                before: before.parse().unwrap(),
                expires_us: 0,
                cause: Bytes::new(),
            };
            overlay.push(Arc::new(record));
        }
        overlay
    }

    fn text<'a>(records: impl Iterator<Item = &'a Arc<Record>>) -> String {
        let one = |r: &Arc<Record>| {
            format!("{}:{}<{}{}", r.key, r.revision, r.before, if r.is_tombstone() { "-" } else { "" })
        };
        records.map(one).collect::<Vec<_>>().join(" ")
    }

    fn check(rows: &[&str], on_disk: &str, in_memory: &str, whole: Option<Revision>) {
        let thinned = thinned(&overlay(rows), &Arc::default());
        assert_eq!(text(thinned.records.iter()), on_disk, "on disk of {rows:?}");
        assert_eq!(text(thinned.coalesced.newer(0)), in_memory, "in memory of {rows:?}");
        assert_eq!(thinned.whole, whole, "{rows:?}");
    }

    #[test]
    fn of_each_key_the_newest_goes_to_disk_and_points_to_what_is_there() {
        check(&[], "", "", None);
        check(&["a:5<2", "b:6<0"], "a:5<2 b:6<0", "", None);
        check(&["a:5<2", "a:6<5", "a:7<6"], "a:7<2", "a:5<2 a:6<5 a:7<6", Some(7));
        check(&["a:5<2", "b:6<0", "a:7<5", "b:8<6-"], "a:7<2 b:8<0-", "a:5<2 b:6<0 a:7<5 b:8<6-", Some(8));
        check(&["a:5<2", "a:6<5", "b:7<3"], "a:6<2 b:7<3", "a:5<2 a:6<5", Some(6));
    }

    #[test]
    fn compaction_keeps_what_is_seen_at_its_revision() {
        let check = |to: Revision, expected: &str| {
            let rows = ["a:5<2", "a:6<5-", "b:7<0", "a:8<6", "b:9<7", "a:10<8"];
            let mut coalesced = Coalesced::clone(&thinned(&overlay(&rows), &Arc::default()).coalesced);
            coalesced.compact(to);
            assert_eq!(text(coalesced.newer(0)), expected, "compacted to {to}");
            let bytes: usize = coalesced.newer(0).map(|record| record.bytes()).sum();
            assert_eq!(coalesced.bytes, bytes);
        };
        check(4, "a:5<2 a:6<5- b:7<0 a:8<6 b:9<7 a:10<8");
        check(5, "a:5<2 a:6<5- b:7<0 a:8<6 b:9<7 a:10<8");
        check(6, "b:7<0 a:8<6 b:9<7 a:10<8");
        check(8, "b:7<0 a:8<6 b:9<7 a:10<8");
        check(9, "a:8<6 a:10<8");
        check(10, "");
    }

    #[test]
    fn what_memory_has_no_room_for_goes_to_disk() {
        let rows: Vec<String> = (1..=RECORDS_MAX + 1).map(|n| format!("a:{n}<{}", n - 1)).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let all = thinned(&overlay(&rows), &Arc::default());
        assert_eq!(
            (all.records.len(), all.coalesced.newer(0).next().is_none(), all.whole),
            (rows.len(), true, None)
        );
    }

    /// Whatever was written: each change is still there as it was, on disk or in memory, and what is on disk begins where
    /// the overlay did.
    #[test]
    fn nothing_of_an_overlay_gets_lost() {
        let mut random = 7_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for round in 0..200 {
            let (keys, first) = (1 + below(6), 100);
            // What the disk has of some keys already.
            let mut last: Vec<Revision> = (0..keys).map(|_| below(first)).collect();
            let rows: Vec<String> = (first..first + below(30))
                .map(|revision| {
                    let key = below(keys) as usize;
                    let before = std::mem::replace(&mut last[key], revision);
                    format!("k{key}:{revision}<{before}{}", if below(4) == 0 { "-" } else { "" })
                })
                .collect();
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            let overlay = overlay(&rows);
            let thinned = thinned(&overlay, &Arc::default());

            let on_disk = text(thinned.records.iter());
            let in_memory = text(thinned.coalesced.newer(0));
            let is_there = |row: &str| on_disk.split(' ').chain(in_memory.split(' ')).any(|one| one == row);
            assert!(rows.iter().all(|row| is_there(row)), "{round}: {rows:?}\n{on_disk}\n{in_memory}");
            assert!(thinned.records.is_sorted_by_key(|record| record.revision), "{round}: {on_disk}");
            let mut keys_on_disk: Vec<&str> = thinned.records.iter().map(|record| &*record.key).collect();
            keys_on_disk.sort_unstable();
            keys_on_disk.dedup();
            assert_eq!(keys_on_disk.len(), thinned.records.len(), "{round}: a key twice in {on_disk}");
            for record in &thinned.records {
                let mut of_key = overlay.records.values().filter(|one| one.key == record.key);
                let (oldest, newest) = (of_key.clone().next().unwrap(), of_key.next_back().unwrap());
                assert_eq!((record.before, record.revision), (oldest.before, newest.revision), "{round}");
            }
            let changed = thinned.records.iter().filter(|one| !rows.contains(&&*text(std::iter::once(*one))));
            assert_eq!(thinned.whole, changed.map(|one| one.revision).max(), "{round}: {rows:?}");
        }
    }
}
