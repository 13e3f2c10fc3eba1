//! Small files in which the kubelet remembers what it gave away: whole or not at all.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

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
        std::fs::write(&new, bytes)?;
        std::fs::rename(&new, path)
    });
    if let Err(error) = saved {
        tracing::warn!(%error, path = %path.display(), "a checkpoint was not written");
    }
}
