//! Regular expressions as Go reads them, and formats of texts, as schemas have them: for expressions as well.

pub use schema::rules::format::Format;
pub use schema::rules::pattern::{Pattern, PatternError};
