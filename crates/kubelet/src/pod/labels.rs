//! Names of labels and annotations on sandboxes and containers, as upstream's kubelet sets them.
//!
//! They are how a restarted kubelet, `crictl` and log shippers find out what belongs to what.

/// Label: the Pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: the Pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: the Pod's uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: the container's name in the spec.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotation: of the spec that the container was made from.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Annotation: how often it was restarted before.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: where in the container the termination message is.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: seconds.
pub const POD_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
