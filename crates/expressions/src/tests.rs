//! Expressions as people write them.

mod bounds;
mod devices;
mod tables;
mod trees;
