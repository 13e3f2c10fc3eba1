//! What a plugin answers when it is asked which versions of the specification it speaks.

use serde::Deserialize;

/// What a configuration that names no version is written in. Source: libcni.
pub(crate) const UNNAMED: &str = "0.1.0";

/// What a plugin answers to VERSION.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    #[serde(default)]
    cni_version: String,
    #[serde(default)]
    supported_versions: Vec<String>,
}

/// Why an answer is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VersionError {
    #[error("decoding version info: {0}")]
    Json(#[from] serde_json::Error),
    #[error("decoding version info: missing field {0}")]
    Missing(&'static str),
}

/// Reads an answer. Plugins of 0.2.0 need not list what they speak.
///
/// # Errors
/// It is none.
pub(crate) fn read(output: &[u8]) -> Result<Vec<String>, VersionError> {
    let info: Info = serde_json::from_slice(output)?;
    match (info.cni_version.as_str(), info.supported_versions.is_empty()) {
        ("", _) => Err(VersionError::Missing("cniVersion")),
        (_, false) => Ok(info.supported_versions),
        ("0.2.0", true) => Ok(vec![UNNAMED.into(), "0.2.0".into()]),
        (_, true) => Err(VersionError::Missing("supportedVersions")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_lists_versions_unless_it_is_an_old_ones() {
        let check = |answer: &str, expect: Result<&[&str], &str>| match (
            read(answer.as_bytes()).map_err(|error| error.to_string()),
            expect,
        ) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(found), Err(expect)) => assert!(found.starts_with(expect), "{found}"),
            (found, _) => panic!("{answer}: {found:?}"),
        };
        check(r#"{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}"#, Ok(&["0.4.0", "1.0.0"]));
        check(r#"{"cniVersion": "0.2.0"}"#, Ok(&["0.1.0", "0.2.0"]));
        check(r#"{"cniVersion": "1.0.0"}"#, Err("decoding version info: missing field supportedVersions"));
        check("{}", Err("decoding version info: missing field cniVersion"));
        check("", Err("decoding version info: EOF"));
    }
}
