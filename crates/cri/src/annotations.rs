//! Annotations by which a kubelet asks for what CRI has no field for. A runtime that does not know them ignores them.
//!
//! Log rotation: a runtime that counts what it writes can rotate by itself, at the moment it is due. Other runtimes
//! are told to open a renamed log anew (`ReopenContainerLog`).

/// The annotation of a container: the size in bytes at which its log file is rotated. Source: the kubelet's
/// `containerLogMaxSize`.
pub const LOG_FILE_BYTES_MAX: &str = "io.knarr.container.logFileBytesMax";
/// The annotation of a container: the number of log files that are kept. Source: the kubelet's `containerLogMaxFiles`.
pub const LOG_FILES_MAX: &str = "io.knarr.container.logFilesMax";

/// The key in the verbose information of an image's status: the progress of its pull, as JSON. Other runtimes do not say.
pub const PULL_PROGRESS: &str = "knarr.io/pull-progress";

/// The name of the runtime that knows these, as its version says it.
pub const RUNTIME_NAME: &str = "knarr";
