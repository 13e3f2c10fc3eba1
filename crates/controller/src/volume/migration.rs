//! Kinds of volumes that CSI drivers have taken over: what the driver is asked for instead.
//!
//! Objects keep the old kind; whoever acts on one (scheduler, attacher, kubelet) looks at its translation, which is never
//! written. Pure. Source: `csi-translation-lib` of v1.35; KEP-625.

mod sources;
mod topology;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use topology::Topology;

/// On a claim or a volume with the old provisioner's name: the driver that has taken it over.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a CSINode: the old plugins whose volumes its kubelet leaves to drivers, with commas between.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// One kind that a driver has taken over.
struct Kind {
    /// What the plugin was called, which is also the old provisioner's name.
    plugin: &'static str,
    driver: &'static str,
    topology: Topology,
    /// The driver's part of a PersistentVolume; none if it is of another kind.
    persistent: fn(&PersistentVolume) -> Option<Translated>,
    /// A Pod's own volume in the namespace; none if it is of another kind.
    inline: fn(&Volume, &str) -> Option<Result<Inline, Malformed>>,
}

type Translated = Result<CSIPersistentVolumeSource, Malformed>;

/// The reason why a volume cannot be translated for its driver, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to translate in-tree pv to CSI: {0}")]
pub struct TranslationError(Malformed);

/// A field has not the form that it should have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Malformed {
    #[error("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({0})")]
    AwsVolume(String),
    #[error("kind({0}) is not supported in csi migration")]
    AzureKind(String),
    #[error("could not find a secret namespace in PersistentVolumeSource or ClaimRef")]
    NoSecretNamespace,
    #[error(
        "failed to get region from zones: zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {0}"
    )]
    GceZone(String),
    #[error("failed to get region from zones: multiple or no regions gotten from zones, got: {0:?}")]
    GceRegions(BTreeSet<String>),
}

/// A Pod's own volume.
struct Inline {
    /// The translation's name: one for each disk, as staging paths are.
    name: String,
    access_mode: &'static str,
    source: CSIPersistentVolumeSource,
}

/// In the order of the plugins' names.
const KINDS: [Kind; 7] = [
    Kind {
        plugin: "kubernetes.io/aws-ebs",
        driver: sources::AWS,
        topology: Topology::Zone("topology.ebs.csi.aws.com/zone"),
        persistent: |volume| Some(sources::aws(volume.spec.as_ref()?.aws_elastic_block_store.as_ref()?)),
        inline: |volume, _| Some(sources::aws(volume.aws_elastic_block_store.as_ref()?).map(Inline::disk)),
    },
    Kind {
        plugin: "kubernetes.io/azure-disk",
        driver: sources::AZURE_DISK,
        topology: Topology::AsItIs,
        persistent: |volume| Some(sources::azure_disk(volume.spec.as_ref()?.azure_disk.as_ref()?)),
        inline: |volume, _| Some(sources::azure_disk(volume.azure_disk.as_ref()?).map(Inline::by_handle)),
    },
    Kind {
        plugin: "kubernetes.io/azure-file",
        driver: sources::AZURE_FILE,
        topology: Topology::AsItIs,
        persistent: |volume| Some(sources::azure_file(volume, volume.spec.as_ref()?.azure_file.as_ref()?)),
        inline: |volume, namespace| {
            let source = sources::inline_azure_file(volume, volume.azure_file.as_ref()?, namespace);
            Some(Ok(Inline { access_mode: "ReadWriteMany", ..Inline::by_handle(source) }))
        },
    },
    Kind {
        plugin: "kubernetes.io/cinder",
        driver: sources::CINDER,
        topology: Topology::Zone("topology.cinder.csi.openstack.org/zone"),
        persistent: |volume| {
            let source = volume.spec.as_ref()?.cinder.as_ref()?;
            Some(Ok(sources::cinder(&source.volume_id, source.fs_type.as_ref(), source.read_only)))
        },
        inline: |volume, _| {
            let source = volume.cinder.as_ref()?;
            let source = sources::cinder(&source.volume_id, source.fs_type.as_ref(), source.read_only);
            Some(Ok(Inline::disk(source)))
        },
    },
    Kind {
        plugin: "kubernetes.io/gce-pd",
        driver: sources::GCE,
        topology: Topology::Zone("topology.gke.io/zone"),
        persistent: |volume| Some(sources::gce(volume, volume.spec.as_ref()?.gce_persistent_disk.as_ref()?)),
        inline: |volume, _| Some(Ok(sources::inline_gce(volume.gce_persistent_disk.as_ref()?))),
    },
    Kind {
        plugin: "kubernetes.io/portworx-volume",
        driver: sources::PORTWORX,
        topology: Topology::AsItIs,
        persistent: |volume| {
            let source = volume.spec.as_ref()?.portworx_volume.as_ref()?;
            Some(Ok(sources::portworx(source, sources::portworx_secret(&volume.metadata))))
        },
        inline: |volume, _| {
            let source = volume.portworx_volume.as_ref()?;
            let inline = Inline::disk(sources::portworx(source, None));
            Some(Ok(Inline { access_mode: sources::one_or_readers(source.read_only), ..inline }))
        },
    },
    Kind {
        plugin: "kubernetes.io/vsphere-volume",
        driver: sources::VSPHERE,
        topology: Topology::ZoneAndRegion("topology.csi.vmware.com/zone", "topology.csi.vmware.com/region"),
        persistent: |volume| Some(Ok(sources::vsphere(volume.spec.as_ref()?.vsphere_volume.as_ref()?))),
        inline: |volume, _| Some(Ok(Inline::disk(sources::vsphere(volume.vsphere_volume.as_ref()?)))),
    },
];

impl Inline {
    /// A disk for one node, named after driver and handle.
    fn disk(source: CSIPersistentVolumeSource) -> Self {
        let name = format!("{}-{}", source.driver, source.volume_handle);
        Self { name, ..Self::by_handle(source) }
    }

    /// A disk for one node, named after its handle.
    fn by_handle(source: CSIPersistentVolumeSource) -> Self {
        Self { name: source.volume_handle.clone(), access_mode: "ReadWriteOnce", source }
    }
}

/// The driver that does what an old plugin did, by the plugin's or provisioner's name.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| kind.plugin == plugin).map(|kind| kind.driver)
}

/// The annotation of a kubelet's CSINode: every plugin whose volumes it leaves to drivers.
pub fn plugins() -> String {
    KINDS.map(|kind| kind.plugin).join(",")
}

/// The old plugin of a PersistentVolume; none if its kind is not one that drivers have taken over.
pub fn plugin_of(volume: &PersistentVolume) -> Option<&'static str> {
    KINDS.iter().find(|kind| (kind.persistent)(volume).is_some()).map(|kind| kind.plugin)
}

/// `true` if a Pod's own volume is of a kind that a driver has taken over.
pub fn is_migrated(volume: &Volume) -> bool {
    KINDS.iter().any(|kind| (kind.inline)(volume, "").is_some())
}

/// The PersistentVolume as its driver has it; none if its kind is not one that drivers have taken over.
///
/// # Errors
/// Its fields have not the form that they should have.
pub fn persistent(volume: &PersistentVolume) -> Option<Result<PersistentVolume, TranslationError>> {
    let (kind, translated) =
        KINDS.iter().find_map(|kind| (kind.persistent)(volume).map(|source| (kind, source)))?;
    Some(translated.map_err(TranslationError).map(|source| {
        let mut new = volume.clone();
        kind.topology.translate(&mut new);
        let spec = new.spec.take().unwrap_or_default();
        let access_modes = match kind.driver {
            sources::GCE => spec.access_modes.map(|modes| sources::gce_access_modes(&modes)),
            _ => spec.access_modes,
        };
        new.spec = Some(PersistentVolumeSpec {
            access_modes,
            csi: Some(source),
            aws_elastic_block_store: None,
            azure_disk: None,
            azure_file: None,
            cinder: None,
            gce_persistent_disk: None,
            portworx_volume: None,
            vsphere_volume: None,
            ..spec
        });
        new
    }))
}

/// The PersistentVolume that a Pod's own volume in the namespace is for its driver, which nobody has made; none if its kind
/// is not one that drivers have taken over.
///
/// # Errors
/// Its fields have not the form that they should have.
pub fn inline(volume: &Volume, namespace: &str) -> Option<Result<PersistentVolume, TranslationError>> {
    let translated = KINDS.iter().find_map(|kind| (kind.inline)(volume, namespace))?;
    Some(translated.map_err(TranslationError).map(|inline| PersistentVolume {
        metadata: ObjectMeta { name: Some(inline.name), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec![inline.access_mode.to_owned()]),
            volume_mode: Some("Filesystem".to_owned()),
            csi: Some(inline.source),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }))
}

/// The volume as its driver knows it: itself, if it is not of a kind that drivers have taken over, or cannot be translated.
pub fn translated(volume: &Arc<PersistentVolume>) -> Arc<PersistentVolume> {
    match persistent(volume) {
        Some(Ok(new)) => Arc::new(new),
        Some(Err(_)) | None => volume.clone(),
    }
}

#[cfg(test)]
mod tests;
