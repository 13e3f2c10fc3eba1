//! Expressions of the Common Expression Language as Kubernetes 1.35 has it: what it adds to the language, and what it
//! bounds.
//!
//! Whoever writes an expression runs it in somebody else's process: none is run that is nested too deeply or could cost
//! too much, none takes more memory than it may, and none panics. An [`Environment`] says what an expression sees, and
//! compiles it to a [`Program`], which knows the type of what comes out and what it can cost. A program is evaluated with
//! an [`Activation`], which has the variables' values, and a [`Budget`], which it draws on; many can do so at a time.
//!
//! For rules of custom kinds a schema becomes a [`Declared`], whose objects get names ([`Declared::named`]); of the root
//! and of embedded resources, [`Declared::with_object_meta`]. Its values are read with [`Value::declared`].
//!
//! Everything is there that version 1.35 has for expressions that are stored already; what is newer than the oldest
//! version that one may go back to is not refused in new ones.
//! Source: `k8s.io/apiserver/pkg/cel`, cel-go, the definition of CEL at cel.dev.

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
pub use escape::{RESERVED, escape};
pub use estimate::CostEstimate;
pub use evaluate::{Activation, Budget, Fields, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub use functions::Library;
pub use plan::PlanError;
pub use problem::{Problem, Problems};
pub use program::{CompileError, Evaluation, Program};
pub use types::{Declared, Field, ListKind, ObjectRef, REQUEST_BYTES_MAX, Type};
pub use value::{
    Entries, JsonBudget, Key, List, Made, Map, Moment, NamedFormat, NoJson, Object, Range, Text, Url, Value,
};

#[cfg(test)]
mod tests;
