//! Tables of expressions: what comes out, what it costs, and what was estimated.
//!
//! A table is a text file. `schema` and `object` say in JSON what the rows below see as `self`; a row is
//! `EXPRESSION ==> OUTCOME`, with ` # cost N` and ` # estimate MIN..MAX` behind it if they are known. An outcome is
//! `true`, `false`, `any` if it is only about costs, `fails PART` or `refused PART` with a part of the message, `wrong
//! PART` for either, `of TYPE` if it is only about the type. `⏎` is a new line. `variables NAME TYPE; ...` takes the place
//! of a schema: the object has their values. `declare NAME SCHEMA` adds one whose sizes
//! are known, `message NAME FIELD TYPE; ...` is a type that variables can have.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    Activation, Authorizer, AuthorizerValue, Budget, Decision, Declared, Environment, EvalError, Field,
    Fields, JsonBudget, Library, ListKind, MadeType, Question, Type, Value,
};

/// A schema as JSON has it. What a schema of a custom kind becomes is up to the crates above; this is the short form.
pub(super) fn declared(schema: &Json) -> Declared {
    let number = |name: &str| schema.get(name).and_then(Json::as_u64);
    let is = |name: &str| schema.get(name).and_then(Json::as_bool) == Some(true);
    if is("intOrString") {
        return Declared::int_or_string(number("maxLength"));
    }
    let format = schema.get("format").and_then(Json::as_str);
    match (schema.get("type").and_then(Json::as_str), format) {
        (Some("boolean"), _) => Declared::boolean(),
        (Some("integer"), _) => Declared::integer(),
        (Some("number"), _) => Declared::double(),
        (Some("string"), Some("byte")) => Declared::bytes(number("maxLength")),
        (Some("string"), Some("date")) => Declared::date(),
        (Some("string"), Some("date-time")) => Declared::timestamp(),
        (Some("string"), Some("duration")) => Declared::duration(),
        (Some("string"), _) => Declared::string(number("maxLength")),
        (Some("array"), _) => {
            Declared::list(declared(&schema["items"]), list_kind(schema), number("maxItems"))
        }
        (Some("object"), _) => match schema.get("additionalProperties") {
            Some(value) => Declared::map(declared(value), number("maxProperties")),
            None if is("embedded") => Declared::object(fields(schema)).with_object_meta(),
            None => Declared::object(fields(schema)),
        },
        _ => Declared::dynamic(),
    }
}

fn list_kind(schema: &Json) -> ListKind {
    match schema.get("listType").and_then(Json::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["listMapKeys"].as_array().expect("keys");
            ListKind::Map(keys.iter().map(|key| key.as_str().expect("a key").into()).collect())
        }
        _ => ListKind::Atomic,
    }
}

fn is_typed(schema: &Json) -> bool {
    let inner = ["items", "additionalProperties"].iter().find_map(|inner| schema.get(inner));
    (schema.get("type").is_some() || schema.get("intOrString").is_some()) && inner.is_none_or(is_typed)
}

/// Fields that rules see: those of which a type is known.
fn fields(schema: &Json) -> Vec<Field> {
    let properties = schema.get("properties").and_then(Json::as_object);
    properties
        .into_iter()
        .flatten()
        .filter(|(_, schema)| is_typed(schema))
        .map(|(name, schema)| Field { name: name.clone(), declared: declared(schema), is_required: false })
        .collect()
}

struct Row<'t> {
    expression: String,
    outcome: &'t str,
    cost: Option<u64>,
    estimate: Option<(Option<u64>, u64)>,
}

fn row(line: &str) -> Row<'_> {
    let (expression, rest) = line.rsplit_once(" ==> ").unwrap_or_else(|| panic!("no outcome: {line}"));
    let mut parts = rest.split(" # ");
    let outcome = parts.next().expect("an outcome").trim();
    let (mut cost, mut estimate) = (None, None);
    for part in parts {
        match part.trim().split_once(' ') {
            Some(("cost", number)) => cost = number.parse().ok(),
            Some(("estimate", range)) => {
                let (min, max) = range.split_once("..").expect("a range");
                estimate = Some((min.parse().ok(), max.parse().expect("a number")));
            }
            _ => panic!("neither cost nor estimate: {line}"),
        }
    }
    Row { expression: expression.replace('⏎', "\n"), outcome, cost, estimate }
}

/// What rows see.
struct Scene {
    environment: Environment,
    messages: Vec<MadeType>,
    declared: Declared,
    object: Json,
    variables: Vec<String>,
}

/// Pairs of a name and a type.
fn pairs(text: &str) -> impl Iterator<Item = (String, Type)> {
    text.split("; ").filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, kind) = pair.split_once(' ').unwrap_or_else(|| panic!("no type: {pair}"));
        (name.to_owned(), crate::types::parse(kind).unwrap_or_else(|| panic!("no type: {kind}")))
    })
}

impl Scene {
    fn new() -> Self {
        Self {
            environment: asking(),
            messages: Vec::new(),
            declared: Declared::dynamic(),
            object: Json::Null,
            variables: Vec::new(),
        }
    }

    /// Whether a line says what rows see, and is none itself.
    fn is_set(&mut self, line: &str) -> bool {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let json = || serde_json::from_str(rest).unwrap_or_else(|error| panic!("{line}: {error}"));
        match word {
            "schema" => {
                self.declared = declared(&json()).named("selfType");
                self.environment = Environment::new().declared("self", self.declared.clone());
                self.variables.clear();
            }
            "object" => self.object = json(),
            "message" => {
                let (name, fields) = rest.split_once(' ').expect("fields");
                self.messages.push(MadeType { name: name.to_owned(), fields: Some(pairs(fields).collect()) });
            }
            "variables" => {
                let empty = Environment::new().with(Library::Bindings);
                self.environment = self.messages.iter().cloned().fold(empty, Environment::making);
                self.variables = pairs(rest).map(|(name, _)| name).collect();
                for (name, kind) in pairs(rest) {
                    self.environment = self.environment.clone().variable(&name, kind);
                }
            }
            "declare" => {
                let (name, schema) = rest.split_once(' ').expect("a schema");
                let declared = declared(&serde_json::from_str(schema).expect("a schema"));
                self.environment = self.environment.clone().declared(name, declared);
            }
            _ => return false,
        }
        true
    }
}

fn refused(outcome: &str) -> Option<&str> {
    ["refused", "wrong"].iter().find_map(|kind| outcome.strip_prefix(kind))
}

/// What is wrong with a row, if anything is.
fn wrong(row: &Row<'_>, scene: &Scene) -> Option<String> {
    let program = match scene.environment.compile(&row.expression) {
        Ok(program) => program,
        Err(problems) => {
            let text = problems.to_string();
            let is_right = refused(row.outcome).is_some_and(|part| text.contains(part.trim()));
            return (!is_right).then(|| format!("refused: {text}"));
        }
    };
    if let Some(kind) = row.outcome.strip_prefix("of ") {
        return (program.kind().to_string() != kind).then(|| format!("is of {}", program.kind()));
    }
    let authorizer = AuthorizerValue { authorizer: Arc::new(Yes), service_account: None };
    let dynamic = Declared::dynamic();
    let mut activation = Activation::new()
        .with("self", Value::declared(&scene.object, &scene.declared))
        .with("authorizer", Value::Authorizer(Arc::new(authorizer)));
    for name in &scene.variables {
        if let Some(value) = scene.object.get(name) {
            activation = activation.with(name, Value::declared(value, &dynamic));
        }
    }
    let evaluation = program.evaluate(&activation, &mut Budget::new(u64::MAX).per_call(u64::MAX));
    let is_right = match (row.outcome, &evaluation.result) {
        ("true", Ok(Value::Bool(true))) | ("false", Ok(Value::Bool(false))) | ("any", _) => true,
        (outcome, Err(error)) => ["fails", "wrong"]
            .iter()
            .find_map(|kind| outcome.strip_prefix(kind))
            .is_some_and(|part| error.to_string().contains(part.trim())),
        _ => false,
    };
    if !is_right {
        return Some(format!("gave {:?}", evaluation.result));
    }
    if row.cost.is_some_and(|cost| cost != evaluation.cost) {
        return Some(format!("cost {}", evaluation.cost));
    }
    let estimated = program.cost();
    if row
        .estimate
        .is_some_and(|(min, max)| min.is_some_and(|min| min != estimated.min) || max != estimated.max)
    {
        return Some(format!("was estimated {estimated:?}"));
    }
    None
}

/// Says yes to everything, and names what was asked.
#[derive(Debug)]
struct Yes;

impl Authorizer for Yes {
    fn check(&self, question: &Question) -> Option<Decision> {
        Some(Decision { is_allowed: true, reason: format!("{question:?}"), error: None })
    }
}

/// An environment with nothing but an authorizer.
fn asking() -> Environment {
    Environment::new().variable("authorizer", Type::named("kubernetes.authorization.Authorizer"))
}

fn check(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/tables").join(table);
    let text = std::fs::read_to_string(path).expect("a table");
    let mut scene = Scene::new();
    let (mut rows, mut failures) = (0, Vec::new());
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with("//"));
    for (number, line) in lines {
        if scene.is_set(line) {
            continue;
        }
        rows += 1;
        if let Some(why) = wrong(&row(line), &scene) {
            failures.push(format!("{table}:{}: {line}\n    {why}", number + 1));
        }
    }
    assert!(rows > 0, "{table} has no rows");
    assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_language_is_as_defined() {
    check("language.txt");
}

#[test]
fn libraries_do_what_upstream_does() {
    check("libraries.txt");
}

#[test]
fn the_language_passes_its_own_tests() {
    check("conformance.txt");
}

#[test]
fn every_case_of_the_languages_own_tests_holds() {
    check("suite.txt");
}

#[test]
fn types_are_those_that_upstreams_checker_finds() {
    check("checker.txt");
}

#[test]
fn evaluation_gives_what_it_gives_upstream() {
    check("evaluation.txt");
}

#[test]
fn evaluating_costs_what_it_costs_upstream() {
    check("costs.txt");
}

#[test]
fn kubernetes_libraries_pass_upstreams_own_tests() {
    check("kubernetes.txt");
}

#[test]
fn extensions_pass_their_own_tests() {
    check("extensions.txt");
}

#[test]
fn the_parser_refuses_what_upstreams_does() {
    check("parser.txt");
}

#[test]
fn mistakes_are_told_in_upstreams_words() {
    check("mistakes.txt");
}

#[test]
fn rules_of_custom_kinds_cost_what_they_cost_upstream() {
    check("rules.txt");
}

#[test]
fn rules_of_custom_kinds_give_what_they_give_upstream() {
    check("outcomes.txt");
}

#[test]
fn functions_cost_what_they_cost_upstream() {
    check("functions.txt");
}

#[test]
fn estimates_are_upstreams() {
    check("estimates.txt");
}

/// What an API server does for `x-kubernetes-validations`.
#[test]
fn a_rule_is_compiled_once_and_evaluated_for_objects() {
    let schema = serde_json::json!({"type": "object", "properties": {
        "minReplicas": {"type": "integer"}, "replicas": {"type": "integer"}, "name-of": {"type": "string", "maxLength": 5},
    }});
    let declared = declared(&schema).named("selfType");
    let environment =
        Environment::new().declared("self", declared.clone()).declared("oldSelf", declared.clone());
    let program = environment
        .compile("self.replicas >= self.minReplicas && self.name__dash__of != ''")
        .expect("a rule");
    assert_eq!(*program.kind(), Type::Bool);
    assert!(program.mentions("self") && !program.mentions("oldSelf"));
    assert_eq!((program.cost().min, program.cost().max), (5, 7));
    for (replicas, expected) in [(3, true), (1, false)] {
        let object = serde_json::json!({"minReplicas": 2, "replicas": replicas, "name-of": "x"});
        let activation = Activation::new().with("self", Value::declared(&object, &declared));
        let mut budget = Budget::default();
        let evaluation = program.evaluate(&activation, &mut budget);
        assert!(matches!(evaluation.result, Ok(Value::Bool(yes)) if yes == expected));
        assert_eq!(budget.remaining(), crate::RUNTIME_BUDGET - evaluation.cost);
    }
}

#[test]
fn patches_are_made_only_where_they_are_known() {
    let expression = "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b~c'), value: Object{spec: Object.spec{n: 1}}}]";
    assert!(Environment::new().compile(expression).is_err());
    let environment = Environment::new()
        .with(Library::Patches)
        .making(crate::MadeType::json_patch())
        .making(crate::MadeType::object());
    let program = environment.compile(expression).expect("a patch");
    assert_eq!(program.kind().to_string(), "list(JSONPatch)");
    let activation = Activation::new();
    let evaluation = program.evaluate(&activation, &mut Budget::default());
    let Ok(Value::List(patches)) = evaluation.result else { panic!("no list") };
    let Some(Value::Object(patch)) = patches.get(0) else { panic!("no patch") };
    let written = serde_json::json!({"op": "add", "path": "/a~1b~0c", "value": {"spec": {"n": 1}}});
    assert_eq!(Value::Object(patch.clone()).to_json(&mut JsonBudget::default()), Ok(written));
    assert!(matches!(patch.field("path"), Some(Value::String(path)) if &*path == "/a~1b~0c"));
    assert!(
        environment
            .compile("JSONPatch{operation: 'add'}")
            .expect_err("a typo")
            .to_string()
            .contains("undefined field")
    );
}

/// `variables` of a policy: each is computed at most when it is asked for.
#[derive(Debug)]
struct Variables;

impl Fields for Variables {
    fn field<'a>(&'a self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        match name {
            "greeting" => Some(Ok(Value::text("hello"))),
            "broken" => Some(Err(EvalError::from("division by zero"))),
            _ => None,
        }
    }
}

#[test]
fn variables_of_a_policy_are_computed_when_they_are_asked_for() {
    let fields = [("greeting", Type::String), ("broken", Type::Int)];
    let fields = Some(fields.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect());
    let environment = Environment::new()
        .variable("variables", Type::named("kubernetes.variables"))
        .making(MadeType { name: "kubernetes.variables".to_owned(), fields });
    let activation = Activation::new().computing("variables", &Variables);
    let check = |expression: &str, expected: &str| {
        let program = environment.compile(expression).expect("an expression");
        let evaluation = program.evaluate(&activation, &mut Budget::default());
        assert_eq!(
            format!("{:?}", evaluation.result.map(|value| value.to_json(&mut JsonBudget::default()))),
            expected,
            "{expression}"
        );
    };
    check("variables.greeting + '!'", "Ok(Ok(String(\"hello!\")))");
    check("variables.greeting == 'hello' || variables.broken == 1", "Ok(Ok(Bool(true)))");
    check("variables.broken == 1", "Err(Failed(\"division by zero\"))");
    assert!(
        environment
            .compile("variables.nobody")
            .expect_err("nobody")
            .to_string()
            .contains("undefined field 'nobody'")
    );
    assert!(environment.compile("variables.greeting + 1").is_err());
}

/// How costs of a change are known: `oldSelf` that may not be there.
#[test]
fn old_values_may_be_optional() {
    let declared = declared(&serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}}))
        .named("selfType");
    let environment = Environment::new().declared("self", declared.clone()).optional("oldSelf", &declared);
    let program = environment.compile("!oldSelf.hasValue() || oldSelf.value().n <= self.n").expect("a rule");
    assert!(program.mentions("oldSelf"));
    let check = |old: Option<i64>, expected: bool| {
        let (object, old) = (serde_json::json!({"n": 5}), old.map(|n| serde_json::json!({"n": n})));
        let old =
            old.as_ref().map_or(Value::Optional(None), |old| Value::some(Value::declared(old, &declared)));
        let activation =
            Activation::new().with("self", Value::declared(&object, &declared)).with("oldSelf", old);
        let evaluation = program.evaluate(&activation, &mut Budget::default());
        assert!(matches!(evaluation.result, Ok(Value::Bool(yes)) if yes == expected));
    };
    check(None, true);
    check(Some(4), true);
    check(Some(6), false);
    assert!(environment.compile("oldSelf.n == 1").is_err());
}

#[test]
fn programs_are_for_many_threads() {
    const fn shared<T: Send + Sync>() {}
    const { shared::<crate::Program>() };
    const { shared::<Environment>() };
    const { shared::<Value<'static>>() };
}
