//! Expressions of the Common Expression Language as Kubernetes has it: what it adds to the language, and what it bounds.
//!
//! Whoever writes an expression runs it in somebody else's process: none is run that is nested too deeply or could cost
//! too much, and none panics. What expressions are about has a module of its own each.
//! Source: `k8s.io/apiserver/pkg/cel`, the definition of CEL at cel.dev.

mod compile;
mod cost;
pub mod device;
mod library;

#[cfg(test)]
mod tests;
