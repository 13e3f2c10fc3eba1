//! The command line: commands and flags as data, progress, and what `trace` prints.
//!
//! Nothing here starts anything: `knarr` reads [`args::Cli`] and acts.

pub mod api_server;
pub mod args;
pub mod progress;
pub mod trace;

pub use args::{Cli, Command};
pub use progress::Progress;
