//! A claim for one Pod (ReadWriteOncePod) is not for a second, and Pods that name the same disk themselves do not share a
//! Node. Source: `plugins/volumerestrictions`, KEP-2485.

use controller::pod::Pod;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume};

use super::{Candidate, Refusal};
use crate::node_info::{NodeInfo, Snapshot};

const TAKEN: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

const NO_DISK: &str = "node(s) had no available disk";

/// Whether another Pod has a claim that this one must have alone.
pub(super) fn is_taken(pod: &Pod, snapshot: &Snapshot) -> bool {
    let is_for_one = |claim: &PersistentVolumeClaim| {
        let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        modes.iter().any(|mode| mode == "ReadWriteOncePod")
    };
    let claims = snapshot.storage.claims_of(pod);
    let alone: Vec<String> = claims
        .into_iter()
        .filter(|(_, claim)| claim.is_some_and(|c| is_for_one(c)))
        .map(|(key, _)| key)
        .collect();
    if alone.is_empty() {
        return false;
    }
    let others = snapshot.nodes().flat_map(|node| node.pods());
    let mut others = others.filter(|other| other.metadata.uid != pod.metadata.uid);
    others.any(|other| controller::volume::claims_of(other).iter().any(|key| alone.contains(key)))
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    candidate.is_claim_taken || disks(candidate.pod).next().is_some()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let others = || node.pods().flat_map(|pod| disks(pod));
    if disks(candidate.pod).any(|disk| others().any(|other| collide(disk, other))) {
        return Some(Refusal::passing(NO_DISK));
    }
    candidate.is_claim_taken.then(|| Refusal::passing(TAKEN))
}

/// Whether two Pods name the same disk, and so do not share a Node.
pub(crate) fn share_disk(one: &Pod, other: &Pod) -> bool {
    disks(one).any(|disk| disks(other).any(|other| collide(disk, other)))
}

/// The disks that a Pod names itself.
fn disks(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| {
        volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.rbd.is_some()
            || volume.iscsi.is_some()
    })
}

/// Whether two are the same disk, and not both for reading only where that makes a difference. Source: `isVolumeConflict`.
fn collide(one: &Volume, other: &Volume) -> bool {
    let writes = |a: Option<bool>, b: Option<bool>| !(a == Some(true) && b == Some(true));
    if let (Some(a), Some(b)) = (&one.gce_persistent_disk, &other.gce_persistent_disk) {
        return a.pd_name == b.pd_name && writes(a.read_only, b.read_only);
    }
    if let (Some(a), Some(b)) = (&one.aws_elastic_block_store, &other.aws_elastic_block_store) {
        return a.volume_id == b.volume_id;
    }
    if let (Some(a), Some(b)) = (&one.iscsi, &other.iscsi) {
        return a.iqn == b.iqn && writes(a.read_only, b.read_only);
    }
    if let (Some(a), Some(b)) = (&one.rbd, &other.rbd) {
        let is_same = a.pool == b.pool
            && a.image == b.image
            && a.monitors.iter().any(|monitor| b.monitors.contains(monitor));
        return is_same && writes(a.read_only, b.read_only);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_name_the_same_disk_do_not_share_a_node() {
        let gce = "gcePersistentDisk: {pdName: d}";
        let read = "gcePersistentDisk: {pdName: d, readOnly: true}";
        let aws = "awsElasticBlockStore: {volumeID: d, readOnly: true}";
        let iscsi = "iscsi: {targetPortal: t, iqn: i, lun: 0}";
        let rbd = "rbd: {monitors: [a, b], image: i, pool: rbd}";
        for (one, other, expect) in [
            (gce, gce, true),
            (gce, read, true),
            (read, read, false),
            (gce, "gcePersistentDisk: {pdName: e}", false),
            (aws, aws, true),
            (aws, gce, false),
            (iscsi, iscsi, true),
            ("iscsi: {targetPortal: t, iqn: i, lun: 0, readOnly: true}", iscsi, true),
            (rbd, "rbd: {monitors: [b], image: i, pool: rbd}", true),
            (rbd, "rbd: {monitors: [c], image: i, pool: rbd}", false),
            (rbd, "rbd: {monitors: [a], image: i, pool: other}", false),
            ("emptyDir: {}", "emptyDir: {}", false),
        ] {
            let parse = |source: &str| serde_saphyr::from_str(&format!("{{name: v, {source}}}")).unwrap();
            assert_eq!(collide(&parse(one), &parse(other)), expect, "{one} {other}");
        }
    }
}
