//! Whole-cluster tests: the real binary, driven by real kubectl in scripted sessions, each test with a cluster of
//! its own in a network namespace of its own. What a user types and sees stands in `sessions/*.txt`.
//!
//! Each test ends by `knarr reset`, and fails if anything of its cluster is left on this machine.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

mod access;
mod aggregation;
mod backup;
mod bad_input;
mod clients;
mod clouds;
mod cni;
mod controllers;
mod cri;
mod definitions;
mod disk;
mod dra;
mod encryption;
mod etcd;
mod families;
mod faults;
mod ha;
mod ha_faults;
mod host;
mod images;
mod ingress;
mod iscsi;
mod kernel;
mod kills;
mod kubectl;
mod kubelet;
mod network_policies;
mod networks;
mod nodes;
mod overlay;
mod parts;
mod pods;
mod poison;
mod proxy_modes;
mod readme;
mod restarts;
mod scheduler;
mod servers;
mod storage;
mod streams;
mod supervisor;
mod tunnels;
mod webhooks;

use testkit::Cluster;

/// The image with busybox that sessions use beside the built-in one.
const BUSYBOX: &str = "test.local/busybox";

/// A running cluster with both images.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(env!("CARGO_BIN_EXE_knarr")).unwrap();
    must(cluster.import_busybox(BUSYBOX));
    must(cluster.up());
    cluster
}

/// Fails the test with the whole report, line by line.
#[track_caller]
fn must<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}
