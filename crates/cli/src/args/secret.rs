//! Texts on the command line that are never shown.

use crate::value_error::ValueError;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("...")
    }
}

impl std::str::FromStr for Secret {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        if text.is_empty() { Err(ValueError::Empty) } else { Ok(Self(text.to_owned())) }
    }
}
