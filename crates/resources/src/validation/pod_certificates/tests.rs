use serde_json::json;

use super::*;

fn fixtures() -> Value {
    serde_saphyr::from_str(include_str!("fixtures.yaml")).unwrap()
}

fn shown(errors: &FieldErrors) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A request for the key of that name.
fn of_key(name: &str) -> Value {
    let key = &fixtures()["keys"][name];
    json!({"spec": {
        "signerName": "example.com/signer", "podName": "web", "podUID": "pod-uid",
        "serviceAccountName": "robot", "serviceAccountUID": "s", "nodeName": "n1", "nodeUID": "n",
        "maxExpirationSeconds": 86400, "pkixPublicKey": key["public"], "proofOfPossession": key["proof"],
    }})
}

/// A new request with one field changed; the errors begin so.
fn check(key: &str, field: &str, value: Value, expect: &str) {
    let mut new = of_key(key);
    new["spec"][field] = value;
    let found = shown(&request(&new));
    let fits = if expect.is_empty() { found.is_empty() } else { found.starts_with(expect) };
    assert!(fits, "{key} {field}: {found}");
}

#[test]
fn keys_of_every_type_are_proven() {
    const PROOF: &str =
        "spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature";
    for key in ["ed25519", "p256", "p384", "p521", "rsa3072", "rsa3072-hash"] {
        check(key, "podName", "web".into(), "");
        check(key, "podUID", "other-uid".into(), PROOF);
        check(key, "proofOfPossession", "AAAA".into(), PROOF);
    }
    check("p256", "proofOfPossession", fixtures()["keys"]["ed25519"]["proof"].clone(), PROOF);
    for (key, expect) in [
        ("p224", "\"curve P-224\": elliptic public keys must use curve P256 or P384"),
        ("rsa2048", "\"2048-bit modulus\": RSA keys must have modulus size 3072 or 4096"),
    ] {
        check(key, "podName", "web".into(), &format!("spec.pkixPublicKey: Invalid value: {expect}"));
    }
    let found = shown(&request(&of_key("x25519")));
    assert!(
        found.ends_with("unknown public key type; supported types are Ed25519, ECDSA, and RSA"),
        "{found}"
    );
    let none = "spec.pkixPublicKey: Invalid value: \"AAAA\": must be a valid PKIX-serialized public key";
    check("p256", "pkixPublicKey", "AAAA".into(), none);
    let long = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, vec![0; KEY_BYTES_MAX + 1]);
    let too_long = "Too long: may not be more than 10240 bytes";
    check("p256", "pkixPublicKey", long.clone().into(), &format!("spec.pkixPublicKey: {too_long}"));
    check("p256", "proofOfPossession", long.into(), &format!("spec.proofOfPossession: {too_long}"));
}

#[test]
fn requests_say_who_they_are_for_and_for_how_long() {
    let range = |max: i64| format!("must be in the range [3600, {max}]");
    let seconds = "spec.maxExpirationSeconds";
    for (field, value, expect) in [
        (
            "signerName",
            json!("nobody"),
            "spec.signerName: Invalid value: \"nobody\": must be a fully".to_owned(),
        ),
        ("podName", json!("No"), "spec.podName: Invalid value: \"No\": a lowercase RFC 1123".to_owned()),
        ("nodeName", json!(""), "spec.nodeName: Invalid value: \"\": ".to_owned()),
        ("podUID", json!(""), "spec.podUID: Invalid value: \"\": must not be empty".to_owned()),
        (
            "nodeUID",
            json!("x".repeat(129)),
            "spec.nodeUID: Too long: may not be more than 128 bytes".to_owned(),
        ),
        ("maxExpirationSeconds", json!(null), format!("{seconds}: Required value: must be set")),
        (
            "maxExpirationSeconds",
            json!(3599),
            format!("{seconds}: Invalid value: 3599: {}", range(7_862_400)),
        ),
        ("maxExpirationSeconds", json!(7_862_401), format!("{seconds}: Invalid value: 7862401: ")),
        ("maxExpirationSeconds", json!(7_862_400), String::new()),
        (
            "unverifiedUserAnnotations",
            json!({"plain": "x"}),
            "spec.unverifiedUserAnnotations: Invalid value: \"plain\": must be a domain-prefixed key"
                .to_owned(),
        ),
        ("unverifiedUserAnnotations", json!({"Example.com/a": "x"}), String::new()),
    ] {
        check("ed25519", field, value, &expect);
    }
    let mut own = of_key("ed25519");
    own["spec"]["signerName"] = "pods.kubernetes.io/x".into();
    own["spec"]["maxExpirationSeconds"] = 86_401.into();
    assert_eq!(shown(&request(&own)), format!("{seconds}: Invalid value: 86401: {}", range(86_400)));
}

#[test]
fn what_is_asked_for_stays() {
    let (old, mut new) = (of_key("ed25519"), of_key("ed25519"));
    assert_eq!(shown(&request_update(&new, &old)), "");
    new["spec"]["maxExpirationSeconds"] = 3600.into();
    let found = shown(&request_update(&new, &old));
    assert!(found.starts_with("spec: Invalid value: ") && found.ends_with("field is immutable"), "{found}");
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// An issued status with that chain; renewal is due an hour after the beginning.
fn issued(chain: &str) -> Value {
    let mut status = fixtures()["chains"][chain].clone();
    let begins: jiff::Timestamp = status["notBefore"].as_str().unwrap().parse().unwrap();
    status["beginRefreshAt"] = (begins + jiff::SignedDuration::from_hours(1)).to_string().into();
    status["conditions"] = json!([condition("Issued")]);
    status
}

/// A write of a status over another; `expect` is in what is said about it.
#[track_caller]
fn check_status(old: &Value, new: &Value, expect: &str) {
    let of = |status: &Value| {
        let mut request = of_key("ed25519");
        request["status"] = status.clone();
        request
    };
    let found = shown(&request_status(&of(new), &of(old)));
    let fits = if expect.is_empty() { found.is_empty() } else { found.contains(expect) };
    assert!(fits, "{found}");
}

fn with(mut status: Value, field: &str, value: impl Into<Value>) -> Value {
    status[field] = value.into();
    status
}

#[test]
fn a_request_ends_once_and_in_one_way() {
    let (none, good) = (json!({}), issued("good"));
    let ended = |kind: &str| json!({"conditions": [condition(kind)]});
    check_status(&none, &good, "");
    check_status(&none, &ended("Denied"), "");
    check_status(&none, &ended("Failed"), "");
    check_status(&good, &good, "");
    let over = "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed";
    check_status(&ended("Denied"), &good, over);
    check_status(&good, &none, over);
    let bare = "status: Invalid value: non-condition status fields must be empty when denying or failing";
    check_status(&none, &with(good.clone(), "conditions", json!([condition("Failed")])), bare);
    let neither = "status: Invalid value: status is immutable unless transitioning to \"Issued\"";
    check_status(&none, &with(good.clone(), "conditions", json!([])), neither);
    let both = with(none.clone(), "conditions", json!([condition("Issued"), condition("Denied")]));
    let one =
        "status.conditions[1].type: Invalid value: \"Denied\": There may be at most one condition with type";
    check_status(&none, &both, one);
    let other =
        "status.conditions[0].type: Unsupported value: \"Other\": supported values: \"Issued\", \"Denied\"";
    check_status(&none, &ended("Other"), other);
    let mut unsure = ended("Denied");
    unsure["conditions"][0]["status"] = "False".into();
    check_status(&none, &unsure, "status.conditions[0].status: Unsupported value: \"False\"");
}

#[test]
fn a_chain_begins_with_a_certificate_for_the_key() {
    let good = || issued("good");
    let text = |name: &str| fixtures()["chains"][name]["certificateChain"].as_str().unwrap().to_owned();
    let chain = |text: String| with(good(), "certificateChain", text);
    let key = text("good").replace("CERTIFICATE", "PRIVATE KEY");
    for (status, expect) in [
        (chain(String::new()), "issued certificate chain must contain at least one certificate"),
        (chain(key.clone()), "must consist entirely of CERTIFICATE PEM blocks"),
        (
            chain("x".repeat(CHAIN + 1)),
            "status.certificateChain: Too long: may not be more than 102400 bytes",
        ),
        (issued("other"), "leaf certificate was not issued to the requested public key"),
        (chain(format!("{}{}", text("good"), text("other"))), ""),
        (chain(format!("{}{key}", text("good"))), "must consist entirely of CERTFICATE PEM blocks"),
        (issued("names"), "\"nobody\": leaf certificate should not contain invalid EmailAddress"),
        (issued("names"), "\".a..b\": leaf certificate's DNSName should not contain '..'"),
        (issued("long"), "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"),
    ] {
        check_status(&json!({}), &status, expect);
    }
}

const CHAIN: usize = 100 * 1024;

#[test]
fn times_are_those_of_the_certificate() {
    let good = || issued("good");
    let shifted = |field: &str, minutes: i64| {
        let time: jiff::Timestamp = good()[field].as_str().unwrap().parse().unwrap();
        (time + jiff::SignedDuration::from_mins(minutes)).to_string()
    };
    for (field, value, expect) in [
        ("notBefore", None, "status.notBefore: Required value: must be present and consistent"),
        ("beginRefreshAt", None, "status.beginRefreshAt: Required value: must be present and in the range"),
        ("notBefore", Some(shifted("notBefore", 1)), "must be set to the NotBefore time encoded"),
        ("notAfter", Some(shifted("notAfter", 1)), "must be set to the NotAfter time encoded"),
        (
            "beginRefreshAt",
            Some(shifted("notBefore", 9)),
            "must be at least 10 minutes after status.notBefore",
        ),
        ("beginRefreshAt", Some(shifted("notBefore", 10)), ""),
        ("beginRefreshAt", Some(shifted("notAfter", -10)), ""),
        (
            "beginRefreshAt",
            Some(shifted("notAfter", -9)),
            "must be at least 10 minutes before status.notAfter",
        ),
    ] {
        check_status(&json!({}), &with(good(), field, value), expect);
    }
}
