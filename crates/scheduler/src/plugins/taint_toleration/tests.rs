//! The cases of upstream's `taint_toleration_test.go`.

use controller::pod::Pod;

use crate::fixtures::{cluster, pod, refusals, scores};

fn taint(key: &str, value: &str, effect: &str) -> String {
    format!("{{key: {key}, value: {value}, effect: {effect}}}")
}

fn soft(key: &str, value: &str) -> String {
    taint(key, value, "PreferNoSchedule")
}

fn tolerant(tolerations: &[&str]) -> Pod {
    pod("", &format!("tolerations: [{}]", tolerations.join(", ")))
}

fn toleration(key: &str, value: &str, effect: &str) -> String {
    format!("{{key: {key}, operator: Equal, value: {value}, effect: {effect}}}")
}

#[test]
fn soft_taints_that_are_not_tolerated_count_against_a_node() {
    let cpu = |value: &str| toleration("cpu-type", value, "PreferNoSchedule");
    let disk = toleration("disk-type", "ssd", "PreferNoSchedule");
    let hard = taint("cpu-type", "arm64", "NoSchedule");
    for (case, tolerations, nodes, expect) in [
        (
            "one tolerated",
            vec![toleration("foo", "bar", "PreferNoSchedule")],
            vec![vec![soft("foo", "bar")], vec![soft("foo", "blah")]],
            vec![100, 0],
        ),
        (
            "all tolerated",
            vec![cpu("arm64"), disk.clone()],
            vec![
                vec![],
                vec![soft("cpu-type", "arm64")],
                vec![soft("cpu-type", "arm64"), soft("disk-type", "ssd")],
            ],
            vec![100; 3],
        ),
        (
            "the more the worse",
            vec![toleration("foo", "bar", "PreferNoSchedule")],
            vec![
                vec![],
                vec![soft("cpu-type", "arm64")],
                vec![soft("cpu-type", "arm64"), soft("disk-type", "ssd")],
            ],
            vec![100, 50, 0],
        ),
        (
            "hard taints do not count",
            vec![toleration("cpu-type", "arm64", "NoSchedule"), toleration("disk-type", "ssd", "NoSchedule")],
            vec![vec![], vec![hard.clone()], vec![soft("cpu-type", "arm64"), soft("disk-type", "ssd")]],
            vec![100, 100, 0],
        ),
        ("nothing tolerated", vec![], vec![vec![], vec![soft("cpu-type", "arm64")]], vec![100, 0]),
        (
            "tolerated whatever the effect",
            vec!["{key: cpu-type, operator: Exists}".to_owned()],
            vec![vec![soft("cpu-type", "arm64")], vec![soft("disk-type", "ssd")]],
            vec![100, 0],
        ),
    ] {
        let tolerations: Vec<_> = tolerations.iter().map(String::as_str).collect();
        let specs: Vec<_> =
            nodes.iter().map(|taints| format!("spec: {{taints: [{}]}}", taints.join(", "))).collect();
        let rows: Vec<_> =
            ["a", "b", "c"].into_iter().zip(&specs).map(|(name, spec)| (name, "", spec.as_str())).collect();
        let found = scores("TaintToleration", &tolerant(&tolerations), None, &cluster(&rows, &[]));
        assert_eq!(found, Some(expect), "{case}");
    }
}

#[test]
fn hard_taints_keep_pods_away_that_do_not_tolerate_them() {
    let dedicated = |effect: &str| taint("dedicated", "user1", effect);
    let equal = |value: &str| toleration("dedicated", value, "NoSchedule");
    for (case, toleration, taints, fits) in [
        ("nothing is tolerated", String::new(), dedicated("NoSchedule"), false),
        ("it is", equal("user1"), dedicated("NoSchedule"), true),
        ("another value", equal("user2"), dedicated("NoSchedule"), false),
        (
            "any value",
            "{key: dedicated, operator: Exists, effect: NoSchedule}".to_owned(),
            dedicated("NoSchedule"),
            true,
        ),
        ("another effect", toleration("dedicated", "user1", "NoExecute"), dedicated("NoSchedule"), false),
        (
            "any effect",
            "{key: dedicated, operator: Equal, value: user1}".to_owned(),
            dedicated("NoExecute"),
            true,
        ),
        ("soft", equal("user2"), dedicated("PreferNoSchedule"), true),
        ("soft, and nothing is tolerated", String::new(), dedicated("PreferNoSchedule"), true),
        ("everything", "{operator: Exists}".to_owned(), dedicated("NoExecute"), true),
        (
            "one of two",
            equal("user1"),
            format!("{}, {}", dedicated("NoSchedule"), taint("foo", "bar", "NoSchedule")),
            false,
        ),
        (
            "no operator is Equal",
            "{key: dedicated, value: user1, effect: NoSchedule}".to_owned(),
            dedicated("NoSchedule"),
            true,
        ),
        // The gate of comparing operators is off.
        (
            "more than",
            "{key: dedicated, operator: Gt, value: '1', effect: NoSchedule}".to_owned(),
            taint("dedicated", "'2'", "NoSchedule"),
            false,
        ),
    ] {
        let spec = format!("spec: {{taints: [{taints}]}}");
        let said = refusals("TaintToleration", &tolerant(&[&toleration]), &cluster(&[("n", "", &spec)], &[]));
        let expect = if fits { "" } else { "!node(s) had untolerated taint(s)" };
        assert_eq!(said, [expect], "{case}");
    }
}
