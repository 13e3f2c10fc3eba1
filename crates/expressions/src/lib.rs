//! Expressions of the Common Expression Language as Kubernetes has it: what it adds to the language, and what it bounds.
//!
//! Whoever writes an expression runs it in somebody else's process: none is run that is nested too deeply or could cost
//! too much, and none panics. What expressions are about has a module of its own each.
//! Source: `k8s.io/apiserver/pkg/cel`, the definition of CEL at cel.dev.

mod authorizer;
mod context;
mod environment;
mod escape;
mod evaluate;
mod program;

mod check;
mod problem;
mod syntax;
mod types;

mod estimate;

mod charge;
mod plan;

mod functions;
mod value;

pub mod device;

pub use authorizer::{
    Authorizer, AuthorizerValue, Decision, GroupCheck, PathCheck, Question, Resource, ResourceCheck,
    ServiceAccount, Subject,
};
pub use context::EvalError;
pub use environment::{Environment, MadeType};
pub use escape::escape;
pub use estimate::CostEstimate;
pub use evaluate::{Activation, Budget, Fields, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub use functions::Library;
pub use problem::{Problem, Problems};
pub use program::{CompileError, Evaluation, Program};
pub use types::{Declared, Field, ListKind, ObjectRef, REQUEST_BYTES_MAX, Type};
pub use value::{Entries, Key, List, Made, Map, Moment, NamedFormat, Object, Range, Text, Url, Value};

#[cfg(test)]
mod tests;
