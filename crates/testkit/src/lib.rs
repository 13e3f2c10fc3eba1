//! What whole-cluster tests stand on: a throw-away cluster in a network namespace of its own, scripted sessions of
//! real clients with golden output, and images made from files of this machine.
//!
//! Invariants: no packet leaves the machine (the namespace has no route to the outside), only processes that a test
//! started are ended, and a test that ends leaves nothing behind or fails.

pub mod clients;
pub mod cloud;
pub mod cluster;
pub mod containerd;
pub mod dra;
pub mod etcd;
mod grpc;
pub mod image;
pub mod inventory;
pub mod ipv6;
pub mod kms;
pub mod lan;
mod leftovers;
pub mod other_kernel;
pub mod pod_resources;
pub mod session;

pub use cluster::{Cluster, Process};
pub use containerd::Containerd;
pub use etcd::Etcd;
pub use inventory::{Inventory, leaks};
pub use lan::Lan;
pub use session::Session;
