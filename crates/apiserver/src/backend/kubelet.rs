//! The address of a kubelet: what its Node says, as far as the server connects there.

use serde_json::Value;

use super::Backend;
use crate::api::Api;
use crate::dial::Destination;
use crate::status::{Error, Result};

const KUBELET_PORT: u16 = 10250;

/// The address on which a node's kubelet listens, and its TLS settings.
///
/// # Errors
/// As [`address`]; 400 if the server does not connect to that, 503 without a certificate of our own.
pub async fn kubelet(api: &Api, node: &str) -> Result<Backend> {
    let (host, port) = address(api, node)?;
    let to = Destination::of_kubelet(api, node, &host, port).await?;
    Ok(Backend { to, tls: Some(api.kubelets.tls()?) })
}

/// The address of a Node's kubelet, as the Node says: host and port.
///
/// # Errors
/// 404 without the Node, 500 if it has no address.
pub fn address(api: &Api, node: &str) -> Result<(String, u16)> {
    let kind = api.kind("", "v1", "nodes").ok_or_else(Error::unknown_path)?;
    let object =
        kind.cache().get(&kind.key("", node)).ok_or_else(|| Error::not_found(kind.subject(), node))?;
    let object = kind.value(&object);
    let addresses = object.pointer("/status/addresses").and_then(Value::as_array);
    let addresses: Vec<&Value> = addresses.into_iter().flatten().collect();
    let of_type = |wanted: &str| {
        let found = addresses.iter().find(|a| a.get("type").is_some_and(|t| t == wanted))?;
        found.get("address")?.as_str().map(str::to_owned)
    };
    let host = of_type("InternalIP").or_else(|| of_type("ExternalIP")).or_else(|| of_type("Hostname"));
    let host = host.ok_or_else(|| Error::internal(format!("node {node} has no address")))?;
    let port = object.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(KUBELET_PORT);
    Ok((host, port))
}
