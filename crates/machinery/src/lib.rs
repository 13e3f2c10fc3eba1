//! What all kinds share: metadata, names, selectors, quantities, field errors, patches.

pub mod field;
