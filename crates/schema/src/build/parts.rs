//! The parts of an arena in the making.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::BuildError;
use crate::rows::{Field, List, Message, Type};
use crate::rules::{Location, Rules};

/// How many there are of messages, of lists and of maps; what refers to them has 16 bits.
const PARTS_MAX: usize = u16::MAX as usize;

/// An arena in the making.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) messages: Vec<Message>,
    pub(super) lists: Vec<List>,
    pub(super) maps: Vec<Type>,
    pub(super) rules: BTreeMap<Location, Rules>,
    /// Objects without a name of their own are called by it. Their names begin with a tilde, and so come last.
    pub(super) kind: String,
    pub(super) object_meta: u16,
}

impl Parts {
    pub(super) fn list(&mut self, list: List) -> Result<u16, BuildError> {
        let at = index(self.lists.len())?;
        self.lists.push(list);
        Ok(at)
    }

    pub(super) fn map(&mut self, values: Type) -> Result<u16, BuildError> {
        let at = index(self.maps.len())?;
        self.maps.push(values);
        Ok(at)
    }

    pub(super) fn set(&mut self, index: u16, message: Message) {
        if let Some(slot) = self.messages.get_mut(usize::from(index)) {
            *slot = message;
        }
    }

    /// Room for a message without a name of its own.
    pub(super) fn reserve(&mut self) -> Result<u16, BuildError> {
        let at = index(self.messages.len())?;
        self.messages.push(message(format!("~{at:05}.{}", self.kind), 0, Vec::new()));
        Ok(at)
    }
}

pub(super) fn index(number: usize) -> Result<u16, BuildError> {
    u16::try_from(number).map_err(|_| BuildError::TooLarge { what: "objects, lists or maps", max: PARTS_MAX })
}

pub(super) fn message(name: String, flags: u16, fields: Vec<Field>) -> Message {
    Message { name: Cow::Owned(name), flags, fields: Cow::Owned(fields) }
}
