//! One revision as it lies in the log.
//!
//! Layout (little endian): flags, create revision, revision before, expiry, key length, cause length, then key,
//! cause and value. It must not change without a new version in `format`.

use bytes::Bytes;

use crate::{Entry, Revision};

const TOMBSTONE: u8 = 1;
const HEAD_BYTES: usize = 1 + 8 + 8 + 8 + 2 + 4;

/// What one revision did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) revision: Revision,
    pub(super) key: String,
    /// `None`: the key was removed.
    pub(super) value: Option<Bytes>,
    /// When the key came to be.
    pub(super) create_revision: Revision,
    /// The revision of the key's record before this one, also if that was a removal; 0 if there is none.
    pub(super) before: Revision,
    /// When the value expires, in microseconds since the epoch; 0 for never.
    pub(super) expires_us: i64,
    pub(super) cause: Bytes,
}

/// A record before its cause and value are copied.
pub(super) struct Head<'a> {
    pub(super) is_tombstone: bool,
    pub(super) create_revision: Revision,
    pub(super) before: Revision,
    pub(super) expires_us: i64,
    pub(super) key: &'a str,
    cause: &'a [u8],
    value: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads the fixed part and the key; `None` if it is not what [`Record::encode`] writes.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let (create, rest) = rest.split_first_chunk::<8>()?;
        let (before, rest) = rest.split_first_chunk::<8>()?;
        let (expires, rest) = rest.split_first_chunk::<8>()?;
        let (key_len, rest) = rest.split_first_chunk::<2>()?;
        let (cause_len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
        let (cause, value) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*cause_len)).ok()?)?;
        Some(Self {
            is_tombstone: flags & TOMBSTONE != 0,
            create_revision: u64::from_le_bytes(*create),
            before: u64::from_le_bytes(*before),
            expires_us: i64::from_le_bytes(*expires),
            key: std::str::from_utf8(key).ok()?,
            cause,
            value,
        })
    }

    /// Copies the whole record out of the map.
    pub(super) fn to_record(&self, revision: Revision) -> Record {
        Record {
            revision,
            key: self.key.to_owned(),
            value: (!self.is_tombstone).then(|| Bytes::copy_from_slice(self.value)),
            create_revision: self.create_revision,
            before: self.before,
            expires_us: self.expires_us,
            cause: Bytes::copy_from_slice(self.cause),
        }
    }
}

impl Record {
    /// The log's bytes for this record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let value = self.value.as_deref().unwrap_or_default();
        let key_len = u16::try_from(self.key.len()).unwrap_or(u16::MAX);
        let cause_len = u32::try_from(self.cause.len()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(HEAD_BYTES + self.key.len() + self.cause.len() + value.len());
        out.push(if self.value.is_none() { TOMBSTONE } else { 0 });
        out.extend_from_slice(&self.create_revision.to_le_bytes());
        out.extend_from_slice(&self.before.to_le_bytes());
        out.extend_from_slice(&self.expires_us.to_le_bytes());
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&cause_len.to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.cause);
        out.extend_from_slice(value);
        out
    }

    /// Whether the record removes its key.
    pub(super) fn is_tombstone(&self) -> bool {
        self.value.is_none()
    }

    /// The entry that the record makes; `None` for a removal.
    pub(super) fn entry(&self) -> Option<Entry> {
        self.value.as_ref().map(|value| Entry {
            key: self.key.clone(),
            value: value.clone(),
            create_revision: self.create_revision,
            revision: self.revision,
        })
    }

    /// Roughly what the record holds in memory.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + 2 * self.key.len() + self.cause.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: Option<&'static str>, cause: &'static str) -> Record {
        Record {
            revision: 7,
            key: "/registry/pods/default/web".to_owned(),
            value: value.map(Bytes::from),
            create_revision: 3,
            before: 5,
            expires_us: 42,
            cause: Bytes::from(cause),
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        for record in [record(Some("{}"), "why"), record(Some(""), ""), record(None, "gone")] {
            let bytes = record.encode();
            let head = Head::decode(&bytes).unwrap();
            assert_eq!(head.is_tombstone, record.is_tombstone());
            assert_eq!(head.to_record(7), record);
        }
    }

    #[test]
    fn a_cut_off_head_is_broken_at_every_length() {
        let record = record(Some("v"), "c");
        let bytes = record.encode();
        let whole = HEAD_BYTES + record.key.len() + record.cause.len();
        for len in 0..whole {
            assert!(Head::decode(&bytes[..len]).is_none(), "length {len}");
        }
    }

    #[test]
    fn lengths_that_lie_are_no_record() {
        let sound = record(Some("value"), "cause").encode();
        let (key_at, cause_at) = (HEAD_BYTES - 6, HEAD_BYTES - 4);
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = sound.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            changed
        };
        let rest = sound.len() - HEAD_BYTES;
        for (name, bytes) in [
            ("a key longer than all", with(key_at, &u16::MAX.to_le_bytes())),
            ("a key by one too long", with(key_at, &u16::try_from(rest + 1).unwrap().to_le_bytes())),
            ("a cause longer than all", with(cause_at, &u32::MAX.to_le_bytes())),
            ("a cause by one too long", with(cause_at, &u32::try_from(rest - 25).unwrap().to_le_bytes())),
            ("a key that is no text", with(HEAD_BYTES, b"\xff")),
        ] {
            assert!(Head::decode(&bytes).is_none(), "{name}");
        }
        // Another split of the same bytes is a record; its checksum tells it from the one that was written.
        let other = Head::decode(&with(key_at, &1_u16.to_le_bytes())).map(|head| head.to_record(7));
        assert!(other.is_some_and(|other| other.key == "/"));
    }

    #[test]
    fn what_stands_behind_a_removal_is_not_its_value() {
        let mut bytes = record(None, "gone").encode();
        bytes.extend_from_slice(b"left over");
        let read = Head::decode(&bytes).unwrap().to_record(7);
        assert_eq!((read.value, read.cause), (None, Bytes::from_static(b"gone")));
        assert_eq!(record(None, "gone").entry(), None);
        let entry = record(Some("v"), "c").entry().unwrap();
        assert_eq!((entry.revision, entry.create_revision, &entry.value[..]), (7, 3, &b"v"[..]));
        // Other flags than the one that is known do not count.
        let mut flagged = record(Some("v"), "c").encode();
        flagged[0] = 0xfe;
        assert!(!Head::decode(&flagged).unwrap().is_tombstone);
    }
}
