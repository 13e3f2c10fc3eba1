//! The question to a token webhook, and its answer: a TokenReview. Pure.
//!
//! Source: `k8s.io/apiserver/plugin/pkg/authenticator/token/webhook`.

use std::collections::BTreeMap;

use auth::UserInfo;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::reviewed::{self, AnswerError, Kind};
use crate::authorization_config::ReviewVersion;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenReview";
/// How long a user may be altogether: answers are kept, and sent on with every request of theirs.
const USER_BYTES_MAX: usize = 64 << 10;

/// Somebody that a webhook knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) user: UserInfo,
    /// For whom the token is, if the webhook cares.
    pub(super) audiences: Vec<String>,
}

/// The question.
pub(super) fn request(version: ReviewVersion, token: &str, audiences: &[String]) -> Value {
    json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{}", version.as_str()),
        "metadata": {},
        "spec": {"token": token, "audiences": audiences},
        "status": {"user": {}},
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: Option<Map<String, Value>>,
    audiences: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// Whom the webhook knows by the token; `None` if nobody.
///
/// # Errors
/// What is wrong with the answer.
pub(super) fn known(version: ReviewVersion, answer: &[u8]) -> Result<Option<Known>, AnswerError> {
    let kind = Kind { group: GROUP, version: version.as_str(), kind: KIND };
    let status: Status = reviewed::status(kind, answer)?;
    if !status.authenticated {
        return Ok(None);
    }
    let User { username, uid, groups, extra } = reviewed::read("status.user", status.user)?;
    if username.is_empty() {
        return Err(AnswerError::Nameless);
    }
    let user = UserInfo {
        name: username,
        uid,
        groups: groups.unwrap_or_default(),
        extra: extra.unwrap_or_default(),
    };
    let audiences = status.audiences.unwrap_or_default();
    match size(&user) + audiences.iter().map(String::len).sum::<usize>() {
        0..=USER_BYTES_MAX => Ok(Some(Known { user, audiences })),
        _ => Err(AnswerError::TooLong(USER_BYTES_MAX)),
    }
}

fn size(user: &UserInfo) -> usize {
    let extra = user.extra.iter().map(|(key, all)| key.len() + all.iter().map(String::len).sum::<usize>());
    let groups = user.groups.iter().map(|group| group.len() + size_of::<String>());
    user.name.len() + user.uid.len() + groups.sum::<usize>() + extra.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_the_token_and_for_whom_it_must_be() {
        let found = request(ReviewVersion::V1Beta1, "secret", &["api".to_owned()]);
        let expect = json!({
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1beta1",
            "metadata": {},
            "spec": {"token": "secret", "audiences": ["api"]},
            "status": {"user": {}},
        });
        assert_eq!(found, expect);
    }

    fn check(status: &str, expect: Result<Option<&str>, &str>) {
        let answer = format!(
            "{{\"apiVersion\": \"authentication.k8s.io/v1\", \"kind\": \"TokenReview\", \"status\": {status}}}"
        );
        let found = known(ReviewVersion::V1, answer.as_bytes());
        let shown = found.map(|known| {
            known.map(|Known { user, audiences }| {
                format!("{} {} {:?} {:?} {audiences:?}", user.name, user.uid, user.groups, user.extra)
            })
        });
        match (&shown, expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found.as_deref(), expect, "{status}"),
            (Err(why), Err(expect)) => assert!(why.to_string().contains(expect), "{status}: {why}"),
            _ => panic!("{status}: {shown:?}"),
        }
    }

    #[test]
    fn an_answer_says_who_it_is_or_that_it_is_nobody() {
        check("{}", Ok(None));
        check("null", Ok(None));
        check("{\"authenticated\": false, \"user\": {\"username\": \"jane\"}, \"error\": \"no\"}", Ok(None));
        check("{\"authenticated\": true, \"user\": {\"username\": \"jane\"}}", Ok(Some("jane  [] {} []")));
        check(
            "{\"authenticated\": true, \"audiences\": [\"a\"], \"user\": {\"username\": \"jane\", \"uid\": \"7\", \
             \"groups\": [\"dev\"], \"extra\": {\"k\": [\"v\"]}}}",
            Ok(Some("jane 7 [\"dev\"] {\"k\": [\"v\"]} [\"a\"]")),
        );
        check("{\"authenticated\": true}", Err("does not say who"));
        check("[true, {\"username\": \"jane\"}]", Err("invalid type"));
        check("{\"authenticated\": true, \"user\": [\"jane\"]}", Err("invalid type"));
        check("{\"authenticated\": \"true\"}", Err("invalid type"));
        check("{\"authenticated\": true, \"user\": {\"username\": 7}}", Err("invalid type"));
        let long =
            format!("{{\"authenticated\": true, \"user\": {{\"username\": \"{}\"}}}}", "a".repeat(70_000));
        check(&long, Err("longer than 65536 bytes"));
        let many = vec!["\"\""; 10_000].join(",");
        let many =
            format!("{{\"authenticated\": true, \"user\": {{\"username\": \"a\", \"groups\": [{many}]}}}}");
        check(&many, Err("longer than 65536 bytes"));
        for answer in ["", "[]", "{}", "{\"kind\": \"TokenReview\"}"] {
            assert!(known(ReviewVersion::V1, answer.as_bytes()).is_err(), "{answer}");
        }
    }
}
