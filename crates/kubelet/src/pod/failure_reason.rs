//! Upstream's words for what went wrong with a Pod: reasons of waiting containers and of events.

/// Why a step of a Pod's life failed. Source: `pkg/kubelet/{images,kuberuntime,events}` of upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// What a container is made of is not there, or it must not run like that.
    CreateContainerConfigError,
    /// The runtime has not made the container.
    CreateContainerError,
    /// The runtime has not started it, or does not know it.
    RunContainerError,
    /// It was started, and its hook failed.
    PostStartHookError,
    /// The image's name is none.
    InvalidImageName,
    /// The runtime does not say whether the image is there.
    ImageInspectError,
    /// The image is not there, and is not to be pulled.
    ErrImageNeverPull,
    /// It could not be pulled.
    ErrImagePull,
    /// Its registry does not answer.
    RegistryUnavailable,
    /// It is not signed as it should be.
    SignatureValidationFailed,
    /// There is no sandbox.
    FailedCreatePodSandBox,
    /// Claims of devices were not prepared.
    FailedPrepareDynamicResources,
    /// A folder was not brought to where it belongs.
    FailedMount,
    /// A device was not.
    FailedMapVolume,
    /// The node can have no more volumes of that kind: the Pod belongs elsewhere. Source: KEP-4876.
    VolumeAttachmentLimitExceeded,
}

impl FailureReason {
    /// The word itself.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
            Self::RunContainerError => "RunContainerError",
            Self::PostStartHookError => "PostStartHookError",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::ErrImagePull => "ErrImagePull",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
            Self::FailedCreatePodSandBox => "FailedCreatePodSandBox",
            Self::FailedPrepareDynamicResources => "FailedPrepareDynamicResources",
            Self::FailedMount => "FailedMount",
            Self::FailedMapVolume => "FailedMapVolume",
            Self::VolumeAttachmentLimitExceeded => "VolumeAttachmentLimitExceeded",
        }
    }

    /// `true` if it turns into `ImagePullBackOff` while the next try is waited for.
    pub fn is_pull_failure(self) -> bool {
        matches!(self, Self::ErrImagePull | Self::RegistryUnavailable | Self::SignatureValidationFailed)
    }
}
