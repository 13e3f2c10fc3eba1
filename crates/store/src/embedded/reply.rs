//! Answers to callers who wait for the writer.

use tokio::sync::oneshot;

use crate::StoreError;

/// Where a caller waits.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Answers a caller; one that has gone away does not want to know.
pub(super) fn answer<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    if reply.send(result).is_err() {
        tracing::trace!("a caller did not wait for its answer");
    }
}
