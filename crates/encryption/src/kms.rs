//! KMS v2: a plugin behind a unix socket keeps the key; seeds that it encrypts lie beside the values.
//!
//! A server makes one seed per key of the plugin and encrypts everything with keys derived from it, so that the plugin
//! is asked when the key changes and when a seed is met for the first time, not for each value.
//! Source: KEP-3299, `k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2`.

pub mod api;
pub(crate) mod client;
pub(crate) mod envelope;
pub(crate) mod health;
pub(crate) mod provider;
