//! The steps for one claim. Source: `syncClaim`.

use std::sync::Arc;

use controller::metadata::{created, is_deleting, name};
use controller::volume::matching::{self, Search, why_not};
use controller::volume::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, NO_PROVISIONER, PROVISIONER, PROVISIONER_BETA, SELECTED_NODE,
    annotation, claim_class, claim_ref, is_for, migration, set_aside, volume_name, waits_for_consumer,
};
use controller::{Action, EventType, Plan};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::volume::{annotate, note_migrated};

/// Classes that claims without one get. Source: `util.AlphaIsDefault...` of upstream.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The input of a decision about one claim.
pub struct ClaimSnapshot {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// Every volume, in name order.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// The claim's class, if it has one and that is there.
    pub class: Option<Arc<StorageClass>>,
    /// Every class.
    pub classes: Vec<Arc<StorageClass>>,
    /// The names of the Pods that use the claim.
    pub pods: Vec<String>,
    /// `true` if provisioners are asked for volumes. Source: `--enable-dynamic-provisioning`.
    pub is_provisioned: bool,
}

impl ClaimSnapshot {
    fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name))
    }
}

/// Decides about one claim.
pub fn plan_claim(snapshot: &ClaimSnapshot) -> Plan {
    let claim = &*snapshot.claim;
    let provisioner = [PROVISIONER, PROVISIONER_BETA].iter().find_map(|key| annotation(&claim.metadata, key));
    let mut new = claim.clone();
    if note_migrated(&mut new.metadata, provisioner) {
        let mut plan = Plan::nothing();
        plan.push(Action::update(&new));
        return plan;
    }
    if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return bound(snapshot);
    }
    match volume_name(claim) {
        "" if is_deleting(&claim.metadata) => Plan::nothing(),
        "" => unbound(snapshot),
        wanted => asking(snapshot, wanted),
    }
}

/// A claim that was bound stays so, or is lost.
fn bound(snapshot: &ClaimSnapshot) -> Plan {
    let claim = &*snapshot.claim;
    let lost = |reason: &str, message: &str| {
        if phase(claim) == "Lost" {
            return Plan::nothing();
        }
        let mut new = claim.clone();
        new.status.get_or_insert_default().phase = Some("Lost".to_owned());
        let mut plan = Plan::nothing();
        plan.push(Action::update_status(&new));
        plan.push(Action::event(claim, EventType::Warning, reason, message));
        plan
    };
    let named = volume_name(claim);
    if named.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lost("ClaimLost", message);
    }
    let Some(volume) = snapshot.volume(named) else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    if claim_ref(volume).is_none() || is_for(volume, claim) {
        return bind(claim, volume);
    }
    lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

/// A claim that takes any volume.
fn unbound(snapshot: &ClaimSnapshot) -> Plan {
    let claim = &*snapshot.claim;
    let waits = snapshot.class.as_deref().is_some_and(waits_for_consumer);
    let search = if waits { Search::SetAside } else { Search::All };
    if let Some(volume) = matching::find(claim, &snapshot.volumes, search) {
        return bind(claim, volume);
    }
    let mut plan = Plan::nothing();
    let mut tell = |reason: &str, message: String| {
        plan.push(Action::event(claim, EventType::Normal, reason, message));
    };
    if waits && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        match snapshot.pods.as_slice() {
            [] => {
                let message = "waiting for first consumer to be created before binding";
                tell("WaitForFirstConsumer", message.to_owned());
            }
            pods => {
                tell("WaitForPodScheduled", format!("waiting for pod {} to be scheduled", pods.join(",")))
            }
        }
        return plan;
    }
    match claim_class(claim) {
        None => match default_class(&snapshot.classes) {
            Some(class) => {
                let mut new = claim.clone();
                new.spec.get_or_insert_default().storage_class_name = Some(class.to_owned());
                plan.push(Action::update(&new));
            }
            None => tell("FailedBinding", NOTHING_TO_BIND.to_owned()),
        },
        Some("") => tell("FailedBinding", NOTHING_TO_BIND.to_owned()),
        Some(_) if !snapshot.is_provisioned => {}
        Some(class) => return provision(snapshot, class),
    }
    plan
}

const NOTHING_TO_BIND: &str = "no persistent volumes available for this claim and no storage class is set";

/// The newest default class, as admission chooses it. Source: KEP-3333.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<&str> {
    let is_default = |class: &&Arc<StorageClass>| {
        DEFAULT_CLASS.iter().any(|key| annotation(&class.metadata, key) == Some("true"))
    };
    let newest = classes
        .iter()
        .filter(is_default)
        .min_by_key(|class| (std::cmp::Reverse(created(&class.metadata)), name(&class.metadata).to_owned()));
    newest.map(|class| name(&class.metadata))
}

/// Asks the class's provisioner for a volume.
fn provision(snapshot: &ClaimSnapshot, class: &str) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let Some(class) = &snapshot.class else {
        let message = format!("storageclass.storage.k8s.io \"{class}\" not found");
        plan.push(Action::event(claim, EventType::Warning, "ProvisioningFailed", message));
        return plan;
    };
    let provisioner = migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner);
    if provisioner.starts_with("kubernetes.io/") {
        // Volumes of such classes are made by people.
        let message = format!("no volume plugin matched name: {provisioner}");
        if provisioner != NO_PROVISIONER || !waits_for_consumer(class) {
            plan.push(Action::event(claim, EventType::Warning, "ProvisioningFailed", message));
        }
        return plan;
    }
    let mut new = claim.clone();
    let is_news = annotate(&mut new.metadata, PROVISIONER_BETA, provisioner)
        | annotate(&mut new.metadata, PROVISIONER, provisioner);
    if is_news {
        plan.push(Action::update(&new));
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
             the system administrator. If volume creation is delayed, please verify that the provisioner is \
             running and correctly registered."
        );
        plan.push(Action::event(claim, EventType::Normal, "ExternalProvisioning", message));
    }
    plan
}

/// A claim that names its volume.
fn asking(snapshot: &ClaimSnapshot, wanted: &str) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let Some(volume) = snapshot.volume(wanted) else { return plan };
    if is_for(volume, claim) {
        return bind(claim, volume);
    }
    if claim_ref(volume).is_some() {
        let message = format!("volume \"{wanted}\" already bound to a different claim.");
        plan.push(Action::event(claim, EventType::Warning, "FailedBinding", message));
        return plan;
    }
    if let Some(why) = why_not(claim, volume) {
        let message = format!("Cannot bind to requested volume \"{wanted}\": {why}");
        plan.push(Action::event(claim, EventType::Warning, "VolumeMismatch", message));
        return plan;
    }
    bind(claim, volume)
}

/// The next write of a binding; nothing when it is complete.
fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Plan {
    let mut plan = Plan::nothing();
    if let Some(next) = next_write(claim, volume) {
        plan.push(next);
    }
    plan
}

fn next_write(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Action> {
    if claim_ref(volume).is_none_or(|known| known.uid != claim.metadata.uid) {
        return Some(Action::update(&set_aside(volume, claim)));
    }
    if matching::phase(volume) != "Bound" {
        let mut new = volume.clone();
        new.status.get_or_insert_default().phase = Some("Bound".to_owned());
        return Some(Action::update_status(&new));
    }
    let volume_name_now = name(&volume.metadata);
    let mut new = claim.clone();
    let mut is_news = false;
    if volume_name(claim) != volume_name_now {
        new.spec.get_or_insert_default().volume_name = Some(volume_name_now.to_owned());
        annotate(&mut new.metadata, BOUND_BY_CONTROLLER, "yes");
        is_news = true;
    }
    is_news |= annotate(&mut new.metadata, BIND_COMPLETED, "yes");
    if is_news {
        return Some(Action::update(&new));
    }
    bound_status(claim, volume).map(|new| Action::update_status(&new))
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The claim with the status of a bound one, if it has another. A capacity that is known is left to whoever resizes.
fn bound_status(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<PersistentVolumeClaim> {
    let spec = volume.spec.as_ref()?;
    let mut new = claim.clone();
    let status = new.status.get_or_insert_default();
    let is_first = status.phase.as_deref() != Some("Bound");
    status.phase = Some("Bound".to_owned());
    status.access_modes.clone_from(&spec.access_modes);
    if is_first || status.capacity.is_none() {
        status.capacity.clone_from(&spec.capacity);
    }
    if is_first && spec.volume_attributes_class_name.is_some() {
        status.current_volume_attributes_class_name.clone_from(&spec.volume_attributes_class_name);
    }
    (new.status != claim.status).then_some(new)
}
