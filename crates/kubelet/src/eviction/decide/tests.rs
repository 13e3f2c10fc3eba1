use super::*;
use crate::config::eviction::Statements;

fn policy(hard: &str, soft: &str, reclaim: &str) -> Policy {
    let map = |text: &str| {
        text.split(',').filter_map(|p| p.split_once('<')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    Policy::parse(&Statements {
        hard: map(hard),
        soft: map(soft),
        soft_grace: [("memory.available".to_owned(), "30s".to_owned())].into(),
        minimum_reclaim: map(reclaim),
    })
    .unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn memory(available: i64) -> Observations {
    [(Signal::MemoryAvailable, Observation { available, capacity: 1000 })].into()
}

#[test]
fn a_hard_threshold_acts_at_once_and_its_condition_stays_a_while() {
    let (policy, mut state) = (policy("memory.available<100", "", ""), State::default());
    assert_eq!(state.look(&policy, &memory(100), at(0)), Verdict::default());
    let verdict = state.look(&policy, &memory(99), at(10));
    assert_eq!(verdict.conditions, ["MemoryPressure"]);
    assert_eq!(verdict.reclaim.map(|(_, seen)| seen.available), Some(99));
    let verdict = state.look(&policy, &memory(500), at(20));
    assert_eq!((verdict.conditions, verdict.reclaim), (vec!["MemoryPressure"], None));
    assert_eq!(state.due_at(&policy, at(20)), Some(at(310)));
    assert_eq!(state.look(&policy, &memory(500), at(310)), Verdict::default());
}

#[test]
fn a_soft_threshold_must_be_crossed_for_its_grace_without_a_break() {
    let (policy, mut state) = (policy("", "memory.available<100", ""), State::default());
    let mut reclaims =
        |available, second| state.look(&policy, &memory(available), at(second)).reclaim.is_some();
    assert!(!reclaims(50, 0) && !reclaims(50, 29));
    assert!(!reclaims(200, 29) && !reclaims(50, 30) && !reclaims(50, 59));
    assert!(reclaims(50, 60));
}

#[test]
fn what_was_acted_on_is_over_only_with_the_minimum_reclaimed() {
    let (policy, mut state) = (policy("memory.available<100", "", "memory.available<50"), State::default());
    assert!(state.look(&policy, &memory(99), at(0)).reclaim.is_some());
    assert!(state.look(&policy, &memory(149), at(1)).reclaim.is_some());
    assert!(state.look(&policy, &memory(150), at(2)).reclaim.is_none());
    assert!(state.look(&policy, &memory(149), at(3)).reclaim.is_none());
}

#[test]
fn it_is_enough_when_nothing_is_short_and_the_minimum_is_reclaimed() {
    let policy = policy("memory.available<100,pid.available<10", "", "memory.available<50");
    let seen = |memory: i64, pids: i64| -> Observations {
        let of = |available| Observation { available, capacity: 1000 };
        [(Signal::MemoryAvailable, of(memory)), (Signal::PidAvailable, of(pids))].into()
    };
    assert!(is_enough(&policy, &seen(150, 10)));
    assert!(!is_enough(&policy, &seen(149, 10)), "more than the threshold, less than what is to be won");
    assert!(!is_enough(&policy, &seen(150, 9)), "of something else");
}

fn pod(uid: &str, priority: i64, usage: i64, request: i64) -> Candidate {
    let container = Used { name: "main".into(), usage, request: Some(request) };
    Candidate { uid: uid.into(), priority, request, containers: vec![container], ..Candidate::default() }
}

/// Source: `TestOrderedBy*`, `TestMemoryPressure_VerifyPodStatus` and `TestStaticCriticalPodsAreNotEvicted` of upstream's
/// `pkg/kubelet/eviction`, whose Pods these are, in the order in which they go.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn pods_go_in_upstreams_order() {
    use Signal::{MemoryAvailable, NodeFsAvailable, NodeFsInodesFree, PidAvailable};
    let volumes = |uid: &str, priority, usage, request, volumes| Candidate {
        volumes,
        ..pod(uid, priority, usage, request)
    };
    let critical = |uid: &str| Candidate { is_critical: true, ..pod(uid, 0, 900, 0) };
    let plain = |uid: &str, usage| pod(uid, 0, usage, 0);
    for (name, signal, pods, expect) in [
        (
            "memory",
            MemoryAvailable,
            vec![
                pod("below-high", 9, 400, 500),
                pod("above-low", 1, 600, 200),
                plain("best-effort-more", 900),
                pod("below-low", 1, 400, 500),
                pod("above-high", 9, 900, 100),
                plain("best-effort", 300),
            ],
            "best-effort-more best-effort above-low above-high below-low below-high",
        ),
        (
            "who is furthest above its request, or least below it",
            MemoryAvailable,
            vec![pod("a", 0, 90, 50), pod("b", 0, 80, 10), pod("c", 0, 80, 90), pod("d", 0, 50, 90)],
            "b a c d",
        ),
        (
            "as much as was asked for is not more",
            MemoryAvailable,
            vec![pod("a", 0, 50, 50), pod("b", 9, 51, 50)],
            "b a",
        ),
        (
            "what the Pod has asked for as a whole is what counts",
            MemoryAvailable,
            vec![Candidate { request: 200, ..pod("a", 0, 90, 10) }, pod("b", 0, 60, 50)],
            "b a",
        ),
        ("critical ones stay", MemoryAvailable, vec![critical("c"), pod("b", 0, 1, 5), critical("d")], "b"),
        (
            "a disk",
            NodeFsAvailable,
            vec![
                volumes("emptydir", 0, 50, 300, 200),
                volumes("over", 0, 50, 100, 200),
                pod("high", 9, 900, 0),
                pod("rootfs", 0, 400, 0),
            ],
            "rootfs over high emptydir",
        ),
        (
            "inodes",
            NodeFsInodesFree,
            vec![
                pod("none", 0, 0, 0),
                pod("high-more", 9, 50, 0),
                pod("few", 0, 10, 0),
                volumes("more", 0, 5, 90, 20),
            ],
            "more few high-more none",
        ),
        (
            "processes",
            PidAvailable,
            vec![pod("high", 9, 90, 0), pod("none", 0, 0, 0), pod("a", 0, 9, 0), pod("b", 0, 10, 90)],
            "b a none high",
        ),
        ("nobody", MemoryAvailable, vec![], ""),
    ] {
        let (mut left, mut order) = (pods, Vec::new());
        while let Some(first) = first_to_go(signal, &left).map(|first| first.uid.clone()) {
            left.retain(|pod| pod.uid != first);
            order.push(first);
        }
        assert_eq!(order.join(" "), expect, "{name}");
    }
}

#[test]
fn messages_are_upstreams() {
    let threshold = policy("memory.available<100Mi", "", "").thresholds[0];
    let seen = Observation { available: 50 << 20, capacity: 1 << 30 };
    let mut one = pod("a", 0, 64 << 20, 32 << 20);
    one.containers.push(Used { name: "modest".into(), usage: 1, request: Some(2) });
    one.containers.push(Used { name: "other".into(), usage: 2 << 20, request: Some(0) });
    let (text, annotations) = message(&threshold, seen, &one);
    assert_eq!(
        text,
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
         Container main was using 64Mi, request is 32Mi, has larger consumption of memory. \
         Container other was using 2Mi, request is 0, has larger consumption of memory. "
    );
    let annotations: Vec<_> = annotations.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let expect = [
        "offending_containers: main,other",
        "offending_containers_usage: 64Mi,2Mi",
        "starved_resource: memory",
    ];
    assert_eq!(annotations, expect);
}

/// Source: `TestEvictionMessage` of upstream's `pkg/kubelet/eviction`.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn who_is_to_blame_is_told_as_upstream_tells_it() {
    const MIB: i64 = 1 << 20;
    let threshold = policy("memory.available<100Mi", "", "").thresholds[0];
    let seen = Observation { available: 50 * MIB, capacity: 1 << 30 };
    // Name, use and request in mebibytes; an ephemeral container has none.
    for (name, own, containers, text, names, usages) in [
        (
            "none has more",
            None,
            &[("side", 150_i64, Some(200_i64)), ("main", 100, Some(200))][..],
            "",
            "",
            "",
        ),
        (
            "an init container",
            None,
            &[("init", 150, Some(100))],
            "Container init was using 150Mi, request is 100Mi, has larger consumption of memory. ",
            "init",
            "150Mi",
        ),
        (
            "one of three",
            None,
            &[("a", 250, Some(200)), ("b", 150, Some(200)), ("c", 200, Some(200))],
            "Container a was using 250Mi, request is 200Mi, has larger consumption of memory. ",
            "a",
            "250Mi",
        ),
        (
            "an ephemeral one is not to blame",
            None,
            &[("main", 150, Some(200)), ("debug", 250, None)],
            "",
            "",
            "",
        ),
        (
            "without a request",
            None,
            &[("side", 250, Some(0)), ("b", 250, Some(300)), ("main", 200, Some(0))],
            "Container side was using 250Mi, request is 0, has larger consumption of memory. Container main was using 200Mi, request is 0, has larger consumption of memory. ",
            "side,main",
            "250Mi,200Mi",
        ),
        (
            "the Pod has asked for itself",
            Some("250Mi"),
            &[("a", 250, Some(0)), ("b", 350, Some(400))],
            "Pod web was using 600Mi, request is 250Mi, has larger consumption of memory. Container a was using 250Mi, request is 0, has larger consumption of memory. ",
            "a",
            "250Mi",
        ),
    ] {
        let used = |(name, usage, request): &(&str, i64, Option<i64>)| Used {
            name: (*name).to_owned(),
            usage: usage * MIB,
            request: request.map(|request| request * MIB),
        };
        let pod = Candidate {
            name: "web".into(),
            own_request: own.map(str::to_owned),
            containers: containers.iter().map(used).collect(),
            ..Candidate::default()
        };
        let (found, annotations) = message(&threshold, seen, &pod);
        const LOW: &str =
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ";
        assert_eq!(found, format!("{LOW}{text}"), "{name}");
        let mut expect = vec![("offending_containers", names), ("offending_containers_usage", usages)];
        expect.extend(own.map(|_| ("offending_pod", "web")));
        expect.extend(own.map(|_| ("offending_pod_usage", "600Mi")));
        expect.push(("starved_resource", "memory"));
        let annotations: Vec<_> =
            annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(annotations, expect, "{name}");
    }
    let inodes = Threshold { signal: Signal::NodeFsInodesFree, ..threshold };
    let (text, annotations) = message(&inodes, seen, &pod("a", 0, 9, 0));
    assert!(text.ends_with("available: 52428800. "), "nobody asks for inodes: {text}");
    assert_eq!(annotations["offending_containers"], "");
}

/// Source: `TestThresholdsMet`, `TestPercentageThresholdsMet` and `TestCompareThresholdValue` of upstream's
/// `pkg/kubelet/eviction`.
#[test]
fn a_threshold_is_crossed_below_it_and_over_at_it_and_what_is_to_be_won() {
    for (name, threshold, reclaim, before, available, expect) in [
        ("as much", "100", "", None, 100, false),
        ("more", "100", "", None, 101, false),
        ("less", "100", "", None, 99, true),
        ("a tenth of all", "10%", "", None, 99, true),
        ("just a tenth", "10%", "", None, 100, false),
        ("less than half a part", "10.5%", "", None, 104, true),
        ("what is to be won counts only afterwards", "100", "50", None, 120, false),
        ("it was acted on", "100", "50", Some(99), 149, true),
        ("and is over", "100", "50", Some(99), 150, false),
        ("a part is to be won", "10%", "5%", Some(99), 149, true),
        ("and is", "10%", "5%", Some(99), 150, false),
        ("nothing is to be won", "100", "0", Some(99), 100, false),
    ] {
        let reclaim = if reclaim.is_empty() { String::new() } else { format!("memory.available<{reclaim}") };
        let policy = policy(&format!("memory.available<{threshold}"), "", &reclaim);
        let mut state = State::default();
        if let Some(before) = before {
            assert!(state.look(&policy, &memory(before), at(0)).reclaim.is_some(), "{name}");
        }
        assert_eq!(state.look(&policy, &memory(available), at(10)).reclaim.is_some(), expect, "{name}");
    }
}

/// Source: `TestGetReclaimableThreshold` and `TestSortByEvictionPriority` of upstream's `pkg/kubelet/eviction`.
#[test]
fn memory_is_won_back_before_all_else() {
    use Signal::{
        AllocatableMemoryAvailable, ImageFsAvailable, MemoryAvailable, NodeFsAvailable, PidAvailable,
    };
    let hard = "memory.available<100,nodefs.available<100,imagefs.available<100,pid.available<100";
    for (short, expect) in [
        (&[NodeFsAvailable, PidAvailable, MemoryAvailable][..], Some(MemoryAvailable)),
        (&[NodeFsAvailable, PidAvailable, AllocatableMemoryAvailable], Some(AllocatableMemoryAvailable)),
        (&[ImageFsAvailable, PidAvailable], Some(ImageFsAvailable)),
        (&[PidAvailable], Some(PidAvailable)),
        (&[], None),
    ] {
        let seen =
            short.iter().map(|signal| (*signal, Observation { available: 1, capacity: 1000 })).collect();
        let verdict = State::default().look(&policy(hard, "", ""), &seen, at(0));
        assert_eq!(verdict.reclaim.map(|(threshold, _)| threshold.signal), expect, "{short:?}");
    }
}

/// Source: `TestNodeConditions*` of upstream's `pkg/kubelet/eviction`.
#[test]
fn conditions_stay_for_the_transition_period_after_they_were_seen_last() {
    let policy = policy("memory.available<100,nodefs.available<100,pid.available<100", "", "");
    let mut state = State::default();
    let mut look = |second: i64, short: &[Signal]| {
        let of = |signal: Signal| Observation {
            available: if short.contains(&signal) { 1 } else { 500 },
            capacity: 1000,
        };
        let all = [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::PidAvailable];
        let seen = all.into_iter().map(|signal| (signal, of(signal))).collect();
        state.look(&policy, &seen, at(second)).conditions.join(" ")
    };
    assert_eq!(look(0, &[]), "");
    assert_eq!(look(10, &[Signal::MemoryAvailable]), "MemoryPressure");
    assert_eq!(look(100, &[Signal::NodeFsAvailable]), "DiskPressure MemoryPressure");
    assert_eq!(look(200, &[Signal::PidAvailable]), "DiskPressure MemoryPressure PIDPressure");
    assert_eq!(look(309, &[]), "DiskPressure MemoryPressure PIDPressure");
    assert_eq!(look(310, &[Signal::NodeFsAvailable]), "DiskPressure PIDPressure");
    assert_eq!(look(500, &[]), "DiskPressure");
    assert_eq!(look(609, &[]), "DiskPressure");
    assert_eq!(look(610, &[]), "");
}
