//! Small files in which the kubelet remembers what it gave away: whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{CpuSet, ParseError};

/// What was given away cannot be known, and would be given to others. In upstream's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not restore state from checkpoint: {why}, please drain this node and delete the {manager} manager checkpoint file {path:?} before restarting Kubelet"
)]
pub struct Unusable {
    manager: &'static str,
    path: PathBuf,
    why: Box<RestoreError>,
}

/// What is wrong with such a file.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("configured policy {0:?} differs from state checkpoint policy {1:?}")]
    Policy(String, String),
    #[error(transparent)]
    Impossible(#[from] Impossible),
}

/// What a checkpoint says cannot be so on this machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Impossible {
    #[error("could not parse default cpu set {0:?}: {1}")]
    DefaultCpus(String, ParseError),
    #[error("could not parse cpuset {text:?} for container {container:?} in pod {pod:?}: {source}")]
    Cpus { text: String, container: String, pod: String, source: ParseError },
    #[error(
        "pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\""
    )]
    Overlap { pod: String, container: String, cpus: CpuSet, shared: CpuSet },
    #[error("some of strictly reserved cpus: \"{0}\" are present in defaultCpuSet: \"{1}\"")]
    ReservedShared(CpuSet, CpuSet),
    #[error("not all reserved cpus: \"{0}\" are present in defaultCpuSet: \"{1}\"")]
    ReservedMissing(CpuSet, CpuSet),
    #[error("current set of available CPUs \"{0}\" doesn't match with CPUs in state \"{1}\"")]
    OtherCpus(CpuSet, CpuSet),
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses {what} that does not exist"
    )]
    NoMemory { pod: String, container: String, what: &'static str },
    #[error("[memorymanager] the expected machine state is different from the real one")]
    OtherMemory,
}

/// What the file of a manager says; the default if there is none. Blocking.
///
/// # Errors
/// It cannot be read, is of another policy, or fails the check. It stays as it is.
pub(crate) fn restore<T: DeserializeOwned + Default>(
    manager: &'static str,
    path: &Path,
    policy: &str,
    check: impl FnOnce(&T) -> Result<(), Impossible>,
) -> Result<T, Unusable> {
    let read = || {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
            read => read?,
        };
        let whole: Value = serde_json::from_slice(&bytes)?;
        let of = whole.get("policyName").and_then(Value::as_str).unwrap_or_default();
        if of != policy {
            return Err(RestoreError::Policy(policy.to_owned(), of.to_owned()));
        }
        let state = serde_json::from_value(whole)?;
        check(&state)?;
        Ok(state)
    };
    read().map_err(|why| Unusable { manager, path: path.to_owned(), why: Box::new(why) })
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

#[cfg(test)]
mod tests;
