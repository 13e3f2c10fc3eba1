//! Takes a Pod's directory back, with every mount below it.

use std::io;
use std::path::Path;

use super::describe;

/// Unmounts everything below `pod_dir` and removes it. Blocking.
///
/// What is mounted belongs to someone else: nothing of it is removed.
///
/// # Errors
/// A text that says what could not be taken back.
pub(crate) fn tear_down(pod_dir: &Path) -> Result<(), String> {
    match sys::tree::remove(pod_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(describe("remove", pod_dir, &error)),
        _ => Ok(()),
    }
}
