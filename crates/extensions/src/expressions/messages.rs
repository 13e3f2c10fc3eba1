//! Messages about rules, of which there can be many, and about large values: no more than somebody could read.

use machinery::field::{FieldError, FieldErrors};

/// Bytes of all that is said.
const BYTES_MAX: usize = 4 << 20;

/// Errors, and how long they are.
#[derive(Debug, Default)]
pub(super) struct Told {
    errors: FieldErrors,
    bytes: usize,
}

impl Told {
    /// Adds an error; it is not even made if there is no room for it.
    pub(super) fn push(&mut self, error: impl FnOnce() -> FieldError) {
        if self.bytes >= BYTES_MAX {
            self.errors.leave_out(1);
            return;
        }
        let error = error();
        self.bytes = self.bytes.saturating_add(error.message.len());
        self.errors.push(error);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// How many errors there are, those included that nobody can read.
    pub(super) fn count(&self) -> usize {
        self.errors.len().saturating_add(self.errors.left_out())
    }

    pub(super) fn into_errors(self) -> FieldErrors {
        self.errors
    }
}
