//! The claims of a StatefulSet's Pods: made before the Pod, kept or dropped by the retention policy.

use std::sync::Arc;

use controller::metadata::{controller_of, controller_reference, is_deleting, name, namespace, uid};
use controller::pod::Pod;
use controller::{Action, EventType};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::stateful_set::identity::{claim_name, pod_name};

/// The claims that a Pod needs, and where they stand.
pub(super) struct PodClaims<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) spec: &'a StatefulSetSpec,
    /// Every claim of the namespace that has the name of one of the set's.
    pub(super) known: &'a [Arc<PersistentVolumeClaim>],
}

/// What keeps a Pod from being made for now.
pub(super) enum Blocked {
    /// A claim belongs to a Pod of the same name that is gone, and goes with it.
    Stale,
    /// This claim is being deleted.
    Deleting(String),
}

impl PodClaims<'_> {
    /// What has to go away before the Pod with this ordinal can be made.
    pub(super) fn blocked(&self, ordinal: i32) -> Option<Blocked> {
        let pod = pod_name(self.set, ordinal);
        let known: Vec<_> = self.of(ordinal).filter_map(|(_, known)| known).collect();
        let is_stale = |claim: &Arc<PersistentVolumeClaim>| {
            let owners = claim.metadata.owner_references.iter().flatten();
            let mut pods = owners.filter(|owner| owner.kind == "Pod" && owner.api_version == "v1");
            pods.any(|owner| owner.name == pod)
        };
        if known.iter().any(is_stale) {
            return Some(Blocked::Stale);
        }
        let deleting = known.iter().find(|claim| is_deleting(&claim.metadata))?;
        Some(Blocked::Deleting(name(&deleting.metadata).to_owned()))
    }

    /// Makes the claims that the Pod with this ordinal lacks.
    pub(super) fn create_missing(&self, ordinal: i32) -> (Vec<Action>, Vec<Action>) {
        let (mut creates, mut told) = (Vec::new(), Vec::new());
        for (claim, _) in self.of(ordinal).filter(|(_, known)| known.is_none()) {
            let (claim_name, pod, set) =
                (name(&claim.metadata), pod_name(self.set, ordinal), name(&self.set.metadata));
            let message = format!("create Claim {claim_name} Pod {pod} in StatefulSet {set} success");
            told.push(Action::event(self.set, EventType::Normal, "SuccessfulCreate", message));
            creates.push(Action::create(&claim));
        }
        (creates, told)
    }

    /// Makes the owners of the Pod's claims what the retention policy says. Source: KEP-1847.
    pub(super) fn retain(&self, ordinal: i32, pod: &Pod, is_condemned: bool) -> Vec<Action> {
        let wanted = self.wanted_owner(pod, is_condemned);
        let updates =
            self.of(ordinal).filter_map(|(_, known)| self.with_owner(&*known?, pod, wanted.as_ref()));
        updates.map(|claim| Action::update(&claim)).collect()
    }

    /// Whom the claims of `pod` go with: the set, the Pod, or nobody.
    fn wanted_owner(&self, pod: &Pod, is_condemned: bool) -> Option<OwnerReference> {
        let policy = self.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
        let deletes = |when: Option<String>| when.as_deref() == Some("Delete");
        match (deletes(policy.when_scaled) && is_condemned, deletes(policy.when_deleted)) {
            (true, _) => Some(controller_reference(pod)),
            (false, true) => Some(controller_reference(self.set)),
            (false, false) => None,
        }
    }

    fn with_owner(
        &self,
        claim: &PersistentVolumeClaim,
        pod: &Pod,
        wanted: Option<&OwnerReference>,
    ) -> Option<PersistentVolumeClaim> {
        let ours = [uid(&self.set.metadata), uid(&pod.metadata)];
        let is_ours = |owner: &OwnerReference| ours.contains(&owner.uid.as_str());
        if controller_of(&claim.metadata).is_some_and(|owner| !is_ours(owner)) {
            return None;
        }
        let owners: Vec<OwnerReference> = claim.metadata.owner_references.clone().unwrap_or_default();
        let mut kept: Vec<OwnerReference> = owners.iter().filter(|owner| !is_ours(owner)).cloned().collect();
        kept.extend(wanted.cloned());
        let is_right = kept.len() == owners.len() && kept.iter().all(|owner| owners.contains(owner));
        (!is_right).then(|| {
            let mut claim = claim.clone();
            claim.metadata.owner_references = Some(kept).filter(|owners| !owners.is_empty());
            claim
        })
    }

    /// The claims of the Pod with this ordinal, as they are made, and as they are known.
    fn of(
        &self,
        ordinal: i32,
    ) -> impl Iterator<Item = (PersistentVolumeClaim, Option<Arc<PersistentVolumeClaim>>)> {
        self.spec.volume_claim_templates.iter().flatten().map(move |template| {
            let mut claim = template.clone();
            let meta = &mut claim.metadata;
            let claim_name = claim_name(self.set, name(meta), ordinal);
            let selected = self.spec.selector.match_labels.clone().unwrap_or_default();
            meta.labels.get_or_insert_default().extend(selected);
            meta.namespace = Some(namespace(&self.set.metadata).to_owned());
            meta.name = Some(claim_name.clone());
            claim.status = None;
            let known = self.known.iter().find(|known| name(&known.metadata) == claim_name);
            (claim, known.cloned())
        })
    }
}
