//! The counters of a sandbox's link under the names that scrapers know, for whoever tells of them.

use crate::v1::{NetworkInterfaceUsage, UInt64Value};

/// A counter: name, help, and its value. Source: the names are cAdvisor's.
pub type LinkCounter = (&'static str, &'static str, fn(&NetworkInterfaceUsage) -> Option<UInt64Value>);

/// All that CRI's messages have. Packets are counted in `sys::usage::PACKET_COUNTERS`.
pub const LINK_COUNTERS: [LinkCounter; 4] = [
    ("container_network_receive_bytes_total", "Cumulative count of bytes received", |link| link.rx_bytes),
    (
        "container_network_receive_errors_total",
        "Cumulative count of errors encountered while receiving",
        |link| link.rx_errors,
    ),
    ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |link| link.tx_bytes),
    (
        "container_network_transmit_errors_total",
        "Cumulative count of errors encountered while transmitting",
        |link| link.tx_errors,
    ),
];
