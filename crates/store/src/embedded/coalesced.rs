//! Coalesced writes, which the disk was spared: heartbeats that were replaced before they went there.
//!
//! Of a key's relaxed records only the newest is written out; a Lease that is renewed every two seconds would otherwise
//! be most of what an idle cluster writes. Whoever reads history or watches does not notice: what was left out is kept
//! here until compaction passes it, and so is what replaced it, since on disk that points past what was left out.
//! After a restart it is gone, and the disk says that history is whole only above it ([`Thinned::whole`](super::thinning::Thinned::whole)).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::record::Record;
use crate::Revision;

/// Records that are kept; what would be more is written to disk.
pub(super) const RECORDS_MAX: usize = 16_384;
/// Bytes that are kept; what would be more is written to disk.
const BYTES_MAX: usize = 16 << 20;

/// The records that stand for what the disk does not have, or has otherwise.
#[derive(Clone, Debug, Default)]
pub(super) struct Coalesced {
    records: BTreeMap<Revision, Kept>,
    pub(super) bytes: usize,
}

#[derive(Clone, Debug)]
struct Kept {
    record: Arc<Record>,
    /// The disk has it too, but for what was before it.
    is_on_disk: bool,
}

impl Coalesced {
    /// `true` if there is more than there may be.
    pub(super) fn is_overfull(&self) -> bool {
        self.records.len() > RECORDS_MAX || self.bytes > BYTES_MAX
    }

    pub(super) fn record(&self, revision: Revision) -> Option<&Arc<Record>> {
        self.records.get(&revision).map(|kept| &kept.record)
    }

    /// What is newer than `after`, in order.
    pub(super) fn newer(&self, after: Revision) -> impl Iterator<Item = &Arc<Record>> {
        self.records.range(after + 1..).map(|(_, kept)| &kept.record)
    }

    /// Forgets what nobody asks for who reads at `to` or later.
    pub(super) fn compact(&mut self, to: Revision) {
        let passed: Vec<Kept> = self.records.range(..=to).map(|(_, kept)| kept.clone()).collect();
        for Kept { record, is_on_disk } in passed {
            self.forget(record.before);
            // What is nowhere else stays until what replaced it is passed too.
            if is_on_disk || record.is_tombstone() {
                self.forget(record.revision);
            }
        }
    }

    /// Keeps one more, of which the disk has at least that there is something.
    pub(super) fn keep(&mut self, record: Arc<Record>, is_on_disk: bool) {
        self.bytes += record.bytes();
        self.records.insert(record.revision, Kept { record, is_on_disk });
    }

    fn forget(&mut self, revision: Revision) {
        if let Some(kept) = self.records.remove(&revision) {
            self.bytes -= kept.record.bytes();
        }
    }
}
