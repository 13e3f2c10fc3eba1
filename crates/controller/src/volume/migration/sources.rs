//! Each old kind's fields as its driver reads them: handle, attributes, Secrets.
//!
//! Source: `plugins/*.go` of `csi-translation-lib`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFilePersistentVolumeSource,
    AzureFileVolumeSource, CSIPersistentVolumeSource, GCEPersistentDiskVolumeSource, PersistentVolume,
    PortworxVolumeSource, SecretReference, Volume, VsphereVirtualDiskVolumeSource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::topology::zones;
use super::{Inline, Malformed, Translated};
use crate::volume::{annotation, claim_ref};

pub(super) const AWS: &str = "ebs.csi.aws.com";
pub(super) const AZURE_DISK: &str = "disk.csi.azure.com";
pub(super) const AZURE_FILE: &str = "file.csi.azure.com";
pub(super) const CINDER: &str = "cinder.csi.openstack.org";
pub(super) const GCE: &str = "pd.csi.storage.gke.io";
pub(super) const PORTWORX: &str = "pxd.portworx.com";
pub(super) const VSPHERE: &str = "csi.vsphere.vmware.com";

/// Where Google's driver is to find out project and zone by itself.
const UNSPECIFIED: &str = "UNSPECIFIED";
/// On a volume: the Azure resource group of its share.
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
/// On a volume: the Secret that Portworx asks for.
const PORTWORX_SECRET: [&str; 2] =
    ["openstorage.io/auth-secret-name", "openstorage.io/auth-secret-namespace"];

fn attributes<const N: usize>(all: [(&str, &str); N]) -> Option<BTreeMap<String, String>> {
    Some(all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// How a disk is used that several nodes may only read.
pub(super) fn one_or_readers(read_only: Option<bool>) -> &'static str {
    if read_only == Some(true) { "ReadOnlyMany" } else { "ReadWriteOnce" }
}

pub(super) fn aws(source: &AWSElasticBlockStoreVolumeSource) -> Translated {
    Ok(CSIPersistentVolumeSource {
        driver: AWS.to_owned(),
        volume_handle: aws_volume(&source.volume_id)?,
        fs_type: source.fs_type.clone(),
        read_only: source.read_only,
        volume_attributes: attributes([("partition", &source.partition.unwrap_or(0).to_string())]),
        ..CSIPersistentVolumeSource::default()
    })
}

/// The id in `aws://<zone>/<id>`; anything else is an id itself.
fn aws_volume(text: &str) -> Result<String, Malformed> {
    let Some(place) = text.strip_prefix("aws://") else { return Ok(text.to_owned()) };
    let path = place.split(['?', '#']).next().and_then(|place| place.split_once('/')).unwrap_or_default().1;
    let id = path.trim_matches('/');
    if id.starts_with("vol-") && !id.contains('/') {
        return Ok(id.to_owned());
    }
    Err(Malformed::AwsVolume(text.to_owned()))
}

pub(super) fn azure_disk(source: &AzureDiskVolumeSource) -> Translated {
    if let Some(kind) = source.kind.as_deref().filter(|kind| !kind.eq_ignore_ascii_case("Managed")) {
        return Err(Malformed::AzureKind(kind.to_owned()));
    }
    let mut attributes = attributes([("kind", "Managed")]).unwrap_or_default();
    let more = [("cachingmode", &source.caching_mode), ("fstype", &source.fs_type)];
    attributes.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))));
    Ok(CSIPersistentVolumeSource {
        driver: AZURE_DISK.to_owned(),
        volume_handle: source.disk_uri.clone(),
        fs_type: source.fs_type.clone(),
        read_only: source.read_only,
        volume_attributes: Some(attributes),
        ..CSIPersistentVolumeSource::default()
    })
}

pub(super) fn azure_file(volume: &PersistentVolume, source: &AzureFilePersistentVolumeSource) -> Translated {
    let of_claim = || claim_ref(volume)?.namespace.as_deref();
    let namespace = source.secret_namespace.as_deref().or_else(of_claim).unwrap_or_default();
    if namespace.is_empty() {
        return Err(Malformed::NoSecretNamespace);
    }
    let group = annotation(&volume.metadata, RESOURCE_GROUP).unwrap_or_default();
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let share = AzureShare {
        resource_group: group,
        volume: name,
        share: &source.share_name,
        read_only: source.read_only,
        secret: &source.secret_name,
        secret_namespace: namespace,
    };
    Ok(share.translated())
}

pub(super) fn inline_azure_file(
    volume: &Volume,
    source: &AzureFileVolumeSource,
    namespace: &str,
) -> CSIPersistentVolumeSource {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let share = AzureShare {
        resource_group: "",
        volume: &volume.name,
        share: &source.share_name,
        read_only: source.read_only,
        secret: &source.secret_name,
        secret_namespace: namespace,
    };
    share.translated()
}

/// A share of Azure Files, and the Secret with which it is reached.
struct AzureShare<'a> {
    resource_group: &'a str,
    /// The volume's name.
    volume: &'a str,
    share: &'a str,
    read_only: Option<bool>,
    secret: &'a str,
    secret_namespace: &'a str,
}

impl AzureShare<'_> {
    fn translated(&self) -> CSIPersistentVolumeSource {
        let Self { resource_group, volume, share, read_only, secret, secret_namespace } = *self;
        let within =
            secret.split_once("azure-storage-account-").and_then(|(_, rest)| rest.rsplit_once("-secret"));
        let account =
            within.map(|(account, _)| account).filter(|account| !account.is_empty()).unwrap_or(secret);
        CSIPersistentVolumeSource {
            driver: AZURE_FILE.to_owned(),
            volume_handle: format!("{resource_group}#{account}#{share}#{volume}#{secret_namespace}"),
            read_only,
            volume_attributes: attributes([("sharename", share)]),
            node_stage_secret_ref: Some(SecretReference {
                name: Some(secret.to_owned()),
                namespace: Some(secret_namespace.to_owned()),
            }),
            ..CSIPersistentVolumeSource::default()
        }
    }
}

pub(super) fn cinder(
    id: &str,
    fs_type: Option<&String>,
    read_only: Option<bool>,
) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: CINDER.to_owned(),
        volume_handle: id.to_owned(),
        fs_type: fs_type.cloned(),
        read_only,
        ..CSIPersistentVolumeSource::default()
    }
}

pub(super) fn gce(volume: &PersistentVolume, source: &GCEPersistentDiskVolumeSource) -> Translated {
    let place = match zones(volume).as_slice() {
        [] => format!("zones/{UNSPECIFIED}"),
        [zone] => format!("zones/{zone}"),
        several => format!("regions/{}", gce_region(several)?),
    };
    Ok(gce_disk(source, &place))
}

pub(super) fn inline_gce(source: &GCEPersistentDiskVolumeSource) -> Inline {
    Inline {
        name: format!("{GCE}-{}", source.pd_name),
        access_mode: one_or_readers(source.read_only),
        source: gce_disk(source, &format!("zones/{UNSPECIFIED}")),
    }
}

fn gce_disk(source: &GCEPersistentDiskVolumeSource, place: &str) -> CSIPersistentVolumeSource {
    let partition = source.partition.filter(|partition| *partition != 0);
    let partition = partition.map(|partition| partition.to_string()).unwrap_or_default();
    CSIPersistentVolumeSource {
        driver: GCE.to_owned(),
        volume_handle: format!("projects/{UNSPECIFIED}/{place}/disks/{}", source.pd_name),
        fs_type: source.fs_type.clone(),
        read_only: source.read_only,
        volume_attributes: attributes([("partition", &partition)]),
        ..CSIPersistentVolumeSource::default()
    }
}

/// The region that zones such as `europe-west1-b` are in.
fn gce_region(zones: &[&str]) -> Result<String, Malformed> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [place, region, _] = parts.as_slice() else {
            return Err(Malformed::GceZone((*zone).to_owned()));
        };
        regions.insert(format!("{place}-{region}"));
    }
    match regions.len() {
        1 => Ok(regions.into_iter().collect()),
        _ => Err(Malformed::GceRegions(regions)),
    }
}

/// The old kind took any access mode for that of one node, unless it was for readers alone.
pub(super) fn gce_access_modes(modes: &[String]) -> Vec<String> {
    let is_for_readers = modes.iter().all(|mode| mode == "ReadOnlyMany") && !modes.is_empty();
    vec![one_or_readers(Some(is_for_readers)).to_owned()]
}

pub(super) fn portworx_secret(meta: &ObjectMeta) -> Option<SecretReference> {
    let [name, namespace] = PORTWORX_SECRET.map(|key| annotation(meta, key).map(str::to_owned));
    Some(SecretReference { name: Some(name?), namespace: Some(namespace?) })
}

/// The driver is not told that a volume is for readers; the kubelet is, where a Pod says so.
pub(super) fn portworx(
    source: &PortworxVolumeSource,
    secret: Option<SecretReference>,
) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: PORTWORX.to_owned(),
        volume_handle: source.volume_id.clone(),
        fs_type: source.fs_type.clone(),
        controller_publish_secret_ref: secret.clone(),
        node_stage_secret_ref: secret.clone(),
        node_publish_secret_ref: secret.clone(),
        controller_expand_secret_ref: secret.clone(),
        node_expand_secret_ref: secret,
        ..CSIPersistentVolumeSource::default()
    }
}

pub(super) fn vsphere(source: &VsphereVirtualDiskVolumeSource) -> CSIPersistentVolumeSource {
    let policy = source.storage_policy_name.as_deref().filter(|policy| !policy.is_empty());
    CSIPersistentVolumeSource {
        driver: VSPHERE.to_owned(),
        volume_handle: source.volume_path.clone(),
        fs_type: source.fs_type.clone(),
        volume_attributes: policy.and_then(|policy| attributes([("storagepolicyname", policy)])),
        ..CSIPersistentVolumeSource::default()
    }
}
