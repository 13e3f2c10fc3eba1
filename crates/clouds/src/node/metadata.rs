//! What a cloud says of a machine, once it is known that it can be.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use machinery::names;

use crate::provider::{Refusal, nonsense};
use crate::v1::{InstanceMetadataResponse, NodeAddress};

/// Addresses and labels of one machine; more are not believed.
const ADDRESSES_MAX: usize = 64;
const LABELS_MAX: usize = 64;
const PROVIDER_ID_BYTES_MAX: usize = 1024;
const DOMAIN_BYTES_MAX: usize = 253;

/// An answer that can be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metadata {
    pub(super) provider_id: String,
    pub(super) addresses: Vec<NodeAddress>,
    labels: BTreeMap<&'static str, String>,
    additional_labels: BTreeMap<String, String>,
}

impl Metadata {
    /// Reads an answer.
    ///
    /// # Errors
    /// What of it cannot be: then all of it counts for nothing.
    pub(super) fn read(answer: InstanceMetadataResponse) -> Result<Self, Refusal> {
        let InstanceMetadataResponse {
            provider_id,
            instance_type,
            addresses,
            zone,
            region,
            additional_labels,
        } = answer;
        if provider_id.len() > PROVIDER_ID_BYTES_MAX || provider_id.chars().any(char::is_control) {
            return nonsense(format!(
                "the provider ID must have at most {PROVIDER_ID_BYTES_MAX} bytes and no control characters"
            ));
        }
        if addresses.len() > ADDRESSES_MAX || additional_labels.len() > LABELS_MAX {
            return nonsense(format!(
                "there must be at most {ADDRESSES_MAX} addresses and {LABELS_MAX} additional labels, not {} and {}",
                addresses.len(),
                additional_labels.len()
            ));
        }
        addresses.iter().try_for_each(check_address)?;
        let mut labels = BTreeMap::new();
        for (what, value, keys) in [
            (
                "instance type",
                instance_type,
                ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"],
            ),
            ("zone", zone, ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]),
            ("region", region, ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]),
        ] {
            if value.is_empty() {
                continue;
            }
            check_label(what, &value)?;
            labels.extend(keys.map(|key| (key, value.clone())));
        }
        for (key, value) in &additional_labels {
            if let Some(why) = names::qualified_name(key).into_iter().next() {
                return nonsense(format!("the additional label {key:?} {why}"));
            }
            check_label(key, value)?;
        }
        Ok(Self { provider_id, addresses, labels, additional_labels })
    }

    /// The labels that a Node gets: of those that clouds make up themselves, none in domains of Kubernetes, and none that it has.
    /// Source: `getNodeModifiersFromCloudProvider`.
    pub(super) fn labels_for(&self, node: &Node) -> BTreeMap<&str, &str> {
        let known = |key: &str| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
        let is_kubernetes = |key: &str| {
            let domain = key.rsplit_once('/').map_or("", |(domain, _)| domain);
            ["kubernetes.io", "k8s.io"]
                .iter()
                .any(|own| domain.strip_suffix(own).is_some_and(|sub| sub.is_empty() || sub.ends_with('.')))
        };
        let more = self.additional_labels.iter().filter(|(key, _)| !is_kubernetes(key) && !known(key));
        let own = self.labels.iter().map(|(key, value)| (*key, value.as_str()));
        own.chain(more.map(|(key, value)| (key.as_str(), value.as_str()))).collect()
    }
}

fn check_label(what: &str, value: &str) -> Result<(), Refusal> {
    let Some(why) = names::label_value(value).into_iter().next() else { return Ok(()) };
    nonsense(format!("the {what} {value:?} must be a label's value: {why}"))
}

fn check_address(NodeAddress { r#type, address }: &NodeAddress) -> Result<(), Refusal> {
    match r#type.as_str() {
        "InternalIP" | "ExternalIP" if address.parse::<IpAddr>().is_err() => {
            nonsense(format!("the {type} {address:?} must be an IP address"))
        }
        "Hostname" | "InternalDNS" | "ExternalDNS"
            if address.is_empty() || address.len() > DOMAIN_BYTES_MAX =>
        {
            nonsense(format!("the {type} must have between 1 and {DOMAIN_BYTES_MAX} bytes"))
        }
        "InternalIP" | "ExternalIP" | "Hostname" | "InternalDNS" | "ExternalDNS" => Ok(()),
        _ => nonsense(format!(
            "an address of the type {type:?} must be an InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS"
        )),
    }
}
