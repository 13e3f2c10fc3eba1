//! What requests to drivers say of a volume: how it is to be used, and its Secret.

use std::collections::HashMap;

use csi::v1::{self, node_service_capability::rpc};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Secret, SecretReference};
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

use super::resolve::Resolved;
use crate::volumes::Volumes;
use crate::volumes::csi::Driver;
use crate::volumes::error::Specific;

/// A Secret that a volume names is not to be had; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("fetching NodePublishSecretRef {namespace}/{name} failed: kubernetes.io/csi: {source}")]
pub(super) struct NoSecret {
    namespace: String,
    name: String,
    source: Box<kube::Error>,
}

impl Specific for NoSecret {}

/// How the volume is to be used, for the driver.
pub(super) fn capability(
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
    (group, label): (Option<u32>, Option<String>),
) -> v1::VolumeCapability {
    let spec = resolved.volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let mode = spec.and_then(|spec| spec.access_modes.as_ref()?.first()).map(String::as_str);
    let access_type = match resolved.is_device() {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume {
            fs_type: source.fs_type.clone().unwrap_or_default(),
            mount_flags: resolved.mount_options().into_iter().chain(label).collect(),
            volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
        }),
    };
    let mode = access_mode(mode, driver.can(rpc::Type::SingleNodeMultiWriter));
    v1::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// Source: `asCSIAccessModeV1`, `asSingleNodeMultiWriterCapableCSIAccessModeV1`.
pub(crate) fn access_mode(mode: Option<&str>, knows_single_writers: bool) -> Mode {
    match (mode, knows_single_writers) {
        (Some("ReadOnlyMany"), _) => Mode::MultiNodeReaderOnly,
        (Some("ReadWriteMany"), _) => Mode::MultiNodeMultiWriter,
        // Whoever says nothing has it for one node.
        (None | Some("ReadWriteOnce"), true) => Mode::SingleNodeMultiWriter,
        (Some("ReadWriteOncePod"), true) => Mode::SingleNodeSingleWriter,
        _ => Mode::SingleNodeWriter,
    }
}

/// The Secret's texts, if one is named.
pub(super) async fn secrets(
    volumes: &Volumes,
    secret: Option<&SecretReference>,
) -> Result<HashMap<String, String>, NoSecret> {
    let Some((name, namespace)) = secret.and_then(|s| Some((s.name.as_deref()?, s.namespace.as_deref()?)))
    else {
        return Ok(HashMap::new());
    };
    let found = controller::request::get::<Secret>(&volumes.client, namespace, name).await;
    let found = found.map_err(|source| NoSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    let data = found.data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_are_what_the_driver_knows_of() {
        for (mode, knows, expect) in [
            (Some("ReadWriteOnce"), false, Mode::SingleNodeWriter),
            (Some("ReadWriteOnce"), true, Mode::SingleNodeMultiWriter),
            (Some("ReadWriteOncePod"), true, Mode::SingleNodeSingleWriter),
            (Some("ReadOnlyMany"), true, Mode::MultiNodeReaderOnly),
            (Some("ReadWriteMany"), false, Mode::MultiNodeMultiWriter),
            (None, true, Mode::SingleNodeMultiWriter),
            (None, false, Mode::SingleNodeWriter),
        ] {
            assert_eq!(access_mode(mode, knows), expect, "{mode:?}");
        }
    }
}
