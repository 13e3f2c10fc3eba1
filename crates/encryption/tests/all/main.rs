//! Encryption at rest: what others wrote is read, keys take turns, and plugins that hold keys fail in every way.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod formats;
mod kms;
mod rotation;
