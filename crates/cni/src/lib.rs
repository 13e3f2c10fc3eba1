//! CNI 1.1: network configuration lists, the execution of their plugins, and the built-in plugins.
//!
//! [`Network`] is what the runtime holds. A `conflist` in the configuration directory wins over the built-in network;
//! its plugins are run as binaries where they are installed, and in-process where they are built in (`bridge` with
//! `host-local` addresses, `portmap`, `bandwidth`, `loopback`). All calls block (about 1 ms in-process): call them from a blocking
//! task. The bridge and the nftables table belong to the network namespace of the calling process.
//!
//! [`plugin`] is the same plugins as programs, for other runtimes.

mod attachment;
mod bandwidth;
mod chain;
mod exec;
mod files;
pub mod plugin;
mod plugins;
pub mod types;
mod version_info;
mod versions;

mod cleanup;
mod network;

pub use attachment::{Attachment, BuiltinConfig};
pub use bandwidth::{BandwidthError, bandwidth};
pub use cleanup::{cleanup, leftovers};
pub use network::{Network, detach_foreign};
pub use types::{CniError, CniResult, PortMapping};

/// The bridge of a cluster.
pub fn bridge_name(cluster_id: &str) -> String {
    link_name("kn-", cluster_id)
}

/// The nftables table of a cluster's Pod network.
pub fn table_name(cluster_id: &str) -> String {
    format!("knarr-{cluster_id}-cni")
}

/// Interface names have at most 15 bytes.
fn link_name(prefix: &str, id: &str) -> String {
    let mut name = format!("{prefix}{id}");
    name.truncate(15);
    name
}
