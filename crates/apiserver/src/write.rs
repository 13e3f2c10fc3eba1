//! The write path: from an authorised request to a revision, in stages that read from the top down.
//!
//! | # | stage | where | makes |
//! |---|---|---|---|
//! | 1 | the body is decoded | `decoding` | [`Decoded`] |
//! | 2 | name and namespace are the URL's | `identity` | |
//! | 3 | defaults are filled in | `codec` | |
//! | 4 | managed fields say who owns what changes | `ownership` | |
//! | 5 | mutating plugins | `admission` | |
//! | 6 | the kind's strategy prepares what is to be stored | `preparation` | |
//! | 7 | addresses and ports, and the room of quotas | `allocation`, by `admit` | |
//! | 8 | the kind's rules, then validating plugins | `validation`, by `admit` | [`Admitted`] |
//! | 9 | the door, and what becomes of what was allocated | `commit`, `door` | [`Committed`](door::Committed) |
//!
//! [`create`], [`change`] and [`delete`] are the three ways through them; verbs, and what the server writes itself
//! ([`loopback`]), call these. Each stage takes what the one before it makes: nothing gets to the door but an [`Admitted`].
//! On a conflict a change starts over at its transformation, from what is stored then. What is allocated before an
//! object is stored is given back when it is not.

pub mod create;

pub mod change;
pub mod delete;

pub mod decoding;
pub mod identity;
pub mod ownership;
pub mod preparation;

pub mod admit;
pub mod allocation;
pub mod validation;

pub mod commit;
pub mod door;

pub mod loopback;
pub mod options;

use std::ops::Deref;
use std::sync::Arc;

use self::allocation::Loopback;
use self::allocation::quota::UsageCache;
use self::allocation::service::NodePorts;
use crate::cluster::Cluster;
pub use decoding::Decoded;
use door::Door;
pub use ownership::Ownership;
pub use validation::Admitted;

/// The number of times that a write is tried again when somebody else wrote in between.
pub const CONFLICT_RETRIES_MAX: usize = 16;

/// Everything that writes work with; what is known of the cluster can be reached through it.
pub struct Writer {
    /// The state of the cluster.
    pub cluster: Cluster,
    /// The door, which takes admitted objects.
    pub door: Door,
    /// The node ports that are given out.
    pub node_ports: NodePorts,
    /// The usage of namespaces with quotas.
    pub quota: Arc<UsageCache>,
    /// The way through all stages again, for what allocation writes.
    pub loopback: &'static dyn Loopback,
}

impl Deref for Writer {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}
