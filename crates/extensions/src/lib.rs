//! From a CustomResourceDefinition to what is served: rows, schemas and rules of custom kinds, and what a definition's
//! status says. Pure functions of objects; nothing here does I/O or reads a clock.
//!
//! Source: `k8s.io/apiextensions-apiserver`.

pub mod conditions;
pub mod names;

mod definition;
pub mod expressions;
pub mod kind;
