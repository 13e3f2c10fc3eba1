//! What knows a cloud, and what it says when it cannot help.

use std::time::Duration;

use async_trait::async_trait;
use controller::Failed;
use tonic::{Code, Status};

use crate::calls::calls;
use crate::v1;

/// The longest message of a provider that anybody is shown, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The trailer in which a server says when to come again, in milliseconds. Source: gRFC A6.
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// How soon, and how late, that may be.
const PUSHBACK_MIN: Duration = Duration::from_millis(500);
const PUSHBACK_MAX: Duration = Duration::from_secs(600);

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Its kind.
    pub kind: RefusalKind,
    /// The provider's message: one line, of bounded length.
    pub message: String,
    /// The time after which it wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// The meaning of a refusal for whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no such thing.
    NotFound,
    /// Somebody else does it. Source: `cloudprovider.ImplementedElsewhere`.
    Elsewhere,
    /// It did not work.
    Failed,
}

impl Refusal {
    /// What was answered cannot be.
    pub(crate) fn nonsense(message: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Failed, message: shown(&message.into()), retry_after: None }
    }
}

/// The end of an answer that cannot be.
pub(crate) fn nonsense<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::nonsense(message))
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let kind = match status.code() {
            Code::NotFound => RefusalKind::NotFound,
            Code::Unimplemented => RefusalKind::Elsewhere,
            _ => RefusalKind::Failed,
        };
        let pushback = status.metadata().get(PUSHBACK).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = pushback.map(|ms| Duration::from_millis(ms).clamp(PUSHBACK_MIN, PUSHBACK_MAX));
        let message = match status.message() {
            "" => format!("the provider says no more than {:?}", status.code()),
            text => text.to_owned(),
        };
        Self { kind, message: shown(&message), retry_after }
    }
}

impl From<&Refusal> for Failed {
    fn from(refusal: &Refusal) -> Self {
        Self { message: refusal.message.clone(), retry_after: refusal.retry_after }
    }
}

/// One line, as long as it may be.
fn shown(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = line.floor_char_boundary(MESSAGE_BYTES_MAX);
    if end < line.len() { format!("{}...", &line[..end]) } else { line }
}

macro_rules! provider {
    ($($name:literal $method:ident $request:ident $response:ident $seconds:literal;)*) => {
        /// A cloud as its provider knows it: the calls of `proto/cloud.proto`, which says what each is for.
        #[async_trait]
        #[allow(missing_docs)]
        pub trait Provider: Send + Sync + 'static {
            $(
                async fn $method(&self, _: v1::$request) -> Result<v1::$response, Status> {
                    Err(Status::unimplemented(concat!($name, " is not supported")))
                }
            )*
        }
    };
}

calls!(provider);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_of_bounded_length_and_says_when_to_come_again() {
        let mut status = Status::unavailable(format!("quota\n{}", "ä".repeat(4096)));
        for (pushback, expect) in [
            ("5000", Some(Duration::from_secs(5))),
            ("0", Some(PUSHBACK_MIN)),
            ("18446744073709551615", Some(PUSHBACK_MAX)),
            ("-1", None),
            ("soon", None),
        ] {
            status.metadata_mut().insert(PUSHBACK, pushback.parse().unwrap());
            let refusal = Refusal::from(status.clone());
            assert_eq!((refusal.retry_after, refusal.kind), (expect, RefusalKind::Failed), "{pushback}");
            assert!(refusal.message.len() < 1100 && refusal.message.starts_with("quota ä"), "{pushback}");
        }
        assert_eq!(Refusal::from(Status::not_found("x")).kind, RefusalKind::NotFound);
        assert_eq!(Refusal::from(Status::unimplemented("x")).kind, RefusalKind::Elsewhere);
        assert_eq!(Refusal::from(Status::internal("")).message, "the provider says no more than Internal");
    }
}
