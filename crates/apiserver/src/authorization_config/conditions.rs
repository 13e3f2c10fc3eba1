//! Match conditions of authorization webhooks: CEL over the SubjectAccessReview that they would be asked.
//!
//! One that is false is enough for the webhook not to be asked, and then errors of others do not matter. Evaluations have
//! a budget, which upstream's have not: whoever is judged chooses what they see.
//! Source: `k8s.io/apiserver/pkg/authorization/cel`.

use std::fmt;
use std::sync::{Arc, LazyLock};

use expressions::{
    Activation, Budget, CompileError, Declared, Environment, EvalError, Field, ListKind,
    MATCH_CONDITIONS_BUDGET, Program, Type, Value,
};
use serde_json::{Map, Value as Json, json};

/// The one variable.
const REQUEST: &str = "request";
/// What CEL always sees of a resource, also if it says nothing.
const OF_RESOURCE: [&str; 7] = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];

static SPEC: LazyLock<Declared> = LazyLock::new(spec_type);
static ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().declared(REQUEST, SPEC.clone()));

/// The conditions of one webhook.
#[derive(Clone, Debug, Default)]
pub struct Conditions(Vec<Arc<Condition>>);

#[derive(Debug)]
struct Condition {
    expression: String,
    program: Program,
}

impl PartialEq for Conditions {
    fn eq(&self, other: &Self) -> bool {
        let expressions = |all: &'_ Self| -> Vec<String> {
            all.0.iter().map(|condition| condition.expression.clone()).collect()
        };
        expressions(self) == expressions(other)
    }
}

impl Eq for Conditions {}

/// A text that is no condition, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum NoCondition {
    /// It does not compile.
    #[error("compilation failed: {0}")]
    Compilation(#[from] CompileError),
    /// It gives something else than true or false.
    #[error("must evaluate to bool but got {0}")]
    Type(Type),
}

/// Conditions of which nobody knows whether they hold: the expressions, and why not.
#[derive(Debug, PartialEq, Eq)]
pub struct NotEvaluated(Vec<(String, EvalError)>);

impl std::error::Error for NotEvaluated {}

impl fmt::Display for NotEvaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (expression, why)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}cel evaluation error: expression '{expression}' resulted in error: {why}")?;
        }
        Ok(())
    }
}

impl Conditions {
    /// `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a condition.
    ///
    /// # Errors
    /// Why it is none, in upstream's words.
    pub fn add(&mut self, expression: &str) -> Result<(), NoCondition> {
        let program = ENVIRONMENT.compile(expression)?;
        if *program.kind() != Type::Bool {
            return Err(NoCondition::Type(program.kind().clone()));
        }
        self.0.push(Arc::new(Condition { expression: expression.to_owned(), program }));
        Ok(())
    }

    /// The answer whether a webhook is to be asked about the `spec` of a review.
    ///
    /// # Errors
    /// Why that cannot be said.
    pub fn matches(&self, spec: &Map<String, Json>) -> Result<bool, NotEvaluated> {
        let shown = shown(spec);
        let activation = Activation::new().with(REQUEST, Value::declared(&shown, &SPEC));
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET);
        let mut errors = Vec::new();
        for condition in &self.0 {
            let mut failed = |why| errors.push((condition.expression.clone(), why));
            match condition.program.evaluate(&activation, &mut budget).result {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => failed("it is no bool".into()),
                Err(why) => failed(why),
            }
        }
        match errors.is_empty() {
            true => Ok(true),
            false => Err(NotEvaluated(errors)),
        }
    }
}

/// A spec with all texts that it could have.
fn shown(spec: &Map<String, Json>) -> Json {
    let mut shown = spec.clone();
    for (name, absent) in
        [("user", json!("")), ("uid", json!("")), ("groups", json!([])), ("extra", json!({}))]
    {
        shown.entry(name).or_insert(absent);
    }
    for (name, fields) in
        [("resourceAttributes", &OF_RESOURCE[..]), ("nonResourceAttributes", &["path", "verb"])]
    {
        if let Some(about) = shown.get_mut(name).and_then(Json::as_object_mut) {
            for field in fields {
                about.entry(*field).or_insert_with(|| "".into());
            }
        }
    }
    Json::Object(shown)
}

fn spec_type() -> Declared {
    let text = || Declared::string(None);
    let list = |of: Declared| Declared::list(of, ListKind::Atomic, None);
    let object = |name: &str, fields: Vec<(&str, Declared)>| {
        let fields = fields.into_iter().map(|(name, declared)| {
            let name = name.to_owned();
            Field { name, declared, is_required: false }
        });
        Declared::object(fields).named(&format!("kubernetes.{name}"))
    };
    let requirement = || {
        object("SelectorRequirement", vec![("key", text()), ("operator", text()), ("values", list(text()))])
    };
    let selector =
        |name: &str| object(name, vec![("rawSelector", text()), ("requirements", list(requirement()))]);
    let mut of_resource: Vec<(&str, Declared)> = OF_RESOURCE.map(|name| (name, text())).to_vec();
    of_resource.push(("fieldSelector", selector("FieldSelectorAttributes")));
    of_resource.push(("labelSelector", selector("LabelSelectorAttributes")));
    let of_path = vec![("path", text()), ("verb", text())];
    object(
        "SubjectAccessReviewSpec",
        vec![
            ("resourceAttributes", object("ResourceAttributes", of_resource)),
            ("nonResourceAttributes", object("NonResourceAttributes", of_path)),
            ("user", text()),
            ("groups", list(text())),
            ("extra", Declared::map(list(text()), None)),
            ("uid", text()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(expressions: &[&str]) -> Conditions {
        let mut conditions = Conditions::default();
        for expression in expressions {
            conditions.add(expression).unwrap();
        }
        conditions
    }

    #[test]
    fn conditions_see_who_wants_what() {
        let spec = json!({
            "user": "jane",
            "groups": ["dev"],
            "resourceAttributes": {
                "verb": "list",
                "resource": "pods",
                "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
            },
        });
        let check = |expressions: &[&str], expect: Result<bool, &str>| {
            let found = conditions(expressions).matches(spec.as_object().unwrap());
            match (&found, expect) {
                (Err(why), Err(expect)) => {
                    assert!(why.to_string().contains(expect), "{expressions:?}: {why}")
                }
                _ => assert_eq!(found.as_ref().ok(), expect.as_ref().ok(), "{expressions:?}: {found:?}"),
            }
        };
        check(&["true"], Ok(true));
        check(&["request.user == 'jane'", "'dev' in request.groups"], Ok(true));
        check(&["has(request.resourceAttributes) && request.resourceAttributes.namespace == ''"], Ok(true));
        check(&["has(request.nonResourceAttributes)"], Ok(false));
        check(&["request.uid == '' && request.extra.size() == 0"], Ok(true));
        check(&["request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'a')"], Ok(true));
        check(&["request.nonResourceAttributes.path == '/'"], Err("cel evaluation error: expression"));
        check(&["request.nonResourceAttributes.path == '/'", "false"], Ok(false));
        check(&["request.nonResourceAttributes.path == '/'", "true"], Err("resulted in error"));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for (expression, expect) in [
            ("request.user", "must evaluate to bool but got string"),
            ("request.usr == 'a'", "compilation failed: ERROR: <input>:1:8: undefined field 'usr'"),
            ("object.metadata.name == 'a'", "undeclared reference to 'object'"),
            ("request.user == 1", "found no matching overload"),
            ("(", "compilation failed: ERROR"),
        ] {
            let failure = Conditions::default().add(expression).unwrap_err().to_string();
            assert!(failure.contains(expect), "{expression}: {failure}");
        }
    }

    #[test]
    fn an_evaluation_has_an_end() {
        let groups: Vec<String> = (0..2000).map(|number| format!("group-{number}")).collect();
        let spec = json!({"groups": groups});
        let all = "request.groups.all(a, request.groups.all(b, request.groups.all(c, a + b + c != '')))";
        let failure = conditions(&[all]).matches(spec.as_object().unwrap()).unwrap_err().to_string();
        assert!(failure.contains("cost"), "{failure}");
    }
}
