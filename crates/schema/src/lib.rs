//! The one schema of knarr and the walks over it.
//!
//! Every kind, built-in or custom, is a [`Message`] in an arena of [`Schemas`]. Decoding, defaulting, patching,
//! protobuf and OpenAPI are walks over it; none of them names a kind. The facts of built-in kinds are constant
//! rows under `generated/`, made by `cargo xtask codegen`, so that nothing is parsed or built at start. Those of a custom
//! kind are built from its definition ([`build`]), with its [`rules`] beside them, and kept once they are needed ([`made`]).
//!
//! ```
//! use schema::walk::decode::{self, FieldValidation};
//! let pod = schema::builtin().kind("", "v1", "Pod").ok_or("no such kind")?;
//! let body = br#"{"metadata": {"name": "a"}, "spec": {"containrs": []}}"#;
//! let decoded = decode::from_json(pod, body, FieldValidation::Warn)?;
//! assert_eq!(decoded.warnings, [r#"unknown field "spec.containrs""#]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod generated {
    #![allow(missing_docs)]
    #[rustfmt::skip]
    pub(crate) mod kinds;
    #[rustfmt::skip]
    pub(crate) mod messages;
}
mod rows;
mod scalar;
mod time;

pub mod arena;
pub mod build;
pub mod duration;
pub mod go;
pub mod made;
pub mod openapi;
pub mod patch;
pub mod proto;
pub mod rules;
pub mod text;
pub mod walk;

pub use arena::{SchemaRef, Shape, TypeRef, builtin};
pub use made::Schema;
pub use rows::{Field, Kind, List, ListKind, Message, Names, Schemas, Type};

/// A JSON object.
pub type Object = serde_json::Map<String, serde_json::Value>;
