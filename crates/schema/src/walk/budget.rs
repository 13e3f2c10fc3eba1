//! The memory that the tree of a body may take: bytes that multiply themselves are refused before they are a tree.
//!
//! Three bytes (`{},`) can become many hundred in memory. The walks charge what they are about to keep, by the sizes
//! that `serde_json`'s trees have, and end when a body has used up what its length allows.

use std::cell::Cell;

use serde_json::{Map, Value};

/// What every body may take, whatever its length: more than any object that people write needs.
const FLOOR_BYTES: usize = 6 * 1024 * 1024;
/// What a body may take per byte.
const PER_BYTE: usize = 6;
/// The same for structural schemas, which are small objects within small objects.
const PER_BYTE_SCHEMAS: usize = 40;
/// An element of a list: itself, and the room that lists keep to grow into.
const ELEMENT: usize = 64;
/// An object without fields takes nothing but costs whoever looks at it later.
const EMPTY_OBJECT: usize = 192;
/// A map's first node.
const NODE: usize = 640;
/// How many entries a node has.
const NODE_ENTRIES: usize = 11;
/// An entry beyond the first node's, which are half full on average.
const ENTRY: usize = 112;
/// The least that a text takes.
const TEXT: usize = 16;

/// The memory that the tree of a body may take, by the kind of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Any object or patch.
    Usual,
    /// A custom resource definition.
    Schemas,
}

/// The body needs more memory than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded;

/// What is left of the allowance.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<usize>,
}

impl Allowance {
    /// The allowance of objects of this message.
    pub fn of(message: &str) -> Self {
        match message.ends_with(".CustomResourceDefinition") {
            true => Self::Schemas,
            false => Self::Usual,
        }
    }
}

impl Budget {
    /// The budget of a body of `length` bytes.
    pub(crate) fn new(allowance: Allowance, length: usize) -> Self {
        let per_byte = match allowance {
            Allowance::Usual => PER_BYTE,
            Allowance::Schemas => PER_BYTE_SCHEMAS,
        };
        Self { left: Cell::new(FLOOR_BYTES.saturating_add(length.saturating_mul(per_byte))) }
    }

    /// So many bytes.
    pub(crate) fn of_bytes(bytes: usize) -> Self {
        Self { left: Cell::new(bytes) }
    }

    /// For values that are in memory already.
    pub(crate) fn unlimited() -> Self {
        Self { left: Cell::new(usize::MAX) }
    }

    fn spend(&self, bytes: usize) -> Result<(), Exceeded> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(Exceeded)?);
        Ok(())
    }

    /// Charges a text.
    pub(crate) fn text(&self, length: usize) -> Result<(), Exceeded> {
        self.spend(length.max(TEXT))
    }

    /// Charges the next element of a list.
    pub(crate) fn element(&self, is_empty_object: bool) -> Result<(), Exceeded> {
        self.spend(if is_empty_object { ELEMENT + EMPTY_OBJECT } else { ELEMENT })
    }

    /// Charges an entry of a map that has `entries` now.
    pub(crate) fn entry(&self, entries: usize, name: usize) -> Result<(), Exceeded> {
        let node = match entries {
            0 => NODE,
            1..NODE_ENTRIES => 0,
            _ => ENTRY,
        };
        self.spend(node + name.max(TEXT))
    }
}

/// `true` if a value that is in memory takes no more than what a body of `length` bytes may take.
pub fn fits(value: &Value, allowance: Allowance, length: usize) -> bool {
    charge(&Budget::new(allowance, length), value).is_ok()
}

/// Charges a value that is in memory.
pub(super) fn charge(budget: &Budget, value: &Value) -> Result<(), Exceeded> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) => budget.text(text.len()),
        Value::Array(items) => items.iter().try_for_each(|item| {
            budget.element(item.as_object().is_some_and(Map::is_empty))?;
            charge(budget, item)
        }),
        Value::Object(map) => map.iter().enumerate().try_for_each(|(entries, (name, value))| {
            budget.entry(entries, name.len())?;
            charge(budget, value)
        }),
    }
}
