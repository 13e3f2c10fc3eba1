//! The check of an object: the kind's rules, then the validating plugins.
//!
//! Only what is [`Validated`] becomes an [`Admitted`], and only an `Admitted` can be stored.

use machinery::field::FieldErrors;
use machinery::metadata::Metadata;
use serde_json::Value;

use crate::admission::{self, Context, Operation};
use crate::codec;
use crate::kinds::Kind;
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

    /// Its served form, where a webhook has converted it.
    pub(super) fn served(&self) -> Option<&Value> {
        self.served.as_ref()
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

/// An object that passed every check, in its served form.
#[derive(Debug)]
pub struct Validated(Value);

impl Validated {
    /// Checks an object.
    ///
    /// # Errors
    /// As [`validate`].
    pub(super) async fn new(context: &Context<'_>, object: Value) -> Result<Self> {
        validate(context, &object).await?;
        Ok(Self(object))
    }

    /// The object in its served form.
    pub(super) fn object(&self) -> &Value {
        &self.0
    }

    /// The same in its stored form; what goes is not converted any more.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub(super) async fn admitted(self, context: &Context<'_>, fate: Fate) -> Result<Admitted> {
        let (kind, object) = (&context.request.kind, self.0);
        let metadata = Metadata::of(&object);
        let name = metadata.name().to_owned();
        let key = kind.key(metadata.namespace(), &name);
        let is_heartbeat = || context.old.is_some_and(|old| (kind.row().strategy.is_heartbeat)(&object, old));
        let is_relaxed = kind.is_relaxed() || is_heartbeat();
        let (mut object, served) = match fate {
            Fate::Goes if kind.conversion().is_some() => (object, None),
            Fate::Goes | Fate::Stays => kind.forms(object).await?,
        };
        codec::fill_nulls(&mut object);
        Ok(Admitted { kind: kind.clone(), key, name, object, served, is_relaxed })
    }
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
