//! From an object as it is to be to one that can be stored: it takes what no other may have, and is checked in between.
//!
//! Addresses and ports are taken before validation, which looks at them, and quotas are charged after it.

use serde_json::Value;

use super::allocation::Allocated;
use super::validation::{Fate, Validated};
use super::{Admitted, Writer};
use crate::admission::{Context, Effect};
use crate::status::Result;

/// An object that is to be committed, and what it has taken.
#[derive(Debug)]
pub struct Ready {
    pub(super) admitted: Admitted,
    pub(super) allocated: Allocated,
    /// Whether it is stored at all.
    pub(super) effect: Effect,
}

/// Allocates what an object needs to be checked, validates it, charges it, and converts it if it stays. What is ready is
/// committed.
///
/// # Errors
/// 422 with every broken field, what the first plugin that refuses says, or 500 if it cannot be converted. Then nothing is
/// allocated.
pub async fn admit(writer: &Writer, context: &Context<'_>, mut object: Value, fate: Fate) -> Result<Ready> {
    let mut allocated = Allocated::before_validation(writer, context, &mut object).await?;
    match check(writer, context, object, fate, &mut allocated).await {
        Ok(admitted) => Ok(Ready { admitted, allocated, effect: context.effect }),
        Err(error) => {
            allocated.undo(writer).await;
            Err(error)
        }
    }
}

async fn check(
    writer: &Writer,
    context: &Context<'_>,
    object: Value,
    fate: Fate,
    allocated: &mut Allocated,
) -> Result<Admitted> {
    let validated = Validated::new(context, object).await?;
    allocated.charge(writer, context, validated.object()).await?;
    validated.admitted(context, fate).await
}
