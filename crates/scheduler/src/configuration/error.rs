//! The reasons why a configuration cannot be. The words are upstream's.

use machinery::configuration::FormError;
use machinery::field::FieldErrors;

/// What a file is.
pub(super) const GROUP: &str = "kubescheduler.config.k8s.io";
pub(super) const VERSION: &str = "kubescheduler.config.k8s.io/v1";
pub(super) const KIND: &str = "KubeSchedulerConfiguration";

/// The defect of a file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It is no YAML, or a field is of another type.
    #[error(transparent)]
    Form(#[from] FormError),
    /// It cannot be held against what was read of it.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It does not say what it is.
    #[error("Object '{0}' is missing")]
    Missing(&'static str),
    /// It is something else.
    #[error("no kind {kind:?} is registered for version {version:?}: it must be {KIND:?} of {VERSION:?}")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        version: String,
    },
    /// Fields that nobody knows.
    #[error("{}", strict(.0))]
    Unknown(Vec<String>),
    /// Arguments of plugins that cannot be read.
    #[error("{}", all_arguments(.0))]
    Arguments(Vec<(String, ArgumentsError)>),
    /// Every broken rule.
    #[error("{}", aggregate(.0))]
    Fields(FieldErrors),
    /// A profile that cannot be set up.
    #[error("creating profile for scheduler name {name}: {source}")]
    Profile {
        /// The profile's name.
        name: String,
        /// What is wrong with it.
        source: ProfileError,
    },
}

/// The defect of a plugin's arguments.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// They are no object.
    #[error("decoding args for plugin {0}: they must be an object")]
    NoObject(String),
    /// They are another plugin's, or none's.
    #[error("args for plugin {plugin} were not of type {plugin}Args.{GROUP}, got {got}")]
    Type {
        /// The plugin.
        plugin: String,
        /// What they are.
        got: String,
    },
    /// They are of another version.
    #[error("decoding args for plugin {plugin}: no kind {kind:?} is registered for version {version:?}")]
    Version {
        /// The plugin.
        plugin: String,
        /// Their kind.
        kind: String,
        /// Their version.
        version: String,
    },
    /// A field is of another type.
    #[error("decoding args for plugin {0}: {1}")]
    Json(String, serde_json::Error),
    /// Fields that nobody knows.
    #[error("{}", unknown(.0, .1))]
    Unknown(String, Vec<String>),
}

/// The reason why a profile cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There must be one order of the queue.
    #[error("only one queue sort plugin required for profile with scheduler name {0:?}, but got {1}")]
    QueueSort(String, usize),
    /// Nobody would bind.
    #[error("at least one bind plugin is needed for profile with scheduler name {0:?}")]
    NoBind(String),
    /// A plugin does nothing there.
    #[error("plugin {0:?} does not extend {1} plugin")]
    NotThere(String, String),
    /// There is no such plugin.
    #[error("{1} {0:?} does not exist")]
    NoPlugin(String, String),
    /// It is there twice.
    #[error("plugin {0:?} already registered as {1:?}")]
    Twice(String, String),
    /// It counts on having been asked before.
    #[error("plugin {plugin:?} is enabled as {later:?} and needs to be as {before:?}")]
    Needs {
        /// The plugin.
        plugin: String,
        /// Where it is asked.
        later: String,
        /// Where it is not.
        before: String,
    },
}

/// What upstream says of what a strict decoder has found.
fn strict(found: &[String]) -> String {
    format!("strict decoding error: {}", found.join(", "))
}

/// Fields of a plugin's arguments that nobody knows.
fn unknown(plugin: &str, fields: &[String]) -> String {
    strict(&[format!("decoding args for plugin {plugin}: {}", strict(fields))])
}

/// One by itself, several as found by a strict decoder, which has found one if it is about unknown fields.
fn all_arguments(unreadable: &[(String, ArgumentsError)]) -> String {
    let all: Vec<String> =
        unreadable.iter().map(|(path, error)| format!("decoding .{path}: {error}")).collect();
    match (unreadable, all.as_slice()) {
        ([(_, error)], [only]) if !matches!(error, ArgumentsError::Unknown(..)) => only.clone(),
        _ => strict(&all),
    }
}

/// As upstream's aggregate of errors is written.
fn aggregate(errors: &FieldErrors) -> String {
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match all.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", all.join(", ")),
    }
}
