//! The API server as its clients see it: a table, a session or a simulation in each file. What measures a whole process is
//! a binary of its own (`costs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod admission;
mod aggregation;
mod apply;
mod at_rest;
mod audit_webhook;
mod authentication;
mod authentication_config;
mod battery;
mod catalogue;
mod certificates;
mod conversion;
mod corpus;
mod custom;
mod custom_rules;
mod device_taints;
mod dial;
mod discovery;
mod dynamic_kinds;
mod etcd;
mod external_addresses;
mod filters;
mod fixtures;
mod gangs;
mod hook_server;
mod issuer;
mod jobs;
mod matrix;
mod mutating_policies;
mod nasty;
mod nothing;
mod outside_authority;
mod partial;
mod poison;
mod policies;
mod scopes;
mod semantics;
mod server;
mod service_addresses;
mod simulation;
mod storage_versions;
mod stored;
mod streams;
mod tls;
mod tunnels;
mod verbs;
mod watches;
mod webhooks;
mod workloads;
