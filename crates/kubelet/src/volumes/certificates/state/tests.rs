//! How far a source of a certificate is: `TestTransitionInitialToWait`, `TestPCRDeletedWhileWaiting`, `TestFullFlow` of
//! upstream's `pkg/kubelet/podcertificate`, step by step.

use super::*;

#[test]
fn what_was_issued_gets_old() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let fresh = Fresh {
        credentials: Credentials { key: "key".to_owned(), chain: "chain".to_owned() },
        renew_at: at(1000),
        expires_at: at(5000),
        is_overdue_told: false,
        is_expiry_told: false,
    };
    let asked = |name: &str| Asked::new(name.to_owned(), "k".to_owned(), at(1000), Duration::ZERO);
    let state = State::Fresh(fresh, None);
    for (now, expect, is_due) in [
        (999, "fresh", false),
        (1000, "fresh", true),
        (1600, "fresh", true),
        (1601, "overdue_for_refresh", true),
        (5001, "expired", true),
    ] {
        assert_eq!(state.name(at(now)), expect, "{now}");
        assert_eq!(state.clone().next(None, Duration::ZERO, at(now)).is_due, is_due, "{now}");
    }
    // What there is stays while the next one is waited for; a request that is lost is made again.
    let state = State::waiting(Some(state), asked("second"));
    assert_eq!((state.credentials().map(|c| c.chain), state.due()), (Ok("chain".to_owned()), Some(at(1600))));
    let next = state.clone().next(None, Duration::ZERO, at(1599));
    assert_eq!((next.state, next.is_due), (Some(state.clone()), false));
    let next = state.next(None, Duration::ZERO, at(1600));
    assert_eq!((next.state.map(|it| it.asked().is_none()), next.is_due), (Some(true), true));
    assert_eq!(next.events, [("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned())]);
    let first = State::waiting(None, asked("first"));
    assert_eq!((first.name(at(0)), first.due()), ("not_yet_issued", Some(at(1600))));
    let next = first.next(None, Duration::ZERO, at(1600));
    assert_eq!((next.state, next.is_due), (None, true), "it starts over");
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn first() -> State {
    State::waiting(None, Asked::new("req-1".into(), "key-1".into(), at(1000), Duration::ZERO))
}

fn request(status: &str) -> PodCertificateRequest {
    let text = format!(
        "{{metadata: {{namespace: shop, name: req-1}}, spec: {{signerName: s, podName: p, podUID: u, serviceAccountName: a, \
         serviceAccountUID: b, nodeName: n, nodeUID: m, pkixPublicKey: '', proofOfPossession: ''}}, status: {status}}}"
    );
    serde_saphyr::from_str(&text).unwrap()
}

fn condition(type_: &str, reason: &str) -> String {
    format!(
        "{{type: {type_}, status: 'True', reason: {reason}, message: why, lastTransitionTime: '2026-01-01T00:00:00Z'}}"
    )
}

const TIMES: &str = "beginRefreshAt: '1970-01-01T01:00:00Z', notAfter: '1970-01-01T02:00:00Z', \
    notBefore: '1970-01-01T00:00:00Z'";

#[test]
fn an_answer_ends_the_wait_if_it_is_one() {
    let issued = format!("{{conditions: [{}], {TIMES}, certificateChain: ''}}", condition("Issued", "r"));
    let without_times = format!("{{conditions: [{}]}}", condition("Issued", "r"));
    for (name, status, state, event) in [
        ("not answered", "{}".to_owned(), "not_yet_issued", None),
        ("nothing to say", "null".to_owned(), "not_yet_issued", None),
        (
            "something else",
            format!("{{conditions: [{}]}}", condition("SuggestedKeyType", "r")),
            "not_yet_issued",
            None,
        ),
        ("issued", issued.clone(), "fresh", None),
        ("issued without its times", without_times, "not_yet_issued", None),
        (
            "denied",
            format!("{{conditions: [{}]}}", condition("Denied", "NotAllowed")),
            "denied",
            Some((
                "Denied",
                "PodCertificateRequest shop/req-1 was denied, reason=\"NotAllowed\", message=\"why\"",
            )),
        ),
        (
            "failed",
            format!("{{conditions: [{}]}}", condition("Failed", "Broken")),
            "failed",
            Some(("Failed", "PodCertificateRequest shop/req-1 failed, reason=\"Broken\", message=\"why\"")),
        ),
        (
            "something else, and denied",
            format!("{{conditions: [{}, {}]}}", condition("Other", "r"), condition("Denied", "NotAllowed")),
            "denied",
            Some((
                "Denied",
                "PodCertificateRequest shop/req-1 was denied, reason=\"NotAllowed\", message=\"why\"",
            )),
        ),
    ] {
        let next = first().next(Some(&request(&status)), Duration::ZERO, at(1100));
        assert_eq!(next.state.as_ref().map(|next| next.name(at(1100))), Some(state), "{name}");
        let event = event.map(|(reason, message)| (reason, message.to_owned()));
        assert_eq!(next.events, Vec::from_iter(event), "{name}");
        assert!(!next.is_due, "{name}");
    }
}

#[test]
fn what_was_denied_or_failed_stays_so() {
    for (type_, which) in [("Denied", "denied"), ("Failed", "failed")] {
        let status = format!("{{conditions: [{}]}}", condition(type_, "Reason"));
        let ended = first().next(Some(&request(&status)), Duration::ZERO, at(1100)).state.unwrap();
        assert!(ended.asked().is_none() && ended.due().is_none(), "nothing is waited for");
        let told = ended.credentials().unwrap_err().to_string();
        let expect =
            format!("PodCertificateRequest was permanently {which}: reason=\"Reason\" message=\"why\"");
        assert_eq!(told, expect);
        let issued = format!("{{conditions: [{}], {TIMES}, certificateChain: ''}}", condition("Issued", "r"));
        for request in [None, Some(request(&issued))] {
            let next = ended.clone().next(request.as_ref(), Duration::ZERO, at(999_999));
            assert_eq!((next.state, next.is_due, next.events), (Some(ended.clone()), false, vec![]));
        }
    }
}

#[test]
fn a_request_that_nobody_has_seen_is_lost_after_a_while_and_one_that_was_seen_is_waited_for() {
    let lost_at = 1000 + 600;
    let next = first().next(None, Duration::ZERO, at(lost_at - 1));
    assert_eq!((next.state, next.is_due), (Some(first()), false));
    let next = first().next(None, Duration::ZERO, at(lost_at));
    assert_eq!((next.state, next.is_due), (None, true), "it starts over");
    let seen = first().next(Some(&request("{}")), Duration::ZERO, at(1001)).state.unwrap();
    assert_eq!(seen.due(), None, "its answer wakes us");
    assert_eq!(seen.credentials().unwrap_err().to_string(), "credential bundle is not issued yet");
    let next = seen.clone().next(Some(&request("{}")), Duration::ZERO, at(999_999));
    assert_eq!((next.state, next.is_due), (Some(seen.clone()), false), "however long that takes");
    // It was there, and is there no more.
    let next = seen.next(None, Duration::ZERO, at(lost_at));
    assert_eq!((next.state, next.is_due), (None, true));
    let spread = Asked::new("r".into(), "k".into(), at(1000), Duration::from_secs(60));
    assert_eq!(State::waiting(None, spread).due(), Some(at(lost_at + 60)));
}

#[test]
fn a_certificate_is_renewed_in_time_and_the_old_one_stays_until_then() {
    let block = "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n";
    let chain = format!("certificateChain: \"noise\\n{block}more noise\\n{block}\"");
    let issued = format!("{{conditions: [{}], {TIMES}, {chain}}}", condition("Issued", "r"));
    let next = first().next(Some(&request(&issued)), Duration::from_secs(30), at(1100));
    let fresh = next.state.unwrap();
    assert_eq!(fresh.due(), Some(at(3600 + 30)), "spread over some time");
    let credentials = fresh.credentials().unwrap();
    assert_eq!(credentials.key, "key-1");
    assert_eq!(credentials.chain.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(!credentials.chain.contains("noise"), "{}", credentials.chain);
    let due = fresh.clone().next(None, Duration::ZERO, at(3630));
    assert!(due.is_due && due.state == Some(fresh.clone()));
    let again = Asked::new("req-2".into(), "key-2".into(), at(3630), Duration::ZERO);
    let renewing = State::waiting(due.state, again);
    assert_eq!(renewing.asked().map(|asked| asked.name.as_str()), Some("req-2"));
    assert_eq!(renewing.credentials().unwrap().key, "key-1", "until there is another one");
    let done = renewing.clone().next(Some(&request(&issued)), Duration::ZERO, at(3700)).state.unwrap();
    assert_eq!((done.credentials().unwrap().key.as_str(), done.asked()), ("key-2", None));
    let denied = format!("{{conditions: [{}]}}", condition("Denied", "No"));
    let denied = renewing.next(Some(&request(&denied)), Duration::ZERO, at(3700)).state.unwrap();
    assert!(denied.credentials().is_err(), "there is none any more");
}

#[test]
fn what_is_not_renewed_is_complained_of_once() {
    let issued = format!("{{conditions: [{}], {TIMES}, certificateChain: ''}}", condition("Issued", "r"));
    let mut state = first().next(Some(&request(&issued)), Duration::ZERO, at(1100)).state.unwrap();
    for (now, name, events) in [
        (3599, "fresh", &[][..]),
        (4200, "fresh", &["CertificateOverdueForRefresh"]),
        (4201, "overdue_for_refresh", &[]),
        (7200, "overdue_for_refresh", &["CertificateExpired"]),
        (7201, "expired", &[]),
        (9999, "expired", &[]),
    ] {
        let next = state.next(None, Duration::ZERO, at(now));
        let told: Vec<&str> = next.events.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(told, events, "{now}");
        state = next.state.unwrap();
        assert_eq!(state.name(at(now)), name, "{now}");
    }
}
