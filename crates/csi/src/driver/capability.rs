//! How a volume is to be used, as requests say it.

use super::options::invalid;
use super::volumes::Kind;
use crate::{Result, v1};
use v1::volume_capability::{AccessType, access_mode::Mode};

/// The way of use that the capabilities ask for.
///
/// A volume is on one node, and what is on one node cannot be used from several.
pub(super) fn kind_of(capabilities: &[v1::VolumeCapability]) -> Result<Kind> {
    let mut kinds = Vec::new();
    for capability in capabilities {
        kinds.push(match &capability.access_type {
            Some(AccessType::Mount(mount)) if !matches!(mount.fs_type.as_str(), "" | "ext4" | "xfs") => {
                return invalid(format!("file system type {:?} is not supported", mount.fs_type));
            }
            Some(AccessType::Mount(_)) => Kind::Filesystem,
            Some(AccessType::Block(_)) => Kind::Block,
            None => return invalid("cannot have neither mount nor block access type"),
        });
        let mode =
            capability.access_mode.as_ref().map_or(Mode::Unknown, v1::volume_capability::AccessMode::mode);
        match mode {
            Mode::SingleNodeWriter
            | Mode::SingleNodeReaderOnly
            | Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter => {}
            other => return invalid(format!("access mode {} is not supported", other.as_str_name())),
        }
    }
    match kinds.as_slice() {
        [] => invalid("volume capabilities missing in request"),
        [first, rest @ ..] if rest.iter().all(|kind| kind == first) => Ok(*first),
        _ => invalid("cannot have both mount and block access type"),
    }
}
