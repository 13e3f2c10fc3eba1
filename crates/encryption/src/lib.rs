//! Encryption at rest: what happens to values on their way to the store and back. Bytes in, bytes out.
//!
//! A [`Config`] is upstream's EncryptionConfiguration; [`Encryption`] does what it says, and takes another one while it
//! runs. Formats are upstream's to the byte: a kube-apiserver with the same configuration reads what is written here,
//! and the other way round. Whatever is stored, opening it gives the value or an error, never a panic. Keys and values
//! are in no error, log line or metric. What a key of the store means, and what an object is, is not known here.

mod chain;
mod cipher;
pub mod config;
mod encryption;
mod errors;
pub mod keys;
pub mod kms;
mod metrics;
mod socket;

pub use config::{Config, ConfigError};
pub use encryption::{Encryption, Transformer};
pub use errors::{OpenError, SealError};

/// The prefix of every encrypted value. Source: `storage/value/encrypt/identity`.
pub const PREFIX: &[u8] = b"k8s:enc:";
