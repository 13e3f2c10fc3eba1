//! Joins the container runtime to CNI: a sandbox is an attachment.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use cni::{Attachment, CniError, Network, PortMapping};
use runtime::{PodNetwork, SandboxNetwork};

/// The interface that Pods see.
const INTERFACE: &str = "eth0";

/// Attaches sandboxes to a CNI network.
pub(crate) struct CniPodNetwork(Arc<Network>);

impl CniPodNetwork {
    pub(crate) fn new(network: Network) -> Self {
        Self(Arc::new(network))
    }
}

#[async_trait]
impl PodNetwork for CniPodNetwork {
    async fn add(&self, sandbox: &SandboxNetwork) -> Result<Vec<IpAddr>, String> {
        let (network, attachment) = (self.0.clone(), attachment(sandbox));
        let added = blocking(move || network.add(&attachment)).await?;
        Ok(added.pod_ips())
    }

    async fn remove(&self, sandbox: &SandboxNetwork) -> Result<(), String> {
        let (network, attachment) = (self.0.clone(), attachment(sandbox));
        blocking(move || network.del(&attachment)).await
    }

    async fn check(&self, sandbox: &SandboxNetwork) -> Result<(), String> {
        let (network, attachment) = (self.0.clone(), attachment(sandbox));
        blocking(move || network.check(&attachment)).await
    }

    async fn retain(&self, sandboxes: BTreeSet<String>) -> Result<(), String> {
        let network = self.0.clone();
        let freed = blocking(move || network.retain(&sandboxes)).await?;
        if !freed.is_empty() {
            tracing::info!(sandboxes = ?freed, "disconnected sandboxes that are gone");
        }
        Ok(())
    }

    async fn not_ready(&self) -> Option<String> {
        None
    }
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, CniError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(runtime::error_chain(&error)),
        Err(error) => Err(error.to_string()),
    }
}

fn attachment(sandbox: &SandboxNetwork) -> Attachment {
    let mappings = sandbox.port_mappings.iter().filter(|mapping| mapping.host_port > 0);
    Attachment {
        container_id: sandbox.id.clone(),
        netns_path: sandbox.netns.clone(),
        ifname: INTERFACE.to_owned(),
        pod_namespace: sandbox.metadata.namespace.clone(),
        pod_name: sandbox.metadata.name.clone(),
        pod_uid: sandbox.metadata.uid.clone(),
        port_mappings: mappings.filter_map(port_mapping).collect(),
    }
}

/// `None` for a port that is no port, which the API's validation keeps out.
fn port_mapping(mapping: &cri::v1::PortMapping) -> Option<PortMapping> {
    Some(PortMapping {
        host_port: mapping.host_port.try_into().ok()?,
        container_port: mapping.container_port.try_into().ok()?,
        protocol: mapping.protocol().as_str_name().to_lowercase(),
        host_ip: mapping.host_ip.clone(),
    })
}
