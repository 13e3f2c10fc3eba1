//! The SELinux warning controller: tells of Pods that use one volume under different SELinux labels, or that want it to get its
//! label in different ways. Of two such Pods on one Node only one can have it. Runs where somebody names it.
//!
//! Nothing but events is written. Where Pods run, and whether they do, is not looked at. The volumes that count are those that
//! can be mounted under a label: of drivers whose CSIDriver says `seLinuxMount`, iSCSI and Fibre Channel, by claims, by claims
//! of a Pod's own, or as disks that Pods name themselves. All others get their labels file by file, whatever Pods ask for, so
//! that nobody is in anybody's way; and a CSI volume that a Pod names itself is that Pod's own.
//! Source: `pkg/controller/volume/selinuxwarning`, `GetMountSELinuxLabel` in `pkg/volume/util`; KEP-1710.

mod cache;
mod label;
mod pod;

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::counter::Labels;
use controller::metadata::{key, name, namespace, uid};
use controller::pod::Interned;
use controller::resource_ref::split_key;
use controller::volume::{claim_ref, csi, is_claim_of_pod, iscsi_name, migration, unique_name, volume_name};
use controller::{Action, Change, Controller, EventType, Informer, Informers, Plan, Source};
use k8s_openapi::api::core::v1::{FCVolumeSource, PersistentVolume, PersistentVolumeClaim, Volume};
use k8s_openapi::api::storage::v1::CSIDriver;
use parking_lot::Mutex;

pub use cache::{Conflict, Property, Usage, VolumeCache};
pub use pod::{ChangePolicy, Mount, MountingPod, VolumeSource};

/// The controller's row. Keys are Pods.
pub const CONTROLLER: Controller = Controller {
    name: "selinux-warning-controller",
    queue: "selinux_warning",
    sources: |_| {
        vec![
            Source::of::<MountingPod>(pod_that_mounts),
            Source::of::<PersistentVolumeClaim>(pods_of_claim),
            Source::of::<PersistentVolume>(pods_of_volume),
            Source::of::<CSIDriver>(pods_of_driver),
        ]
    },
    reconcile: |informers, key, _| {
        let (memory, pods) = (Memory::of(informers), informers.informer::<MountingPod>());
        // What there is is looked at with the cache in hand: a change of a driver that comes later finds the Pod in it.
        let mut cache = memory.0.lock();
        match pods.get(key).filter(|pod| !pod.is_finished) {
            Some(pod) => plan(&snapshot(informers, pod), &mut cache, &pods),
            None => {
                cache.remove_pod(key);
                Plan::nothing()
            }
        }
    },
};

/// The volumes that Pods use, as far as was seen.
#[derive(Default)]
struct Memory(Mutex<VolumeCache>);

impl Memory {
    fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }
}

/// The input of a decision about one Pod.
pub struct Snapshot {
    /// The Pod, which is not finished.
    pub pod: Arc<MountingPod>,
    /// The claims that its volumes name, by name.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// The volumes that these claims name, by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// The drivers whose volumes can be mounted under a label.
    pub drivers: Vec<String>,
}

fn snapshot(informers: &Informers, pod: Arc<MountingPod>) -> Snapshot {
    let informer = informers.informer::<PersistentVolumeClaim>();
    let found = |claim: &str| informer.get(&format!("{}/{claim}", namespace(&pod.metadata)));
    let named = pod.mounts.iter().filter_map(|mount| claim_of(mount));
    let claims: BTreeMap<_, _> =
        named.filter_map(|claim| found(claim).map(|found| (claim.to_owned(), found))).collect();
    let informer = informers.informer::<PersistentVolume>();
    let volumes = claims.values().filter_map(|claim| {
        let name = volume_name(claim);
        informer.get(name).map(|found| (name.to_owned(), found))
    });
    let volumes = volumes.collect();
    let drivers = informers.informer::<CSIDriver>().list();
    let drivers = drivers.iter().filter(|driver| takes_labels(driver));
    let drivers = drivers.map(|driver| name(&driver.metadata).to_owned()).collect();
    Snapshot { pod, claims, volumes, drivers }
}

fn claim_of(mount: &Mount) -> Option<&str> {
    match &mount.source {
        VolumeSource::Claim(claim) | VolumeSource::OwnClaim(claim) => Some(claim),
        VolumeSource::Inline(_) | VolumeSource::Other => None,
    }
}

fn takes_labels(driver: &CSIDriver) -> bool {
    driver.spec.se_linux_mount == Some(true)
}

/// Notes what the Pod uses, and decides whom to tell of what: each conflict once, when it is news. One of `pods` that is gone
/// is in nobody's way any more.
pub fn plan(snapshot: &Snapshot, cache: &mut VolumeCache, pods: &Informer<MountingPod>) -> Plan {
    let pod = &snapshot.pod;
    let pod_key = key(&pod.metadata);
    cache.begin(&pod_key, uid(&pod.metadata));
    let mut plan = Plan::nothing();
    for mount in &pod.mounts {
        let disk = match disk(snapshot, mount) {
            Found::NotYet => continue,
            Found::Disk(disk) => Some(disk),
            Found::Unshared => None,
        };
        let Some(label) = &mount.label else {
            let message = format!(
                "Volume \"{}\" is mounted twice with different SELinux labels inside this pod",
                mount.volume
            );
            plan.push(Action::event(&**pod, EventType::Warning, "MultipleSELinuxLabels", message));
            continue;
        };
        let Some(disk) = disk else { continue };
        let usage = usage(pod.change_policy, label, disk.labelling);
        let conflicts = cache.add(&disk.unique_name, &disk.driver, &pod_key, usage);
        plan.push_step(conflicts.iter().filter_map(|conflict| tell(conflict, pods)).collect());
    }
    plan
}

/// The event about a conflict.
fn tell(conflict: &Conflict, pods: &Informer<MountingPod>) -> Option<Action> {
    let pod = pods.get(&conflict.pod)?;
    Some(Action::event(&*pod, EventType::Normal, conflict.property.reason(), conflict.message()))
}

/// A volume as all Pods that use it name it.
#[derive(Debug, PartialEq, Eq)]
struct Disk {
    unique_name: String,
    /// Empty if it has none.
    driver: String,
    labelling: Labelling,
}

/// Whether a volume can be mounted under a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labelling {
    Mounts,
    Files,
}

/// What is behind a Pod's volume.
enum Found {
    /// A claim that has no volume yet, or is another Pod's.
    NotYet,
    /// Nothing over which two Pods can get into each other's way.
    Unshared,
    Disk(Disk),
}

fn disk(snapshot: &Snapshot, mount: &Mount) -> Found {
    let found = match &mount.source {
        VolumeSource::Other => None,
        VolumeSource::Inline(volume) => inline(volume, snapshot),
        VolumeSource::Claim(claim) | VolumeSource::OwnClaim(claim) => {
            let is_own = matches!(mount.source, VolumeSource::OwnClaim(_));
            let claim = snapshot.claims.get(claim).filter(|claim| is_bound(claim));
            let claim = claim.filter(|claim| !is_own || is_claim_of_pod(claim, &*snapshot.pod));
            let volume = claim.and_then(|claim| bound_to(claim, snapshot));
            let Some(volume) = volume else { return Found::NotYet };
            persistent(&migration::translated(volume), snapshot)
        }
    };
    found.map_or(Found::Unshared, Found::Disk)
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Bound") && !volume_name(claim).is_empty()
}

/// The claim's volume, if that says so, too.
fn bound_to<'a>(claim: &PersistentVolumeClaim, snapshot: &'a Snapshot) -> Option<&'a Arc<PersistentVolume>> {
    let volume = snapshot.volumes.get(volume_name(claim))?;
    (claim_uid(volume) == Some(uid(&claim.metadata))).then_some(volume)
}

/// The uid of the claim that the volume is bound to.
fn claim_uid(volume: &PersistentVolume) -> Option<&str> {
    claim_ref(volume)?.uid.as_deref().filter(|uid| !uid.is_empty())
}

fn persistent(volume: &PersistentVolume, snapshot: &Snapshot) -> Option<Disk> {
    if let Some(source) = csi(volume) {
        let takes_labels = snapshot.drivers.contains(&source.driver);
        let labelling = if takes_labels { Labelling::Mounts } else { Labelling::Files };
        return Some(Disk { unique_name: unique_name(source), driver: source.driver.clone(), labelling });
    }
    let spec = volume.spec.as_ref()?;
    let of_iscsi = spec.iscsi.as_ref();
    let of_iscsi = of_iscsi.map(|source| iscsi_name(&source.target_portal, &source.iqn, source.lun));
    of_iscsi.or_else(|| fc_name(spec.fc.as_ref()?)).map(without_driver)
}

fn inline(volume: &Volume, snapshot: &Snapshot) -> Option<Disk> {
    if let Some(translated) = migration::inline(volume, namespace(&snapshot.pod.metadata)) {
        return persistent(&translated.ok()?, snapshot);
    }
    let of_iscsi = volume.iscsi.as_ref();
    let of_iscsi = of_iscsi.map(|source| iscsi_name(&source.target_portal, &source.iqn, source.lun));
    of_iscsi.or_else(|| fc_name(volume.fc.as_ref()?)).map(without_driver)
}

fn without_driver(unique_name: String) -> Disk {
    Disk { unique_name, driver: String::new(), labelling: Labelling::Mounts }
}

/// A Fibre Channel disk by its targets and number, or by its identifiers. Source: `GetVolumeName`, `pkg/volume/fc`.
fn fc_name(source: &FCVolumeSource) -> Option<String> {
    let named =
        |names: &Option<Vec<String>>| names.as_ref().filter(|all| !all.is_empty()).map(|all| all.join(" "));
    let by_target = named(&source.target_wwns).zip(source.lun);
    let by_target = by_target.map(|(targets, lun)| format!("kubernetes.io/fc/[{targets}]:{lun}"));
    by_target.or_else(|| Some(format!("kubernetes.io/fc/[{}]", named(&source.wwids)?)))
}

/// How a Pod uses a volume that its containers mount under this label: what is not mounted under one gets it file by file.
fn usage(wanted: ChangePolicy, label: &Interned<str>, labelling: Labelling) -> Usage {
    if wanted == ChangePolicy::Recursive || labelling == Labelling::Files || label.is_empty() {
        return Usage { label: Interned::default(), change_policy: ChangePolicy::Recursive };
    }
    Usage { label: label.clone(), change_policy: wanted }
}

/// Every conflict, for a gauge.
pub(crate) fn conflicts(informers: &Informers) -> Vec<(Labels, f64)> {
    let all = Memory::of(informers).0.lock().conflicts();
    let labels = |conflict: Conflict| {
        let [one, other] = [&conflict.pod, &conflict.other_pod].map(|pod| split_key(pod));
        vec![
            ("property", conflict.property.name().to_owned()),
            ("pod1_namespace", one.0.to_owned()),
            ("pod1_name", one.1.to_owned()),
            ("pod1_value", conflict.value.clone()),
            ("pod2_namespace", other.0.to_owned()),
            ("pod2_name", other.1.to_owned()),
            ("pod2_value", conflict.other_value.clone()),
        ]
    };
    all.into_iter().map(|conflict| (labels(conflict), 1.0)).collect()
}

fn pod_that_mounts(change: &Change<MountingPod>, _: &Informers) -> Vec<String> {
    if is_news(change) { vec![change.key.to_string()] } else { Vec::new() }
}

/// Whether what counts of a Pod has changed: it came, went or ended, or mounts more.
fn is_news(change: &Change<MountingPod>) -> bool {
    let [old, new] = [&change.old, &change.new].map(|pod| {
        let pod = pod.as_deref().filter(|pod| !pod.is_finished && !pod.mounts.is_empty())?;
        Some((uid(&pod.metadata), pod.change_policy, &pod.mounts))
    });
    old != new
}

fn pods_of_claim(change: &Change<PersistentVolumeClaim>, informers: &Informers) -> Vec<String> {
    if is_newly_bound(change) { pods_with(&change.key, informers) } else { Vec::new() }
}

fn is_newly_bound(change: &Change<PersistentVolumeClaim>) -> bool {
    let [old, new] = [&change.old, &change.new].map(|claim| {
        let claim = claim.as_deref().filter(|claim| is_bound(claim))?;
        Some((uid(&claim.metadata), volume_name(claim)))
    });
    new.is_some() && new != old
}

fn pods_of_volume(change: &Change<PersistentVolume>, informers: &Informers) -> Vec<String> {
    newly_bound_to(change).map_or_else(Vec::new, |claim| pods_with(&claim, informers))
}

/// The key of the claim that a volume has been bound to.
fn newly_bound_to(change: &Change<PersistentVolume>) -> Option<String> {
    let [old, new] = [&change.old, &change.new].map(|volume| volume.as_deref().and_then(claim_uid));
    let claim = change.new.as_deref().and_then(super::claim_key);
    claim.filter(|_| new.is_some() && new != old)
}

/// The Pods that use a claim.
fn pods_with(claim: &str, informers: &Informers) -> Vec<String> {
    let (place, claim) = split_key(claim);
    let pods = informers.informer::<MountingPod>().in_namespace(place);
    let has = |pod: &&Arc<MountingPod>| pod.mounts.iter().any(|mount| claim_of(mount) == Some(claim));
    pods.iter().filter(has).map(|pod| key(&pod.metadata)).collect()
}

/// The Pods that use volumes of a driver of which it is news whether it can mount them under a label.
fn pods_of_driver(change: &Change<CSIDriver>, informers: &Informers) -> Vec<String> {
    let [old, new] = [&change.old, &change.new].map(|driver| driver.as_deref().is_some_and(takes_labels));
    if old == new { Vec::new() } else { Memory::of(informers).0.lock().pods_of_driver(&change.key) }
}

#[cfg(test)]
mod tests;
