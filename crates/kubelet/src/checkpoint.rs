//! Small files in which the kubelet remembers what it gave away: whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What was given away cannot be known, and would be given to others. In upstream's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not restore state from checkpoint: {why}, please drain this node and delete the {manager} manager checkpoint file {path:?} before restarting Kubelet"
)]
pub struct Unusable {
    manager: &'static str,
    path: PathBuf,
    why: String,
}

/// What the file of a manager says; the default if there is none. Blocking.
///
/// # Errors
/// It cannot be read, is of another policy, or fails the check. It stays as it is.
pub(crate) fn restore<T: DeserializeOwned + Default>(
    (manager, path): (&'static str, &Path),
    policy: &str,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T, Unusable> {
    let read = || {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
            read => read.map_err(|error| error.to_string())?,
        };
        let whole: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let of = whole.get("policyName").and_then(Value::as_str).unwrap_or_default();
        if of != policy {
            return Err(format!("configured policy {policy:?} differs from state checkpoint policy {of:?}"));
        }
        let state = serde_json::from_value(whole).map_err(|error| error.to_string())?;
        check(&state).map(|()| state)
    };
    read().map_err(|why| Unusable { manager, path: path.to_owned(), why })
}

/// What the file says; `None` if there is none that can be read. Blocking.
pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = std::fs::read(path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "a checkpoint is not what it should be");
            None
        }
    }
}

/// Replaces the file. A failure is told and no more: what runs goes on. Blocking.
pub(crate) fn save(path: &Path, state: &impl Serialize) {
    let saved = serde_json::to_vec(state).map_err(std::io::Error::other).and_then(|bytes| {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        // Else a power loss may leave it empty.
        file.sync_all()?;
        std::fs::rename(&new, path)
    });
    if let Err(error) = saved {
        tracing::warn!(%error, path = %path.display(), "a checkpoint was not written");
    }
}
