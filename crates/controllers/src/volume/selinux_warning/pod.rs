//! Pods as they mount volumes, and under which labels: a part of what the API has of them.
//!
//! Nobody else in this process reads it, so that it is a kind of its own, with an informer that there is where this controller
//! runs, and keeps a line for each volume that matters.

use std::collections::{BTreeMap, BTreeSet};

use controller::pod::Interned;
use k8s_openapi::api::core::v1::{SELinuxOptions, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::label;

/// A Pod of the API, in part.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "ReadPod")]
pub struct MountingPod {
    /// Who it is, and nothing else.
    pub metadata: ObjectMeta,
    /// `true` if its containers have ended for good.
    pub is_finished: bool,
    /// How it wants volumes to get their labels.
    pub change_policy: ChangePolicy,
    /// The volumes that its containers mount and that may be somebody's trouble, by name.
    pub mounts: Box<[Mount]>,
}

controller::part_of!(MountingPod, k8s_openapi::api::core::v1::Pod);

/// How a volume gets a label. Source: `PodSELinuxChangePolicy`, core/v1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangePolicy {
    /// As a whole, when it is mounted.
    #[default]
    MountOption,
    /// File by file.
    Recursive,
}

impl ChangePolicy {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MountOption => "MountOption",
            Self::Recursive => "Recursive",
        }
    }
}

/// A volume that containers mount.
#[derive(Clone, Debug, PartialEq)]
pub struct Mount {
    /// The volume's name in the Pod.
    pub volume: String,
    /// The source of the volume.
    pub source: VolumeSource,
    /// The label that all of these containers have; none if they have different ones.
    pub label: Option<Interned<str>>,
}

/// The source of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// A claim of this name.
    Claim(String),
    /// A claim of this name, which is made for this very Pod.
    OwnClaim(String),
    /// A disk that the Pod names itself.
    Inline(Box<Volume>),
    /// Something that no other Pod can have.
    Other,
}

#[derive(Deserialize)]
struct ReadPod {
    metadata: Option<ObjectMeta>,
    spec: Option<ReadSpec>,
    status: Option<ReadStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadSpec {
    containers: Option<Vec<ReadContainer>>,
    ephemeral_containers: Option<Vec<ReadContainer>>,
    init_containers: Option<Vec<ReadContainer>>,
    security_context: Option<ReadContext>,
    volumes: Option<Vec<Volume>>,
}

#[derive(Deserialize)]
struct ReadStatus {
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadContainer {
    security_context: Option<ReadContext>,
    volume_mounts: Option<Vec<ReadMount>>,
}

/// Of a Pod or a container.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadContext {
    se_linux_change_policy: Option<String>,
    se_linux_options: Option<SELinuxOptions>,
}

#[derive(Deserialize)]
struct ReadMount {
    name: Option<String>,
}

impl From<ReadPod> for MountingPod {
    fn from(read: ReadPod) -> Self {
        let whole = read.metadata.unwrap_or_default();
        let metadata = ObjectMeta {
            name: whole.name,
            namespace: whole.namespace,
            uid: whole.uid,
            resource_version: whole.resource_version,
            ..ObjectMeta::default()
        };
        let phase = read.status.and_then(|status| status.phase);
        let spec = read.spec.unwrap_or_default();
        let policy = spec.security_context.as_ref().and_then(|own| own.se_linux_change_policy.as_deref());
        let change_policy = match policy {
            Some("Recursive") => ChangePolicy::Recursive,
            _ => ChangePolicy::MountOption,
        };
        let mounts = mounts(metadata.name.as_deref().unwrap_or_default(), spec);
        let is_finished = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
        Self { metadata, is_finished, change_policy, mounts }
    }
}

/// The volumes that containers mount, in the order of their names. Those that they have as devices have no files. Source:
/// `GetPodVolumeNames`, `pkg/volume/util`.
fn mounts(pod: &str, spec: ReadSpec) -> Box<[Mount]> {
    let labels = labels(&spec);
    let mut volumes: BTreeMap<String, Volume> =
        spec.volumes.into_iter().flatten().map(|volume| (volume.name.clone(), volume)).collect();
    let mount = |(volume, labels): (String, BTreeSet<String>)| {
        let source = source(pod, volumes.remove(&volume));
        let mut labels = labels.into_iter();
        let label = match (labels.next(), labels.next()) {
            (Some(_), Some(_)) => None,
            (one, _) => Some(Interned::of(one.unwrap_or_default())),
        };
        Mount { volume, source, label }
    };
    // What is nobody else's is of no interest while its containers agree.
    let matters = |mount: &Mount| mount.source != VolumeSource::Other || mount.label.is_none();
    labels.into_iter().map(mount).filter(matters).collect()
}

/// The labels of those who mount a volume, by its name. A container has its own or the Pod's; whoever asks for none has
/// whatever the others have. That a container is privileged is nothing that is looked at, there as little as here.
fn labels(spec: &ReadSpec) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels = BTreeMap::<String, BTreeSet<String>>::new();
    let of_pod = spec.security_context.as_ref();
    for container in [&spec.init_containers, &spec.containers, &spec.ephemeral_containers]
        .into_iter()
        .flat_map(|all| all.iter().flatten())
    {
        let contexts = [container.security_context.as_ref(), of_pod];
        let options = contexts.into_iter().flatten().find_map(|context| context.se_linux_options.as_ref());
        let mounted = container.volume_mounts.iter().flatten().filter_map(|mount| mount.name.clone());
        for volume in mounted {
            labels.entry(volume).or_default().extend(options.map(label::of));
        }
    }
    labels
}

/// A volume of which nothing is known has been left out by the informer's transform: it is nobody else's.
fn source(pod: &str, volume: Option<Volume>) -> VolumeSource {
    let Some(volume) = volume else { return VolumeSource::Other };
    if let Some(claim) = volume.persistent_volume_claim {
        return VolumeSource::Claim(claim.claim_name);
    }
    if volume.ephemeral.is_some() {
        return VolumeSource::OwnClaim(format!("{pod}-{}", volume.name));
    }
    let is_disk = volume.iscsi.is_some() || volume.fc.is_some();
    if is_disk || controller::volume::migration::is_migrated(&volume) {
        return VolumeSource::Inline(Box::new(volume));
    }
    VolumeSource::Other
}
