//! NetworkPolicies: who may reach whom, as tables of nftables beside those of the Service proxy.
//!
//! [`Policy`] reads an object, [`Endpoints`] joins Pods with what the Node's network gave them, [`Rules`] keeps a table per
//! family equal to both; all pure. An [`Engine`] has the kernel do it. [`run`] follows the API, and commits what has changed;
//! as long as there is no policy there is no table, and Pods are not watched. [`Sandboxes`] makes a new Pod wait until its
//! rules stand.
//!
//! A Node has rules for its own Pods only: what a Pod begins is judged where it is, and what it answers where that is.
//! Rules stay in the kernel when the process goes, and are replaced whole, in one transaction, when it comes back and knows
//! everything again. Source: `NetworkPolicySpec`, networking/v1; the decisions are in ADR 25.

mod chains;
mod endpoints;
mod engine;
mod frame;
mod host;
mod pod;
mod policy;
mod ranges;
mod rules;
mod run;
mod sandboxes;

pub use endpoints::{Changed, Endpoint, Endpoints, Locality, Sandbox, State};
pub use engine::{Batch, Config, Engine, News, Took};
pub use host::{cleanup, leftovers};
pub use pod::{NamedPort, Pod};
pub use policy::{Direction, Namespaces, PeerSelector, Peers, Policy, Ports, Rule};
pub use ranges::{Block, Number, Ranges};
pub use rules::{Rules, Snapshot, render};
pub use run::run;
pub use sandboxes::{NotInForce, Sandboxes};

fn table_name(cluster_id: &str) -> String {
    format!("knarr-{cluster_id}-policies")
}
