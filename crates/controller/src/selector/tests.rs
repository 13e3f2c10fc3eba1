use super::*;
fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

fn check(selector: &str, labels: &str, expect: bool) {
    let labels: Labels = parse(labels);
    assert_eq!(selects(&parse(selector), Some(&labels)), expect, "{selector} on {labels:?}");
}

#[test]
fn every_operator_selects_as_upstream() {
    check("{}", "{a: b}", true);
    check("{matchLabels: {a: b}}", "{a: b, c: d}", true);
    check("{matchLabels: {a: b}}", "{a: c}", false);
    check("{matchExpressions: [{key: a, operator: In, values: [b, c]}]}", "{a: c}", true);
    check("{matchExpressions: [{key: a, operator: In, values: [b, c]}]}", "{}", false);
    check("{matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", "{}", true);
    check("{matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", "{a: b}", false);
    check("{matchExpressions: [{key: a, operator: Exists}]}", "{a: b}", true);
    check("{matchExpressions: [{key: a, operator: DoesNotExist}]}", "{a: b}", false);
    check("{matchExpressions: [{key: a, operator: Gt, values: ['1']}]}", "{a: '2'}", false);
}

/// Source: `TestLabelSelectorAsSelector` of upstream's `meta/v1`, and what empty selectors are.
#[test]
fn all_requirements_have_to_hold() {
    let both = "{matchLabels: {foo: bar}, matchExpressions: [{key: baz, operator: In, values: [qux, norf]}]}";
    check(both, "{foo: bar, baz: qux}", true);
    check(both, "{foo: bar, baz: norf, more: x}", true);
    check(both, "{foo: bar}", false);
    check(both, "{baz: qux}", false);
    check("{matchLabels: {}, matchExpressions: []}", "{a: b}", true);
    check("{matchLabels: {foo: bar}}", "{foo: bar, baz: qux}", true);
    check("{matchLabels: {foo: ''}}", "{foo: ''}", true);
    check("{matchLabels: {foo: ''}}", "{}", false);
    check("{matchLabels: {foo: Bar}}", "{foo: bar}", false);
    check(
        "{matchExpressions: [{key: a, operator: NotIn, values: [b, c]}, {key: a, operator: Exists}]}",
        "{a: d}",
        true,
    );
    check(
        "{matchExpressions: [{key: a, operator: NotIn, values: [b, c]}, {key: a, operator: Exists}]}",
        "{}",
        false,
    );
    check("{matchExpressions: [{key: a, operator: In, values: []}]}", "{a: b}", false);
    check("{matchExpressions: [{key: a, operator: in, values: [b]}]}", "{a: b}", false);
    assert!(selects(&parse("{}"), None) && !selects(&parse("{matchLabels: {a: b}}"), None));
    for (selector, expect) in [
        ("{}", true),
        ("{matchLabels: {}}", true),
        ("{matchExpressions: []}", true),
        ("{matchLabels: {a: b}}", false),
        ("{matchExpressions: [{key: a, operator: Exists}]}", false),
    ] {
        assert_eq!(is_empty(&parse(selector)), expect, "{selector}");
    }
    let (labels, none) = (parse("{a: b, c: d}"), Labels::new());
    assert!(contains(&labels, &parse("{a: b}")) && contains(&labels, &none) && !contains(&none, &labels));
}
