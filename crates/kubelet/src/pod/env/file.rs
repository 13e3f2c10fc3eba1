//! Env files: what containers have left for those after them, as `NAME='value'`. Pure.
//!
//! A value is in single quotes, may span lines and is taken as it is; a key without a value is as good as none, as for
//! upstream. Source: KEP-3721, `EnvVarSource.fileKeyRef`.

use std::error::Error;
use std::sync::Arc;

use k8s_openapi::api::core::v1::FileKeySelector;

/// Bytes of a file that are read.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a value.
const VALUE_BYTES_MAX: usize = 32 << 10;
/// Characters of a key.
const KEY_MAX: usize = 128;

/// A file gives no value.
#[derive(Debug, thiserror::Error)]
pub enum EnvFileError {
    /// Nobody can have set it.
    #[error("environment variable key {0:?} exceeds maximum length of {KEY_MAX} characters")]
    KeyTooLong(String),
    /// The Pod has none of that name.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    /// It is not there, or cannot be read.
    #[error("couldn't parse env file: {0}")]
    NotRead(#[source] Arc<NotRead>),
    /// It is no env file.
    #[error("couldn't parse env file: {path}: {source}")]
    Format {
        /// In its volume.
        path: String,
        /// Which line.
        source: FormatError,
    },
    /// Of this key.
    #[error("environment variable value for key {0:?} exceeds maximum length of {VALUE_BYTES_MAX} bytes")]
    ValueTooLong(String),
    /// No line names it.
    #[error("environment variable key {key:?} not found in file {path:?}")]
    NoKey {
        /// What is looked for.
        key: String,
        /// In its volume.
        path: String,
    },
}

/// A file is not there, or cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to open environment variable file {path:?}: {source}")]
pub struct NotRead {
    /// In its volume.
    pub path: String,
    /// The disk's error, or [`TooLarge`].
    pub source: Box<dyn Error + Send + Sync>,
}

/// Nobody reads files of that size.
#[derive(Debug, thiserror::Error)]
#[error("larger than {FILE_BYTES_MAX} bytes")]
pub(crate) struct TooLarge;

/// A line is no assignment in single quotes; lines count from 1.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// What is wrong with it.
    #[error("invalid environment variable format at line {0}: {1}")]
    Line(usize, &'static str),
    /// The value that begins there has no end.
    #[error("invalid environment variable format starting at line {0}: unclosed single quote")]
    Unclosed(usize),
}

/// The value that `reference` names in `file`, which could be read or not; `None` if it may be missing and is.
///
/// # Errors
/// There is no such value, or it is too long.
pub(super) fn value(
    reference: &FileKeySelector,
    file: Option<&Result<String, Arc<NotRead>>>,
) -> Result<Option<String>, EnvFileError> {
    let FileKeySelector { key, path, volume_name, .. } = reference;
    let is_optional = reference.optional == Some(true);
    if key.chars().count() > KEY_MAX {
        return Err(EnvFileError::KeyTooLong(key.clone()));
    }
    let text = match file {
        None => return Err(EnvFileError::NoVolume(volume_name.clone())),
        Some(Err(_)) if is_optional => return Ok(None),
        Some(Err(error)) => return Err(EnvFileError::NotRead(error.clone())),
        Some(Ok(text)) => text,
    };
    let found = find(text, key).map_err(|source| EnvFileError::Format { path: path.clone(), source })?;
    match found {
        value if value.len() > VALUE_BYTES_MAX => Err(EnvFileError::ValueTooLong(key.clone())),
        value if !value.is_empty() => Ok(Some(value)),
        _ if is_optional => Ok(None),
        _ => Err(EnvFileError::NoKey { key: key.clone(), path: path.clone() }),
    }
}

/// The value of `key`; empty if no line names it. Every line before must be as it should.
///
/// A subset of what a POSIX shell takes: nothing stands between a name, its `=` and its value, a comment may follow a
/// value, and a name with a blank after its `=` has an empty value. Source: `pkg/kubelet/util/env` of upstream.
fn find(text: &str, key: &str) -> Result<String, FormatError> {
    let lines = text.lines().collect::<Vec<_>>();
    let wrong = |at: usize, why: &'static str| FormatError::Line(at + 1, why);
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let first = at;
        at += 1;
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong(first, "missing '='"))?;
        if name.trim_end_matches(BLANKS).is_empty() {
            return Err(wrong(first, "empty variable name"));
        }
        if name.ends_with(BLANKS) {
            return Err(wrong(first, "whitespace before '=' is not allowed"));
        }
        let value = if value.starts_with(BLANKS) {
            String::new()
        } else {
            let opened = value.strip_prefix('\'');
            let opened = opened.ok_or_else(|| wrong(first, "value must be enclosed in single quotes"))?;
            let (value, used) =
                quoted(opened, lines.get(at..).unwrap_or_default()).map_err(|open| match open {
                    Open::Never => FormatError::Unclosed(first + 1),
                    Open::Trailing(used) => wrong(first + used, "unexpected content after closing quote"),
                })?;
            at += used;
            value
        };
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

/// What is no part of a line's content.
const BLANKS: [char; 2] = [' ', '\t'];

/// Why a quoted value is none.
enum Open {
    /// No quote closes it.
    Never,
    /// Something follows it, so many lines after the first.
    Trailing(usize),
}

/// A value up to its closing quote, and how many of the `next` lines it takes.
fn quoted(first: &str, next: &[&str]) -> Result<(String, usize), Open> {
    let mut value = String::new();
    for (used, line) in std::iter::once(&first).chain(next).enumerate() {
        if let Some((last, after)) = line.split_once('\'') {
            let after = after.trim_start_matches(BLANKS);
            value.push_str(last);
            let is_clean = after.is_empty() || after.starts_with('#');
            return if is_clean { Ok((value, used)) } else { Err(Open::Trailing(used)) };
        }
        value.push_str(line);
        value.push('\n');
    }
    Err(Open::Never)
}

#[cfg(test)]
mod tests;
