//! The counts of an evaluation, and the ways in which it fails.

use std::borrow::Cow;
use std::sync::Arc;

use machinery::pattern::{Pattern, PatternError};

use crate::value::{NetworkError, Value};

/// Bytes that one evaluation may make. Upstream counts no bytes; what it allows in cost is far less than this for everything
/// but lists that are doubled, and texts whose every letter becomes a long one.
const BYTES_MAX: usize = 64 << 20;
/// What a regular expression counts for that has to be compiled: a thousand are too many for one evaluation.
const PATTERN_BYTES: usize = 64 << 10;

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// It fails for these values.
    #[error("{0}")]
    Failed(Cow<'static, str>),
    /// Something in it knows no way to take these values.
    #[error("no such overload")]
    NoOverload,
    /// It costs more than one evaluation may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// All together have cost more than they may.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    Budget,
    /// Nobody waits for it any more.
    #[error("operation interrupted")]
    Interrupted,
    /// It asks what an authorizer has to ask somebody else for.
    #[error("the authorizers have not been asked")]
    Unanswered,
}

impl From<&'static str> for EvalError {
    fn from(message: &'static str) -> Self {
        Self::Failed(message.into())
    }
}

impl From<String> for EvalError {
    fn from(message: String) -> Self {
        Self::Failed(message.into())
    }
}

impl From<PatternError> for EvalError {
    fn from(why: PatternError) -> Self {
        why.to_string().into()
    }
}

impl From<NetworkError> for EvalError {
    fn from(why: NetworkError) -> Self {
        why.to_string().into()
    }
}

impl EvalError {
    /// Whether `||` and `&&` can do without the operand that failed.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::NoOverload)
    }
}

/// What functions need of the evaluation that they are called in.
#[derive(Debug)]
pub(crate) struct Context {
    cost: u64,
    limit: u64,
    bytes: usize,
    /// The regular expression among the arguments of the call, if it is constant.
    pub(crate) pattern: Option<Arc<Pattern>>,
    /// The regular expression that was compiled last.
    compiled: Option<Arc<Pattern>>,
    /// The sum of nothing, of the type that the call has.
    pub(crate) zero: Value<'static>,
}

impl Context {
    pub(crate) fn new(limit: u64) -> Self {
        Self { cost: 0, limit, bytes: 0, pattern: None, compiled: None, zero: Value::Int(0) }
    }

    /// Counts a cost.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    /// Counts bytes that are about to be made.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES_MAX { Err(EvalError::CostLimit) } else { Ok(()) }
    }

    /// What has been counted.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether so much more is too much.
    pub(crate) fn is_beyond(&self, cost: u64) -> bool {
        self.cost.saturating_add(cost) > self.limit
    }

    /// The regular expression among the arguments. What is no constant is compiled, which takes as long as much memory.
    pub(crate) fn regex(&mut self, text: &str) -> Result<Result<Arc<Pattern>, PatternError>, EvalError> {
        if let Some(pattern) = &self.pattern {
            return Ok(Ok(pattern.clone()));
        }
        if let Some(known) = self.compiled.as_ref().filter(|known| known.as_str() == text) {
            return Ok(Ok(known.clone()));
        }
        self.allocate(PATTERN_BYTES)?;
        let pattern = Pattern::new(text).map(Arc::new);
        self.compiled = pattern.as_ref().ok().cloned();
        Ok(pattern)
    }
}
