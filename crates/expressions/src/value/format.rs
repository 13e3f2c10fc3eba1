//! Named formats as values.

/// What texts may look like.
#[derive(Debug)]
pub struct NamedFormat {
    /// Its name.
    pub name: &'static str,
    /// What is wrong with a text.
    pub validate: fn(&str) -> Vec<String>,
    /// What it costs as a regular expression of so many characters.
    pub(crate) pattern_size: u64,
}
