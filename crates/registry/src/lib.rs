//! A client of the OCI distribution API: what `image: registry/name:tag` means, and how its bytes come here.
//!
//! It knows references, manifests, digests, credentials and `registries.yaml`; it does not know what a layer holds nor
//! where images are kept. Whatever a registry sends is checked against a digest or bounded by a size before it is used.
//! Credentials go to the registry that they are for, and to the token service that it names, and to nobody else.
//!
//! Source: the OCI distribution and image specifications, v1.1; Docker's token authentication specification.

pub mod auth;
pub mod config;
pub mod digest;
pub mod document;
pub mod proxy;
pub mod reference;

mod blob;
mod client;
mod error;
mod transport;

pub use auth::Credentials;
pub use client::{Client, Resolved, RetryPolicy, Session};
pub use config::Registries;
pub use digest::Digest;
pub use error::Error;
pub use proxy::Proxies;
pub use reference::Reference;
