//! The node ports that are given out: one record in the store, changed by compare and swap, so that any number of API
//! servers can share it. Only the owner of a port, or the repair, takes it back.
//!
//! The record is a `RangeAllocation` under upstream's key, so that a cluster's state can be taken over and handed back.
//! Source: `pkg/registry/core/service/{portallocator,allocator/storage}`, KEP-3668.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::cache::CachedObject;
use crate::config::PortRange;
use crate::status::{Error, Result};
use crate::write::Writer;
use crate::write::door::{Record, Refusal};

/// The prefix of the record's key.
pub const PREFIX: &str = "/registry/ranges/";
const KEY: &str = "/registry/ranges/servicenodeports";
/// How often another server may be quicker.
const TRIES: usize = 64;
/// The lower band of the range is for ports that users choose; this is how small and large it may be, and which part.
const BAND_MIN: u16 = 16;
const BAND_MAX: u16 = 128;
const BAND_STEP: u16 = 32;

/// The ports of a range that are given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    range: PortRange,
    /// A bit for each port, the first one's the lowest of the first byte.
    bits: Vec<u8>,
}

impl Given {
    pub(super) fn none(range: PortRange) -> Self {
        Self { range, bits: vec![0; usize::from(range.last.saturating_sub(range.first)) / 8 + 1] }
    }

    pub(super) fn range(&self) -> PortRange {
        self.range
    }

    fn place(&self, port: u16) -> Option<(usize, u8)> {
        let offset = port.checked_sub(self.range.first).filter(|_| self.range.contains(port))?;
        Some((usize::from(offset / 8), 1 << (offset % 8)))
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.place(port).is_some_and(|(byte, bit)| self.bits.get(byte).is_some_and(|bits| bits & bit != 0))
    }

    pub(super) fn set(&mut self, port: u16) {
        if let Some((byte, bit)) = self.place(port)
            && let Some(bits) = self.bits.get_mut(byte)
        {
            *bits |= bit;
        }
    }

    pub(super) fn clear(&mut self, port: u16) {
        if let Some((byte, bit)) = self.place(port)
            && let Some(bits) = self.bits.get_mut(byte)
        {
            *bits &= !bit;
        }
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        (self.range.first..=self.range.last).filter(|port| self.has(*port))
    }

    /// A free port: by chance, above the band for chosen ones if possible.
    pub(super) fn free(&self, random: &base::Random) -> Option<u16> {
        let band = band(self.range);
        let start = |from: u16, to: u16| {
            let chance = random.below(u64::from(to) - u64::from(from) + 1);
            from.saturating_add(u16::try_from(chance).unwrap_or_default())
        };
        let middle = self.range.first + band;
        let upper = start(middle, self.range.last);
        let mut order = (upper..=self.range.last).chain(middle..upper).chain(self.range.first..middle);
        order.find(|port| !self.has(*port))
    }

    /// Reads a record; `None` if it is of another range or cannot be read.
    fn read(record: &Value, range: PortRange) -> Option<Self> {
        if record["range"].as_str()? != range.to_string() {
            return None;
        }
        // The data is one large number, its highest byte first.
        let mut bytes = STANDARD.decode(record["data"].as_str().unwrap_or_default()).ok()?;
        bytes.reverse();
        let mut given = Self::none(range);
        bytes.resize(given.bits.len(), 0);
        given.bits = bytes;
        Some(given)
    }

    fn record(&self) -> Record {
        let bytes: Vec<u8> = self.bits.iter().rev().copied().skip_while(|byte| *byte == 0).collect();
        let data = STANDARD.encode(bytes);
        let range = self.range.to_string();
        let object = json!({"metadata": {}, "apiVersion": "v1", "kind": "RangeAllocation", "range": range, "data": data});
        Record { key: KEY, object }
    }
}

/// How many ports of a range are for users to choose, the first ones. Source: `calculateRangeOffset`.
fn band(range: PortRange) -> u16 {
    let beyond_first = range.last.saturating_sub(range.first);
    if beyond_first < BAND_MIN {
        return 0;
    }
    // The first one counts, too; all ports there are would be one too many for the number.
    (beyond_first.saturating_add(1) / BAND_STEP).clamp(BAND_MIN, BAND_MAX)
}

/// The way to the record.
#[derive(Debug)]
pub struct NodePorts {
    range: PortRange,
    /// Only one request of this server at a time changes the record: the others would only get in its way.
    newest: Mutex<Option<Arc<CachedObject>>>,
}

impl NodePorts {
    /// Ports of `range`.
    pub fn new(range: PortRange) -> Self {
        Self { range, newest: Mutex::default() }
    }

    /// The ports that can be given out.
    pub fn range(&self) -> PortRange {
        self.range
    }

    /// What is given out, as far as the cache knows.
    pub(super) fn given(&self, writer: &Writer) -> Given {
        let record = writer.cache.resource(PREFIX).get(KEY);
        record
            .and_then(|record| Given::read(&record.value(), self.range))
            .unwrap_or_else(|| super::in_use(writer))
    }

    /// Changes what is given out. `change` is called again when another server wrote in between; what it answers
    /// counts only if the record could be written.
    ///
    /// # Errors
    /// What `change` refuses; 409 if others were always quicker; those of the store.
    pub(super) async fn change<T>(
        &self,
        writer: &Writer,
        mut change: impl FnMut(&mut Given) -> Result<T>,
    ) -> Result<T> {
        let mut newest = self.newest.lock().await;
        let cached = writer.cache.resource(PREFIX).get(KEY);
        let is_newer = |one: &CachedObject| newest.as_ref().is_none_or(|known| known.revision < one.revision);
        if cached.as_deref().is_some_and(is_newer) {
            *newest = cached;
        }
        for _ in 0..TRIES {
            let current = newest.clone();
            let read = current.as_ref().and_then(|record| Given::read(&record.value(), self.range));
            let mut given = match &read {
                Some(given) => given.clone(),
                None => {
                    // There is no record yet, or it is of another range: what Services have counts.
                    writer.cache.fresh().await?;
                    super::in_use(writer)
                }
            };
            let answer = change(&mut given)?;
            if read.as_ref() == Some(&given) {
                return Ok(answer);
            }
            match writer.door.record(&given.record(), current.as_ref().map(|record| record.revision)).await {
                Ok(written) => {
                    *newest = Some(written);
                    return Ok(answer);
                }
                Err(Refusal::Conflict(other)) => *newest = other,
                Err(Refusal::Failed(error)) => return Err(error),
            }
        }
        Err(Error::too_many_requests("the node ports are given out too quickly, please try again later", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: PortRange = PortRange { first: 30000, last: 32767 };

    fn round_trip(given: &Given) -> Given {
        Given::read(&given.record().object, given.range).unwrap()
    }

    #[test]
    fn the_record_is_one_large_number_as_upstreams() {
        let mut given = Given::none(RANGE);
        assert_eq!(given.record().object["data"], "");
        given.set(30000);
        given.set(30009);
        assert_eq!(given.record().object["data"], STANDARD.encode([0b10, 0b1]));
        assert_eq!(round_trip(&given), given);
        assert_eq!(given.ports().collect::<Vec<_>>(), [30000, 30009]);
        given.clear(30000);
        given.set(32767);
        assert_eq!(round_trip(&given).ports().collect::<Vec<_>>(), [30009, 32767]);
    }

    #[test]
    fn a_record_of_another_range_does_not_count() {
        let record = Given::none(RANGE).record();
        assert_eq!(Given::read(&record.object, PortRange { first: 30000, last: 31000 }), None);
    }

    #[test]
    fn the_band_is_upstreams_part_of_the_range() {
        for (ports, expect) in [
            (10, 0),
            (16, 0),
            (17, 16),
            (128, 16),
            (544, 17),
            (1024, 32),
            (2048, 64),
            (2768, 86),
            (4096, 128),
            (30000, 128),
        ] {
            assert_eq!(band(PortRange { first: 30000, last: 30000 + (ports - 1) }), expect, "{ports}");
        }
        assert_eq!(band(PortRange { first: 0, last: u16::MAX }), 128);
    }

    #[test]
    fn ports_are_found_to_the_last_and_the_band_for_chosen_ones_at_the_end() {
        let random = base::Random::seeded(5);
        let mut given = Given::none(PortRange { first: 30000, last: 30099 });
        let mut found = Vec::new();
        while let Some(port) = given.free(&random) {
            given.set(port);
            found.push(port);
        }
        assert_eq!(found.len(), 100);
        assert!(found[..84].iter().all(|port| *port >= 30016));
        assert!(found[84..].iter().all(|port| *port < 30016));
    }

    #[test]
    fn a_port_outside_of_the_range_is_never_given_out() {
        let mut given = Given::none(PortRange { first: 30000, last: 30007 });
        given.set(30008);
        assert!(!given.has(30008) && !given.has(29999));
        assert_eq!(given.free(&base::Random::seeded(1)).map(|port| port >= 30000), Some(true));
    }
}
