//! The chain, in start order: what runs in the control plane's process and what runs in the node's.
//!
//! The only place that names more than one of API server, controllers, scheduler, kubelet, runtime, proxy, network policies,
//! DNS and Ingress.

mod addons;
mod alone;
mod api_client;
mod api_options;
mod audit_webhook;
mod authentication;
mod authorities;
mod authorization;
mod changes;
mod cleanup;
mod cloud_controllers;
mod configuration;
mod configurations;
mod confine;
mod conflicts;
mod container_runtime;
mod control_plane;
mod controller_options;
mod credentials;
mod datastore;
mod election;
mod encryption;
mod hand_over;
mod identity;
mod ingress;
mod join;
mod kubeconfigs;
mod kubelet_config;
mod kubelet_root;
mod local_network;
mod local_nodes;
mod node;
mod node_network;
mod node_role;

mod pod_cidr;
mod pod_network;
mod pod_routes;
mod scheduler_config;
mod servers;
mod service_accounts;
mod serving;
mod settings;
mod shared;
mod tunnels;
mod users;

pub(crate) use self::configurations::hand_on as hand_on_configurations;
pub(crate) use self::encryption::hand_on as hand_on_encryption;
pub(crate) use self::hand_over::{as_control_plane, prepare as prepare_server};
pub(crate) use self::scheduler_config::of_flags as scheduler_of_flags;
pub(crate) use alone::{
    Connection, election_of_cloud_controllers, election_of_controllers, start_cloud_controllers,
    start_controllers, start_kubelet, start_proxy, start_scheduler,
};
pub(crate) use authorities::FILES as AUTHORITY_FILES;
pub(crate) use cleanup::{
    detach_pods, release_volumes, remove_foreign_pods, remove_mounts, remove_network, remove_pods,
    take_back_of_parts,
};
pub(crate) use conflicts::{mac_text, place_of};
pub(crate) use control_plane::control_plane;
pub(crate) use identity::prepare;
pub(crate) use ingress::ingress;
pub(crate) use join::{ClusterConfig, JoinToken, Newcomer, TOKEN_GROUP};
pub(crate) use kubeconfigs::{
    edit as edit_kubeconfig, own as own_kubeconfig, take_back as take_back_kubeconfigs,
    written as written_kubeconfigs,
};
pub(crate) use kubelet_config::of_node as kubelet_of_node;
pub(crate) use local_network::{IsLeft, connect as connect_local_nodes, remove as remove_local_network};
pub(crate) use local_nodes::{
    LocalNode, in_network, not_of_another, of_folder as local_nodes, owner as owner_of_local_node,
};
pub(crate) use node::{KUBELET_PORT, node, proxy_mode};
pub(crate) use pod_cidr::first_ranges;
pub(crate) use pod_routes::{PodRoute, missing as missing_pod_routes, read as wanted_pod_routes};
pub(crate) use servers::seed as seed_servers;
pub(crate) use settings::{Known, Settings};
pub(crate) use shared::authority_hash;
pub(crate) use tunnels::{Standing as TunnelStanding, read as tunnels};
pub(crate) use users::CONTROL_PLANE_UID;
