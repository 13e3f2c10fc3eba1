//! The built-in Pod network, for sandboxes of the suite.
#![allow(unreachable_pub)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cni::{Attachment, BuiltinConfig, CniError, Network, PortMapping};
use runtime::{NetworkError, PodNetwork, SandboxNetwork};

pub struct TestNetwork(Arc<Network>);

pub fn network(folder: &Path) -> TestNetwork {
    let config = BuiltinConfig {
        cluster_id: "conform".into(),
        pod_cidrs: "10.42.0.0/24".parse().unwrap(),
        cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
        mtu: None,
        state_dir: folder.join("cni"),
        bin_dirs: Vec::new(),
        own_bin_dir: None,
        is_fallback: true,
    };
    TestNetwork(Arc::new(Network::load(&folder.join("net.d"), config).unwrap()))
}

fn attachment(sandbox: &SandboxNetwork) -> Attachment {
    let port = |it: &cri::v1::PortMapping| PortMapping {
        host_port: it.host_port.try_into().unwrap(),
        container_port: it.container_port.try_into().unwrap(),
        protocol: it.protocol().as_str_name().to_lowercase(),
        host_ip: it.host_ip.clone(),
    };
    Attachment {
        container_id: sandbox.id.clone(),
        netns_path: sandbox.netns.clone(),
        ifname: "eth0".into(),
        port_mappings: sandbox.port_mappings.iter().filter(|it| it.host_port > 0).map(port).collect(),
        ..Attachment::default()
    }
}

impl TestNetwork {
    async fn call<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Network) -> Result<T, CniError> + Send + 'static,
    ) -> Result<T, NetworkError> {
        let network = self.0.clone();
        tokio::task::spawn_blocking(move || f(&network)).await.unwrap().map_err(NetworkError::from)
    }
}

#[async_trait]
impl PodNetwork for TestNetwork {
    async fn add(&self, sandbox: &SandboxNetwork) -> Result<Vec<IpAddr>, NetworkError> {
        let attachment = attachment(sandbox);
        Ok(self.call(move |network| network.add(&attachment)).await?.pod_ips("eth0"))
    }

    async fn remove(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        let attachment = attachment(sandbox);
        self.call(move |network| network.del(&attachment)).await
    }

    async fn check(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        let attachment = attachment(sandbox);
        self.call(move |network| network.check(&attachment)).await
    }

    async fn retain(&self, sandboxes: BTreeSet<String>) -> Result<(), NetworkError> {
        self.call(move |network| network.retain(&sandboxes)).await.map(drop)
    }

    async fn not_ready(&self) -> Option<String> {
        None
    }
}
