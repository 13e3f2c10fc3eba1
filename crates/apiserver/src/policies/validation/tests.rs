//! What policies say of one ConfigMap.

use auth::UserInfo;
use serde_json::json;

use super::*;
use crate::kinds::all::builtin;
use crate::webhooks::attributes::{Attributes, Form};
use crate::webhooks::rules::Operation;

/// What a policy with these fields says of a new ConfigMap whose `data` has `n: "7"`, with a parameter.
fn outcome(spec: &Value) -> Outcome {
    let kinds = builtin();
    let kind = kinds.find("", "v1", "configmaps").unwrap();
    let (options, user) = (json!({"kind": "CreateOptions"}), UserInfo::new("eve", &["devs"]));
    let attributes = Attributes {
        kinds: &kinds,
        kind,
        subresource: "",
        sent_as: None,
        operation: Operation::Create,
        name: "a",
        namespace: "default",
        old: None,
        options: &options,
        is_dry_run: false,
        user: &user,
    };
    let object =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"n": "7"}});
    let params = json!({"kind": "ConfigMap", "data": {"max": "5"}});
    let namespace = json!({"metadata": {"name": "default", "labels": {"env": "prod"}}});
    let view = View::new(&attributes, Form(kind.clone()), Some(&object));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = runtime.block_on(view).unwrap();
    let beside = Beside { params: Some(&params), namespace: Some(&namespace), authorizer: None };
    evaluate(&Policy::new(&json!({"metadata": {"name": "p"}, "spec": spec})), &view, &beside)
}

fn verdicts(spec: &Value) -> Vec<Verdict> {
    outcome(spec).decisions.into_iter().map(|decision| decision.verdict).collect()
}

fn fails(message: &str) -> Verdict {
    Verdict::Fails(message.to_owned(), Reason::Invalid)
}

fn one(validation: Value) -> Value {
    json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [validation]})
}

#[test]
fn a_validation_holds_or_says_why_not() {
    let long = "x".repeat(5 * 1024);
    let check = |validation: Value, expect: Verdict| {
        assert_eq!(verdicts(&one(validation.clone())), [expect], "{validation}");
    };
    check(json!({"expression": "object.data.n == '7'"}), Verdict::Holds);
    check(json!({"expression": "oldObject == null"}), Verdict::Holds);
    check(json!({"expression": "int(params.data.max) == 5"}), Verdict::Holds);
    check(json!({"expression": "namespaceObject.metadata.labels.env == 'prod'"}), Verdict::Holds);
    check(
        json!({"expression": "request.userInfo.username == 'eve' && request.resource.resource == 'configmaps'"}),
        Verdict::Holds,
    );
    check(json!({"expression": " false "}), fails("failed expression: false"));
    check(json!({"expression": "false", "message": " no "}), fails("no"));
    let reason = Verdict::Fails("no".to_owned(), Reason::Forbidden);
    check(json!({"expression": "false", "message": "no", "reason": "Forbidden"}), reason);
    let computed = |text: &str| json!({"expression": "false", "message": "no", "messageExpression": text});
    check(computed("' n is ' + object.data.n + ' '"), fails("n is 7"));
    for none in [
        "''",
        "' '",
        "'a\\nb'",
        "object.data.nothing",
        "authorizer.group('').resource('pods').check('get').reason()",
        "1",
        &format!("'{long}y'"),
    ] {
        check(computed(none), fails("no"));
    }
    check(computed(&format!("'{long}'")), fails(&long));
}

#[test]
fn what_cannot_be_evaluated_fails_or_is_ignored() {
    for (expression, why) in [
        (
            "object.data.nothing == 'x'",
            "expression 'object.data.nothing == 'x'' resulted in error: no such key: nothing",
        ),
        (
            "1 / int(object.data.n) == int(object.nothing)",
            "expression '1 / int(object.data.n) == int(object.nothing)' resulted in error: no such key: nothing",
        ),
        ("object.", "compilation error: compilation failed: ERROR: <input>:1:8: Syntax error"),
        ("1", "compilation error: must evaluate to bool but got int"),
        (
            "variables.nobody",
            "compilation error: compilation failed: ERROR: <input>:1:10: undefined field 'nobody'",
        ),
    ] {
        for policy in ["Fail", "Ignore"] {
            let mut spec = one(json!({"expression": expression}));
            spec["failurePolicy"] = policy.into();
            let said = match (policy, verdicts(&spec).as_slice()) {
                ("Fail", [Verdict::Unknown(said)]) | ("Ignore", [Verdict::Ignored(said)]) => said.clone(),
                (_, other) => panic!("{expression}: {other:?}"),
            };
            assert!(said.starts_with(why), "{said}");
        }
    }
}

#[test]
fn variables_are_computed_once_and_only_when_they_are_asked_for() {
    let spec = |variables: Value, expressions: &[&str]| {
        let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
        json!({"variables": variables, "validations": validations})
    };
    let variable = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let some = json!([
        variable("n", "int(object.data.n)"),
        variable("more", "variables.n + 1"),
        variable("broken", "object.nothing"),
        variable("worse", "variables.broken"),
        variable("wrong", "1 + 'x'")
    ]);
    let texts = [
        "variables.more == 8",
        "variables.n == 7 || variables.broken",
        "variables.worse == 1",
        "variables.wrong == 2",
    ];
    let said = verdicts(&spec(some, &texts));
    assert_eq!(said.get(..2), Some(&[Verdict::Holds, Verdict::Holds][..]));
    let text = |place: usize| match said.get(place) {
        Some(Verdict::Unknown(why)) => why.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        text(2),
        "expression 'variables.worse == 1' resulted in error: composited variable \"worse\" fails to evaluate: composited variable \"broken\" fails to evaluate: no such key: nothing"
    );
    assert!(
        text(3).contains("composited variable \"wrong\" fails to compile: compilation failed: "),
        "{}",
        text(3)
    );
    // A name that comes twice is made of what came before by the types, and of itself by the values.
    let twice = json!([variable("n", "1"), variable("n", "variables.n + 1")]);
    let said = verdicts(&spec(twice, &["variables.n == 2"]));
    assert!(
        matches!(said.as_slice(), [Verdict::Unknown(why)] if why.ends_with("it is made of itself")),
        "{said:?}"
    );
}

/// An expression that is true, and costs about nine tenths of what one may.
fn costly() -> String {
    format!("!'{}'.contains('{}')", "a".repeat(9400), "b".repeat(9400))
}

/// Ten thousand times as much work as one evaluation may do.
const BOMB: &str = "[0,1,2,3,4,5,6,7,8,9].map(a, [0,1,2,3,4,5,6,7,8,9].map(b, [a, b])).all(x, x.all(y, y.all(z, \
    'x'.split('').all(s, (s + 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').matches('(a+)+b') || \
    [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, c + d + e + f >= 0))))))))";
const NO_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

#[test]
fn bombs_do_not_go_off() {
    let cancelled =
        format!("expression '{BOMB}' resulted in error: operation cancelled: actual cost limit exceeded");
    assert_eq!(verdicts(&one(json!({"expression": BOMB}))), [Verdict::Unknown(cancelled)]);
    // All validations of a policy together have ten times as much, then nothing of it counts any more.
    let costly = costly();
    let validations = |expression: &str| json!({"validations": vec![json!({"expression": expression}); 12]});
    assert_eq!(verdicts(&validations(&costly)), [Verdict::Unknown(NO_BUDGET.to_owned())]);
    // Variables count, too: when it is used up none more is computed.
    let variables: Vec<Value> =
        (0..30).map(|n| json!({"name": format!("v{n}"), "expression": costly})).collect();
    let all: Vec<String> = (0..30).map(|n| format!("variables.v{n}")).collect();
    let together = json!({"variables": variables, "validations": [{"expression": all.join(" && ")}]});
    assert_eq!(verdicts(&together), [Verdict::Unknown(NO_BUDGET.to_owned())]);
    // A chain of variables, however long.
    let mut chain = vec![json!({"name": "v0", "expression": "1"})];
    chain.extend(
        (1..2000).map(|n| json!({"name": format!("v{n}"), "expression": format!("variables.v{}", n - 1)})),
    );
    let chain = json!({"variables": chain, "validations": [{"expression": "variables.v1999 == 1"}]});
    assert_eq!(verdicts(&chain), [Verdict::Holds]);
    // A message that costs too much is none; when nothing is left for it, nobody knows.
    let message = |text: &str| json!({"expression": "false", "message": "no", "messageExpression": text});
    assert_eq!(verdicts(&one(message(&format!("{BOMB} ? 'a' : 'b'")))), [fails("no")]);
    let said = verdicts(&json!({"validations": vec![message(&format!("{costly} ? '' : 'b'")); 12]}));
    assert_eq!(said.first(), Some(&fails("no")));
    assert_eq!(said.last(), Some(&Verdict::Unknown(format!("failed messageExpression: {NO_BUDGET}"))));
}

#[test]
fn conditions_say_whether_there_is_anything_to_say() {
    let costly = costly();
    let spec = |conditions: &[&str], policy: &str| {
        let conditions: Vec<Value> =
            conditions.iter().map(|text| json!({"name": "c", "expression": text})).collect();
        json!({"matchConditions": conditions, "failurePolicy": policy, "validations": [{"expression": "false"}],
            "variables": [{"name": "n", "expression": "int(object.data.n)"}]})
    };
    let unknown = "expression 'object.data.x == ''' resulted in error: no such key: x";
    for (conditions, policy, expect) in [
        (&["true"][..], "Fail", vec![fails("failed expression: false")]),
        (&["variables.n == 7"], "Fail", vec![fails("failed expression: false")]),
        (&["variables.n == 8"], "Fail", vec![]),
        (&["true", "false"], "Fail", vec![]),
        (&["object.data.x == ''", "false"], "Fail", vec![]),
        (&["object.data.x == ''", "true"], "Ignore", vec![]),
        (&["object.data.x == ''", "true"], "Fail", vec![Verdict::Unknown(unknown.to_owned())]),
        (&["object.data.x == ''", "object.data.x == ''"], "Fail", vec![Verdict::Unknown(unknown.to_owned())]),
        // As upstream, conditions are not told of the namespace.
        (&["namespaceObject == null"], "Fail", vec![fails("failed expression: false")]),
        (&[&costly, &costly, &costly, "false"], "Fail", vec![Verdict::Unknown(NO_BUDGET.to_owned())]),
        (&[&costly, &costly, &costly, "false"], "Ignore", vec![]),
    ] {
        assert_eq!(verdicts(&spec(conditions, policy)), expect, "{conditions:?}");
    }
}

#[test]
fn the_audit_log_is_told_what_has_a_value() {
    let spec = |expression: &str, policy: &str| json!({"failurePolicy": policy, "auditAnnotations": [{"key": "k", "valueExpression": expression}]});
    for (expression, policy, expect) in [
        ("' n=' + object.data.n", "Fail", Some(Ok("n=7"))),
        ("''", "Fail", None),
        ("' '", "Fail", None),
        ("null", "Fail", None),
        ("object.data.n == '7' ? 'seven' : null", "Fail", Some(Err("compilation error: "))),
        (
            "object.data.x",
            "Fail",
            Some(Err("compilation error: must evaluate to one of [string null_type] but got dyn")),
        ),
        (
            "string(object.data.x)",
            "Fail",
            Some(Err("expression 'string(object.data.x)' resulted in error: no such key: x")),
        ),
        ("string(object.data.x)", "Ignore", None),
    ] {
        let told = outcome(&spec(expression, policy)).told;
        match (told.as_slice(), expect) {
            ([], None) => {}
            ([Told { key, value: Ok(value), .. }], Some(Ok(wanted))) => {
                assert_eq!((key.as_str(), value.as_str()), ("k", wanted))
            }
            ([Told { value: Err(why), .. }], Some(Err(wanted))) => {
                assert!(why.to_string().starts_with(wanted), "{why}")
            }
            (other, _) => panic!("{expression}: {other:?}"),
        }
    }
}
