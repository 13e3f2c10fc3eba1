//! Flags that say what a Node is registered with.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::cloud_provider::CloudProvider;

/// What a Node is registered with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct RegistrationArgs {
    /// A label of the Node, as KEY=VALUE: repeated, or with commas
    #[arg(long, env = "KNARR_NODE_LABEL", value_delimiter = ',', value_name = "KEY=VALUE")]
    #[serde(default)]
    pub node_label: Vec<String>,
    /// A taint that the Node is registered with, as KEY=VALUE:EFFECT: repeated, or with commas
    #[arg(long, env = "KNARR_NODE_TAINT", value_delimiter = ',', value_name = "KEY=VALUE:EFFECT")]
    #[serde(default)]
    pub node_taint: Vec<String>,
    /// external: a cloud's controllers say where and what the Node is, nothing is scheduled there before, and Services of type
    /// LoadBalancer are the cloud's
    #[arg(
        long,
        env = "KNARR_CLOUD_PROVIDER",
        default_value = "",
        value_name = "NAME",
        hide_default_value = true
    )]
    #[serde(default)]
    pub cloud_provider: CloudProvider,
}

impl RegistrationArgs {
    /// The same as arguments of the kubelet, after those that were given.
    #[must_use]
    pub fn kubelet_args(&self, given: &[String]) -> Vec<String> {
        let labels = self.node_label.iter().map(|label| format!("node-labels={label}"));
        let taints = (!self.node_taint.is_empty())
            .then(|| format!("register-with-taints={}", self.node_taint.join(",")));
        let cloud = (self.cloud_provider != CloudProvider::None)
            .then(|| format!("cloud-provider={}", String::from(self.cloud_provider)));
        given.iter().cloned().chain(labels).chain(taints).chain(cloud).collect()
    }
}
