use expressions::{Activation, Budget};
use resources::policy_expressions::{Compiler, Sees};
use serde_json::json;

use super::{json_patch, names};
use crate::codec::Operation;

/// What becomes of the value that an expression has.
fn of<T>(expression: &str, then: impl FnOnce(&expressions::Value<'_>) -> T) -> T {
    let program = Compiler::new(false).compile(expression, Sees::Patches, &[]).unwrap();
    let object = json!({"spec": {"items": [{"a": 1}], "text": "x"}});
    let activation = Activation::new().with("object", expressions::Value::of(&object));
    let evaluation = program.evaluate(&activation, &mut Budget::default());
    then(&evaluation.result.unwrap())
}

#[test]
fn types_of_objects_are_called_after_their_fields() {
    let check = |expression: &str, wrong: &[(&str, &str)]| {
        let expected = wrong.iter().map(|(name, expected)| {
            format!(
                "unexpected type name \"{name}\", expected \"{expected}\", which matches field name path from root \
                 Object type"
            )
        });
        let expected: Vec<String> = expected.collect();
        let expected =
            if wrong.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", expected.join("\n"))) };
        let found = of(expression, names::check).map_err(|why| why.to_string());
        assert_eq!(found, expected, "{expression}");
    };
    check("Object{}", &[]);
    check("Object{spec: Object.spec{a: 1, items: object.spec.items}}", &[]);
    check(
        "Object{spec: Object.spec{list: [Object.spec.list{a: Object.spec.list.a{}}], m: {'k': Object.spec.m{}}}}",
        &[],
    );
    check("Object{spec: Object{}}", &[("Object", "Object.spec")]);
    check("Object{spec: Object.spec{list: [Object.spec{}]}}", &[("Object.spec", "Object.spec.list")]);
    check("Object{a: Object.b{c: Object.b.c{}}}", &[("Object.b", "Object.a"), ("Object.b.c", "Object.a.c")]);
    check("Object{m: {'k': [Object.x{}]}}", &[("Object.x", "Object.m")]);
    check("Object.spec{list: [Object.spec.list{}]}", &[]);
}

#[test]
fn operations_are_what_was_made() {
    let operation = |op: &str, path: &str| Operation {
        op: Some(op.into()),
        path: Some(path.into()),
        ..Operation::default()
    };
    let check = |expression: &str, expected: Result<Vec<Operation>, &str>| {
        let found = of(expression, json_patch::operations).map_err(|why| why.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{expression}");
    };
    check("[]", Ok(vec![]));
    check("[JSONPatch{}]", Ok(vec![operation("", "")]));
    check("[JSONPatch{op: 'remove', path: '/a', from: ''}]", Ok(vec![operation("remove", "/a")]));
    check(
        "[JSONPatch{op: 'move', path: '/a', from: '/b'}, JSONPatch{op: 'add', path: '/c', value: null}]",
        Ok(vec![
            Operation { from: Some("/b".into()), ..operation("move", "/a") },
            Operation { value: Some(json!(null)), ..operation("add", "/c") },
        ]),
    );
    check(
        "[JSONPatch{op: 'add', path: '/c', value: {'a': [dyn(1), dyn(2.5), dyn(true), dyn(b'x'), \
         dyn(Object.x{y: object.spec.items})]}}]",
        Ok(vec![Operation {
            value: Some(json!({"a": [1, 2.5, true, "eA==", {"y": [{"a": 1}]}]})),
            ..operation("add", "/c")
        }]),
    );
    check(
        "[JSONPatch{op: 'add', path: '/c', value: [dyn(duration('90s')), \
         dyn(timestamp('2026-01-02T03:04:05Z')), dyn(optional.of(1))]}]",
        Ok(vec![Operation {
            value: Some(json!(["90s", "2026-01-02T03:04:05Z", 1])),
            ..operation("add", "/c")
        }]),
    );
    check("[JSONPatch{op: object.spec.items}]", Err("unexpected type list for JSONPatchType 'op' field"));
    check(
        "[JSONPatch{op: 'add', value: type(1)}]",
        Err(
            "JSONPath valueExpression evaluated to a type that could not marshal to JSON: type has no form in JSON",
        ),
    );
    check(
        "[JSONPatch{op: 'add', value: Object.a{b: Object.c{}}}]",
        Err(
            "type mismatch: unexpected type name \"Object.c\", expected \"Object.a.b\", which matches field name path from \
             root Object type",
        ),
    );
}
