//! What a volume holds, as drivers and file systems tell.

/// One volume of one Pod. Amounts that nobody knows are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeStats {
    pub(crate) pod_uid: String,
    /// Its name in the Pod.
    pub(crate) name: String,
    /// The claim's namespace and name; none for an inline volume.
    pub(crate) claim: Option<(String, String)>,
    /// Bytes.
    pub(crate) capacity: Option<u64>,
    pub(crate) available: Option<u64>,
    pub(crate) used: Option<u64>,
    pub(crate) inodes: Option<u64>,
    pub(crate) inodes_free: Option<u64>,
    pub(crate) inodes_used: Option<u64>,
    /// Whether the driver says that something is wrong; none if it does not say.
    pub(crate) is_abnormal: Option<bool>,
}
