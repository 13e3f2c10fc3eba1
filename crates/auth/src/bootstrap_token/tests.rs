use serde_json::json;

use super::*;

fn check(name: &str, change: (&str, &str), expect: Option<&[&str]>) {
    let mut data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:workers",
        "expiration": "2027-01-01T00:00:00Z"});
    data[change.0] = change.1.into();
    let encoded: serde_json::Map<String, Value> = data
        .as_object()
        .expect("an object")
        .iter()
        .map(|(k, v)| (k.clone(), STANDARD.encode(v.as_str().expect("text")).into()))
        .collect();
    let secret = json!({"metadata": {}, "type": SECRET_TYPE, "data": encoded});
    let now = "2026-06-01T00:00:00Z".parse().expect("a time");
    let (id, given) = split("abcdef.0123456789abcdef").expect("a token");
    let user = user_of(&secret, id, given, now);
    let expect = expect.map(|groups| groups.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>());
    assert_eq!(user.map(|user| user.groups), expect, "{name}");
}

#[test]
fn a_token_is_as_good_as_its_secret() {
    let all: &[&str] = &["system:bootstrappers", "system:bootstrappers:workers"];
    check("good", ("description", "x"), Some(all));
    check("another secret", ("token-secret", "fedcba9876543210"), None);
    check("another id", ("token-id", "xxxxxx"), None);
    check("over", ("expiration", "2026-01-01T00:00:00Z"), None);
    check("no time", ("expiration", "tomorrow"), None);
    check("another use", ("usage-bootstrap-authentication", "false"), None);
    check("a foreign group", ("auth-extra-groups", "system:masters"), None);
    check("no groups", ("auth-extra-groups", ""), Some(&["system:bootstrappers"]));
}

/// What upstream's own test expects of the same.
#[test]
fn a_signature_is_upstreams() {
    let check = |content: &str, secret: &str, expect: &str| {
        let head = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9";
        assert_eq!(sign(content, "joshua", secret), format!("{head}..{expect}"));
    };
    let (content, secret) =
        ("Hello from the other side. I must have called a thousand times.", "my voice is my passcode");
    check(content, secret, "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8");
    check("", secret, "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk");
    check(content, "", "UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8");
}

#[test]
fn a_new_token_has_the_form() {
    let (id, secret) = new().expect("a token");
    assert_eq!(split(&format!("{id}.{secret}")), Some((id.as_str(), secret.as_str())));
    assert_ne!(new().expect("a token").1, secret);
}

#[test]
fn other_texts_are_no_bootstrap_tokens() {
    for text in ["abcdef", "abcdef.0123", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdeF"] {
        assert_eq!(split(text), None, "{text}");
    }
}

/// Source: `TestTokenAuthenticator` and `TestGetGroups` of upstream's bootstrap tokens.
#[test]
fn what_the_secret_says_is_taken_word_by_word() {
    let plain: &[&str] = &["system:bootstrappers"];
    let workers: &[&str] = &["system:bootstrappers", "system:bootstrappers:workers"];
    let (long, longer) = ("a".repeat(256), "a".repeat(257));
    let long = format!("system:bootstrappers:{long}");
    for (name, change, expect) in [
        (
            "groups once and in order",
            (
                "auth-extra-groups",
                "system:bootstrappers:foo,system:bootstrappers:bar,system:bootstrappers:bar",
            ),
            Some(&["system:bootstrappers", "system:bootstrappers:bar", "system:bootstrappers:foo"][..]),
        ),
        ("a group of no prefix", ("auth-extra-groups", "foo"), None),
        ("the prefix alone", ("auth-extra-groups", "system:bootstrappers:"), None),
        ("the group that all are in", ("auth-extra-groups", "system:bootstrappers"), None),
        (
            "a blank between groups",
            ("auth-extra-groups", "system:bootstrappers:a, system:bootstrappers:b"),
            None,
        ),
        (
            "nothing between groups",
            ("auth-extra-groups", "system:bootstrappers:a,,system:bootstrappers:b"),
            None,
        ),
        ("a comma at the end", ("auth-extra-groups", "system:bootstrappers:a,"), None),
        ("a group in capitals", ("auth-extra-groups", "system:bootstrappers:Foo"), None),
        ("a group that ends in a dash", ("auth-extra-groups", "system:bootstrappers:foo-"), None),
        ("a group of two lines", ("auth-extra-groups", "system:bootstrappers:foo\n"), None),
        ("the longest group", ("auth-extra-groups", &long), Some(&["system:bootstrappers", &long])),
        ("a longer one", ("auth-extra-groups", &format!("system:bootstrappers:{longer}")), None),
        ("no end", ("expiration", ""), Some(workers)),
        ("an end elsewhere", ("expiration", "2026-05-31T23:00:00-02:00"), Some(workers)),
        ("an end that is now", ("expiration", "2026-06-01T00:00:00Z"), None),
        ("an end that is none", ("expiration", "nope"), None),
        ("a use that is no word", ("usage-bootstrap-authentication", "True"), None),
        ("a use that is not said", ("usage-bootstrap-authentication", ""), None),
        ("no secret", ("token-secret", ""), None),
        ("a longer secret", ("token-secret", "0123456789abcdef0"), None),
        ("no id", ("token-id", ""), None),
        ("another use beside", ("usage-bootstrap-signing", "false"), Some(workers)),
    ] {
        check(name, change, expect);
    }
    check("no groups", ("auth-extra-groups", ""), Some(plain));
}

/// Source: `TestTokenParse` and `ParseName`.
#[test]
fn tokens_have_one_form() {
    assert_eq!(split("abcdef.1234567890123456"), Some(("abcdef", "1234567890123456")));
    assert_eq!(split("123456.aabbccddeeffgghh"), Some(("123456", "aabbccddeeffgghh")));
    for text in [
        "",
        ".",
        "1234567890123456789012",
        "12345.1234567890123456",
        ".1234567890123456",
        "123456.",
        "123456:1234567890.123456",
        "abcdef:1234567890123456",
        "abcdef.12345678901234567",
        "abcdef.123456789012345",
        "abcdef.1234567890123456.1",
        "Abcdef.1234567890123456",
        "abcdef.123456789012345A",
        " abcdef.1234567890123456",
        "abcdef.1234567890123456\n",
        "äbcde.1234567890123456",
    ] {
        assert_eq!(split(text), None, "{text:?}");
    }
    assert!(is_id("abc123") && is_id("000000"));
    for id in ["", "abc", "abc123ghi", "ABC123", "abc-12", "abc 12"] {
        assert!(!is_id(id), "{id}");
    }
}
