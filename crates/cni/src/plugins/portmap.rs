//! `portmap`: ports of the host that lead into a Pod.

use std::net::{IpAddr, Ipv4Addr};

use super::rules::{self, Port};
use crate::network::{Attachment, BuiltinConfig};
use crate::types::{CniError, CniResult, PortMapping};

/// The plugin.
#[derive(Debug)]
pub(crate) struct Portmap {
    rules: rules::Shared,
}

impl Portmap {
    pub(super) fn new(config: &BuiltinConfig) -> Self {
        Self { rules: rules::shared(config) }
    }

    pub(super) fn add(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        let ports = ports(attachment, previous);
        if ports.is_empty() {
            return Ok(());
        }
        let key = key(attachment);
        self.rules.change(|rules| {
            rules.ports.insert(key, ports);
        })
    }

    pub(super) fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        let key = key(attachment);
        self.rules.change(|rules| {
            rules.ports.remove(&key);
        })
    }

    pub(super) fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        if attachment.port_mappings.is_empty() || self.rules.is_in_place()? {
            return Ok(());
        }
        Err(CniError::Check("the nftables table of the Pod network is missing".into()))
    }

    pub(super) fn restore<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        self.rules.change(|rules| {
            for (attachment, result) in kept {
                let ports = ports(attachment, result);
                if !ports.is_empty() {
                    rules.ports.insert(key(attachment), ports);
                }
            }
        })
    }
}

fn key(attachment: &Attachment) -> (String, String) {
    (attachment.container_id.clone(), attachment.ifname.clone())
}

fn ports(attachment: &Attachment, result: &CniResult) -> Vec<Port> {
    let pod = result.pod_ips().into_iter().find_map(|ip| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    let Some(pod) = pod else { return Vec::new() };
    attachment.port_mappings.iter().filter_map(|mapping| port(mapping, pod)).collect()
}

fn port(mapping: &PortMapping, pod: Ipv4Addr) -> Option<Port> {
    let protocol = match mapping.protocol.to_ascii_lowercase().as_str() {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        _ => return None,
    };
    let host_ip = mapping.host_ip.parse().ok().filter(|ip: &Ipv4Addr| !ip.is_unspecified());
    let port =
        Port { protocol, host_ip, host_port: mapping.host_port, pod, pod_port: mapping.container_port };
    (mapping.host_port != 0).then_some(port)
}
