//! The things that come in from below: clock, randomness, tasks and shutdown, backoff, connections, metrics, health.
//!
//! Everything above takes time and chance from here and from nowhere else, so that a whole control plane can be
//! run from one seed. Nothing here knows Kubernetes.

pub mod backoff;
pub mod bucket;
pub mod clock;
pub mod connections;
mod error_chain;
pub mod health;
mod keep_alive;
pub mod listen;
pub mod metrics;
pub mod random;
pub mod relay;
mod resetting_backoff;
pub mod tasks;

pub use backoff::Backoff;
pub use bucket::Bucket;
pub use clock::Clock;
pub use error_chain::error_chain;
pub use keep_alive::KeepAlive;
pub use metrics::Metrics;
pub use random::Random;
pub use resetting_backoff::ResettingBackoff;
pub use tasks::Tasks;
