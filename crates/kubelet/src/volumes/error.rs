//! Why a volume is not where its Pod's containers find it, or is still there.
//!
//! What only one kind of volume can fail at is that kind's own error, in its file. Texts are upstream's where it has any:
//! they become events. Whether and when to try again is what [`VolumeError::retry`] says.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use crate::pod::failure_reason::FailureReason;

/// Before the second try.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Before further tries, each twice as late as the one before.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The longest that an API server may ask to be left alone.
const ASKED_MAX: Duration = Duration::from_secs(120);

/// Whether what failed is tried again, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Not on this node.
    Never,
    /// So long after it has failed.
    After(Duration),
}

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

    /// Whether and when to try again, where the last try was so long after the one before it, if there was one.
    pub(crate) fn retry(&self, last: Option<Duration>) -> Retry {
        if matches!(self, Self::AttachmentLimit) {
            return Retry::Never;
        }
        let later = last.map_or(RETRY_FIRST, |last| last.saturating_mul(2).clamp(RETRY_FIRST, RETRY_MAX));
        Retry::After(later.max(self.asked_for()))
    }

    /// For how long an API server has asked to be left alone, itself or by way of a step.
    fn asked_for(&self) -> Duration {
        match self {
            Self::Step { source, .. } | Self::Process { source, .. } | Self::Expand { source, .. } => {
                source.asked_for()
            }
            Self::Several(errors) => errors.iter().map(Self::asked_for).max().unwrap_or_default(),
            Self::Api(error) => match &**error {
                kube::Error::Api(status) => {
                    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                    Duration::from_secs(seconds.into()).min(ASKED_MAX)
                }
                _ => Duration::ZERO,
            },
            _ => Duration::ZERO,
        }
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;

    fn api(seconds: Option<u32>) -> VolumeError {
        let details = seconds.map(|retry_after_seconds| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds,
        });
        kube::Error::Api(Box::new(Status { code: 429, details, ..Status::default() })).into()
    }

    #[test]
    fn what_failed_is_tried_again_later_and_later() {
        let seconds = Duration::from_secs;
        let error = VolumeError::NotAttached("v".into());
        let mut last = None;
        let mut waited = Vec::new();
        for _ in 0..7 {
            let Retry::After(delay) = error.retry(last) else { panic!("{error} is final") };
            waited.push(delay.as_secs());
            last = Some(delay);
        }
        assert_eq!(waited, [1, 2, 4, 8, 16, 30, 30]);
        for (last, expect) in [(Duration::ZERO, 1), (Duration::from_millis(1), 1), (Duration::MAX, 30)] {
            assert_eq!(error.retry(Some(last)), Retry::After(seconds(expect)), "{last:?}");
        }
    }

    #[test]
    fn each_error_says_whether_and_when_to_try_again() {
        let step = |source: VolumeError| VolumeError::step("MountVolume.SetUp", "v")(source);
        let process = |source: VolumeError| VolumeError::process("v")(source);
        let after = |seconds| Retry::After(Duration::from_secs(seconds));
        let call = |code| VolumeError::from(csi::Status::new(code, ""));
        for (name, error, first, later) in [
            ("the node is full", VolumeError::AttachmentLimit, Retry::Never, Retry::Never),
            ("nobody attaches it", VolumeError::NotAttached("v".into()), after(1), after(16)),
            ("a driver is away", call(csi::Code::Unavailable), after(1), after(16)),
            ("a driver refuses", step(call(csi::Code::InvalidArgument)), after(1), after(16)),
            ("an API server that says nothing", api(None), after(1), after(16)),
            ("one that asks for nothing", api(Some(0)), after(1), after(16)),
            ("one that asks for some time", api(Some(10)), after(10), after(16)),
            ("one that asks for more", step(api(Some(60))), after(60), after(60)),
            ("one that asks for too much", process(step(api(Some(u32::MAX)))), after(120), after(120)),
            (
                "one of several",
                VolumeError::Several(vec![VolumeError::NotAttached("v".into()), api(Some(20)), api(Some(5))]),
                after(20),
                after(20),
            ),
            ("none of several", VolumeError::Several(Vec::new()), after(1), after(16)),
        ] {
            assert_eq!(error.retry(None), first, "{name}");
            assert_eq!(error.retry(Some(Duration::from_secs(8))), later, "{name}, later");
        }
    }
}
