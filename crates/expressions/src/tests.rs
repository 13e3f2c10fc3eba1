//! Expressions as people write them.

mod devices;
mod tables;
