//! Something that somebody other than the API server does for a plan, such as a cloud's provider, and what follows from it.
//!
//! Whoever plans says what is to be asked and, as a pure function, what an answer comes to: a further plan, which is carried
//! out in the operation's place. How long an answer may take, and how large it may be, is for who makes the operation to bound.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::Plan;
use crate::informer::Informers;

type Run = dyn Fn(Informers) -> BoxFuture<'static, Outcome> + Send + Sync;

/// One thing to ask for. Two are equal if they say the same of themselves.
#[derive(Clone)]
pub struct Operation {
    what: String,
    run: Arc<Run>,
}

/// The outcome of an operation.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The plan that follows from it.
    pub plan: Plan,
    /// The reason to try it again, if there is one: the plan that it is of fails, after what follows has been done.
    pub failure: Option<Failed>,
}

/// The failure of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// A sentence, for the log.
    pub message: String,
    /// The time after which to try again, if whoever was asked has said so; ever later if not.
    pub retry_after: Option<Duration>,
}

impl Outcome {
    /// It is done, and this follows.
    pub fn done(plan: Plan) -> Self {
        Self { plan, failure: None }
    }

    /// It was not done, and must be; this follows.
    pub fn failed(plan: Plan, failure: Failed) -> Self {
        Self { plan, failure: Some(failure) }
    }
}

impl Operation {
    /// An operation that is `what`, as the log and tests have it; what it needs are settings of the informers.
    pub fn new(
        what: String,
        run: impl Fn(Informers) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self { what, run: Arc::new(run) }
    }

    /// Its name, for messages.
    pub fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn run(&self, informers: Informers) -> BoxFuture<'static, Outcome> {
        (self.run)(informers)
    }
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.what == other.what
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Operation").field(&self.what).finish()
    }
}
