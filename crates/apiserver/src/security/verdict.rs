//! The decision of authorizers.

use auth::Decision;

/// The decision of the authorizers, and the errors when they were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// May they.
    pub decision: Decision,
    /// The reason why somebody could not be asked. Without it the decision might be another one.
    pub error: Option<String>,
}

impl From<Decision> for Verdict {
    fn from(decision: Decision) -> Self {
        Self { decision, error: None }
    }
}
