//! Causes of a failure that a plan has an answer of its own for, and how they are recognized.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

/// A cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The server will not take what was sent, however often it is sent: it breaks a rule, is denied, or cannot be
    /// converted.
    Refused,
    /// The call that the request led to ended with this code of gRPC, such as `ResourceExhausted`.
    Grpc(&'static str),
}

impl Cause {
    /// `true` if it is the cause of this refusal.
    pub(super) fn is_of(self, refusal: &Status) -> bool {
        match self {
            Self::Refused => is_final(refusal),
            Self::Grpc(code) => grpc_code(refusal.message.as_deref().unwrap_or_default()) == Some(code),
        }
    }
}

/// Webhooks choose the reason of their denials themselves, and a failed conversion has none: only the server's text tells.
fn is_final(refusal: &Status) -> bool {
    let message = refusal.message.as_deref().unwrap_or_default();
    matches!(refusal.reason.as_deref(), Some("Invalid" | "Forbidden"))
        || ["conversion webhook for ", " denied the request"].iter().any(|text| message.contains(text))
}

/// The code of a failed call, such as `NotFound`: a Status has it in its text only, as gRPC prints it.
pub fn grpc_code(message: &str) -> Option<&str> {
    message.split_once("rpc error: code = ")?.1.split_once(" desc").map(|(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_cause_if_it_says_so() {
        let full = "rpc error: code = ResourceExhausted desc = full";
        for (cause, reason, message, expect) in [
            (Cause::Refused, "Invalid", "gears \"a\" is invalid: spec", true),
            (Cause::Refused, "Forbidden", "gears \"a\" is forbidden: no", true),
            (Cause::Refused, "BadRequest", "admission webhook \"a\" denied the request: no", true),
            (Cause::Refused, "", "conversion webhook for gears failed: no", true),
            (Cause::Refused, "InternalError", "etcd is away", false),
            (Cause::Refused, "Conflict", "the object has been modified", false),
            (Cause::Grpc("ResourceExhausted"), "InternalError", full, true),
            (Cause::Grpc("NotFound"), "InternalError", full, false),
            (Cause::Grpc("ResourceExhausted"), "InternalError", "code = ResourceExhausted", false),
        ] {
            let (reason, message) = (Some(reason.to_owned()), Some(message.to_owned()));
            let refusal = Status { reason, message, ..Status::default() };
            assert_eq!(cause.is_of(&refusal), expect, "{cause:?}: {refusal:?}");
        }
    }
}
