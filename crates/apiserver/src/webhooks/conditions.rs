//! Match conditions: CEL expressions that say further which requests a webhook is asked about.
//!
//! Here is what they are asked and what they answer; how they are evaluated is whoever compiles them's.
//!
//! Source: `plugin/webhook/matchconditions`.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::attributes::{Attributes, Form};

/// The conditions of one webhook, compiled.
pub trait Conditions: Send + Sync {
    /// What they say of a request, after authorizers have been asked if need be: one that is false is enough, and then errors
    /// of others do not matter.
    ///
    /// # Errors
    /// The text of every condition that cannot be evaluated, if none is false.
    fn evaluate<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<bool, Vec<String>>>;
}

impl fmt::Debug for dyn Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conditions")
    }
}

/// The variables that expressions see.
pub struct Input<'a> {
    /// `request`, user and namespace.
    pub attributes: &'a Attributes<'a>,
    /// The version in which objects are shown.
    pub form: &'a Form,
    /// `object`, in that version.
    pub object: Option<&'a Value>,
    /// `oldObject`, in that version.
    pub old: Option<&'a Value>,
}

/// A compiler of the `matchConditions` of a webhook.
pub trait Compile: Send + Sync {
    /// The conditions; `None` if there are none.
    fn compile(&self, conditions: &Value) -> Option<Arc<dyn Conditions>>;
}

/// Nothing is compiled: for tests that do not evaluate.
#[cfg(test)]
pub(crate) struct NotEvaluated;

#[cfg(test)]
impl Compile for NotEvaluated {
    fn compile(&self, conditions: &Value) -> Option<Arc<dyn Conditions>> {
        let has_some = conditions.as_array().is_some_and(|all| !all.is_empty());
        has_some.then(|| Arc::new(Self) as Arc<dyn Conditions>)
    }
}

#[cfg(test)]
impl Conditions for NotEvaluated {
    fn evaluate<'a>(&'a self, _: Input<'a>) -> BoxFuture<'a, Result<bool, Vec<String>>> {
        Box::pin(async { Err(vec!["nothing is evaluated".to_owned()]) })
    }
}
