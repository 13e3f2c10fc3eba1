//! Match conditions of webhooks at work: CEL over what a request is about.
//!
//! Source: `plugin/webhook/matchconditions`, `plugin/cel/condition.go`.

use std::sync::Arc;

use expressions::{Activation, MATCH_CONDITIONS_BUDGET, Value as Cel};
use futures::future::BoxFuture;
use resources::match_conditions::{
    AUTHORIZER, NAMESPACE, OBJECT, OLD_OBJECT, REQUEST, REQUEST_RESOURCE, compile, request_type,
};
use serde_json::Value;

use crate::expression_authorizer::ExpressionAuthorizer;
use crate::policies::evaluation::{Scope, hold};
use crate::policies::policy::{Expression, Variables};
use crate::policies::view;
use crate::security::Security;
use crate::webhooks::conditions::{Compile, Conditions, Input};

/// Compiles match conditions, which ask this server's authorizers.
pub(crate) struct MatchConditions(pub(crate) Arc<Security>);

impl Compile for MatchConditions {
    fn compile(&self, conditions: &Value) -> Option<Arc<dyn Conditions>> {
        let written = conditions.as_array().into_iter().flatten();
        let all: Vec<Expression> = written
            .map(|one| {
                let source = one.get("expression").and_then(Value::as_str).unwrap_or_default().to_owned();
                Expression { program: compile(&source), source }
            })
            .collect();
        let compiled = Compiled { all, variables: Variables::default(), security: Arc::clone(&self.0) };
        (!compiled.all.is_empty()).then(|| Arc::new(compiled) as Arc<dyn Conditions>)
    }
}

struct Compiled {
    all: Vec<Expression>,
    /// There are none.
    variables: Variables,
    security: Arc<Security>,
}

impl Conditions for Compiled {
    fn evaluate<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<bool, Vec<String>>> {
        Box::pin(async move {
            let request = view::request_of_conditions(input.attributes, input.form);
            let authorizer = ExpressionAuthorizer::new(&self.security, input.attributes.user);
            let resource = input.attributes.resource();
            let evaluate = || {
                let activation = Activation::new()
                    .with(OBJECT, input.object.map_or(Cel::Null, Cel::of))
                    .with(OLD_OBJECT, input.old.map_or(Cel::Null, Cel::of))
                    .with(NAMESPACE, Cel::Null)
                    .with(REQUEST, Cel::declared(&request, request_type()))
                    .with(AUTHORIZER, authorizer.value())
                    .with(REQUEST_RESOURCE, authorizer.request_resource(resource.clone()));
                let scope = Scope::new(&self.variables, MATCH_CONDITIONS_BUDGET);
                hold(scope.seeing(activation), &self.all)
            };
            let held = authorizer.settle(evaluate).await;
            held.map_err(|failures| failures.iter().map(ToString::to_string).collect())
        })
    }
}
