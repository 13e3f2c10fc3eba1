//! The messages that are worth entering: those to which something applies, and those that hold such ones.

use crate::rows::{Message, Schemas, Type};

/// For each message of an arena, whether a walk finds something there or below.
#[derive(Clone, Debug)]
pub(crate) struct Reachable(Vec<bool>);

impl Reachable {
    /// All messages that `applies` to, and those from which one can be reached.
    pub(crate) fn of(schemas: &Schemas, applies: impl Fn(usize, &Message) -> bool) -> Self {
        let messages = schemas.messages.iter().enumerate();
        let mut reach = Self(messages.map(|(index, message)| applies(index, message)).collect());
        loop {
            let before = reach.count();
            for (index, message) in schemas.messages.iter().enumerate() {
                let below = message.fields.iter().any(|field| reach.enters(schemas, field.ty));
                if let Some(reaches) = reach.0.get_mut(index) {
                    *reaches |= below;
                }
            }
            if before == reach.count() {
                return reach;
            }
        }
    }

    fn count(&self) -> usize {
        self.0.iter().filter(|reaches| **reaches).count()
    }

    /// Whether there is something in values of this type.
    pub(crate) fn enters(&self, schemas: &Schemas, ty: Type) -> bool {
        match ty {
            Type::Message(index) => self.0.get(usize::from(index)).copied().unwrap_or(false),
            Type::List(index) => self.enters(schemas, schemas.item(index)),
            Type::Map(index) => self.enters(schemas, schemas.map(index)),
            _ => false,
        }
    }
}
