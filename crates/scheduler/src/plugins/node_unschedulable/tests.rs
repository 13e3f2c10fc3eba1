//! The cases of upstream's `node_unschedulable_test.go`.

use crate::fixtures::{cluster, pod, refusals};

const REFUSED: &str = "!node(s) were unschedulable";

#[test]
fn a_cordoned_node_takes_who_tolerates_that_and_nobody_else() {
    let taint = "node.kubernetes.io/unschedulable";
    for (case, unschedulable, tolerations, expect) in [
        ("nobody is kept from a Node that is not cordoned", "false", String::new(), ""),
        ("nor where nothing is said", "null", String::new(), ""),
        ("cordoned", "true", String::new(), REFUSED),
        ("tolerated", "true", format!("{{key: {taint}, effect: NoSchedule}}"), ""),
        ("tolerated by name", "true", format!("{{key: {taint}, operator: Exists}}"), ""),
        ("everything is tolerated", "true", "{operator: Exists}".to_owned(), ""),
        ("everything of the effect", "true", "{operator: Exists, effect: NoSchedule}".to_owned(), ""),
        ("another effect", "true", format!("{{key: {taint}, operator: Exists, effect: NoExecute}}"), REFUSED),
        ("another value", "true", format!("{{key: {taint}, operator: Equal, value: 'true'}}"), REFUSED),
        ("another key", "true", "{key: node.kubernetes.io/not-ready, operator: Exists}".to_owned(), REFUSED),
        (
            "one of two",
            "true",
            format!("{{key: a, operator: Exists}}, {{key: {taint}, operator: Exists}}"),
            "",
        ),
    ] {
        let node = format!("spec: {{unschedulable: {unschedulable}}}");
        let pod = pod("", &format!("tolerations: [{tolerations}]"));
        let said = refusals("NodeUnschedulable", &pod, &cluster(&[("n", "", &node)], &[]));
        assert_eq!(said, [expect], "{case}");
    }
}
