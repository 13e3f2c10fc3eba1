//! Flags of the network between Nodes. A cluster has one: agents learn it from their servers.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// How Pods reach those of other Nodes.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct NetworkArgs {
    /// How the packets of Pods reach other Nodes: by plain routes, between Nodes on one network; inside of others, also
    /// through routers, as they are (vxlan) or encrypted (wireguard)
    #[arg(
        long,
        env = "KNARR_NETWORK_BACKEND",
        alias = "flannel-backend",
        value_enum,
        default_value_t = NetworkBackend::HostGw
    )]
    #[serde(default)]
    pub network_backend: NetworkBackend,
    /// The identifier of the cluster's network among those of its machines, with --network-backend vxlan
    #[arg(long, env = "KNARR_VXLAN_VNI", default_value_t = VNI, value_name = "NUMBER")]
    #[serde(default = "vni")]
    pub vxlan_vni: u32,
    /// The UDP port of --network-backend vxlan, which Nodes must let each other reach
    #[arg(long, env = "KNARR_VXLAN_PORT", default_value_t = VXLAN_PORT, value_name = "PORT")]
    #[serde(default = "vxlan_port")]
    pub vxlan_port: u16,
    /// The UDP port of --network-backend wireguard, which Nodes must let each other reach
    #[arg(long, env = "KNARR_WIREGUARD_PORT", default_value_t = WIREGUARD_PORT, value_name = "PORT")]
    #[serde(default = "wireguard_port")]
    pub wireguard_port: u16,
    /// After how many days a Node makes itself another key for --network-backend wireguard; never with 0
    #[arg(long, env = "KNARR_WIREGUARD_KEY_DAYS", default_value_t = WIREGUARD_KEY_DAYS, value_name = "DAYS")]
    #[serde(default = "wireguard_key_days")]
    pub wireguard_key_days: u32,
}

/// Flannel's defaults.
const VNI: u32 = 1;
const VXLAN_PORT: u16 = 8472;
const WIREGUARD_PORT: u16 = 51_820;
/// As long as a certificate of a short life.
const WIREGUARD_KEY_DAYS: u32 = 30;

fn vni() -> u32 {
    VNI
}

fn vxlan_port() -> u16 {
    VXLAN_PORT
}

fn wireguard_port() -> u16 {
    WIREGUARD_PORT
}

fn wireguard_key_days() -> u32 {
    WIREGUARD_KEY_DAYS
}

impl Default for NetworkArgs {
    fn default() -> Self {
        Self {
            network_backend: NetworkBackend::default(),
            vxlan_vni: VNI,
            vxlan_port: VXLAN_PORT,
            wireguard_port: WIREGUARD_PORT,
            wireguard_key_days: WIREGUARD_KEY_DAYS,
        }
    }
}

/// A value of `--network-backend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkBackend {
    /// Plain routes.
    #[default]
    HostGw,
    /// UDP packets, as they are.
    Vxlan,
    /// UDP packets, encrypted by the kernel.
    #[value(alias = "wireguard-native")]
    Wireguard,
}
