//! Why a volume is not where its Pod's containers find it, or is still there.
//!
//! What only one kind of volume can fail at is that kind's own error, in its file. Texts are upstream's where it has any:
//! they become events. Whoever failed tries again, later and later, but for what [`VolumeError::is_final`] says.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::pod::failure_reason::FailureReason;

/// What was attempted on which volume, and what stood in the way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// One step on a volume's way; `call` is upstream's name for it.
    #[error("{call} failed for volume \"{volume}\" : {source}")]
    Step { call: &'static str, volume: String, reason: FailureReason, source: Box<Self> },
    /// What a Pod calls so cannot be mounted at all, or not as what it is now.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
         volumes=[{volume}]: {source}"
    )]
    Process { volume: String, source: Box<Self> },
    /// Nobody attaches it to the node.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{0}], unattached volumes=[{0}], failed to process \
         volumes=[]: timed out waiting for the condition"
    )]
    NotAttached(String),
    /// The node can have no more volumes of that kind: the Pod belongs elsewhere. Source: `VerifyExhaustedResource`, KEP-4876.
    #[error("Node has reached its volume attachment limit, rejecting pod")]
    AttachmentLimit,
    /// It is there, and is not as large as it was to become.
    #[error("MountVolume.Setup failed while expanding volume \"{volume}\" : {source}")]
    Expand { volume: String, source: Box<Self> },
    /// A file or folder of the node.
    #[error("{action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// A file system was not mounted.
    #[error("mount {fs_type} on {}: {source}", path.display())]
    Mount { fs_type: String, path: PathBuf, source: Errno },
    /// The kernel has not done what it was asked for.
    #[error(transparent)]
    Host(#[from] sys::Error),
    /// The API server has not.
    #[error(transparent)]
    Api(#[from] Box<kube::Error>),
    /// A driver has not; as gRPC prints it.
    #[error("rpc error: code = {:?} desc = {}", .0.code(), .0.message())]
    Call(Box<csi::Status>),
    /// A blocking step has panicked, or everything stops.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// What only one kind of volume, or one file here, can fail at.
    #[error(transparent)]
    Specific(Box<dyn Error + Send + Sync>),
    /// Of several volumes, each for itself.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Self>),
}

/// An error of one kind of volume, which a [`VolumeError`] carries.
pub(crate) trait Specific: Error + Send + Sync + 'static {}

impl<E: Specific> From<E> for VolumeError {
    fn from(error: E) -> Self {
        Self::Specific(Box::new(error))
    }
}

impl From<csi::Status> for VolumeError {
    fn from(status: csi::Status) -> Self {
        Self::Call(Box::new(status))
    }
}

impl From<kube::Error> for VolumeError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl VolumeError {
    /// The reason of the Pod's event.
    pub(crate) fn reason(&self) -> FailureReason {
        match self {
            Self::Step { reason, .. } => *reason,
            Self::AttachmentLimit => FailureReason::VolumeAttachmentLimitExceeded,
            _ => FailureReason::FailedMount,
        }
    }

    /// `true` if nobody tries again on this node.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::AttachmentLimit)
    }

    /// Makes an error into that of a step on the way of a folder's volume.
    pub(crate) fn step<E: Into<Self>>(call: &'static str, volume: &str) -> impl Fn(E) -> Self {
        move |error| Self::Step {
            call,
            volume: volume.to_owned(),
            reason: FailureReason::FailedMount,
            source: Box::new(error.into()),
        }
    }

    /// Makes an error into that of a Pod's volume which cannot be mounted.
    pub(super) fn process<E: Into<Self>>(volume: &str) -> impl Fn(E) -> Self {
        move |error| Self::Process { volume: volume.to_owned(), source: Box::new(error.into()) }
    }
}

/// Makes an error of the disk into that of an `action` on a path.
pub(super) fn at(action: &'static str, path: &Path) -> impl Fn(io::Error) -> VolumeError {
    move |source| VolumeError::File { action, path: path.to_owned(), source }
}
