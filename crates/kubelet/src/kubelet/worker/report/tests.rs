//! Which changes of a status are written at once.

use super::*;

fn status(text: &str) -> PodStatus {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn what_others_wait_for_is_written_at_once() {
    let (ready, unready) = ("{type: Ready, status: 'True'}", "{type: Ready, status: 'False'}");
    let with = |phase: &str, condition: &str| format!("{{phase: {phase}, conditions: [{condition}]}}");
    for (name, old, new, expect) in [
        ("nothing", "{}".to_owned(), "{}".to_owned(), false),
        ("the first phase", "{}".to_owned(), with("Pending", unready), false),
        ("it runs", with("Pending", unready), with("Running", unready), false),
        ("it is ready", with("Running", unready), with("Running", ready), true),
        ("it is ready no more", with("Running", ready), with("Running", unready), true),
        ("nobody says any more that it is ready", with("Running", ready), with("Running", ""), true),
        ("it has ended", with("Running", unready), with("Succeeded", unready), true),
        ("it has failed", with("Running", unready), with("Failed", unready), true),
        ("it had ended before", with("Failed", unready), with("Failed", unready), false),
        (
            "something else",
            with("Running", ready),
            format!("{{message: m, {}", &with("Running", ready)[1..]),
            false,
        ),
        (
            "something else is true",
            with("Running", ready),
            with("Running", &format!("{ready}, {{type: ContainersReady, status: 'True'}}")),
            false,
        ),
    ] {
        let mut snapshot = PodSnapshot::default();
        assert_eq!(is_urgent(&snapshot, &status(&old), &status(&new)), expect, "{name}");
        snapshot.removed_from_api = true;
        assert!(is_urgent(&snapshot, &status(&old), &status(&new)), "{name}: it is on its way down");
    }
}

#[test]
fn a_write_that_failed_is_tried_again_a_little_later() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut report = Report { changed_at: Some(at(100)), in_flight: Some(Value::Null), ..Report::default() };
    report.failed(at(101));
    assert_eq!((report.not_before, report.in_flight.clone()), (Some(at(102)), None));
    assert_eq!(report.changed_at, Some(at(100)), "it is the same change");
    report.in_flight = Some(Value::Bool(true));
    assert_eq!(report.written(), Some(at(100)));
    assert_eq!((report.not_before, report.last_written.clone()), (None, Some(Value::Bool(true))));
    assert_eq!(report.written(), None, "there was nothing to write");
}
