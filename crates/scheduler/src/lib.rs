//! Puts Pods on Nodes: snapshot, queue, filter and score plugins, one pure [`decide`], and the loop around it.
//!
//! The scheduler is a client like any other: it sees Pods and Nodes through informers and binds through
//! `pods/binding`, so it also schedules for a stock API server. Deciding is a function of a snapshot; chance
//! (among equally good nodes) comes in as an argument.

mod allowed;
pub mod arguments;
mod binding_error;
mod claims;
pub mod configuration;
pub mod decide;
mod default_selector;
pub mod devices;
pub mod diagnosis;
pub mod events;
pub mod extender;
#[cfg(test)]
mod fixtures;
pub mod gangs;
pub mod hints;
mod metrics;
pub mod node_info;
pub mod nominations;
pub mod pending_preemptions;
pub mod plugins;
mod pod;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod resource;
pub mod run;
pub mod storage;
mod timings;
pub mod topology_domains;
mod transform;
mod volumes;

pub use configuration::Configuration;
/// The Pod that the public functions take.
pub use controller::pod::Pod;
pub use decide::{Choice, Decision, decide};
pub use node_info::{NodeInfo, Snapshot};
pub use run::run;
