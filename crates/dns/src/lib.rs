//! Cluster DNS: names of Services and Pods answered from informers, everything else forwarded.
//!
//! [`answer`](answer::answer) is a pure function of a [`zone::Zone`], which is made anew from the informers when
//! something has changed; queries never wait for that. Source: Kubernetes DNS-based service discovery 1.1.0.
//! Names outside the zone are only ever sent to the resolvers that were configured.

pub mod answer;
mod forward;
mod server;
pub mod zone;

pub use server::{Config, DnsError, Server, serve};
