//! The reason why a configuration cannot be used: a file, what it names, or flags in its place. And how files are read that
//! it names: not here.
//!
//! An error does not repeat its cause: [`base::error_chain`] has the whole text.

use std::borrow::Cow;
use std::error::Error;

use machinery::configuration::{self, FormError};
use machinery::field::{FieldError, FieldErrors};
use serde::de::DeserializeOwned;

/// Upstream's versions of what configures an API server.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// Anything that a configuration can fail by.
pub type Cause = Box<dyn Error + Send + Sync>;

/// A reader of files that a configuration names; its errors say which one, and why not.
pub trait ReadFile: Fn(&str) -> Result<String, Cause> {}

impl<F: Fn(&str) -> Result<String, Cause>> ReadFile for F {}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A text that is no YAML, or not of this form. What it says of itself has its cause in the middle.
    #[error("{0}")]
    Form(FormError),
    /// An object of another kind.
    #[error("it is {kind} of {version}, not {expected}")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        version: String,
        /// The kind and version that it must be.
        expected: String,
    },
    /// Every field that breaks a rule.
    #[error("{}", joined(errors, separator))]
    Fields {
        /// The fields.
        errors: FieldErrors,
        /// The text between two of them.
        separator: &'static str,
    },
    /// A rule that is broken by several fields or flags together, in upstream's words where it has some.
    #[error("{0}")]
    Rule(Cow<'static, str>),
    /// A part that cannot be used: a field, an entry, a file.
    #[error("{part}")]
    Part {
        /// The part.
        part: Cow<'static, str>,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The whole of it, or a file whose reader says which one it is.
    #[error(transparent)]
    Unusable(#[from] Cause),
}

impl ConfigurationError {
    /// What cannot be used, if that needs no name.
    pub(crate) fn unusable(source: impl Into<Cause>) -> Self {
        Self::Unusable(source.into())
    }

    /// A broken rule.
    pub(crate) fn rule(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Rule(text.into())
    }

    /// Why a part cannot be used.
    pub(crate) fn of<E: Into<Cause>>(part: impl Into<Cow<'static, str>>) -> impl FnOnce(E) -> Self {
        move |source| Self::Part { part: part.into(), source: source.into() }
    }
}

impl From<FieldError> for ConfigurationError {
    fn from(error: FieldError) -> Self {
        Self::Fields { errors: error.into(), separator: "" }
    }
}

/// Reads a configuration's text.
///
/// # Errors
/// [`ConfigurationError::Form`].
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConfigurationError> {
    configuration::read(text).map_err(ConfigurationError::Form)
}

/// Checks what a configuration says it is; of several versions the first is the one to write.
///
/// # Errors
/// [`ConfigurationError::Kind`].
pub(crate) fn check_kind(
    kind: &str,
    version: &str,
    expected: &str,
    versions: &[&str],
) -> Result<(), ConfigurationError> {
    if kind == expected && versions.contains(&version) {
        return Ok(());
    }
    let expected = format!("{expected} of {}", versions.first().copied().unwrap_or_default());
    Err(ConfigurationError::Kind { kind: kind.to_owned(), version: version.to_owned(), expected })
}

/// Checks what a configuration of `apiserver.config.k8s.io` says it is.
///
/// # Errors
/// [`ConfigurationError::Rule`].
pub(crate) fn check_server_kind(kind: &str, version: &str, expected: &str) -> Result<(), ConfigurationError> {
    if kind == expected && VERSIONS.contains(&version) {
        return Ok(());
    }
    let why = format!("it must be an {expected} of {}, not {kind:?} of {version:?}", VERSIONS[0]);
    Err(ConfigurationError::rule(why))
}

/// Nothing, if no field breaks a rule.
///
/// # Errors
/// [`ConfigurationError::Fields`].
pub(crate) fn check_fields(errors: FieldErrors, separator: &'static str) -> Result<(), ConfigurationError> {
    if errors.is_empty() { Ok(()) } else { Err(ConfigurationError::Fields { errors, separator }) }
}

fn joined(errors: &FieldErrors, separator: &str) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}
