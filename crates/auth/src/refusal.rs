//! A refusal by a rule about kubelets, in upstream's words.

use std::borrow::Cow;

/// The rule's words about the request; none where upstream has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(Cow<'static, str>);

/// The end of a rule that is broken.
pub(crate) fn refuse<T>(why: impl Into<Cow<'static, str>>) -> Result<T, Refusal> {
    Err(Refusal(why.into()))
}

/// A rule with a text that is always the same.
pub(crate) fn require(holds: bool, why: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { refuse(why) }
}
