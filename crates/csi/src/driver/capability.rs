//! How a volume is to be used, as requests say it.

use super::invalid;
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

#[cfg(test)]
mod tests {
    use super::*;
    use v1::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn mount(fs_type: &str) -> Option<AccessType> {
        Some(AccessType::Mount(MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() }))
    }

    fn block() -> Option<AccessType> {
        Some(AccessType::Block(BlockVolume {}))
    }

    fn with(access_type: Option<AccessType>, mode: Option<Mode>) -> v1::VolumeCapability {
        let access_mode = mode.map(|mode| AccessMode { mode: mode.into() });
        v1::VolumeCapability { access_type, access_mode }
    }

    fn told(capabilities: &[v1::VolumeCapability]) -> std::result::Result<Kind, String> {
        kind_of(capabilities).map_err(|status| {
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            status.message().to_owned()
        })
    }

    /// Source: `VolumeCapability.AccessMode` of the CSI specification, v1.
    #[test]
    fn a_volume_is_used_from_one_node() {
        for (mode, expect) in [
            (Mode::SingleNodeWriter, None),
            (Mode::SingleNodeReaderOnly, None),
            (Mode::SingleNodeSingleWriter, None),
            (Mode::SingleNodeMultiWriter, None),
            (Mode::MultiNodeReaderOnly, Some("access mode MULTI_NODE_READER_ONLY is not supported")),
            (Mode::MultiNodeSingleWriter, Some("access mode MULTI_NODE_SINGLE_WRITER is not supported")),
            (Mode::MultiNodeMultiWriter, Some("access mode MULTI_NODE_MULTI_WRITER is not supported")),
            (Mode::Unknown, Some("access mode UNKNOWN is not supported")),
        ] {
            for (access_type, kind) in [(mount(""), Kind::Filesystem), (block(), Kind::Block)] {
                let found = told(&[with(access_type, Some(mode))]);
                assert_eq!(found, expect.map_or(Ok(kind), |why| Err(why.to_owned())), "{mode:?}");
            }
        }
        let strange =
            v1::VolumeCapability { access_type: block(), access_mode: Some(AccessMode { mode: 99 }) };
        for none in [strange, with(block(), None)] {
            assert_eq!(told(&[none]), Err("access mode UNKNOWN is not supported".to_owned()));
        }
    }

    #[test]
    fn capabilities_agree_on_what_a_volume_is() {
        let writer = |access_type| with(access_type, Some(Mode::SingleNodeWriter));
        for (name, capabilities, expect) in [
            ("none", vec![], Err("volume capabilities missing in request")),
            ("neither", vec![writer(None)], Err("cannot have neither mount nor block access type")),
            (
                "both",
                vec![writer(mount("")), writer(block())],
                Err("cannot have both mount and block access type"),
            ),
            ("twice", vec![writer(mount("")), writer(mount("ext4"))], Ok(Kind::Filesystem)),
            ("blocks", vec![writer(block()), writer(block()), writer(block())], Ok(Kind::Block)),
            ("xfs", vec![writer(mount("xfs"))], Ok(Kind::Filesystem)),
            ("another", vec![writer(mount("btrfs"))], Err("file system type \"btrfs\" is not supported")),
            ("capitals", vec![writer(mount("EXT4"))], Err("file system type \"EXT4\" is not supported")),
            (
                "an option",
                vec![writer(mount("ext4 -F"))],
                Err("file system type \"ext4 -F\" is not supported"),
            ),
            (
                "the second is not supported",
                vec![writer(mount("")), with(mount(""), Some(Mode::MultiNodeMultiWriter))],
                Err("access mode MULTI_NODE_MULTI_WRITER is not supported"),
            ),
        ] {
            assert_eq!(told(&capabilities), expect.map_err(str::to_owned), "{name}");
        }
    }
}
