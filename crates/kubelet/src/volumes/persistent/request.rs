//! What requests to drivers say of a volume: how it is to be used, and its Secret.

use std::collections::HashMap;

use csi::v1::{self, node_service_capability::rpc};
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Secret, SecretReference};
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};

use super::resolve::{Resolved, said};
use crate::volumes::Volumes;
use crate::volumes::csi::Driver;
use crate::volumes::error::Specific;

/// A Secret that a volume names is not to be had; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "{lead}: kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} with error: {}",
    said(source)
)]
pub(super) struct NoSecret {
    /// What it was for.
    lead: String,
    namespace: String,
    name: String,
    source: Box<kube::Error>,
}

impl Specific for NoSecret {}

/// What a Secret is for: the step, and whether the volume is a device.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Stage { is_device: bool },
    Publish { is_device: bool },
    Expand,
}

impl Purpose {
    /// How the error begins. Source: `csi_attacher.go`, `csi_block.go`, `csi_mounter.go` and `expander.go` of upstream's
    /// `pkg/volume/csi`.
    fn lead(self, namespace: &str, name: &str) -> String {
        let secret = format!("{namespace}/{name}");
        match self {
            Self::Stage { is_device: false } => format!("fetching NodeStageSecretRef {secret} failed"),
            Self::Publish { is_device: false } => format!("fetching NodePublishSecretRef {secret} failed"),
            Self::Stage { is_device: true } => {
                format!("kubernetes.io/csi: failed to get NodeStageSecretRef {secret}")
            }
            Self::Publish { is_device: true } => {
                let what = "blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef";
                format!("kubernetes.io/csi: {what} {secret}")
            }
            Self::Expand => format!("expander.NodeExpand failed to get NodeExpandSecretRef {secret}"),
        }
    }
}

/// How the volume is to be used, for the driver.
pub(super) fn capability(
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
    group: Option<u32>,
    label: Option<String>,
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
    purpose: Purpose,
    secret: Option<&SecretReference>,
) -> Result<HashMap<String, String>, NoSecret> {
    let Some((name, namespace)) = secret.and_then(|s| Some((s.name.as_deref()?, s.namespace.as_deref()?)))
    else {
        return Ok(HashMap::new());
    };
    let found = controller::request::get::<Secret>(&volumes.client, namespace, name).await;
    let found = found.map_err(|source| NoSecret {
        lead: purpose.lead(namespace, name),
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

    /// Source: `TestAttacherMountDevice`, `TestBlockMapperSetupDeviceError` and `TestMounterSetupWithStatusTracking` of
    /// upstream's `pkg/volume/csi`.
    #[test]
    fn who_lacks_a_secret_is_told_what_it_was_for() {
        const STAGE: Purpose = Purpose::Stage { is_device: false };
        const PUBLISH: Purpose = Purpose::Publish { is_device: false };
        for (purpose, expect) in [
            (STAGE, "fetching NodeStageSecretRef d/s failed"),
            (PUBLISH, "fetching NodePublishSecretRef d/s failed"),
            (Purpose::Stage { is_device: true }, "kubernetes.io/csi: failed to get NodeStageSecretRef d/s"),
            (
                Purpose::Publish { is_device: true },
                "kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef d/s",
            ),
            (Purpose::Expand, "expander.NodeExpand failed to get NodeExpandSecretRef d/s"),
        ] {
            let status = kube::core::Status::failure("secrets \"s\" not found", "NotFound").with_code(404);
            let error = NoSecret {
                lead: purpose.lead("d", "s"),
                namespace: "d".into(),
                name: "s".into(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            };
            let rest = "failed to find the secret s in the namespace d with error: secrets \"s\" not found";
            assert_eq!(error.to_string(), format!("{expect}: kubernetes.io/csi: {rest}"));
        }
    }

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
