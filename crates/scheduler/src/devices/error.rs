//! The reasons why a Pod's claims cannot get devices, whatever the Node. The words are upstream's.

use controller::resource_claim::ClaimError;
use expressions::device::SelectorError;

/// The defect of a Pod's claims or their classes, or what the Pod waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The Pod has no claim yet, or one that is not its own.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A claim is not there.
    #[error("resourceclaim.resource.k8s.io \"{0}\" not found")]
    NoClaim(String),
    /// A claim is on its way out.
    #[error("resourceclaim \"{0}\" is being deleted")]
    Deleting(String),
    /// A constraint of a claim is of a kind that nobody knows.
    #[error("claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")]
    Constraint {
        /// The claim's key.
        claim: String,
        /// Which of its constraints.
        index: usize,
    },
    /// A claim asks for more than it can hold.
    #[error("claim {0}: number of requested devices {1} exceeds the claim limit of {2}")]
    TooMany(String, usize, usize),
    /// Something is wrong with a request.
    #[error("claim {claim}, request {request}: {flaw}")]
    Request {
        /// The claim's key.
        claim: String,
        /// The request's name.
        request: String,
        /// What is wrong.
        flaw: RequestFlaw,
    },
    /// A selector says nothing.
    #[error("{0}: CEL expression empty (unsupported selector type?)")]
    EmptySelector(Place),
    /// A selector is no expression.
    #[error("{0}: {1}")]
    Selector(Place, SelectorError),
    /// A selector fails for a device.
    #[error("{0} on device {1}: {2}")]
    SelectorOnDevice(Place, String, SelectorError),
}

/// Where a selector stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{owner} {name}: selector #{index}")]
pub struct Place {
    /// `class` or `claim`.
    pub owner: &'static str,
    /// The owner's name or key.
    pub name: String,
    /// Which of its selectors.
    pub index: usize,
}

/// The defect of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFlaw {
    /// It names no class.
    #[error("missing device class name (unsupported request type?)")]
    NoClassName,
    /// There is no such class.
    #[error("could not retrieve device class {0}: deviceclass.resource.k8s.io \"{0}\" not found")]
    NoClass(String),
    /// It counts in a way that nobody knows.
    #[error("unsupported count mode {0}")]
    Mode(String),
    /// It wants all of a pool that is not whole.
    #[error("asks for all devices, but resource pool {pool} is currently {state}")]
    Pool {
        /// The driver and the pool's name.
        pool: String,
        /// What the pool is.
        state: &'static str,
    },
    /// It wants all, and these do not go together.
    #[error("cannot add device {0} because a claim constraint would not be satisfied")]
    Unsatisfied(String),
}
