//! A call's failure as gRPC has it, and back.

use tonic::{Code, Status};

use crate::CriError;

impl CriError {
    pub(crate) fn missing(call: &str) -> Self {
        Self::Unimplemented(format!("the container runtime has no call {call}"))
    }
}

impl From<CriError> for Status {
    fn from(error: CriError) -> Self {
        let code = match &error {
            CriError::NotFound(_) => Code::NotFound,
            CriError::InvalidArgument(_) => Code::InvalidArgument,
            CriError::FailedPrecondition(_) => Code::FailedPrecondition,
            CriError::DeadlineExceeded(_) => Code::DeadlineExceeded,
            CriError::Unimplemented(_) => Code::Unimplemented,
            CriError::Internal(_) => Code::Internal,
        };
        Status::new(code, error.to_string())
    }
}

impl From<Status> for CriError {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::NotFound => Self::NotFound(message),
            Code::InvalidArgument => Self::InvalidArgument(message),
            Code::FailedPrecondition => Self::FailedPrecondition(message),
            Code::DeadlineExceeded => Self::DeadlineExceeded(message),
            Code::Unimplemented => Self::Unimplemented(message),
            Code::Unavailable => Self::Internal(format!("the container runtime is not there: {message}")),
            _ => Self::Internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_kind_and_text_over_the_wire() {
        for error in [
            CriError::NotFound("a".into()),
            CriError::InvalidArgument("b".into()),
            CriError::FailedPrecondition("c".into()),
            CriError::DeadlineExceeded("d".into()),
            CriError::Unimplemented("e".into()),
            CriError::Internal("f".into()),
        ] {
            assert_eq!(format!("{:?}", CriError::from(Status::from(error.clone()))), format!("{error:?}"));
        }
        assert!(matches!(CriError::from(Status::unknown("g")), CriError::Internal(text) if text == "g"));
    }
}
