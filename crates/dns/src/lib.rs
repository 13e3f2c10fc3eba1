//! Cluster DNS: names of Services and Pods, and forwarding of everything else.
//!
//! [`answer`] is pure: a [`Zone`] and a question in, a [`Decision`] out. Source: Kubernetes DNS-Based Service
//! Discovery, specification 1.1. [`run`] keeps the zone up to date and serves it over UDP and TCP. Pod names
//! (`10-42-0-5.default.pod`) are answered from the name alone.

mod answer;
mod forward;
mod server;
mod zone;

use std::net::SocketAddr;

use machinery::net::Cidr;

pub use answer::{Answer, Decision, answer};
pub use forward::upstreams;
pub use server::{DnsError, Running, run};
pub use zone::Zone;

/// The seconds for which clients may keep an answer.
pub const TTL_SECONDS: u32 = 5;

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses on which it listens, UDP and TCP. The addresses must be there.
    pub bind: Vec<SocketAddr>,
    /// The cluster's domain, `cluster.local`.
    pub domain: String,
    /// The resolvers for names outside the cluster; none if empty. See [`upstreams`].
    pub upstreams: Vec<SocketAddr>,
    /// Networks (of Services and Pods) whose reverse names nobody else is asked for.
    pub reverse_cidrs: Vec<Cidr>,
}
