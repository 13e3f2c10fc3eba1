//! The result of a mutating policy for a request's object: its mutations, one after the other.
//!
//! Here is what is pure: a mutation's expression, the value that it has, and the object that comes of it. `mutating` carries
//! it out. Source: `plugin/policy/mutating/{compilation,patch}`.

pub mod apply_configuration;
pub mod json_patch;
mod names;

use expressions::{NoJson, Type, Value as Cel};
use resources::match_conditions::ExpressionError;
use resources::policy_expressions::{Compiler, Sees};
use serde_json::Value;

use super::evaluation;
use super::policy::{Evaluator, Expression};
use crate::status::Error;
use crate::tree::{items, text};
use crate::webhooks::attributes::{Attributes, Form};

/// The parts that only mutating policies have.
#[derive(Debug)]
pub struct Mutations {
    /// In order.
    pub mutations: Vec<Mutation>,
    /// `true` if it is evaluated again when others change what it has seen.
    pub is_reinvoked: bool,
}

/// One mutation.
#[derive(Debug)]
pub struct Mutation {
    /// The expression that makes the change.
    pub expression: Expression,
    /// The type of the expression's value.
    pub patch_type: PatchType,
}

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `Object{...}`, which is merged by the schema.
    ApplyConfiguration,
    /// A list of `JSONPatch{...}`.
    JsonPatch,
}

impl PatchType {
    /// The type that its expressions must have.
    fn wanted(self) -> Type {
        match self {
            Self::ApplyConfiguration => Type::named("Object"),
            Self::JsonPatch => Type::list(Type::named("JSONPatch")),
        }
    }
}

impl Evaluator for Mutations {
    fn compile(spec: &Value, compiler: &Compiler) -> Self {
        let mutations = items(spec, "/mutations").filter_map(|written| {
            let (patch_type, pointer) = match text(written, "/patchType") {
                "ApplyConfiguration" => (PatchType::ApplyConfiguration, "/applyConfiguration/expression"),
                "JSONPatch" => (PatchType::JsonPatch, "/jsonPatch/expression"),
                _ => return None,
            };
            let source = text(written, pointer);
            let expression = Expression::new(compiler, source, Sees::Patches, &[patch_type.wanted()]);
            Some(Mutation { expression, patch_type })
        });
        Self { mutations: mutations.collect(), is_reinvoked: text(spec, "/reinvocationPolicy") == "IfNeeded" }
    }
}

/// The reason why a mutation changes nothing.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The policy fails, in upstream's words: its failure policy says what comes of that.
    Policy(String),
    /// Its expression does not compile.
    Uncompiled(ExpressionError),
    /// Its expression has no value.
    Evaluation(evaluation::Failure),
    /// The request fails, whatever the policy says.
    Request(Error),
}

impl From<Error> for Failure {
    fn from(failure: Error) -> Self {
        Self::Request(failure)
    }
}

impl From<NoJson> for Failure {
    fn from(why: NoJson) -> Self {
        Self::Policy(why.to_string())
    }
}

/// The object that a mutation makes of an object, both in the form that the policy sees.
///
/// # Errors
/// As [`Failure`].
pub fn mutated(
    mutation: &Mutation,
    value: &Cel<'_>,
    attributes: &Attributes<'_>,
    form: &Form,
    object: &Value,
) -> Result<Value, Failure> {
    let patched = match mutation.patch_type {
        PatchType::ApplyConfiguration => apply_configuration::patched(value, attributes, form, object)?,
        PatchType::JsonPatch => {
            let source = &mutation.expression.source;
            let operations = json_patch::operations(value)
                .map_err(|why| Failure::Policy(format!("expression '{source}' resulted in error: {why}")))?;
            json_patch::patched(operations, object)?
        }
    };
    if !crate::codec::is_acceptable(&form.0, &patched) {
        return Err(Failure::Policy("the mutated object is too large".to_owned()));
    }
    Ok(patched)
}

#[cfg(test)]
mod tests;
