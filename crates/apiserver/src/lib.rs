//! HTTP in, `Status` out: the API server.
//!
//! A request moves through `service` (who, may they, is there room), `handlers` and `verbs` (what), `write` (its stages,
//! `admission` among them), `write::door` (commit), `cache` (everyone is told) and `respond` (in which form). Each stage
//! takes the type that the one before it makes. Verbs name no kind: where kinds differ, their rows say so. What is served
//! is in the `catalogue`, can change, and is pinned by each request. Reads come from the watch cache; only the door writes
//! to the store, and only what was admitted.
//!
//! Modules stand on those below them, and on nothing above: in this list, from the top down.

pub mod server;
pub mod service;

mod handlers;
mod streams;

pub mod aggregation;
mod binding;
pub mod component_statuses;
pub mod custom;
pub mod eviction;
mod match_conditions;
pub mod policies;
mod policy_status;
pub mod proxy;
pub mod resource_metrics;
pub mod reviews;
mod token_use;
pub mod tokens;
mod tunnel_requests;
mod webhook_dial;
pub mod webhooks;

pub mod verbs;

pub mod backend;
pub mod bootstrap;
pub mod health;
mod lease;

pub mod api;

pub mod write;

pub mod admission;

pub mod service_reference;

pub mod dial;
pub mod flow_control;
pub mod kubelet_client;
pub mod respond;

mod addresses;
pub mod request;

pub mod answer;
pub mod cluster;
pub mod request_scope;

pub mod catalogue;

mod expression_authorizer;
pub mod metrics;
pub mod security;
pub mod trace;

pub mod config;
pub mod options;
pub mod tunnels;

pub mod audit;
pub mod authentication_config;
pub mod authorization_config;
pub mod event_rate_limits;
pub mod front_proxy;
mod impersonation;

pub mod codec;
pub mod filter;
pub mod kinds;

pub mod conversion;

mod compaction;
pub mod webhook_client;

pub mod cache;

pub mod at_rest;
pub mod object;

mod blocking;
pub mod body;
mod connection_error;
pub mod formats;

pub mod configuration_error;
pub mod deadline;
pub mod negotiate;
pub mod notes;
pub mod precondition;
pub mod progress;
pub mod reinvocation;
pub mod request_info;
pub mod scale;
pub mod status;
pub mod tree;

pub use config::{Config, PortRange};
pub use options::Options;
pub use server::{ApiServer, StartError, start};
pub use service::ApiService;
