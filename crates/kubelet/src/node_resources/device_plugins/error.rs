//! Why a device plugin is not taken on, or gives no devices; in upstream's words.

use super::api::VERSION;

/// What went wrong with a device plugin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DevicePluginError {
    /// It registers by another API.
    #[error("requested API version \"{0}\" is not supported by kubelet. Supported version is \"{VERSION}\"")]
    Version(String),
    /// Its socket is in another folder.
    #[error("the endpoint \"{0}\" must be the name of a socket beside the kubelet's")]
    Endpoint(String),
    /// What it offers cannot be asked for.
    #[error("the ResourceName \"{0}\" is invalid")]
    Name(String),
    /// As [`Self::Name`], of a plugin that was found by its socket.
    #[error("invalid name of device plugin socket: {0}")]
    SocketName(#[source] Box<DevicePluginError>),
    /// It was found by its socket, and speaks other versions.
    #[error("manager version, {VERSION}, is not among plugin supported versions [{}]", .0.join(" "))]
    Versions(Vec<String>),
    /// Nobody has as many devices as that.
    #[error("there are too many device plugins")]
    TooMany,
    /// The plugin that has given devices is gone.
    #[error("endpoint not found in cache for a registered resource: {0}")]
    Gone(String),
    /// It answers for no container.
    #[error("no containers in return allocation response {0}")]
    NoAnswer(String),
    /// It does not answer, or refuses.
    #[error("rpc error: code = {:?} desc = {}", .0.code(), .0.message())]
    Call(Box<tonic::Status>),
    /// It says no more of its devices.
    #[error("{}", .0.message())]
    Lost(Box<tonic::Status>),
    /// It has said all of its devices that it will.
    #[error("the stream of its devices has ended")]
    Ended,
}
