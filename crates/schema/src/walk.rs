//! Walks over a value by its schema.

pub mod budget;
pub mod declared;
pub mod decode;
pub mod default;
mod names;
pub mod nulls;
pub(crate) mod path;
mod reachable;
pub(crate) mod stack;
pub(crate) mod syntax;
pub mod validate;
pub mod visit;
pub mod zeros;

#[cfg(test)]
mod tests;
