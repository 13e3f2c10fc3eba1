//! What policies need to know of Pods: a part of what the API has of them, since every Node watches all of them.

use std::net::IpAddr;

use controller::selector::Labels;
use k8s_openapi::api::core::v1::ContainerPort;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::net::legacy_ip;
use serde::{Deserialize, Deserializer};

/// Whose value is a static Pod's uid. Source: `kubetypes.ConfigMirrorAnnotationKey`.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A Pod of the API, in part.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// Without what policies do not need.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    host_network: Option<bool>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    ports: Option<Vec<ContainerPort>>,
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<Ip>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Ip {
    ip: Option<String>,
}

fn slim<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let whole = ObjectMeta::deserialize(from)?;
    let mut annotations = whole.annotations.unwrap_or_default();
    annotations.retain(|key, _| key == MIRROR);
    Ok(ObjectMeta {
        name: whole.name,
        namespace: whole.namespace,
        uid: whole.uid,
        resource_version: whole.resource_version,
        labels: whole.labels,
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..ObjectMeta::default()
    })
}

controller::part_of!(Pod, k8s_openapi::api::core::v1::Pod);

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    /// Its name.
    pub name: String,
    /// The protocol's number.
    pub protocol: u8,
    /// Its number.
    pub port: u16,
}

impl Pod {
    /// The labels.
    pub fn labels(&self) -> Labels {
        self.metadata.labels.clone().unwrap_or_default()
    }

    /// The uid that its sandboxes have: of a static Pod's mirror, the one that its kubelet gave it.
    pub fn uid(&self) -> &str {
        let mirrored = self.metadata.annotations.as_ref().and_then(|all| all.get(MIRROR));
        mirrored.or(self.metadata.uid.as_ref()).map_or("", String::as_str)
    }

    /// The Node that it is on.
    pub fn node_name(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }

    /// `true` if its containers have ended, for good.
    pub fn is_over(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// Its own addresses: of the host's network it has none.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let on_host = self.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
        let Some(status) = self.status.as_ref().filter(|_| !on_host) else { return Vec::new() };
        let all = status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.as_deref());
        let mut addresses: Vec<IpAddr> = all.chain(status.pod_ip.as_deref()).filter_map(legacy_ip).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The ports with names of containers that stay while the Pod does.
    pub fn ports(&self) -> Vec<NamedPort> {
        let Some(spec) = &self.spec else { return Vec::new() };
        let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = spec.init_containers.iter().flatten().filter(stays);
        let ports = spec.containers.iter().flatten().chain(sidecars).flat_map(|it| it.ports.iter().flatten());
        let mut named: Vec<NamedPort> = ports.filter_map(named_port).collect();
        named.sort();
        named.dedup();
        named
    }
}

fn named_port(port: &ContainerPort) -> Option<NamedPort> {
    let protocol = match port.protocol.as_deref() {
        None | Some("" | "TCP") => 6,
        Some("UDP") => 17,
        Some("SCTP") => 132,
        Some(_) => return None,
    };
    let name = port.name.clone().filter(|name| !name.is_empty())?;
    Some(NamedPort { name, protocol, port: u16::try_from(port.container_port).ok()? })
}
