//! The state of the cluster by which requests are judged: kinds, objects, rights, configuration, time.
//!
//! Everything below verbs reads from here, and nothing here writes: `write` has the door, above it.

use std::net::SocketAddr;
use std::sync::Arc;

use base::{Clock, Random};

use crate::cache::Cache;
use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::conversion::Converters;
use crate::kinds::{Kind, Kinds};
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::security::Security;
use crate::tunnels::Tunnels;
use crate::webhooks::Webhooks;

/// The state of the cluster that can be had without a write.
pub struct Cluster {
    /// The set-up.
    pub config: Config,
    /// The address on which the server listens, if it does.
    pub bound: Option<SocketAddr>,
    /// The cache from which reads are served.
    pub cache: Arc<Cache>,
    /// The catalogue of served kinds.
    pub catalogue: Arc<Catalogue>,
    /// The built-in kinds, which stay as they are: what the server itself looks at.
    pub builtin: Kinds,
    /// The authentication and authorization.
    pub security: Arc<Security>,
    /// The webhooks that administrators want to be asked.
    pub webhooks: Webhooks,
    /// The policies that administrators want to hold.
    pub policies: Policies,
    /// The converters of custom objects.
    pub converters: Arc<Converters>,
    /// The tunnels that Nodes have opened.
    pub tunnels: Arc<Tunnels>,
    /// Counters.
    pub metrics: Metrics,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
}

impl Cluster {
    /// A built-in kind, if this process serves it.
    pub fn kind(&self, group: &str, version: &str, resource: &str) -> Option<&Kind> {
        self.builtin.find(group, version, resource)
    }
}
