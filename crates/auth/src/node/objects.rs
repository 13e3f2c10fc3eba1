//! What the Node authorizer reads of objects: which node they are for, and what they name. The rest of them is passed over.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The name of an object, and the annotations of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A Pod, as far as its node may touch what it names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: String,
    pub(super) service_account_name: String,
    pub(super) image_pull_secrets: Vec<Named>,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) ephemeral_containers: Vec<Container>,
    pub(super) resource_claims: Vec<ResourceClaim>,
    /// As they are: what drivers are given secrets by is looked for in all of their fields.
    pub(super) volumes: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) resource_claim_statuses: Vec<ResourceClaim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourceClaim {
    pub(super) resource_claim_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) env: Vec<EnvVar>,
    pub(super) env_from: Vec<EnvFrom>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EnvVar {
    pub(super) value_from: Option<ValueFrom>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ValueFrom {
    pub(super) secret_key_ref: Option<Named>,
    pub(super) config_map_key_ref: Option<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EnvFrom {
    pub(super) secret_ref: Option<Named>,
    pub(super) config_map_ref: Option<Named>,
}

/// A PersistentVolume, as far as the nodes of its claim's Pods may touch what it names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    pub(super) metadata: Metadata,
    /// As it is: see the volumes of [`Pod`].
    pub(super) spec: Value,
}

/// An object that is for one node: a VolumeAttachment, a ResourceSlice, a PodCertificateRequest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ForNode {
    pub(super) metadata: Metadata,
    pub(super) spec: ForNodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ForNodeSpec {
    pub(super) node_name: Option<String>,
}
