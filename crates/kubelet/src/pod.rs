//! The Pod's pure part: what is known of one Pod at one moment, what to do next for it, and what its status says.
//!
//! Snapshots, decisions, status, quality of service, what the runtime is asked for. Nothing in here is asynchronous, reads
//! the clock, the disk or the network, or knows who carries a decision out: it stands on the configuration alone.

pub mod container_config;
pub mod crash_backoff;
pub mod env;
pub mod failure_reason;
pub mod files;
pub mod in_place;
pub mod job;
pub mod labels;
pub mod lifecycle;
pub mod next_actions;
pub mod qos;
pub mod resize;
pub mod roles;
pub mod snapshot;
pub mod status;
pub mod time;

pub(crate) mod admission;
pub(crate) mod huge_pages;
pub(crate) mod identity;
pub(crate) mod needed_images;
pub(crate) mod preemption;
pub(crate) mod probe;
pub(crate) mod quantity;
pub(crate) mod requests;
