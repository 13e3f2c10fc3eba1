use super::*;
use crate::pod::PodSpec;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

fn check(pod: &str, expect: bool) {
    let node: ObjectMeta = parse("{name: one, labels: {disk: ssd, cores: '8'}}");
    let pod: PodSpec = parse(&format!("{{containers: [], {pod}}}"));
    let is_allowed = allows(pod.node_selector.as_ref(), pod.affinity.as_deref(), &node);
    assert_eq!(is_allowed, expect, "{pod:?}");
}

fn required(term: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}}}"
    )
}

#[test]
fn selector_and_required_affinity_both_decide() {
    check("", true);
    check("nodeSelector: {disk: ssd}", true);
    check("nodeSelector: {disk: hdd}", false);
    check(&required("{}"), false);
    check(&required("{matchExpressions: [{key: cores, operator: Gt, values: ['4']}]}"), true);
    check(&required("{matchExpressions: [{key: cores, operator: Lt, values: ['4']}]}"), false);
    check(&required("{matchFields: [{key: metadata.name, operator: In, values: [one]}]}"), true);
    check(&required("{matchFields: [{key: metadata.name, operator: In, values: [two]}]}"), false);
    check(&required("{}, {matchExpressions: [{key: disk, operator: Exists}]}"), true);
}

#[test]
fn a_toleration_covers_what_it_names() {
    let check = |toleration: &str, expect: bool| {
        let taint: Taint = parse("{key: k, value: x, effect: NoSchedule}");
        assert_eq!(tolerates(&parse(toleration), &taint), expect, "{toleration}");
    };
    check("{operator: Exists}", true);
    check("{key: k, operator: Exists, effect: NoExecute}", false);
    check("{key: k, value: x}", true);
    check("{key: k, operator: Equal, value: y}", false);
    check("{key: other, operator: Exists}", false);
    check("{key: k, operator: Gt, value: '1'}", false);
}

/// Source: `TestMatchNodeSelectorTerms` of upstream's `component-helpers/scheduling/corev1`, and `TestNodeSelectorMatch` of
/// its `nodeaffinity`.
#[test]
fn one_term_has_to_match_in_all_it_asks() {
    let label = "{matchExpressions: [{key: label_1, operator: In, values: [label_1_val]}]}";
    let named = "{matchFields: [{key: metadata.name, operator: In, values: [host_1]}]}";
    let both = "{matchExpressions: [{key: label_1, operator: In, values: [label_1_val]}], \
                matchFields: [{key: metadata.name, operator: In, values: [host_1]}]}";
    let (plain, labelled) = ("{name: host_1}", "{name: host_1, labels: {label_1: label_1_val}}");
    let (failed, other) =
        ("{name: host_1, labels: {label_1: failed}}", "{name: other, labels: {metadata.name: host_1}}");
    let expression = |text: &str| format!("{{matchExpressions: [{{key: {text}}}]}}");
    let field = |text: &str| format!("{{matchFields: [{{key: {text}}}]}}");
    for (name, terms, node, expect) in [
        ("no term", String::new(), labelled, false),
        ("an empty term", "{}".to_owned(), labelled, false),
        ("a label", label.to_owned(), labelled, true),
        ("another label", label.to_owned(), failed, false),
        ("a name", named.to_owned(), plain, true),
        ("a name as a label", named.to_owned(), other, false),
        ("a label as a name", expression("metadata.name, operator: In, values: [host_1]"), plain, false),
        ("label and name, without the label", both.to_owned(), plain, false),
        ("label and name, with both", both.to_owned(), labelled, true),
        ("label and name, with another label", both.to_owned(), failed, false),
        ("label or name", format!("{label}, {named}"), failed, true),
        ("an empty term or a label", format!("{{}}, {label}"), labelled, true),
        ("two names", field("metadata.name, operator: In, values: [host_1, host_2]"), plain, false),
        ("no name", field("metadata.name, operator: In, values: []"), plain, false),
        ("not this name", field("metadata.name, operator: NotIn, values: [host_1]"), plain, false),
        ("not another name", field("metadata.name, operator: NotIn, values: [host_2]"), plain, true),
        ("any name", field("metadata.name, operator: Exists"), plain, false),
        ("another field", field("metadata.namespace, operator: In, values: [host_1]"), plain, false),
        ("one of several", expression("label_1, operator: In, values: [x, label_1_val]"), labelled, true),
        (
            "not one of several",
            expression("label_1, operator: NotIn, values: [x, label_1_val]"),
            labelled,
            false,
        ),
        ("not of others", expression("label_1, operator: NotIn, values: [x]"), labelled, true),
        ("not of others, without it", expression("label_1, operator: NotIn, values: [x]"), plain, true),
        ("not of none", expression("label_1, operator: NotIn, values: []"), plain, false),
        ("one of none", expression("label_1, operator: In, values: []"), labelled, false),
        ("there", expression("label_1, operator: Exists"), labelled, true),
        ("there, but it is not", expression("label_1, operator: Exists"), plain, false),
        ("not there", expression("label_1, operator: DoesNotExist"), plain, true),
        ("not there, but it is", expression("label_1, operator: DoesNotExist"), labelled, false),
        ("more than it", expression("n, operator: Gt, values: ['5']"), "{name: a, labels: {n: '6'}}", true),
        ("as much as it", expression("n, operator: Gt, values: ['5']"), "{name: a, labels: {n: '5'}}", false),
        ("less than it", expression("n, operator: Lt, values: ['5']"), "{name: a, labels: {n: '-6'}}", true),
        (
            "than no number",
            expression("n, operator: Lt, values: [many]"),
            "{name: a, labels: {n: '4'}}",
            false,
        ),
        ("no number", expression("n, operator: Lt, values: ['5']"), "{name: a, labels: {n: few}}", false),
        ("less, without it", expression("n, operator: Lt, values: ['5']"), plain, false),
        (
            "an operator that is none",
            expression("label_1, operator: Like, values: [label_1_val]"),
            labelled,
            false,
        ),
    ] {
        let node: ObjectMeta = parse(node);
        let selector: NodeSelector = parse(&format!("{{nodeSelectorTerms: [{terms}]}}"));
        assert_eq!(selects(&selector, Target::from(&node)), expect, "{name}");
    }
}

/// Source: `TestTolerationToleratesTaint` of upstream's `api/core/v1`, without the gate for numbers.
#[test]
fn tolerations_cover_taints_as_upstreams_do() {
    for (name, toleration, taint, expect) in [
        (
            "it is there",
            "{key: foo, operator: Exists, effect: NoSchedule}",
            "{key: foo, effect: NoSchedule}",
            true,
        ),
        (
            "with a value",
            "{key: foo, operator: Exists, effect: NoSchedule}",
            "{key: foo, value: bar, effect: NoSchedule}",
            true,
        ),
        (
            "all of an effect",
            "{operator: Exists, effect: NoSchedule}",
            "{key: foo, value: bar, effect: NoSchedule}",
            true,
        ),
        ("all of a key", "{key: foo, operator: Exists}", "{key: foo, value: bar, effect: NoExecute}", true),
        ("all", "{operator: Exists}", "{key: foo, value: bar, effect: NoExecute}", true),
        (
            "equal",
            "{key: foo, operator: Equal, value: bar, effect: NoSchedule}",
            "{key: foo, value: bar, effect: NoSchedule}",
            true,
        ),
        (
            "another value",
            "{key: foo, operator: Equal, value: a, effect: NoSchedule}",
            "{key: foo, value: b, effect: NoSchedule}",
            false,
        ),
        (
            "another effect",
            "{key: foo, operator: Equal, value: bar, effect: NoSchedule}",
            "{key: foo, value: bar, effect: NoExecute}",
            false,
        ),
        ("equal by default", "{key: foo, value: bar}", "{key: foo, value: bar, effect: NoExecute}", true),
        ("no value", "{key: foo}", "{key: foo, effect: NoExecute}", true),
        ("a value and none", "{key: foo}", "{key: foo, value: bar, effect: NoExecute}", false),
        (
            "any key of one value",
            "{operator: Equal, value: bar}",
            "{key: foo, value: bar, effect: NoExecute}",
            true,
        ),
        (
            "a greater number",
            "{key: sla, operator: Gt, value: '750'}",
            "{key: sla, value: '950', effect: NoSchedule}",
            false,
        ),
    ] {
        assert_eq!(tolerates(&parse(toleration), &parse(taint)), expect, "{name}");
    }
}
