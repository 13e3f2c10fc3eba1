//! Match conditions of webhooks at work: CEL over what a request is about.
//!
//! Source: `plugin/webhook/matchconditions`, `plugin/cel/condition.go`.

use std::sync::Arc;

use expressions::{Activation, Budget, EvalError, MATCH_CONDITIONS_BUDGET, Program, Resource, Value as Cel};
use futures::future::BoxFuture;
use resources::match_conditions::{
    AUTHORIZER, NAMESPACE, OBJECT, OLD_OBJECT, REQUEST, REQUEST_RESOURCE, compile, request_type,
};
use serde_json::Value;

use crate::expression_authorizer::ExpressionAuthorizer;
use crate::security::Security;
use crate::webhooks::attributes::Attributes;
use crate::webhooks::conditions::{Compile, Conditions, Input};
use crate::webhooks::review;

/// Compiles match conditions, which ask this server's authorizers.
pub(crate) struct MatchConditions(pub(crate) Arc<Security>);

impl Compile for MatchConditions {
    fn compile(&self, conditions: &Value) -> Option<Arc<dyn Conditions>> {
        let written = conditions.as_array().into_iter().flatten();
        let all: Vec<Condition> = written
            .map(|one| {
                let expression = one.get("expression").and_then(Value::as_str).unwrap_or_default().to_owned();
                Condition { program: compile(&expression), expression }
            })
            .collect();
        let compiled = Compiled { all, security: Arc::clone(&self.0) };
        (!compiled.all.is_empty()).then(|| Arc::new(compiled) as Arc<dyn Conditions>)
    }
}

struct Condition {
    expression: String,
    program: Result<Program, String>,
}

struct Compiled {
    all: Vec<Condition>,
    security: Arc<Security>,
}

impl Conditions for Compiled {
    fn evaluate<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<bool, Vec<String>>> {
        Box::pin(async move {
            let request = review::request_value(input.attributes, input.form);
            let authorizer = ExpressionAuthorizer::new(&self.security, input.attributes.user);
            let resource = resource_of(input.attributes);
            let evaluate = || {
                let activation = Activation::new()
                    .with(OBJECT, input.object.map_or(Cel::Null, Cel::of))
                    .with(OLD_OBJECT, input.old.map_or(Cel::Null, Cel::of))
                    .with(NAMESPACE, Cel::Null)
                    .with(REQUEST, Cel::declared(&request, request_type()))
                    .with(AUTHORIZER, authorizer.value())
                    .with(REQUEST_RESOURCE, authorizer.request_resource(resource.clone()));
                self.hold(&activation)
            };
            authorizer.settle(evaluate).await
        })
    }
}

impl Compiled {
    fn hold(&self, activation: &Activation<'_>) -> Result<bool, Vec<String>> {
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET);
        let mut errors = Vec::new();
        for condition in &self.all {
            let program = match &condition.program {
                Ok(program) => program,
                Err(why) => {
                    errors.push(format!("compilation error: {why}"));
                    continue;
                }
            };
            match program.evaluate(activation, &mut budget).result {
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(Cel::Bool(true)) => {}
                Ok(_) => errors.push(format!("expression '{}' is no question", condition.expression)),
                Err(why @ EvalError::Budget) => return Err(vec![why.to_string()]),
                Err(why) => {
                    errors.push(format!("expression '{}' resulted in error: {why}", condition.expression));
                }
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(errors) }
    }
}

/// What the request itself is about, as `authorizer.requestResource` asks for it.
fn resource_of(attributes: &Attributes<'_>) -> Resource {
    Resource {
        group: attributes.kind.group().to_owned(),
        resource: attributes.kind.resource().to_owned(),
        subresource: attributes.subresource.to_owned(),
        namespace: attributes.namespace.to_owned(),
        name: attributes.name.to_owned(),
        ..Resource::default()
    }
}
