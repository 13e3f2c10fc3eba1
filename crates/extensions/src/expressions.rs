//! The rules in CEL that schemas of custom kinds have (`x-kubernetes-validations`): what of them a definition may say, and
//! what they say of objects.
//!
//! A schema becomes a tree of nodes (`schema_node.rs`), whose rules are compiled once (`rule.rs`): when a definition is
//! written, to see what is wrong with them and what they could cost (`check.rs`), and when an object of a served kind is first
//! written, to be evaluated (`evaluate.rs`) over what is new and what stood in its place before (`correlation.rs`).
//!
//! Whoever writes a rule runs it in this process. What rules can cost is bounded before they are stored and while they are
//! evaluated, and so is the work of compiling them and what is said of them.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`, `pkg/apis/apiextensions/validation`.

mod check;
mod correlation;
mod evaluate;
mod messages;
mod rule;
mod schema_node;

use std::fmt;
use std::sync::{Arc, OnceLock};

use machinery::field::FieldErrors;
use resources::strategies::CUSTOM_RESOURCE_DEFINITION;
use resources::validation::crd;
use resources::{Resource, Rules, Strategy};
use schema::Schema;
use schema::made::Made;
use serde_json::Value;

pub use check::Cel;
use rule::Work;
use schema_node::{Root, SchemaNode};

/// The row of definitions with rules that look into their expressions; every other row as it is.
#[must_use]
pub fn with_expressions(mut row: Resource) -> Resource {
    if (&*row.group, &*row.plural) == ("apiextensions.k8s.io", "customresourcedefinitions") {
        let strategy = Strategy {
            validate_create: |_| FieldErrors::new(),
            validate_update: |_, _| FieldErrors::new(),
            rules: Some(Arc::new(Definitions)),
            ..CUSTOM_RESOURCE_DEFINITION
        };
        row.strategy = strategy.into();
    }
    row
}

/// The rules of definitions, expressions included.
#[derive(Debug)]
struct Definitions;

impl Rules for Definitions {
    fn validate_create(&self, new: &Value) -> FieldErrors {
        crd::check(new, &Cel)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        crd::update(new, old, &Cel)
    }

    fn validate_status_update(&self, _: &Value, _: &Value) -> FieldErrors {
        FieldErrors::new()
    }

    fn may_take_long(&self) -> bool {
        true
    }
}

/// The expressions of a kind. They are compiled when they are first asked for: most kinds are never written to.
pub(crate) struct KindExpressions {
    schema: Schema,
    node: OnceLock<SchemaNode>,
}

impl fmt::Debug for KindExpressions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KindExpressions").field("is_compiled", &self.node.get().is_some()).finish()
    }
}

impl KindExpressions {
    /// Those of a schema that can be served.
    pub(crate) fn of(schema: Schema) -> Self {
        Self { schema, node: OnceLock::new() }
    }

    fn node(&self) -> &SchemaNode {
        self.node.get_or_init(|| {
            let written = self.schema.made().map(Made::written).unwrap_or_default();
            let mut node = SchemaNode::of(&written, Root::Resource);
            node.compile(&mut Work::default());
            node
        })
    }

    /// What they say of an object, which may have been another one before.
    pub(crate) fn check(&self, new: &Value, old: Option<&Value>) -> FieldErrors {
        evaluate::object(self.node(), new, old)
    }
}

#[cfg(test)]
mod tests;
