//! What is told of a server that does not answer.

use super::*;

#[test]
fn a_refusal_is_told_in_the_servers_words_if_it_has_some() {
    for (code, body, expect) in [
        (
            503,
            r#"{"kind":"Status","message":"the server is currently unable to handle the request"}"#,
            "the server is currently unable to handle the request",
        ),
        (403, r#"{"kind":"Status","message":"pods is forbidden"}"#, "pods is forbidden"),
        (404, "404 page not found", "404 Not Found"),
        (500, r#"{"kind":"Status"}"#, "500 Internal Server Error"),
        (500, r#"{"message":7}"#, "500 Internal Server Error"),
        (502, "<html><body>Bad Gateway</body></html>", "502 Bad Gateway"),
        (429, "", "429 Too Many Requests"),
        (500, r#"{"message":""}"#, ""),
    ] {
        let status = http::StatusCode::from_u16(code).expect("a code");
        let error = AskError::refused(status, body.as_bytes());
        assert_eq!(error.to_string(), expect, "{code} {body}");
        assert!(matches!(error, AskError::Refused { code: found, .. } if found == code));
    }
    assert_eq!(AskError::TooLate(30).to_string(), "the server did not answer for 30 s");
    let unreadable = AskError::from(serde_json::from_str::<Status>("{").expect_err("cut"));
    assert_eq!(unreadable.to_string(), unreadable.clone().to_string());
}
