//! What of a job's result counts.

use super::*;

#[test]
fn what_is_gone_already_counts_as_done() {
    let failed = |result: Result<(), CriError>| match finished(result, Outcome::Cleaned) {
        Outcome::Cleaned => None,
        Outcome::Failed(error) => Some(error.to_string()),
        _ => panic!("it is neither done nor failed"),
    };
    assert_eq!(failed(Ok(())), None);
    assert_eq!(failed(Err(CriError::NotFound("no such container".into()))), None);
    for error in [
        CriError::Internal("broken".into()),
        CriError::InvalidArgument("broken".into()),
        CriError::FailedPrecondition("broken".into()),
        CriError::DeadlineExceeded("broken".into()),
        CriError::Unimplemented("broken".into()),
    ] {
        assert_eq!(failed(Err(error)).as_deref(), Some("broken"));
    }
}

#[test]
fn a_token_is_of_the_first_volume_that_has_parts() {
    for (volumes, expect) in [
        ("[]", ""),
        ("[{name: a, emptyDir: {}}]", ""),
        ("[{name: a, emptyDir: {}}, {name: b, projected: {}}, {name: c, projected: {}}]", "b"),
    ] {
        let pod: Pod =
            serde_saphyr::from_str(&format!("{{spec: {{containers: [], volumes: {volumes}}}}}")).unwrap();
        assert_eq!(token_volume(&pod), expect, "{volumes}");
    }
    assert_eq!(token_volume(&Pod::default()), "");
}
