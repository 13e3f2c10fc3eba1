use super::*;

/// With one container that asks for this and is restarted for memory.
fn pod(cpu: &str, memory: &str) -> Pod {
    let yaml = format!(
        "{{metadata: {{name: p, uid: u}}, spec: {{containers: [{{name: a, resizePolicy: [{{resourceName: memory, \
         restartPolicy: RestartContainer}}], resources: {{requests: {{cpu: {cpu}}}, limits: {{memory: {memory}}}}}}}]}}}}"
    );
    serde_saphyr::from_str(&yaml).unwrap()
}

#[test]
fn what_is_asked_for_waits_beside_what_is_agreed() {
    let (old, new) = (pod("100m", "1Gi"), pod("200m", "1Gi"));
    assert_eq!(split(&old, &resources(&old)), (None, Resources::new()));
    let (kept, wanted) = split(&new, &resources(&old));
    assert_eq!(kept.unwrap().spec, old.spec);
    assert_eq!(wanted, resources(&new));
}

#[test]
fn what_is_changed_of_containers_is_told_apart() {
    let resources = |text: &str| -> Resources { serde_saphyr::from_str(text).unwrap() };
    let before = resources(
        "{a: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}}, b: {requests: {cpu: '1'}}}",
    );
    let after = resources(
        "{a: {requests: {cpu: 200m}, limits: {memory: 1Gi, cpu: '1'}}, b: {requests: {cpu: 1000m}}, c: {}}",
    );
    assert_eq!(
        operations(&before, &after),
        [
            ["memory", "requests", "remove"],
            ["memory", "limits", "decrease"],
            ["cpu", "requests", "increase"],
            ["cpu", "limits", "add"],
        ]
    );
    assert!(operations(&after, &after).is_empty());
}

#[test]
fn the_same_amount_in_other_words_is_no_resize() {
    assert_eq!(split(&pod("'0.1'", "1024Mi"), &resources(&pod("100m", "1Gi"))).1, Resources::new());
}

#[test]
fn what_was_agreed_is_read_back_from_the_status() {
    let mut new = pod("200m", "2Gi");
    new.status = serde_saphyr::from_str(
        "{containerStatuses: [{name: a, image: i, imageID: i, ready: true, restartCount: 0, \
         allocatedResources: {cpu: 100m}, resources: {requests: {cpu: 100m}, limits: {memory: 1Gi}}}]}",
    )
    .unwrap();
    assert_eq!(recorded(&new), resources(&pod("100m", "1Gi")));
}

#[test]
fn a_resize_goes_on_after_a_restart_of_the_kubelet() {
    let check = |conditions: &str, expect: (bool, Option<&str>, Option<i64>)| {
        let status = format!("{{status: {{conditions: [{conditions}]}}}}");
        let pod: Pod = serde_saphyr::from_str(&status).unwrap();
        let Resize { is_started, error, .. } = under_way(&pod);
        let since = waiting_since(&pod).map(Timestamp::as_second);
        assert_eq!((is_started, error.as_deref(), since), expect, "{conditions}");
    };
    check("", (false, None, None));
    check("{type: PodResizeInProgress, status: 'True'}", (true, None, None));
    let failed = "{type: PodResizeInProgress, status: 'True', reason: Error, message: no}";
    check(failed, (true, Some("no"), None));
    let waits = "{type: PodResizePending, status: 'True', lastTransitionTime: '1970-01-01T00:00:07Z'}";
    check(waits, (false, None, Some(7)));
}

#[test]
fn a_node_agrees_to_what_it_has() {
    let amount = |cpu, memory| Amount { cpu, memory };
    let check = |asked, used, expect: &str| {
        let got = decide(asked, used, amount(2000, 1000));
        let got = got.err().map(|refused| format!("{}: {}", refused.reason.as_str(), refused.message));
        assert_eq!(got.unwrap_or_default(), expect);
    };
    check(amount(1000, 500), amount(1000, 500), "");
    check(
        amount(3000, 1),
        amount(0, 0),
        "Infeasible: Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000",
    );
    check(
        amount(1500, 1),
        amount(1000, 0),
        "Deferred: Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
    );
    check(
        amount(1, 600),
        amount(0, 500),
        "Deferred: Node didn't have enough resource: memory, requested: 600, used: 500, capacity: 1000",
    );
}

/// Source: `TestPodResize*Msg` of upstream's `pkg/kubelet/events`.
#[test]
fn events_tell_what_all_containers_are_to_have() {
    const ONE: &str = "containers: [{name: c0, resources: {limits: {cpu: 100m, memory: '100'}, requests: {cpu: 100m, memory: '100'}}}]";
    const ONE_TEXT: &str = r#""containers":[{"name":"c0","resources":{"limits":{"cpu":"100m","memory":"100"},"requests":{"cpu":"100m","memory":"100"}}}]"#;
    const MANY: &str = "initContainers: [{name: c0, resources: {limits: {cpu: 200m}, requests: {cpu: 100m}}}], containers: [
        {name: c1, resources: {limits: {memory: '200'}, requests: {memory: '100'}}}, {name: c2, resources: {requests: {cpu: 200m, memory: '100'}}}]";
    const MANY_TEXT: &str = concat!(
        r#""initContainers":[{"name":"c0","resources":{"limits":{"cpu":"200m"},"requests":{"cpu":"100m"}}}],"#,
        r#""containers":[{"name":"c1","resources":{"limits":{"memory":"200"},"requests":{"memory":"100"}}},"#,
        r#"{"name":"c2","resources":{"requests":{"cpu":"200m","memory":"100"}}}]"#
    );
    const NONE_TEXT: &str = r#""containers":[{"name":"c0","resources":{}}]"#;
    const SWAP: &str = "In-place resize of containers with swap is not supported";
    for (spec, generation, what, error, expect) in [
        (ONE, 1, "completed", "", format!("{{{ONE_TEXT},\"generation\":1}}")),
        (MANY, 2, "completed", "", format!("{{{MANY_TEXT},\"generation\":2}}")),
        ("containers: [{name: c0}]", 3, "completed", "", format!("{{{NONE_TEXT},\"generation\":3}}")),
        (ONE, 1, "started", "", format!("{{{ONE_TEXT},\"generation\":1}}")),
        (MANY, 2, "started", "", format!("{{{MANY_TEXT},\"generation\":2}}")),
        (
            ONE,
            1,
            "error",
            "some error occurred",
            format!("{{{ONE_TEXT},\"generation\":1,\"error\":\"some error occurred\"}}"),
        ),
        (MANY, 2, "Infeasible", SWAP, format!("{{{MANY_TEXT},\"generation\":2,\"error\":\"{SWAP}\"}}")),
        (
            ONE,
            1,
            "Deferred",
            "Node didn't have enough resource: memory",
            format!("{{{ONE_TEXT},\"generation\":1,\"error\":\"Node didn't have enough resource: memory\"}}"),
        ),
    ] {
        let pod: Pod =
            serde_saphyr::from_str(&format!("{{metadata: {{generation: {generation}}}, spec: {{{spec}}}}}"))
                .unwrap();
        assert_eq!(event_text(&pod, what, error), format!("Pod resize {what}: {expect}"));
    }
}

/// Source: `TestUpdatePodFromAllocation` and `TestIsResizeIncreasingRequests` of upstream's `pkg/kubelet/allocation`.
#[test]
fn a_pod_runs_with_what_was_agreed_and_nothing_else_of_it_changes() {
    let of = |cpu: &str| {
        format!(
            "{{metadata: {{uid: u}}, spec: {{initContainers: [{{name: once, resources: {{requests: {{cpu: 500m}}}}}}, \
             {{name: side, restartPolicy: Always, resources: {{requests: {{cpu: {cpu}}}}}}}], \
             containers: [{{name: a, image: new, resources: {{requests: {{cpu: {cpu}, memory: 500}}, limits: {{cpu: '2', memory: 500}}}}}}, \
             {{name: b, resources: {{}}}}]}}}}"
        )
    };
    let pod = |cpu: &str| -> Pod { serde_saphyr::from_str(&of(cpu)).unwrap() };
    let agreed = resources(&pod("100m"));
    assert_eq!(agreed.keys().collect::<Vec<_>>(), ["a", "b", "side"], "one that runs once is not resized");
    let (kept, wanted) = split(&pod("200m"), &agreed);
    assert_eq!(kept, Some(pod("100m")));
    assert_eq!(wanted.keys().collect::<Vec<_>>(), ["a", "side"]);
    assert_eq!(split(&pod("100m"), &agreed), (None, Resources::new()));
    assert_eq!(split(&pod("200m"), &Resources::new()), (None, Resources::new()), "of which nothing is known");
    let mut spec = pod("100m").spec.unwrap();
    put(&mut spec, &wanted);
    assert_eq!(Some(spec), pod("200m").spec);
}

/// Source: `TestRetryPendingResizes` of upstream's `pkg/kubelet/allocation`.
#[test]
fn what_the_node_can_never_give_is_told_from_what_it_cannot_give_now() {
    const CAPACITY: Amount = Amount { cpu: 4000, memory: 4 << 30 };
    let amount = |cpu, memory| Amount { cpu, memory };
    let node = |what: &str| format!("Node didn't have enough {what}");
    for (name, asked, used, expect) in [
        ("nothing", amount(0, 0), amount(0, 0), String::new()),
        ("less than before", amount(500, 500 << 20), amount(3000, 3 << 30), String::new()),
        ("all there is", CAPACITY, amount(0, 0), String::new()),
        ("all that is left", amount(1000, 1 << 30), amount(3000, 3 << 30), String::new()),
        (
            "more CPU than is left",
            amount(1001, 1),
            amount(3000, 0),
            node("resource: cpu, requested: 1001, used: 3000, capacity: 4000"),
        ),
        (
            "more memory than is left",
            amount(1, (1 << 30) + 1),
            amount(0, 3 << 30),
            node("resource: memory, requested: 1073741825, used: 3221225472, capacity: 4294967296"),
        ),
        (
            "both",
            amount(1001, 2 << 30),
            amount(3000, 3 << 30),
            node("resource: cpu, requested: 1001, used: 3000, capacity: 4000"),
        ),
        (
            "more CPU than there is",
            amount(5000, 1),
            amount(0, 0),
            node("capacity: cpu, requested: 5000, capacity: 4000"),
        ),
        (
            "more memory than there is",
            amount(1, 5 << 30),
            amount(0, 0),
            node("capacity: memory, requested: 5368709120, capacity: 4294967296"),
        ),
        (
            "more of both than there is",
            amount(5000, 5 << 30),
            amount(0, 0),
            node("capacity: memory, requested: 5368709120, capacity: 4294967296"),
        ),
        (
            "never, whatever is used",
            amount(5000, 1),
            amount(4000, 4 << 30),
            node("capacity: cpu, requested: 5000, capacity: 4000"),
        ),
        (
            "more than can be counted",
            amount(1, i64::MAX),
            amount(0, 1),
            node("capacity: memory, requested: 9223372036854775807, capacity: 4294967296"),
        ),
    ] {
        let found = decide(asked, used, CAPACITY);
        let reason = found.as_ref().err().map(|refused| refused.reason);
        assert_eq!(found.err().map(|refused| refused.message).unwrap_or_default(), expect, "{name}");
        let is_for_ever = expect.contains("enough capacity");
        let expect = (!expect.is_empty()).then_some(if is_for_ever {
            RefusalReason::Infeasible
        } else {
            RefusalReason::Deferred
        });
        assert_eq!(reason, expect, "{name}");
    }
}
