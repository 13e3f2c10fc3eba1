//! What operators may choose beyond keys and addresses; the defaults are upstream's.

use crate::admission::{Plugin, chosen};

/// The choices.
#[derive(Clone, Debug)]
pub struct Options {
    /// The admission plugins that run, in order. Source: `--enable-admission-plugins`, `--disable-admission-plugins`.
    pub admission_plugins: Vec<Plugin>,
}

impl Default for Options {
    fn default() -> Self {
        Self { admission_plugins: chosen(&[], &[]).unwrap_or_default() }
    }
}
