use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000 + seconds).expect("a time")
}

/// A queue in which a Pod `a` was refused at second 0, and a Pod that is always active keeps others from being tried early.
fn refused(rejectors: &[&'static str]) -> Queue {
    let mut queue = Queue::new(Backoff::default());
    queue.add("a", 0, ("PodAdd", at(0)));
    assert_eq!(queue.pop(at(0)).as_deref(), Some("a"));
    queue.unschedulable("a", rejectors.iter().copied().collect(), at(0));
    queue
}

fn refusals(queue: &Queue) -> Vec<(&str, Vec<&str>)> {
    queue.refusals().map(|(plugin, keys)| (plugin, keys.collect())).collect()
}

fn pop_all(queue: &mut Queue, now: i64) -> Vec<String> {
    std::iter::from_fn(|| queue.pop(at(now))).collect()
}

#[test]
fn higher_priority_goes_first_then_who_came_first() {
    let mut queue = Queue::default();
    for (key, priority) in [("low", 0), ("high", 9), ("later", 0)] {
        queue.add(key, priority, ("PodAdd", at(0)));
    }
    assert_eq!(pop_all(&mut queue, 0), ["high", "low", "later"]);
}

#[test]
fn an_unschedulable_pod_waits_for_what_helps_and_for_its_backoff() {
    let mut queue = refused(&["NodeAffinity"]);
    assert_eq!(queue.pop(at(5)), None);
    assert_eq!(refusals(&queue), [("NodeAffinity", vec!["a"])]);
    queue.wake("a", "NodeAdd", at(5));
    assert_eq!(queue.pop(at(5)).as_deref(), Some("a"), "its backoff of 1 s is over");
    queue.unschedulable("a", ["NodeAffinity"].into(), at(5));
    queue.add("busy", 0, ("PodAdd", at(6)));
    queue.wake("a", "NodeAdd", at(6));
    assert_eq!(queue.depths(), Depths { active: 1, backoff: 1, unschedulable: 0 });
    assert_eq!(queue.next_due(), Some(at(7)), "the second backoff is 2 s");
    assert!(refusals(&queue).is_empty());
    assert_eq!(queue.pop(at(6)).as_deref(), Some("busy"));
}

#[test]
fn who_backs_off_is_tried_early_only_if_nobody_else_waits() {
    let mut queue = refused(&["NodeAffinity"]);
    queue.add("b", 5, ("PodAdd", at(0)));
    queue.wake("a", "NodeAdd", at(0));
    assert_eq!(pop_all(&mut queue, 0), ["b", "a"]);
    queue.back_off("a", at(0));
    assert_eq!(queue.pop(at(0)), None, "trying again does not mend an error");
    assert_eq!(queue.pop(at(1)).as_deref(), Some("a"));
}

#[test]
fn errors_and_refusals_back_off_apart_from_each_other() {
    let mut queue = refused(&["NodeAffinity"]);
    let mut due = Vec::new();
    for error in [true, true, false, true] {
        queue.add("a", 0, ("PodUpdate", at(0)));
        assert_eq!(queue.pop(at(0)).as_deref(), Some("a"));
        if error {
            queue.back_off("a", at(0));
        } else {
            queue.unschedulable("a", ["NodeAffinity"].into(), at(0));
            queue.wake("a", "NodeAdd", at(0));
        }
        due.extend(queue.next_due());
    }
    assert_eq!(due, [at(1), at(2), at(2), at(1)]);
    let never = Backoff { first: Duration::ZERO, max: Duration::ZERO };
    assert_eq!(never.after(u32::MAX), Duration::ZERO);
    assert_eq!(Backoff::default().after(u32::MAX), Duration::from_secs(10));
}

#[test]
fn who_was_refused_comes_after_those_that_wait() {
    let mut queue = refused(&["NodeAffinity"]);
    queue.add("b", 0, ("PodAdd", at(0)));
    queue.wake("a", "NodeAdd", at(9));
    queue.add("c", 0, ("PodAdd", at(9)));
    assert_eq!(pop_all(&mut queue, 9), ["a", "b", "c"]);
}

#[test]
fn nothing_waits_for_ever() {
    for hold in [false, true] {
        let mut queue = refused(&["NodeAffinity"]);
        if hold {
            queue.hold("a");
        }
        assert_eq!(queue.depths(), Depths { unschedulable: 1, ..Depths::default() });
        let history = History { attempts: 1, since: at(0), is_flushed: false };
        assert_eq!(queue.history("a"), Some(history));
        assert_eq!(queue.pop(at(299)), None);
        assert_eq!(queue.pop(at(300)).as_deref(), Some("a"));
        assert!(queue.history("a").is_some_and(|history| history.is_flushed));
    }
}

/// Source: `TestPriorityQueue_moveToBackoffQ` and `flushUnschedulablePodsLeftover` of upstream's queue.
#[test]
fn not_even_time_is_a_reason_to_cut_a_backoff_short() {
    let long = Backoff { first: Duration::from_secs(400), max: Duration::from_secs(1_000) };
    let mut queue = Queue::new(long);
    queue.add("a", 0, ("PodAdd", at(0)));
    queue.pop(at(0));
    queue.unschedulable("a", ["NodeAffinity"].into(), at(0));
    queue.add("busy", 9, ("PodAdd", at(300)));
    assert_eq!(queue.pop(at(300)).as_deref(), Some("busy"));
    assert_eq!(queue.depths(), Depths { backoff: 1, ..Depths::default() });
    assert_eq!(queue.take_incoming().get(&("backoff", "UnschedulableTimeout")), Some(&1));
    assert_eq!(queue.next_due(), Some(at(400)));
    assert_eq!(queue.pop(at(400)).as_deref(), Some("a"));
}

/// Attempts and the seconds that follow them. Source: `TestBackoffQueue_calculateBackoffDuration`.
#[test]
fn a_backoff_doubles_up_to_its_bound() {
    let seconds = Duration::from_secs;
    for (first, max, attempts, expect) in [
        (1, 32, 0, 1),
        (1, 32, 1, 1),
        (3, 1_000, 5, 48),
        (1, 32, 16, 32),
        (1, 1 << 31, 32, 1 << 31),
        (1, 1 << 31, 64, 1 << 31),
    ] {
        let backoff = Backoff { first: seconds(first), max: seconds(max) };
        assert_eq!(backoff.after(attempts), seconds(expect), "{first} {max} {attempts}");
    }
}

#[test]
fn a_pod_for_which_others_go_is_not_tried_meanwhile_and_forgets_nothing() {
    let mut queue = refused(&["NodeResourcesFit"]);
    queue.hold("a");
    queue.wake("a", "AssignedPodDelete", at(5));
    assert_eq!(queue.pop(at(5)), None);
    queue.let_go("a", at(6));
    assert_eq!(queue.pop(at(6)).as_deref(), Some("a"));
    let mut queue = refused(&["NodeResourcesFit"]);
    queue.hold("a");
    queue.let_go("a", at(6));
    assert_eq!(queue.pop(at(6)), None, "nothing has happened");
}

#[test]
fn a_removed_pod_leaves_nothing_behind() {
    let mut queue = refused(&["NodeAffinity", "NodePorts"]);
    queue.remove("a");
    queue.add("a", 0, ("PodAdd", at(0)));
    queue.pop(at(0));
    queue.back_off("a", at(0));
    queue.remove("a");
    queue.wake("a", "NodeAdd", at(0));
    queue.let_go("a", at(0));
    assert_eq!((queue.pop(at(600)), queue.next_due(), queue.depths()), (None, None, Depths::default()));
    assert!(queue.refused_by.is_empty() && queue.backing_off.is_empty());
}

#[test]
fn what_comes_into_a_queue_is_counted_with_its_reason() {
    let mut queue = refused(&["NodeAffinity"]);
    queue.wake("a", "NodeAdd", at(0));
    queue.pop(at(0));
    let expected = [
        (("active", "PodAdd"), 1),
        (("active", "PopFromBackoffQ"), 1),
        (("backoff", "NodeAdd"), 1),
        (("unschedulable", "ScheduleAttemptFailure"), 1),
    ];
    assert_eq!(queue.take_incoming(), BTreeMap::from(expected));
    assert!(queue.take_incoming().is_empty());
}

#[test]
fn a_pod_is_in_one_queue_wherever_it_comes_from() {
    for active in [false, true] {
        let mut queue = refused(&["NodeAffinity"]);
        if active {
            queue.wake("a", "NodeAdd", at(5));
        }
        queue.back_off("a", at(5));
        assert_eq!(queue.depths(), Depths { backoff: 1, ..Depths::default() });
        assert!(refusals(&queue).is_empty());
        assert_eq!((queue.pop(at(5)), queue.pop(at(6)).as_deref()), (None, Some("a")));
        assert_eq!(queue.pop(at(600)), None);
    }
}

#[test]
fn who_is_activated_is_tried_whatever_it_waits_for_unless_others_go_for_it() {
    let mut queue = refused(&["NodeAffinity"]);
    queue.activate_now("nobody");
    queue.activate_now("a");
    queue.activate_now("a");
    assert_eq!(queue.depths(), Depths { active: 1, backoff: 0, unschedulable: 0 });
    assert_eq!(queue.pop(at(0)).as_deref(), Some("a"));
    queue.activate_now("a");
    assert_eq!(queue.pop(at(0)), None, "it is being tried");
    queue.back_off("a", at(0));
    queue.activate_now("a");
    assert_eq!(queue.pop(at(0)).as_deref(), Some("a"));
    queue.unschedulable("a", ["NodeResourcesFit"].into(), at(0));
    queue.hold("a");
    queue.activate_now("a");
    assert_eq!(queue.pop(at(0)), None);
    queue.let_go("a", at(9));
    assert_eq!(queue.pop(at(9)).as_deref(), Some("a"));
    assert_eq!(queue.take_incoming().get(&("active", "ForceActivate")), Some(&3));
}

/// Source: `TestHighPriorityBackoff`, `TestPodFailedSchedulingMultipleTimesDoesNotBlockNewerPod`.
#[test]
fn nobody_stands_in_the_way_by_being_refused_again_and_again() {
    let mut queue = Queue::default();
    queue.add("high", 9, ("PodAdd", at(0)));
    queue.add("mid", 5, ("PodAdd", at(0)));
    assert_eq!(queue.pop(at(0)).as_deref(), Some("high"));
    queue.unschedulable("high", ["NodeAffinity"].into(), at(0));
    queue.wake("high", "NodeAdd", at(0));
    assert_eq!(queue.pop(at(0)).as_deref(), Some("mid"), "who backs off is not tried before who does not");
    let mut queue = refused(&["NodeAffinity"]);
    for round in 0..5 {
        queue.add("newer", 0, ("PodAdd", at(100 * round)));
        queue.wake("a", "NodeUpdate", at(100 * round));
        let order = pop_all(&mut queue, 100 * round);
        assert_eq!(order.len(), 2, "{round}");
        queue.unschedulable("a", ["NodeAffinity"].into(), at(100 * round));
        queue.remove("newer");
    }
}

/// Source: `TestPriorityQueue_Update`, `TestPriorityQueue_Delete`, `TestPriorityQueue_GetPod`.
#[test]
fn a_pod_that_changes_keeps_its_history_and_takes_the_place_of_its_priority() {
    let mut queue = Queue::default();
    for (key, priority) in [("a", 1), ("b", 2), ("c", 3)] {
        queue.add(key, priority, ("PodAdd", at(0)));
    }
    queue.add("a", 9, ("PodUpdate", at(1)));
    assert_eq!(queue.depths().active, 3, "it is there once");
    assert_eq!(queue.history("a").map(|history| (history.attempts, history.since)), Some((0, at(0))));
    queue.remove("c");
    queue.remove("nobody");
    assert!(queue.contains("a") && queue.contains("b") && !queue.contains("c"));
    assert_eq!(pop_all(&mut queue, 1), ["a", "b"]);
    queue.unschedulable("a", ["NodeAffinity"].into(), at(1));
    queue.unschedulable("nobody", ["NodeAffinity"].into(), at(1));
    queue.back_off("nobody", at(1));
    assert_eq!(queue.depths(), Depths { unschedulable: 1, ..Depths::default() });
    queue.add("a", 0, ("PodUpdate", at(2)));
    assert_eq!(queue.history("a").map(|history| history.attempts), Some(1), "it was tried before");
    assert!(refusals(&queue).is_empty());
    assert_eq!(queue.pop(at(2)).as_deref(), Some("a"));
    assert_eq!(queue.history("a").map(|history| history.attempts), Some(2));
    assert_eq!(queue.history("nobody"), None);
}

/// Source: `TestPriorityQueue_AssignedPodAdded_`, `TestPriorityQueue_PendingPods`.
#[test]
fn who_was_refused_by_several_is_found_by_each_and_woken_once() {
    let mut queue = refused(&["NodeAffinity", "NodePorts"]);
    queue.add("b", 0, ("PodAdd", at(0)));
    assert_eq!(queue.pop(at(0)).as_deref(), Some("b"));
    queue.unschedulable("b", ["NodePorts"].into(), at(0));
    assert_eq!(refusals(&queue), [("NodeAffinity", vec!["a"]), ("NodePorts", vec!["a", "b"])]);
    assert_eq!(queue.rejectors("a"), ["NodeAffinity", "NodePorts"].into());
    queue.wake("a", "NodeAdd", at(9));
    queue.wake("a", "NodeAdd", at(9));
    assert_eq!(refusals(&queue), [("NodePorts", vec!["b"])]);
    assert_eq!(queue.depths(), Depths { active: 1, unschedulable: 1, backoff: 0 });
    assert_eq!(queue.take_incoming().get(&("active", "NodeAdd")), Some(&1));
    queue.back_off("b", at(9));
    assert!(queue.rejectors("b").is_empty(), "an error is nobody's refusal");
}
