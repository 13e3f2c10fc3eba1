//! The seam to the Pod network: who gives a sandbox its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use cri::v1;
use futures::stream::BoxStream;

/// The reason why a network did not do what it was asked: its implementation's own error, which is told with its causes.
pub type NetworkError = Box<dyn std::error::Error + Send + Sync>;

/// The facts that a network needs to know of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxNetwork {
    /// The sandbox's id, CNI's container id.
    pub id: String,
    /// The network namespace.
    pub netns: PathBuf,
    /// The Pod's name, namespace and uid.
    pub metadata: v1::PodSandboxMetadata,
    /// Ports of the host that lead to the Pod.
    pub port_mappings: Vec<v1::PortMapping>,
    /// The Pod's resolver settings.
    pub dns: Option<v1::DnsConfig>,
    /// The cgroup of the Pod's containers.
    pub cgroup_parent: String,
    /// The Pod's labels, and those that say which Pod it is.
    pub labels: std::collections::HashMap<String, String>,
    /// The Pod's annotations.
    pub annotations: std::collections::HashMap<String, String>,
}

/// The network that sandboxes are attached to. Every call may be repeated. Source: CNI's ADD, DEL, CHECK
/// and GC.
#[async_trait]
pub trait PodNetwork: Send + Sync + 'static {
    /// Connects a sandbox and returns its addresses, the primary one first.
    ///
    /// # Errors
    /// The network's own; what was done is taken back by [`PodNetwork::remove`].
    async fn add(&self, sandbox: &SandboxNetwork) -> Result<Vec<IpAddr>, NetworkError>;

    /// Disconnects a sandbox; no error if it is not connected.
    ///
    /// # Errors
    /// The network's own.
    async fn remove(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError>;

    /// Checks that a sandbox is still connected as [`PodNetwork::add`] left it.
    ///
    /// # Errors
    /// Says what is missing.
    async fn check(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError>;

    /// Disconnects everything but these sandboxes: what a crash left.
    ///
    /// # Errors
    /// The network's own.
    async fn retain(&self, sandboxes: BTreeSet<String>) -> Result<(), NetworkError>;

    /// Why the network cannot connect sandboxes now, if so. Source: CRI's `NetworkReady` condition.
    async fn not_ready(&self) -> Option<String>;

    /// Comes whenever [`PodNetwork::not_ready`] says something else.
    fn readiness_changes(&self) -> BoxStream<'static, ()> {
        Box::pin(futures::stream::pending())
    }
}
