use k8s_openapi::api::core::v1::ObjectReference;

use super::*;
use crate::event::EventType;

fn event(name: &str, reason: &str, message: &str) -> EventAction {
    EventAction {
        component: "kubelet".into(),
        regarding: ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() },
        event_type: EventType::Warning,
        reason: reason.to_owned(),
        message: message.to_owned(),
        annotations: std::collections::BTreeMap::new(),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// What is written of these events, each as `count message`; `-` if nothing.
fn written(correlator: &mut Correlator, events: &[(i64, EventAction)]) -> Vec<String> {
    let random = Random::seeded(1);
    let mut tell = |(seconds, event): &(i64, EventAction)| {
        correlator
            .observe(event, at(*seconds), &random)
            .map_or_else(|| "-".to_owned(), |seen| format!("{} {}", seen.count, seen.message(event)))
    };
    events.iter().map(&mut tell).collect()
}

#[test]
fn equal_events_are_counted_and_others_are_new() {
    let mut correlator = Correlator::default();
    let [a, b, c] = [event("a", "Failed", "x"), event("a", "Failed", "y"), event("b", "Failed", "x")];
    let told = written(&mut correlator, &[(0, a.clone()), (1, b), (2, c), (3, a.clone())]);
    assert_eq!(told, ["1 x", "1 y", "1 x", "2 x"]);
    let random = Random::seeded(2);
    let [third, fourth] = [4, 5].map(|s| correlator.observe(&a, at(s), &random).unwrap());
    assert_eq!((third.suffix, third.first), (fourth.suffix, at(0)));
}

#[test]
fn from_the_tenth_message_on_they_are_one_event_until_ten_quiet_minutes() {
    let mut correlator = Correlator::default();
    let mut events: Vec<_> = (0..12).map(|i| (i, event("a", "FailedMount", &format!("no {i}")))).collect();
    events.push((13, event("a", "FailedMount", "no 3")));
    events.push((14, event("a", "Killing", "no 20")));
    events.push((13 + 601, event("a", "FailedMount", "no 21")));
    let told = written(&mut correlator, &events);
    assert_eq!(told[8], "1 no 8");
    assert_eq!(
        told[9..],
        [
            "1 (combined from similar events): no 9",
            "2 (combined from similar events): no 10",
            "3 (combined from similar events): no 11",
            "2 no 3",
            "1 no 20",
            "1 no 21",
        ]
    );
}

#[test]
fn a_source_that_says_too_much_is_heard_every_five_minutes_and_the_count_goes_on() {
    let mut correlator = Correlator::default();
    let loud: Vec<_> = (0..27).map(|_| (0, event("a", "BackOff", "again"))).collect();
    let told = written(&mut correlator, &loud);
    assert_eq!(told[24..], ["25 again", "-", "-"]);
    let told = written(&mut correlator, &[(0, event("b", "BackOff", "again")), (300, loud[0].1.clone())]);
    assert_eq!(told, ["1 again", "28 again"]);
}

#[test]
fn what_is_remembered_is_bounded_and_what_is_used_stays() {
    let mut recent = Recent::default();
    for key in 1..20_000_u64 {
        *recent.of(0, || 0) += 1;
        recent.of(key, || 0);
    }
    assert_eq!(*recent.of(0, || 0), 19_999);
    assert!(recent.young.len() + recent.old.len() <= REMEMBERED_MAX);
}

/// Source: `TestEventCorrelator` of upstream's `client-go/tools/record`. Events that came before, how many and how many
/// seconds apart, then one more, and what is written of it.
#[test]
fn what_is_written_depends_on_what_came_before() {
    let in_container = |name: &str, message: &str| {
        let mut event = event("a", "similar", message);
        event.regarding.field_path = Some(format!("spec.containers{{{name}}}"));
        event
    };
    let same = |_| event("a", "duplicate", "me again");
    let unique = |i| event("a", &format!("unique{i}"), "I am");
    let similar = |i| in_container("1", &format!("similar {i}"));
    type Before = dyn Fn(i64) -> EventAction;
    for (name, before, count, seconds, last, expect) in [
        ("none", &same as &Before, 0, 5, event("a", "first", "I am"), "1 I am"),
        ("the same", &same, 1, 5, same(0), "2 me again"),
        ("the same more often than similar ones", &same, 10, 90, same(0), "11 me again"),
        ("the same too often", &same, 26, 3, same(0), "-"),
        ("others", &unique, 24, 15, event("a", "last", "I am"), "1 I am"),
        ("nine similar ones", &similar, 9, 15, similar(9), "1 (combined from similar events): similar 9"),
        ("ten similar ones", &similar, 10, 15, similar(10), "2 (combined from similar events): similar 10"),
        ("the like of another container", &similar, 1, 15, in_container("2", "similar 0"), "1 similar 0"),
        ("similar ones long ago", &similar, 9, 601, similar(9), "1 similar 9"),
    ] {
        let mut correlator = Correlator::default();
        let mut events: Vec<_> = (0..count).map(|i| (i * seconds, before(i))).collect();
        events.push((count * seconds, last));
        let told = written(&mut correlator, &events);
        assert_eq!(told.last().map(String::as_str), Some(expect), "{name}: {told:?}");
    }
}

/// Source: `TestEventSpamFilter`, `getSpamKey`.
#[test]
fn a_warning_is_heard_beside_much_that_is_normal() {
    let normal = |reason: &str| EventAction { event_type: EventType::Normal, ..event("a", reason, "again") };
    let mut correlator = Correlator::default();
    let mut events: Vec<_> = (0..26).map(|_| (0, normal("Pulling"))).collect();
    events.push((0, normal("Pulled")));
    events.push((0, event("a", "Failed", "again")));
    let elsewhere = EventAction { component: "scheduler".into(), ..normal("Pulling") };
    events.push((0, elsewhere));
    let mut other = normal("Pulling");
    other.regarding.uid = Some("another".to_owned());
    events.push((0, other));
    let told = written(&mut correlator, &events);
    // Whatever its reason, what is normal has been said too often of this object by this source.
    assert_eq!(told[25..], ["-", "-", "1 again", "1 again", "1 again"]);
}
