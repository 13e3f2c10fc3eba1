//! The check of an object: the kind's rules, then the validating plugins, between the two stages of allocation.
//!
//! Only [`admit`] makes an [`Admitted`], and only an `Admitted` can be stored.

use std::sync::Arc;

use machinery::field::FieldErrors;
use machinery::metadata::Metadata;
use serde_json::Value;

use super::Writer;
use super::allocation::Allocated;
use super::door::Committed;
use crate::admission::{self, Context, Effect, Operation};
use crate::cache::CachedObject;
use crate::codec;
use crate::kinds::Kind;
use crate::object::encode_stored;
use crate::status::{Error, Result};

/// An object that passed every check; the only thing that can be stored.
#[derive(Debug)]
pub struct Admitted {
    kind: Kind,
    key: String,
    name: String,
    object: Value,
    served: Option<Value>,
    is_relaxed: bool,
    allocated: Allocated,
    effect: Effect,
}

impl Admitted {
    /// The kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// `true` if it may be acknowledged before it is on disk.
    pub fn is_relaxed(&self) -> bool {
        self.is_relaxed
    }

    /// The store's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object in its stored form; one that goes and that a webhook would have to convert, in its served form.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// What it has taken that others may not have.
    pub(super) fn allocated(&self) -> &Allocated {
        &self.allocated
    }

    /// Whether it is stored at all.
    pub(super) fn effect(&self) -> Effect {
        self.effect
    }

    /// What a dry run answers.
    ///
    /// # Errors
    /// 500 if it cannot be encoded.
    pub(super) fn as_if_committed(&self, revision: u64) -> Result<Committed> {
        let stored = encode_stored(self.served.as_ref().unwrap_or(&self.object)).map_err(Error::internal)?;
        let mut object = CachedObject::from_stored(self.key.as_str().into(), &stored, revision)
            .ok_or_else(|| Error::internal("the object could not be encoded"))?;
        if revision == 0 {
            // A dry run's object has no revision.
            object.json = stored;
        }
        Ok(Committed { revision, object: Arc::new(object) })
    }

    /// What was committed as clients see it, where a webhook has converted it.
    ///
    /// # Errors
    /// 500 if it cannot be encoded.
    pub(super) fn as_served(&self, committed: Committed) -> Result<Committed> {
        let (Some(served), Some(conversion)) = (&self.served, self.kind.conversion()) else {
            return Ok(committed);
        };
        let encoded = encode_stored(served).map_err(Error::internal)?;
        let object = CachedObject::from_stored(self.key.as_str().into(), &encoded, committed.revision)
            .ok_or_else(|| Error::internal("the object could not be encoded"))?;
        let object = Arc::new(object);
        conversion.keep(&object);
        Ok(Committed { object, ..committed })
    }
}

/// The fate of an object that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is stored.
    Stays,
    /// It is removed.
    Goes,
}

/// Allocates what an object needs to be checked, validates it, charges it, and converts it if it stays. What was admitted is
/// committed.
///
/// # Errors
/// 422 with every broken field, what the first plugin that refuses says, or 500 if it cannot be converted. Then nothing is
/// allocated.
pub async fn admit(
    writer: &Writer,
    context: &Context<'_>,
    mut object: Value,
    fate: Fate,
) -> Result<Admitted> {
    let mut allocated = Allocated::before_validation(writer, context, &mut object).await?;
    let checked = match validate(context, &object).await {
        Ok(()) => allocated.charge(writer, context, &object).await,
        Err(error) => Err(error),
    };
    if let Err(error) = checked {
        allocated.undo(writer).await;
        return Err(error);
    }
    let kind = &context.request.kind;
    let metadata = Metadata::of(&object);
    let name = metadata.name().to_owned();
    let key = kind.key(metadata.namespace(), &name);
    let is_heartbeat = || context.old.is_some_and(|old| (kind.row().strategy.is_heartbeat)(&object, old));
    let is_relaxed = kind.is_relaxed() || is_heartbeat();
    let forms = match fate {
        Fate::Goes if kind.conversion().is_some() => Ok((object, None)),
        Fate::Goes | Fate::Stays => kind.forms(object).await,
    };
    let (mut object, served) = match forms {
        Ok(forms) => forms,
        Err(error) => {
            allocated.undo(writer).await;
            return Err(error);
        }
    };
    codec::fill_nulls(&mut object);
    let (kind, effect) = (kind.clone(), context.effect);
    Ok(Admitted { kind, key, name, object, served, is_relaxed, allocated, effect })
}

/// Validates by the kind's rules, then by plugins.
///
/// # Errors
/// 422 with every broken field, or what the first plugin that refuses says.
pub async fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = &context.request.kind;
    let errors = match (context.operation, context.old) {
        (Operation::Create, _) => kind.validate_create(object),
        (Operation::Update(part), Some(old)) => kind.validate_update(object, old, part),
        _ => FieldErrors::new(),
    };
    if !errors.is_empty() {
        return Err(Error::invalid(kind.kind_subject(), Metadata::of(object).name(), &errors));
    }
    admission::validate(context, object).await
}
