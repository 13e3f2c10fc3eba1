//! Match conditions of webhooks at work: CEL over what a request is about.
//!
//! Source: `plugin/webhook/matchconditions`, `plugin/cel/condition.go`.

use std::fmt;
use std::sync::Arc;

use auth::{Attributes as Asked, Decision as Decided, UserInfo};
use expressions::{
    Activation, Authorizer, AuthorizerValue, Budget, Decision, MATCH_CONDITIONS_BUDGET, Program, Question,
    Resource, ResourceCheck, Subject, Value as Cel,
};
use resources::match_conditions::{
    AUTHORIZER, NAMESPACE, OBJECT, OLD_OBJECT, REQUEST, REQUEST_RESOURCE, compile, request_type,
};
use serde_json::Value;

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
    fn evaluate(&self, input: &Input<'_>) -> Result<bool, Vec<String>> {
        let request = review::request_value(input.attributes, input.form);
        let (authorizer, check) = authorizer(&self.security, input.attributes);
        let activation = Activation::new()
            .with(OBJECT, input.object.map_or(Cel::Null, Cel::of))
            .with(OLD_OBJECT, input.old.map_or(Cel::Null, Cel::of))
            .with(NAMESPACE, Cel::Null)
            .with(REQUEST, Cel::declared(&request, request_type()))
            .with(AUTHORIZER, authorizer)
            .with(REQUEST_RESOURCE, check);
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
            match program.evaluate(&activation, &mut budget).result {
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(Cel::Bool(true)) => {}
                Ok(_) => errors.push(format!("expression '{}' is no question", condition.expression)),
                Err(why @ expressions::EvalError::Budget) => return Err(vec![why.to_string()]),
                Err(why) => {
                    errors.push(format!("expression '{}' resulted in error: {why}", condition.expression));
                }
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(errors) }
    }
}

/// `authorizer` and `authorizer.requestResource` of a request.
pub(crate) fn authorizer(
    security: &Arc<Security>,
    attributes: &Attributes<'_>,
) -> (Cel<'static>, Cel<'static>) {
    let asker: Arc<dyn Authorizer> =
        Arc::new(Asker { security: Arc::clone(security), user: attributes.user.clone() });
    let check = ResourceCheck::new(Arc::clone(&asker), resource_of(attributes));
    let authorizer = AuthorizerValue { authorizer: asker, service_account: None };
    (Cel::Authorizer(Arc::new(authorizer)), Cel::ResourceCheck(Arc::new(check)))
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

/// Asks on behalf of whoever sent the request.
struct Asker {
    security: Arc<Security>,
    user: UserInfo,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorizer for Asker {
    fn check(&self, question: &Question) -> Decision {
        let account = question.service_account.as_ref().map(|account| {
            let (namespace, name) = (&account.namespace, &account.name);
            let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            UserInfo::new(&format!("system:serviceaccount:{namespace}:{name}"), &groups)
        });
        let asked = match &question.subject {
            Subject::Path(path) => Asked { path: path.clone(), ..Asked::default() },
            Subject::Resource(resource) => Asked {
                group: resource.group.clone(),
                version: "*".to_owned(),
                resource: resource.resource.clone(),
                subresource: resource.subresource.clone(),
                namespace: resource.namespace.clone(),
                name: resource.name.clone(),
                field_selector: resource.field_selector.clone(),
                is_resource: true,
                ..Asked::default()
            },
        };
        let asked = Asked { verb: question.verb.clone(), ..asked };
        let verdict = self.security.decide_at_once(account.as_ref().unwrap_or(&self.user), &asked);
        let (is_allowed, reason) = match verdict.decision {
            Decided::Allow(reason) => (true, reason),
            Decided::NoOpinion(reason) | Decided::Deny(reason) => (false, reason),
        };
        Decision { is_allowed, reason, error: verdict.error }
    }
}
