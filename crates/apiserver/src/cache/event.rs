//! A change of an object, as watchers get it, and how many of them a resource remembers.

use std::sync::Arc;

use store::Revision;

use crate::object::CachedObject;

/// The number of events that a resource remembers. A watcher that is further behind is cut with 410.
pub const EVENTS_MAX: usize = 4096;

/// The bytes of objects that the remembered events hold together, if they are more than [`EVENTS_MIN`]: a burst of
/// changes of large objects is not kept for ever.
pub const EVENTS_BYTES_MAX: usize = 8 << 20;

/// How many events a resource remembers however large they are. Source: upstream's watch cache remembers as many at least.
pub(super) const EVENTS_MIN: usize = 100;

/// The change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// It came to be.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct CacheEvent {
    /// The revision the change made.
    pub revision: Revision,
    /// The change.
    pub event_type: EventType,
    /// The new state; for a deletion the last state, under the deletion's revision.
    pub object: Arc<CachedObject>,
    /// The state before.
    pub previous: Option<Arc<CachedObject>>,
}
