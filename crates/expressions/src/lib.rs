//! Expressions of the Common Expression Language as Kubernetes has it: what it adds to the language, and what it bounds.
//!
//! Whoever writes an expression runs it in somebody else's process: none is run that is nested too deeply or could cost
//! too much, and none panics. What expressions are about has a module of its own each.
//! Source: `k8s.io/apiserver/pkg/cel`, the definition of CEL at cel.dev.

mod authorizer;
mod declared;
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
    Authorizer, AuthorizerValue, Decision, GroupCheck, PathCheck, Question, Resource, ResourceCheck, ServiceAccount,
    Subject,
};
pub use declared::{Declared, Field, ListKind, REQUEST_BYTES_MAX};
pub use environment::{Environment, MadeType};
pub use escape::escape;
pub use estimate::CostEstimate;
pub use evaluate::{
    Activation, Budget, EvalError, Fields, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET,
};
pub use functions::Library;
pub use functions::format::NamedFormat;
pub use functions::network::Range;
pub use functions::url::Url;
pub use problem::{Problem, Problems};
pub use program::{CompileError, Evaluation, Program};
pub use types::{ObjectRef, Type};
pub use value::{Entries, Key, List, Made, Map, Moment, Object, Text, Value};

#[cfg(test)]
mod tests;
