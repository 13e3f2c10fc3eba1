//! The reasons why a body was refused, in upstream's words: what the parser says, what the body claims to be, which
//! field is wrong.
//!
//! Source: `transformDecodeError` of `k8s.io/apiserver/pkg/endpoints/handlers`; `k8s.io/apimachinery/pkg/runtime`.

use schema::proto::ProtoError;
use schema::text::TypeMeta;
use schema::walk::decode::DecodeError;

use crate::kinds::Kind;
use crate::negotiate::Format;
use crate::status::Error;

/// How much of a body that is not understood is shown.
const SUMMARY_BYTES: usize = 30;
/// Where upstream's scheme of all kinds is made, which names it.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// The error of a body that could not be decoded as an object of `kind`.
pub(super) fn of_kind(kind: &Kind, format: Format, body: &[u8], failure: &DecodeError) -> Error {
    let text = match failure {
        DecodeError::TooLarge => return Error::entity_too_large(failure.to_string()),
        DecodeError::Syntax(text) if format == Format::Json => return unrecognized(kind, &parse(text), body),
        DecodeError::Syntax(text) => return unrecognized(kind, text, body),
        DecodeError::Type(_) | DecodeError::Strict(_) => failure.to_string(),
    };
    // An object of another kind may well have the wrong types; what it claims to be says more.
    if format == Format::Json {
        match TypeMeta::of_json(body) {
            Err(complaint) => return unrecognized(kind, &parse(&complaint.to_string()), body),
            Ok(meta) => {
                if let Err(mismatch) = claim(kind, &meta) {
                    return mismatch;
                }
            }
        }
    }
    unhandled(kind, kind.kind(), kind.version(), &text)
}

/// The error of a protobuf body.
pub(super) fn of_protobuf(kind: &Kind, body: &[u8], failure: &ProtoError) -> Error {
    match failure {
        ProtoError::TooLarge => Error::entity_too_large(failure.to_string()),
        ProtoError::Magic => unrecognized(kind, &failure.to_string(), body),
        _ => unhandled(kind, kind.kind(), kind.version(), &failure.to_string()),
    }
}

fn parse(complaint: &str) -> String {
    format!("couldn't get version/kind; json parse error: {complaint}")
}

fn unhandled(kind: &Kind, sent_kind: &str, sent_version: &str, why: &str) -> Error {
    Error::bad_request(format!(
        "{sent_kind} in version {sent_version:?} cannot be handled as a {}: {why}",
        kind.kind()
    ))
}

fn unrecognized(kind: &Kind, why: &str, body: &[u8]) -> Error {
    Error::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        kind.kind(),
        summary(body)
    ))
}

/// The beginning of a body: as it is if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    let head = body.get(..SUMMARY_BYTES).unwrap_or(body);
    let more = if head.len() < body.len() { " ..." } else { "" };
    match head.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let digits: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits}{more}")
        }
    }
}

/// Checks that a body claims to be of `kind`, or nothing.
///
/// # Errors
/// 400 if it claims to be something else.
pub fn claim(kind: &Kind, meta: &TypeMeta) -> Result<(), Error> {
    let expected = kind.api_version();
    let (sent_kind, sent) = match (meta.kind.as_str(), meta.api_version.as_str()) {
        ("", "") => return Ok(()),
        (kind_sent, "") => (kind_sent, expected),
        ("", version) => (kind.kind(), version),
        both => both,
    };
    let (group, version) = sent.split_once('/').unwrap_or(("", sent));
    if sent_kind == kind.kind() && sent == expected {
        return Ok(());
    }
    if schema::builtin().kind(group, version, sent_kind).is_none() {
        let unknown =
            format!("no kind {sent_kind:?} is registered for version {sent:?} in scheme {SCHEME:?}");
        return Err(unhandled(kind, sent_kind, version, &unknown));
    }
    if sent_kind == kind.kind() {
        return Err(Error::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({expected})"
        )));
    }
    let why = format!(
        "converting ({version}.{sent_kind}) to ({}.{}): unknown conversion",
        internal_package(kind.group()),
        kind.kind()
    );
    Err(unhandled(kind, sent_kind, version, &why))
}

/// The Go package of a group's internal types.
fn internal_package(group: &str) -> &str {
    match group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        "internal" => "apiserverinternal",
        first => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(body: &[u8], expect: Expect) {
        let kinds = crate::kinds::all::builtin();
        let decoded = crate::codec::decode_kind(
            kinds.find("", "v1", "pods").unwrap(),
            Format::Json,
            body,
            crate::codec::FieldValidation::Strict,
        );
        expect.assert_eq(&decoded.unwrap_err().message);
    }

    #[test]
    fn syntax_is_told_before_kind_and_kind_before_type() {
        check(
            b"",
            expect![[
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
            ]],
        );
        check(
            b"{\"kind\": \"Pod\", oh}",
            expect![[
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 'o' looking for beginning of object key string ({\"kind\": \"Pod\", oh})"
            ]],
        );
        check(
            b"\xff\xfe",
            expect![[
                "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 'ÿ' looking for beginning of value (fffe)"
            ]],
        );
        check(
            b"{\"kind\": \"Service\", \"apiVersion\": \"v1\", \"spec\": {\"containers\": 5}}",
            expect![[
                "Service in version \"v1\" cannot be handled as a Pod: converting (v1.Service) to (core.Pod): unknown conversion"
            ]],
        );
        check(
            b"{\"kind\": \"Pot\", \"apiVersion\": \"v1\", \"spec\": 5}",
            expect![[
                "Pot in version \"v1\" cannot be handled as a Pod: no kind \"Pot\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            ]],
        );
        check(
            b"{\"spec\": {\"containers\": 5}}",
            expect![[
                "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field PodSpec.spec.containers of type []v1.Container"
            ]],
        );
        check(
            b"{\"spec\": {\"contaners\": []}}",
            expect![[
                "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.contaners\""
            ]],
        );
        check(
            b"{\"spec\": {\"priority\": 1e400}}",
            expect![[
                "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field PodSpec.spec.priority of type int32"
            ]],
        );
    }
}
