//! The reasons why a metric asks for nothing. Events and conditions have them, in upstream's words.

use controller::AskError;

/// The reason why nobody knows what a metric asks for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetricError {
    /// The kind of the object that it is about is not served.
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    NoKind {
        /// The kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// Its selector selects in a way that there is not.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// The API of metrics did not answer.
    #[error("unable to fetch metrics from {0} metrics API: {1}")]
    Unanswered(&'static str, AskError),
    /// The answer is another question's.
    #[error("the answer is none")]
    NoDocument,
    /// The API has nothing.
    #[error("no metrics returned from {0} metrics API")]
    Nothing(&'static str),
    /// It has more than one number for one object.
    #[error("the custom metrics API server returned more than one result for an object")]
    Several,
    /// It has no number.
    #[error("the value is no quantity")]
    NoQuantity,
    /// What it has is about other Pods.
    #[error("no metrics returned matched known pods")]
    OtherPods,
    /// The selector selects none.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// The same, where ready ones are counted.
    #[error("unable to calculate ready pods: {}", Self::NoPods)]
    NoReadyPods,
    /// Of none that counts anything is known.
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    Unready,
    /// A Pod has no such container.
    #[error("container {container} not found in Pod {pod}")]
    NoContainer {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
    /// A container asks for none of the resource.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    NoRequest {
        /// The resource.
        resource: String,
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
    /// The metric of a resource names no target.
    #[error(
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
    )]
    NoResourceTarget,
    /// A metric of an object, or an external one, names no target.
    #[error("neither a value target nor an average value target was set")]
    NoTarget,
    /// What was done with the metric then.
    #[error("{doing}: {source}{of}")]
    Step {
        /// What was done.
        doing: String,
        /// The reason.
        source: Box<Self>,
        /// Of whom, where that comes last.
        of: String,
    },
}

impl MetricError {
    /// The error of a step that it made fail.
    pub(super) fn while_(self, doing: impl Into<String>) -> Self {
        Self::Step { doing: doing.into(), source: Box::new(self), of: String::new() }
    }
}
