//! The engine under every controller, and the client side that scheduler, kubelet, proxy and DNS share:
//! informers, workqueues, plans and their execution, events, leader leases, causes.
//!
//! A controller is a row ([`Controller`]): which objects wake which keys, and a pure function from what the
//! informers know to a [`Plan`]. The engine carries plans out with retries and rate limits, and runs a key again
//! only after its informers have seen what the last run wrote.
//!
//! This crate must not know any particular controller, and must not reach the store: all it holds is a
//! `kube::Client`.

pub mod access;
mod ask_error;
pub mod cause;
pub mod counter;
pub mod device_taint;
pub mod discovery;
pub mod dynamic_kind;
pub mod engine;
pub mod event;
#[cfg(test)]
mod fake;
mod flushed;
mod follower;
pub mod informer;
pub mod lease;
pub mod load_balancer;
pub mod metadata;
pub mod metrics;
pub mod placement;
pub mod plan;
pub mod pod;
pub mod question;
pub mod record;
pub mod request;
pub mod request_metrics;
pub mod resource_claim;
pub mod resource_ref;
pub mod selector;
mod sender;
#[cfg(test)]
mod table;
pub mod trace;
pub mod volume;
pub mod workqueue;

pub use ask_error::AskError;
pub use discovery::{Discovered, Discovery};
pub use dynamic_kind::DynamicKind;
pub use engine::{ActionExecutor, AfterBurst, Controller, Engine, Following, Retries, Source, Undone};
pub use event::EventType;
pub use flushed::FlushedRules;
pub use informer::{Change, Changes, Held, Informer, Informers, Kind, PartialObject, Scope};
pub use metrics::ClientMetrics;
pub use plan::{Action, Failed, Operation, Outcome, Plan};
pub use question::{Answer, Answers, Question};
pub use record::Recorder;
pub use request::{Patch, Propagation};
pub use resource_ref::ResourceRef;
