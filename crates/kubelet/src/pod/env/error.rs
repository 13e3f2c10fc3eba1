//! Why a variable has no value; in upstream's words, for the status.

use super::file::EnvFileError;

/// Something that is not optional does not exist.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// Of the Pod's namespace.
    #[error("configmap \"{0}\" not found")]
    NoConfigMap(String),
    /// Of the Pod's namespace.
    #[error("secret \"{0}\" not found")]
    NoSecret(String),
    /// The object is there.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// The object's namespace.
        namespace: String,
        /// The object's name.
        name: String,
        /// The one that it has not.
        key: String,
    },
    /// None that can be read.
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    /// The Pod has none of that name.
    #[error("container {0} not found")]
    NoContainer(String),
    /// None that can be told.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// A file that containers have left.
    #[error(transparent)]
    File(#[from] EnvFileError),
}
