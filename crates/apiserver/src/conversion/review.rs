//! `ConversionReview`: what the webhook is sent, and how far its answer is believed.

use bytes::Bytes;
use machinery::field::quote;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A version of the review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// The version of a name in `conversionReviewVersions`; `None` for one that is not spoken here.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
struct Request<'a> {
    uid: &'a str,
    #[serde(rename = "desiredAPIVersion")]
    desired: &'a str,
    objects: &'a [Value],
}

/// The review that asks for objects in a version.
///
/// # Errors
/// If an object cannot be written.
pub(super) fn request(
    version: ReviewVersion,
    uid: &str,
    desired: &str,
    objects: &[Value],
) -> serde_json::Result<Bytes> {
    let request = Request { uid, desired, objects };
    let review = Review { kind: "ConversionReview", api_version: version.api_version(), request };
    serde_json::to_vec(&review).map(Bytes::from)
}

/// An answer, whose objects are not read yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(borrow)]
    response: Option<Response<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: Option<String>,
    #[serde(borrow)]
    converted_objects: Option<Vec<&'a RawValue>>,
    result: Option<Outcome>,
}

#[derive(Default, Deserialize)]
struct Outcome {
    status: Option<String>,
    message: Option<String>,
}

/// Reads an answer.
///
/// # Errors
/// If it is no review at all.
pub(super) fn answer(body: &[u8]) -> serde_json::Result<Answer<'_>> {
    serde_json::from_slice(body)
}

/// An answer without objects, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    /// It is something else.
    #[error("expected webhook response of {expected}, Kind=ConversionReview, got {received}")]
    Kind { expected: &'static str, received: String },
    /// There is nothing in it.
    #[error("no response provided")]
    Nothing,
    /// It answers another review.
    #[error("expected response.uid={}, got {}", quote(expected), quote(received))]
    Uid { expected: String, received: String },
    /// The webhook says why there are none.
    #[error("{0}")]
    Refused(String),
    /// The webhook does not say why there are none.
    #[error("response.result.status was '{0}', not 'Success'")]
    Status(String),
}

/// The objects of an answer to the review with this uid.
///
/// # Errors
/// What the webhook says is wrong, or why this is no answer.
pub(super) fn objects<'a>(
    version: ReviewVersion,
    uid: &str,
    answer: Answer<'a>,
) -> Result<Vec<&'a RawValue>, AnswerError> {
    let (kind, api_version) = (answer.kind.unwrap_or_default(), answer.api_version.unwrap_or_default());
    // The older version was never looked at so closely, and webhooks rely on it.
    let is_strict = version == ReviewVersion::V1;
    if is_strict && (kind != "ConversionReview" || api_version != version.api_version()) {
        let expected = version.api_version();
        let slash = if api_version.contains('/') { "" } else { "/" };
        return Err(AnswerError::Kind { expected, received: format!("{slash}{api_version}, Kind={kind}") });
    }
    let response = answer.response.ok_or(AnswerError::Nothing)?;
    let answered = response.uid.unwrap_or_default();
    if is_strict && answered != uid {
        return Err(AnswerError::Uid { expected: uid.to_owned(), received: answered });
    }
    let Outcome { status, message } = response.result.unwrap_or_default();
    let status = status.unwrap_or_default();
    if status != "Success" {
        return Err(match message.filter(|message| !message.is_empty()) {
            Some(message) => AnswerError::Refused(message),
            None => AnswerError::Status(status),
        });
    }
    Ok(response.converted_objects.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(version: ReviewVersion, body: Value, expect: Result<&[&str], &str>) {
        let body = body.to_string();
        let found = objects(version, "u", answer(body.as_bytes()).unwrap());
        let found = found.map(|all| all.iter().map(|one| one.get().to_owned()).collect::<Vec<_>>());
        let expect = expect.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        assert_eq!(found.map_err(|why| why.to_string()), expect.map_err(str::to_owned), "{body}");
    }

    fn review(version: &str, response: Value) -> Value {
        json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"), "response": response})
    }

    #[test]
    fn a_review_asks_for_a_version_and_no_more() {
        let body = request(ReviewVersion::V1, "u", "a.b/v2", &[json!({"kind": "W"})]).unwrap();
        let expect = r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"a.b/v2","objects":[{"kind":"W"}]}}"#;
        assert_eq!(std::str::from_utf8(&body).unwrap(), expect);
        assert_eq!(
            ["v1", "v1beta1", "v2", ""].map(ReviewVersion::of),
            [Some(ReviewVersion::V1), Some(ReviewVersion::V1Beta1), None, None]
        );
    }

    #[test]
    fn an_answer_is_believed_if_it_is_one_to_this_review() {
        let good = json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{"a": 1}]});
        check(ReviewVersion::V1, review("v1", good.clone()), Ok(&[r#"{"a":1}"#]));
        check(ReviewVersion::V1Beta1, json!({"response": good}), Ok(&[r#"{"a":1}"#]));
        let nothing = json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": null});
        check(ReviewVersion::V1, review("v1", nothing), Ok(&[]));
        let v1 = |response: Value, why: &str| check(ReviewVersion::V1, review("v1", response), Err(why));
        v1(Value::Null, "no response provided");
        v1(json!({"uid": "x"}), r#"expected response.uid="u", got "x""#);
        v1(json!({}), r#"expected response.uid="u", got """#);
        v1(json!({"uid": "u"}), "response.result.status was '', not 'Success'");
        v1(
            json!({"uid": "u", "result": {"status": "Failure"}}),
            "response.result.status was 'Failure', not 'Success'",
        );
        v1(json!({"uid": "u", "result": {"status": "Failure", "message": "no"}}), "no");
        let other = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got ";
        check(ReviewVersion::V1, json!({}), Err(&format!("{other}/, Kind=")));
        check(
            ReviewVersion::V1,
            review("v1beta1", json!({})),
            Err(&format!("{other}apiextensions.k8s.io/v1beta1, Kind=ConversionReview")),
        );
        for strange in
            ["", "[", "[]x", "7", r#"{"response": 7}"#, r#"{"response": {"convertedObjects": {}}}"#]
        {
            assert!(answer(strange.as_bytes()).is_err(), "{strange}");
        }
    }
}
