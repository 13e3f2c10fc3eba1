//! Clouds: the contract that their providers answer, and the controllers that ask them.
//!
//! [`Provider`] is the seam: the calls of `proto/cloud.proto`, by gRPC on a unix socket ([`Client`], [`server`]). The
//! controllers are those of upstream's cloud controller manager, under its names: each is a row and pure functions from objects
//! and answers to plans. What a provider answers is looked at before anything is made of it (`node/metadata.rs`,
//! `service/status.rs`, `route/listed.rs`). A cloud's own controller manager does the same with the same roles, and needs
//! nothing of this.
//!
//! The messages are generated from `proto/cloud.proto`: `protox` compiles it (no `protoc` needed), `prost-build` writes the
//! messages with comments disabled, maps in order and no services, and the result is committed under `generated/`.
//!
//! Source: `k8s.io/cloud-provider` of v1.35.

mod calls;
mod client;
mod cloud;
mod message;
mod provider;
pub mod server;

mod node;
mod node_lifecycle;
mod route;
mod service;

#[cfg(test)]
mod fixture;

use std::collections::BTreeMap;
use std::time::Duration;

use controller::{Controller, Engine, Retries};

pub use client::Client;
pub use cloud::{Cloud, Options};
pub use provider::{PUSHBACK, Provider, Refusal, RefusalKind};
pub use tonic::{Code, Status, async_trait};

/// Generated from `proto/cloud.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[path = "generated/v1.rs"]
pub mod v1;

/// The controllers, in the order in which a Node meets them.
pub const CONTROLLERS: [Controller; 4] =
    [node::CONTROLLER, node_lifecycle::CONTROLLER, route::CONTROLLER, service::CONTROLLER];

/// Earlier names of controllers, each with the name of today. Source: `names.CCMControllerAliases`.
pub const ALIASES: [(&str, &str); 4] = [
    ("cloud-node", "cloud-node-controller"),
    ("cloud-node-lifecycle", "cloud-node-lifecycle-controller"),
    ("route", "node-route-controller"),
    ("service", "service-lb-controller"),
];

/// The ServiceAccount whose rights a controller needs. Source: `DefaultInitFuncConstructors`.
pub fn account_of(controller: &str) -> &'static str {
    match controller {
        "service-lb-controller" => "service-controller",
        "node-route-controller" => "route-controller",
        _ => "node-controller",
    }
}

/// The reason why a controller has nothing to do in this cloud; `None` if it has something to do.
pub fn idle(
    controller: &str,
    capabilities: &v1::GetCapabilitiesResponse,
    options: &Options,
) -> Option<&'static str> {
    match controller {
        "service-lb-controller" if !capabilities.load_balancers => {
            Some("the cloud's provider does not support load balancers")
        }
        "node-route-controller" if !options.configure_cloud_routes => {
            Some("--configure-cloud-routes is false")
        }
        "node-route-controller" if !capabilities.routes => {
            Some("the cloud's provider does not support routes")
        }
        "node-route-controller" if options.cluster_cidr.is_none() => {
            Some("there is no --cluster-cidr, so that nobody knows which routes are the cluster's")
        }
        "cloud-node-controller" | "cloud-node-lifecycle-controller" if !capabilities.instances => {
            Some("the cloud's provider does not support instances")
        }
        _ => None,
    }
}

/// How long each waits after a failure: who is asked for load balancers is not asked again at once.
/// Source: `minRetryDelay`, `maxRetryDelay` of the service controller.
fn retries() -> BTreeMap<&'static str, Retries> {
    let nodes = Retries { first: Duration::from_millis(100), max: Duration::from_secs(60) };
    let balancers = Retries { first: Duration::from_secs(5), max: Duration::from_secs(300) };
    let row = |controller: &Controller, retries| (controller.name, retries);
    BTreeMap::from([
        row(&node::CONTROLLER, nodes),
        row(&node_lifecycle::CONTROLLER, nodes),
        row(&service::CONTROLLER, balancers),
    ])
}

/// An engine for the controllers, with so many runs at a time of each.
pub fn engine(informers: controller::Informers, workers: BTreeMap<&'static str, usize>) -> Engine {
    Engine::new(informers, "cloud-controller-manager").with_workers(workers).with_retries(retries())
}

#[cfg(test)]
mod tests {
    /// The contract is its file: what is called is in there, and nothing is in there that is not called.
    #[test]
    fn each_call_of_the_contract_is_a_row() {
        let contract = include_str!("../proto/cloud.proto");
        let calls = contract.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
        let written: Vec<String> = calls
            .map(|line| line.replace(['(', ')', ';'], " ").replace(" returns ", " "))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        macro_rules! rows {
            ($($name:literal $method:ident $request:ident $response:ident $seconds:literal;)*) => {
                [$(format!("{} {} {}", $name, stringify!($request), stringify!($response))),*]
            };
        }
        assert_eq!(crate::calls::calls!(rows).to_vec(), written);
    }
}
