//! What this server knows of its cluster, and what requests are judged by: kinds, objects, rights, configuration, time.
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

/// What can be known and asked without a write.
pub struct Cluster {
    /// The set-up.
    pub config: Config,
    /// Where the server listens, if it does.
    pub bound: Option<SocketAddr>,
    /// What reads are served from.
    pub cache: Arc<Cache>,
    /// What is served.
    pub catalogue: Arc<Catalogue>,
    /// The built-in kinds, which stay as they are: what the server itself looks at.
    pub builtin: Kinds,
    /// Who is it, may they.
    pub security: Arc<Security>,
    /// Whom administrators want to be asked.
    pub webhooks: Webhooks,
    /// What administrators want to hold.
    pub policies: Policies,
    /// What has custom objects converted.
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
