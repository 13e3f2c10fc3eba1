use super::*;
use crate::history::{Call, Event, Keep, Line, Outcome, State};

const KEY: &str = "/registry/configmaps/a/k";

fn create(value: &str) -> Call {
    Call::Create { key: KEY.into(), value: value.into(), keep: Keep::Durably }
}

fn update(expect: u64, value: &str) -> Call {
    Call::Update { key: KEY.into(), value: value.into(), expect, keep: Keep::Durably }
}

fn delete(expect: u64) -> Call {
    Call::Delete { key: KEY.into(), expect, keep: Keep::Durably }
}

fn loosely(value: &str) -> Call {
    Call::Create { key: "/registry/leases/a/k".into(), value: value.into(), keep: Keep::Loosely }
}

fn get() -> Call {
    Call::Get { key: KEY.into() }
}

fn got(value: &str, revision: u64) -> Outcome {
    Outcome::Got(Some(State { value: value.into(), revision, created: None }))
}

fn unknown() -> Outcome {
    Outcome::Unknown("no answer".into())
}

/// One after the other.
fn sequence(operations: Vec<(Call, Outcome)>) -> Vec<Line> {
    let lines = operations
        .into_iter()
        .zip(1..)
        .flat_map(|((call, outcome), id)| [Line::Invoke(id, call), Line::Return(id, outcome)]);
    lines.collect()
}

/// All at once.
fn together(operations: Vec<(Call, Outcome)>) -> Vec<Line> {
    let (calls, outcomes): (Vec<_>, Vec<_>) = operations.into_iter().unzip();
    let calls = calls.into_iter().zip(1..).map(|(call, id)| Line::Invoke(id, call));
    calls.chain(outcomes.into_iter().zip(1..).map(|(outcome, id)| Line::Return(id, outcome))).collect()
}

fn check(lines: Vec<Line>, expect: &[Rule]) {
    let breaches = super::check(&History { lines }, Guarantees::Store);
    let mut rules: Vec<Rule> = breaches.iter().map(|breach| breach.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    assert_eq!(rules, expect, "{breaches:?}");
}

#[test]
fn what_happens_one_after_the_other_is_right() {
    check(
        sequence(vec![
            (create("a"), Outcome::Wrote(2)),
            (get(), got("a", 2)),
            (create("b"), Outcome::Refused(Some(State { value: "a".into(), revision: 2, created: Some(2) }))),
            (update(2, "c"), Outcome::Wrote(3)),
            (delete(3), Outcome::Wrote(4)),
            (get(), Outcome::Got(None)),
            (create("d"), Outcome::Wrote(7)),
        ]),
        &[],
    );
}

#[test]
fn of_two_reads_at_once_either_may_come_before_the_write() {
    let write = (create("a"), Outcome::Wrote(2));
    check(together(vec![write.clone(), (get(), got("a", 2)), (get(), Outcome::Got(None))]), &[]);
    let mut lines = vec![Line::Invoke(9, write.0)];
    lines.extend(sequence(vec![(get(), got("a", 2)), (get(), Outcome::Got(None))]));
    lines.push(Line::Return(9, write.1));
    check(lines, &[Rule::Linearizable]);
}

#[test]
fn a_write_without_an_answer_may_happen_late_or_never() {
    let start = vec![(create("a"), unknown()), (get(), Outcome::Got(None))];
    check(sequence(start.clone()), &[]);
    check(sequence([start, vec![(get(), got("a", 2)), (update(2, "b"), Outcome::Wrote(3))]].concat()), &[]);
    let gone = vec![(create("a"), Outcome::Wrote(2)), (delete(2), unknown()), (get(), Outcome::Got(None))];
    check(sequence(gone.clone()), &[]);
    check(sequence([gone, vec![(get(), got("a", 2))]].concat()), &[Rule::Linearizable]);
}

#[test]
fn only_one_of_two_updates_of_the_same_revision_wins() {
    let both = vec![(update(2, "b"), Outcome::Wrote(3)), (update(2, "c"), Outcome::Wrote(4))];
    let mut lines = sequence(vec![(create("a"), Outcome::Wrote(2))]);
    lines.extend(together(both));
    check(lines, &[Rule::Linearizable]);
}

#[test]
fn a_restart_may_lose_what_was_written_loosely_and_only_the_end_of_it() {
    let written = |keep: fn(&str) -> Call, kept| {
        let mut lines = sequence(vec![(keep("a"), Outcome::Wrote(2))]);
        lines.push(Line::Restart { newest: 10, kept });
        lines
    };
    check(written(loosely, 1), &[]);
    check(written(create, 2), &[]);
    check(written(create, 1), &[Rule::NothingLost]);
}

#[test]
fn a_removal_that_is_lost_with_what_it_removed_still_has_its_author() {
    let lease = |call: &mut Call| {
        if let Call::Update { key, keep, .. } | Call::Delete { key, keep, .. } = call {
            (*key, *keep) = ("/registry/leases/a/k".into(), Keep::Loosely);
        }
    };
    let (mut update, mut right, mut wrong) = (update(2, "b"), delete(3), delete(2));
    [&mut update, &mut right, &mut wrong].into_iter().for_each(lease);
    for (removal, expect) in [(right, vec![]), (wrong, vec![Rule::NothingInvented])] {
        let written = vec![
            (loosely("a"), Outcome::Wrote(2)),
            (update.clone(), Outcome::Wrote(3)),
            (removal, Outcome::Wrote(4)),
        ];
        let mut lines = sequence(written);
        lines.push(Line::Restart { newest: 10, kept: 2 });
        check(lines, &expect);
    }
}

#[test]
fn counting_goes_on_above_everything_after_a_restart() {
    let mut lines = sequence(vec![(create("a"), Outcome::Wrote(5))]);
    lines.push(Line::Restart { newest: 4, kept: 4 });
    check(lines, &[Rule::RevisionsRise]);
}

#[test]
fn what_was_seen_and_not_yet_acknowledged_must_survive_too() {
    let event = Event {
        revision: 2,
        key: KEY.into(),
        state: Some(State { value: "a".into(), revision: 2, created: Some(2) }),
        previous: Some(None),
    };
    let (start, end) = ("/registry/".to_owned(), "/registry0".to_owned());
    let lines = vec![
        Line::Watch { watch: 8, start, end, after: 1 },
        Line::Invoke(1, create("a")),
        Line::Event(8, event),
        Line::Restart { newest: 10, kept: 1 },
    ];
    check(lines, &[Rule::NothingLost]);
}

#[test]
fn what_nobody_wrote_is_invented() {
    check(
        sequence(vec![(create("a"), Outcome::Wrote(2)), (get(), got("broken: a", 3))]),
        &[Rule::NothingInvented, Rule::Linearizable],
    );
}

#[test]
fn what_may_have_been_removed_may_be_behind_a_page_or_not() {
    let key = |n: u64| format!("/registry/configmaps/a/k{n}");
    let create = |n: u64| {
        let call = Call::Create { key: key(n), value: n.to_string(), keep: Keep::Durably };
        (call, Outcome::Wrote(n))
    };
    let page = |remaining| {
        let state = State { value: "1".into(), revision: 1, created: Some(1) };
        let (start, end) = ("/registry/".to_owned(), "/registry0".to_owned());
        let listed =
            Outcome::Listed { revision: 4, states: vec![(key(1), state)], remaining: Some(remaining) };
        (Call::List { start, end, at: None, limit: 1 }, listed)
    };
    let removal = (Call::Delete { key: key(2), expect: 2, keep: Keep::Durably }, unknown());
    for (remaining, expect) in
        [(0, vec![Rule::ListsAreWhole]), (1, vec![]), (2, vec![]), (3, vec![Rule::ListsAreWhole])]
    {
        let all = vec![create(1), create(2), create(3), removal.clone(), page(remaining)];
        check(sequence(all), &expect);
    }
}

#[test]
fn objects_are_shown_and_judged_by_the_form_that_holds() {
    let shown =
        |forms: &[u64]| Line::Shown { by: "a list".to_owned(), forms: forms.to_vec(), since: 3, until: 4 };
    let absent =
        |forms: &[u64]| Line::Absent { asked: "/apis".to_owned(), forms: forms.to_vec(), since: 3, until: 4 };
    let judged = |level, is_taken| Line::Judged { level, is_taken, since: 3, until: 4 };
    for (name, line, is_right) in [
        ("by the one that was answered", shown(&[3]), true),
        ("by the next one", shown(&[4]), true),
        ("by the one before", shown(&[2]), false),
        ("by one that nobody asked for", shown(&[5]), false),
        ("by two", shown(&[3, 4]), false),
        ("by none", shown(&[]), false),
        ("taken by the older", judged(3, true), true),
        ("refused by the newer", judged(3, false), true),
        ("taken by one that is over", judged(2, true), false),
        ("refused by one that is to come", judged(4, false), false),
        ("missing where there may be none", absent(&[4]), true),
        ("missing where there is one", absent(&[]), false),
    ] {
        let expect: &[Rule] = if is_right { &[] } else { &[Rule::DefinitionsHold] };
        eprintln!("{name}");
        check(vec![line], expect);
    }
}

#[test]
fn objects_go_with_their_kind_and_do_not_come_back() {
    let end = |outcome| {
        let (start, end) = ("/registry/configmaps/".to_owned(), "/registry/configmaps0".to_owned());
        (Call::End { start, end, after: 2 }, outcome)
    };
    let list = |revision, states: &[(&str, u64)]| {
        let state = |(value, revision): &(&str, u64)| {
            let state = State { value: (*value).to_owned(), revision: *revision, created: None };
            (KEY.to_owned(), state)
        };
        let (start, end) = ("/registry/".to_owned(), "/registry0".to_owned());
        let states = states.iter().map(state).collect();
        let call = Call::List { start, end, at: Some(revision), limit: 0 };
        (call, Outcome::Listed { revision, states, remaining: None })
    };
    let none = || (get(), Outcome::Got(None));
    let gone = || end(Outcome::Newest(5));
    let again = || (create("b"), Outcome::Wrote(7));
    for (name, operations, expect) in [
        ("it is gone", vec![gone(), none(), list(5, &[]), again(), list(7, &[("b", 7)])], vec![]),
        ("it was there before", vec![gone(), list(2, &[("a", 2)])], vec![]),
        ("it went at some time", vec![gone(), list(3, &[("a", 2)]), list(4, &[])], vec![]),
        ("it is still there", vec![gone(), (get(), got("a", 2))], vec![Rule::Linearizable]),
        ("it is still listed", vec![gone(), list(6, &[("a", 2)])], vec![Rule::ListsAreWhole]),
        (
            "the next is changed as the last",
            vec![gone(), again(), (get(), got("a", 2))],
            vec![Rule::Linearizable],
        ),
        ("the next goes with the last", vec![gone(), again(), none()], vec![Rule::Linearizable]),
        ("the next is not listed", vec![gone(), again(), list(8, &[])], vec![Rule::ListsAreWhole]),
        ("nobody saw the end", vec![end(unknown()), (get(), got("a", 2)), none()], vec![]),
        ("it came back", vec![end(unknown()), none(), (get(), got("a", 2))], vec![Rule::Linearizable]),
    ] {
        eprintln!("{name}");
        check(sequence([vec![(create("a"), Outcome::Wrote(2))], operations].concat()), &expect);
    }
    for (revision, expect) in [(4, vec![]), (9, vec![Rule::NothingInvented])] {
        let mut lines = sequence(vec![(create("a"), Outcome::Wrote(2)), gone(), again()]);
        let (start, end) = ("/registry/".to_owned(), "/registry0".to_owned());
        lines.push(Line::Watch { watch: 9, start, end, after: revision - 1 });
        lines.push(Line::Event(9, Event { revision, key: KEY.into(), state: None, previous: None }));
        check(lines, &expect);
    }
}

#[test]
fn objects_without_a_definition_are_found() {
    for (is_defined, objects, expect) in
        [(true, 3, vec![]), (false, 0, vec![]), (false, 1, vec![Rule::NoObjectOutlivesItsKind])]
    {
        check(vec![Line::Stored { revision: 5, is_defined, objects }], &expect);
    }
}
