//! The table of resources: one row per served group, version and resource, and what differs between kinds.
//!
//! The API server's verbs name no kind: they look a row up and call what its strategy says. Everything here is a
//! pure function of objects; nothing does I/O or reads a clock.

pub mod resource;
pub mod table;

pub mod columns;
pub mod conversion;
pub mod defaults;
pub mod definition;
pub mod fields;
pub mod flow_control;
pub mod gated;
pub mod match_conditions;
pub mod policy_expressions;
pub mod row_values;
pub mod rows;
pub mod strategies;
pub mod strategy;
pub mod validation;

pub mod pod_resources;
pub mod quota;
pub mod storage_versions;
pub mod sysctls;
mod times;

pub use resource::{Resource, ScalePaths, Scope, Subresource};
pub use row_values::{Names, Shared, Text};
pub use strategies::{PartialStrategy, partial};
pub use strategy::{Deletion, Generation, NameRule, Propagation, Rules, StatusMetadata, Strategy, Unowned};
pub use table::{by_kind, find, storage_version, table};
