//! The reasons why a Pod that found a Node is not bound. The words are upstream's: the Pod's events have them.

use controller::Undone;

use crate::extender::Unheard;
use crate::plugins::gang_scheduling::GangError;

/// Why a Pod is not bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindingError {
    /// Its gang.
    #[error("running Permit plugin \"GangScheduling\": {0}")]
    Gang(#[from] GangError),
    /// Its volumes.
    #[error("running PreBind plugin \"VolumeBinding\": binding volumes: {0}")]
    Volumes(#[from] VolumeError),
    /// Its claims of devices.
    #[error("running PreBind plugin \"DynamicResources\": {0}")]
    Devices(#[from] ReserveError),
    /// The API server does not bind it.
    #[error(transparent)]
    Undone(#[from] Undone),
    /// Nor does the extender that does so.
    #[error(transparent)]
    Unheard(#[from] Unheard),
    /// It is no more.
    #[error("the pod is gone")]
    Gone,
}

/// Why a Pod's volumes are not bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("volume \"{0}\" already bound to a different claim.")]
    Taken(String),
    #[error("persistentvolumeclaim \"{0}\" not found")]
    NoClaim(String),
    #[error("selectedNode annotation value \"{0}\" not set to scheduled node \"{1}\"")]
    OtherNode(String, String),
    #[error("provisioning failed for PVC \"{0}\"")]
    Provisioning(String),
    #[error("others changed the object whenever it was to be written")]
    Overtaken,
    #[error("context deadline exceeded")]
    Late,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Why a Pod's claims of devices are not its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReserveError {
    #[error("claim {0} got deleted in the meantime")]
    Deleted(String),
    #[error("claim {0} got allocated elsewhere in the meantime")]
    Allocated(String),
    #[error("{0}: there is nothing to send")]
    Nothing(String),
    #[error("{what}: {source}")]
    Write { what: String, source: kube::Error },
    #[error("get updated claim {key} after conflict: {source}")]
    Read { key: String, source: kube::Error },
}

impl ReserveError {
    /// Whether somebody else was faster.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { source: kube::Error::Api(status), .. } if status.code == 409)
    }
}
