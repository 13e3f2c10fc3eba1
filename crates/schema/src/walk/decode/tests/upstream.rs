//! What upstream's decoder says of real mistakes, in its words.

use super::*;

#[test]
fn wrong_types_are_told_in_the_words_that_users_know() {
    let lines =
        include_str!("upstream.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut kind, mut body) = (None, None);
    let mut rows = 0;
    for line in lines {
        let Some(sent) = body.take() else {
            if line.starts_with(['{', '[', '"']) {
                body = Some(line);
            } else {
                let (version, name) = line.split_once(' ').expect("a version and a kind");
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                kind = crate::builtin().kind(group, version, name);
                assert!(kind.is_some(), "{line}");
            }
            continue;
        };
        let schema = kind.expect("a kind before the first body");
        let told = from_json(schema, sent.as_bytes(), FieldValidation::Ignore);
        assert_eq!(told.expect_err(sent).to_string(), line, "{sent}");
        rows += 1;
    }
    assert!(body.is_none() && rows > 70, "{rows} rows");
}

/// What Go takes though it looks wrong, and what it makes of that.
#[test]
fn what_go_takes_is_taken() {
    for (kind, sent, expect) in [
        (
            POD,
            r#"{"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}"#,
            r#"{"metadata":{},"spec":{},"status":{}}"#,
        ),
        (
            POD,
            r#"{"metadata": {"creationTimestamp": "9999-12-31T23:59:59Z"}}"#,
            r#"{"metadata":{"creationTimestamp":"9999-12-31T23:59:59Z"},"spec":{},"status":{}}"#,
        ),
        (
            POD,
            r#"{"metadata": {"creationTimestamp": "2024-01-02T3:04:05,9+01:00"}}"#,
            r#"{"metadata":{"creationTimestamp":"2024-01-02T02:04:05Z"},"spec":{},"status":{}}"#,
        ),
        (
            ("coordination.k8s.io", "v1", "Lease"),
            r#"{"spec": {"renewTime": "2024-01-02T03:04:05.000006+01:00"}}"#,
            r#"{"metadata":{},"spec":{"renewTime":"2024-01-02T02:04:05.000006Z"}}"#,
        ),
        (
            ("", "v1", "Secret"),
            "{\"data\": {\"a\": \"c3V\\nyZR==\\n\", \"b\": \"\", \"c\": null}}",
            r#"{"data":{"a":"c3VyZQ==","b":"","c":null},"metadata":{}}"#,
        ),
        (
            ("", "v1", "Service"),
            r#"{"spec": {"ports": [{"port": 80, "targetPort": null}, null], "selector": {"a": null}}}"#,
            r#"{"metadata":{},"spec":{"ports":[{"port":80},{}],"selector":{"a":""}},"status":{"loadBalancer":{}}}"#,
        ),
        (
            ("", "v1", "ResourceQuota"),
            r#"{"spec": {"hard": {"a": " 1 ", "b": ".", "c": null, "d": 5, "e": "1.G"}}}"#,
            r#"{"metadata":{},"spec":{"hard":{"a":"1","b":".","c":"0","d":"5","e":"1.G"}},"status":{}}"#,
        ),
    ] {
        let schema = crate::builtin().kind(kind.0, kind.1, kind.2).expect("a kind");
        let decoded = from_json(schema, sent.as_bytes(), FieldValidation::Strict).expect(sent);
        assert_eq!(decoded.value.to_string(), expect, "{sent}");
    }
}
