//! Named formats as values.

/// The formats of texts.
#[derive(Debug)]
pub struct NamedFormat {
    /// Its name.
    pub name: &'static str,
    /// The defects of a text.
    pub validate: fn(&str) -> Vec<String>,
    /// What it costs as a regular expression of so many characters.
    pub(crate) pattern_size: u64,
}
