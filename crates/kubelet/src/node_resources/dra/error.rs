//! Why claims could not be prepared or taken back, in upstream's words.

use std::path::PathBuf;

use controller::resource_claim::ClaimError;

use super::api::NoService;

/// What went wrong with a claim, a driver, or what is remembered of both.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DraError {
    /// A driver speaks nothing that is known.
    #[error(
        "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {}: {source}",
        endpoint.display()
    )]
    Versions { name: String, endpoint: PathBuf, source: NoService },
    /// Nobody by that name has registered, or not yet.
    #[error("DRA driver {0} is not registered")]
    NotRegistered(String),
    /// What the Pod says of its claim does not fit what the API has.
    #[error(transparent)]
    NotOfPod(#[from] ClaimError),
    /// The API does not give the claim.
    #[error("fetch ResourceClaim {name}: {source}")]
    Fetch { name: String, source: Box<kube::Error> },
    /// The claim is somebody else's.
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotReserved { pod: String, pod_uid: String, claim: String, claim_uid: String },
    /// Nobody has given it devices yet.
    #[error("ResourceClaim {name}: claim {namespace}/{name} not allocated")]
    NotAllocated { namespace: String, name: String },
    /// A claim of that name is still prepared which is gone from the API.
    #[error(
        "old ResourceClaim with same name {name} and different UID {old} still exists (previous pod force-deleted?!)"
    )]
    Namesake { name: String, old: String },
    /// A container is started whose claim was never prepared.
    #[error("internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}")]
    NotPrepared { namespace: String, name: String },
    /// The driver did not answer, or refused the whole call.
    #[error("{call}: rpc error: code = {:?} desc = {}", status.code(), status.message())]
    Call { call: &'static str, status: Box<tonic::Status> },
    /// The driver refused one claim.
    #[error("{call} failed for ResourceClaim {claim}: {why}")]
    Refused { call: &'static str, claim: String, why: String },
    /// The driver answered for what it was not asked for.
    #[error("{call} returned result for unknown claim UID {uid}")]
    Unknown { call: &'static str, uid: String },
    /// The driver did not answer for all.
    #[error("{call} skipped {count} ResourceClaims")]
    Skipped { call: &'static str, count: usize },
    /// What is prepared cannot be written down.
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(#[from] std::io::Error),
    /// While all of a Pod's claims were prepared.
    #[error("prepare dynamic resources: {0}")]
    Prepare(#[source] Box<DraError>),
    /// While all of a Pod's claims were taken back.
    #[error("unprepare dynamic resources: {0}")]
    Unprepare(#[source] Box<DraError>),
}
