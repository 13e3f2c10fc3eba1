//! Regular expressions as Go reads them (RE2), on an engine that matches in linear time as well.
//!
//! The two syntaxes differ in the small: Go's `\d`, `\w` and `\b` are of ASCII, `{` that opens no repetition is itself,
//! `[` within a class is itself, `\Q...\E` quotes; what Go refuses is refused. Source: the package documentation of Go's
//! `regexp/syntax`.

mod class;
mod error;
mod escape;
mod translate;

use std::ops::Range;
use std::sync::OnceLock;

pub use error::{PatternError, Rule};
use regex::{Regex, RegexBuilder};

/// How much memory an expression is first tried with.
const BYTES_MIN: usize = 16 << 10;
/// How much memory an expression may take.
const BYTES_MAX: usize = 1 << 20;
/// How deep expressions may nest, as in Go.
const DEPTH_MAX: u32 = 1000;

/// A regular expression that compiles, and is compiled when it is first needed.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    translated: String,
    bytes: usize,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(source: &str) -> Result<Self, PatternError> {
        let translated = translate::from_go(source)?;
        let mut bytes = BYTES_MIN;
        loop {
            match compile(&translated, bytes) {
                Ok(_) => {
                    let compiled = OnceLock::new();
                    return Ok(Self { source: source.to_owned(), translated, bytes, compiled });
                }
                Err(regex::Error::CompiledTooBig(_)) if bytes < BYTES_MAX => bytes *= 2,
                Err(regex::Error::CompiledTooBig(_)) => return Err(PatternError::TooLarge),
                Err(_) => return Err(Rule::Engine.broken(source)),
            }
        }
    }

    /// An expression that was read before: it is not compiled to see whether it does, and the most memory is allowed.
    ///
    /// # Errors
    /// As those of [`Pattern::new`], but for what only compiling shows; such an expression is found in nothing.
    pub(crate) fn read_before(source: &str) -> Result<Self, PatternError> {
        let translated = translate::from_go(source)?;
        Ok(Self { source: source.to_owned(), translated, bytes: BYTES_MAX, compiled: OnceLock::new() })
    }

    /// How much memory it takes at most, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// `true` if it is found in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.compiled().is_some_and(|pattern| pattern.is_match(text))
    }

    /// The matches in `text`, in bytes; they do not overlap.
    pub fn find_iter<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        self.compiled()
            .into_iter()
            .flat_map(move |pattern| pattern.find_iter(text))
            .map(|found| found.range())
    }

    fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| compile(&self.translated, self.bytes).ok()).as_ref()
    }
}

fn compile(translated: &str, bytes: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(translated).size_limit(bytes).dfa_size_limit(BYTES_MAX).nest_limit(DEPTH_MAX).build()
}

#[cfg(test)]
mod tests;
