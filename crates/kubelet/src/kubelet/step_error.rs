//! Why a step of a Pod's life failed, whoever took it: what is told in events, and what the source was.
//!
//! When to try again does not depend on which it is: a step that failed is taken again, later and later.

use cri::CriError;

use crate::context::runtime_features::NoUserNamespaces;
use crate::kubelet::runtime_class::NoRuntimeClass;
use crate::kubelet::userns::UserNamespaceError;
use crate::node_resources::cgroups::CgroupError;
use crate::node_resources::device_plugins::DevicePluginError;
use crate::node_resources::dra::DraError;
use crate::pod::container_config::security::RunsAsRoot;
use crate::pod::env::EnvError;
use crate::pod::files::NameTooLong;
use crate::volumes::error::VolumeError;
use crate::volumes::objects::NotSynced;

/// Its text is what people see.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The runtime has not done what it was asked for.
    #[error(transparent)]
    Runtime(#[from] CriError),
    /// The API server has not.
    #[error(transparent)]
    Api(#[from] Box<kube::Error>),
    /// The Pod's RuntimeClass is not there.
    #[error(transparent)]
    RuntimeClass(#[from] NoRuntimeClass),
    /// The runtime cannot give users of the Pod's own.
    #[error(transparent)]
    Features(#[from] NoUserNamespaces),
    /// There are no users for the Pod.
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    /// The Pod's cgroup cannot be made.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Claims were not prepared, or not taken back.
    #[error(transparent)]
    Claims(#[from] DraError),
    /// A device plugin does not give what was promised.
    #[error(transparent)]
    Devices(#[from] DevicePluginError),
    /// There is no place for the logs.
    #[error("mkdir {path}: {source}")]
    LogDirectory { path: String, source: std::io::Error },
    /// A container uses more memory than it would be left.
    #[error(
        "cannot decrease memory limits: attempting to set container {name:?} memory limit ({limit}) below current usage \
         ({used})"
    )]
    MemoryInUse { name: String, limit: i64, used: u64 },
    /// Nobody says how much memory a container uses that would be left less.
    #[error("cannot decrease memory limits: missing container {name:?} memory usage")]
    MemoryUnknown { name: String },
    /// A blocking step has panicked, or everything stops.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// Everything stops.
    #[error(transparent)]
    Stopping(#[from] tokio::sync::AcquireError),
    /// A volume, or what a container mounts, is not there or does not go.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The API server does not say what a container is made of.
    #[error(transparent)]
    Objects(#[from] NotSynced),
    /// A variable of a container's environment has no value.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// The kernel does not take the Pod's name.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// A container must not run like that.
    #[error(transparent)]
    Root(#[from] RunsAsRoot),
}
