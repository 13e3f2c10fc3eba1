//! Makes claims from templates for Pods, keeps track of who uses claims, and takes devices back when nobody does.
//!
//! A claim that has been made for a Pod goes when the Pod has ended, before the garbage collector comes. Devices are taken
//! back together with the last user. Unlike upstream's, the finalizer of a claim without devices stays until the claim is
//! deleted: the scheduler, which puts it there before it gives devices, would race with who takes it away.
//! Source: `pkg/controller/resourceclaim`, KEP-4381.

use std::sync::Arc;

use controller::metadata::{annotation, controller_reference, is_deleting, key, name, namespace, uid};
use controller::pod::Pod;
use controller::resource_claim::{
    FINALIZER, Meant, POD_CLAIM_NAME, can_be_reserved, check_owner, is_allocated, is_done, is_reserved_for,
    meant, of_pod, owner, reserve, users,
};
use controller::{
    Action, Change, Controller, EventType, Informers, Patch, Plan, Propagation, ResourceRef, Source,
};
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::pod::node_name;

const OF_POD: &str = "pod:";
const OF_CLAIM: &str = "claim:";
/// What the server adds to a generated name must fit. Source: the controller's `maxBaseLen`.
const BASE_BYTES_MAX: usize = 57;

/// The controller's row. Keys are Pods and claims, told apart by what they begin with.
pub const CONTROLLER: Controller = Controller {
    name: "resource-claim-controller",
    queue: "resource_claim",
    sources: |_| {
        vec![
            Source::of::<Pod>(pod_changed),
            Source::of::<ResourceClaim>(claim_changed),
            Source::of::<ResourceClaimTemplate>(template_changed),
        ]
    },
    reconcile: |informers, key, _| {
        if let Some(key) = key.strip_prefix(OF_POD) {
            let Some(pod) = informers.informer::<Pod>().get(key) else { return Plan::nothing() };
            let claims = informers.informer::<ResourceClaim>().in_namespace(namespace(&pod.metadata));
            let templates =
                informers.informer::<ResourceClaimTemplate>().in_namespace(namespace(&pod.metadata));
            return plan_pod(&pod, &claims, &templates);
        }
        let key = key.strip_prefix(OF_CLAIM).unwrap_or(key);
        let Some(claim) = informers.informer::<ResourceClaim>().get(key) else { return Plan::nothing() };
        plan_claim(&claim, &informers.informer::<Pod>().in_namespace(namespace(&claim.metadata)))
    },
};

/// The Pod, and every claim that it uses or used.
fn pod_changed(change: &Change<Pod>, _: &Informers) -> Vec<String> {
    let mut keys = Vec::new();
    for pod in [change.old.as_deref(), change.new.as_deref()].into_iter().flatten() {
        let space = namespace(&pod.metadata);
        let named = of_pod(pod).iter().map(|claim| meant(pod, claim));
        keys.extend(named.filter_map(|meant| Some(format!("{OF_CLAIM}{space}/{}", meant.name()?))));
    }
    if change.new.as_deref().is_some_and(|pod| !of_pod(pod).is_empty()) {
        keys.push(format!("{OF_POD}{}", change.key));
    }
    keys.sort();
    keys.dedup();
    keys
}

/// The claim, and the Pod that it was made for.
fn claim_changed(change: &Change<ResourceClaim>, _: &Informers) -> Vec<String> {
    let claim = change.new.as_ref().map(|_| format!("{OF_CLAIM}{}", change.key));
    let owners = change.object().and_then(|claim| {
        let owner = owner(claim)?;
        Some(format!("{OF_POD}{}/{}", namespace(&claim.metadata), owner.name))
    });
    claim.into_iter().chain(owners).collect()
}

/// Pods that wait for the template.
fn template_changed(change: &Change<ResourceClaimTemplate>, informers: &Informers) -> Vec<String> {
    let Some(template) = &change.new else { return Vec::new() };
    let wanted = name(&template.metadata);
    let pods = informers.informer::<Pod>().in_namespace(namespace(&template.metadata));
    let waits = |pod: &&Arc<Pod>| {
        let pod: &Pod = pod;
        let mut claims = of_pod(pod).iter();
        claims.any(|claim| {
            claim.resource_claim_template_name.as_deref() == Some(wanted)
                && meant(pod, claim) == Meant::NotYet
        })
    };
    pods.iter().filter(waits).map(|pod| format!("{OF_POD}{}", key(&pod.metadata))).collect()
}

/// What a Pod lacks: claims, their names in its status, and its place among their users.
fn plan_pod(pod: &Pod, claims: &[Arc<ResourceClaim>], templates: &[Arc<ResourceClaimTemplate>]) -> Plan {
    let mut plan = Plan::nothing();
    if is_deleting(&pod.metadata) || is_done(pod) {
        return plan;
    }
    let (mut missing, mut named) = (Vec::new(), Vec::new());
    for wanted in of_pod(pod) {
        match provide(pod, wanted, claims, templates) {
            Ok(Provided::There) => {}
            Ok(Provided::Found(claim)) => {
                named.push(json!({"name": wanted.name, "resourceClaimName": claim}))
            }
            Ok(Provided::Make(claim)) => missing.push(Action::create(&*claim)),
            Err(why) => {
                let message = format!("PodResourceClaim {}: {why}", wanted.name);
                missing.push(failure(pod, message));
            }
        }
    }
    plan.push_step(missing);
    if !named.is_empty() {
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": uid(&pod.metadata)},
            "status": {"resourceClaimStatuses": named},
        }));
        plan.push(Action::patch_status::<Pod>(namespace(&pod.metadata), name(&pod.metadata), patch));
    }
    // Before that the scheduler sees to it.
    if !node_name(pod).is_empty() {
        plan.push_step(reservations(pod, claims));
    }
    plan.on_failure = vec![failure(pod, format!("create ResourceClaim: {}", controller::plan::FAILURE))];
    plan
}

fn failure(pod: &Pod, message: String) -> Action {
    Action::event(pod, EventType::Warning, "FailedResourceClaimCreation", message)
}

/// How a Pod comes by a claim.
enum Provided {
    /// It needs nothing more.
    There,
    /// This one was made, and the Pod does not say so yet.
    Found(String),
    /// It is to be made.
    Make(Box<ResourceClaim>),
}

/// The template is not there that a claim is to be made from.
#[derive(Debug, thiserror::Error)]
#[error("resource claim template \"{0}\": resourceclaimtemplate.resource.k8s.io \"{0}\" not found")]
struct NoTemplate(String);

fn provide(
    pod: &Pod,
    wanted: &PodResourceClaim,
    claims: &[Arc<ResourceClaim>],
    templates: &[Arc<ResourceClaimTemplate>],
) -> Result<Provided, NoTemplate> {
    let Some(template) = wanted.resource_claim_template_name.as_deref() else { return Ok(Provided::There) };
    match meant(pod, wanted) {
        Meant::Made(known) => {
            let found = claims.iter().find(|claim| name(&claim.metadata) == known);
            if found.is_some_and(|claim| check_owner(pod, claim).is_ok()) {
                return Ok(Provided::There);
            }
        }
        Meant::NotYet => {}
        Meant::Named(_) | Meant::Nothing | Meant::Unknown => return Ok(Provided::There),
    }
    let is_it = |claim: &&Arc<ResourceClaim>| {
        owner(claim).is_some_and(|owner| owner.uid == uid(&pod.metadata))
            && annotation(&claim.metadata, POD_CLAIM_NAME) == Some(&wanted.name)
    };
    if let Some(claim) = claims.iter().find(is_it) {
        return Ok(Provided::Found(name(&claim.metadata).to_owned()));
    }
    let found = templates.iter().find(|known| name(&known.metadata) == template);
    let found = found.ok_or_else(|| NoTemplate(template.to_owned()))?;
    Ok(Provided::Make(Box::new(made_from(pod, wanted, found))))
}

fn made_from(pod: &Pod, wanted: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let meta = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.to_owned(), wanted.name.clone());
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(base_name(name(&pod.metadata), &wanted.name)),
            namespace: pod.metadata.namespace.clone(),
            owner_references: Some(vec![controller_reference(pod)]),
            annotations: Some(annotations),
            labels: meta.labels,
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// What the generated name begins with: the names of Pod and claim, each shortened by its share if they are too long.
fn base_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= BASE_BYTES_MAX {
        return whole;
    }
    // Names are ASCII.
    let share = |text: &str| text.chars().take(text.len() * BASE_BYTES_MAX / whole.len()).collect::<String>();
    format!("{}-{}", share(pod), share(claim))
}

/// Somebody else than the scheduler has given the Pod a Node: its claims are reserved here if they have devices.
fn reservations(pod: &Pod, claims: &[Arc<ResourceClaim>]) -> Vec<Action> {
    let mut actions = Vec::new();
    for wanted in of_pod(pod) {
        let meant = meant(pod, wanted);
        let found = claims.iter().find(|claim| Some(name(&claim.metadata)) == meant.name());
        let Some(claim) = found else { continue };
        let is_mine = !matches!(meant, Meant::Made(_)) || check_owner(pod, claim).is_ok();
        if is_mine && is_allocated(claim) && !is_reserved_for(pod, claim) && can_be_reserved(claim) {
            let mut new = (**claim).clone();
            reserve(&mut new, pod);
            actions.push(Action::update_status(&new));
        }
    }
    actions
}

/// Whether somebody may still use the claim.
enum Standing {
    Using,
    Gone,
    /// Its Pod is not known here; the server knows.
    Unclear,
}

fn standing(user: &ResourceClaimConsumerReference, pods: &[Arc<Pod>]) -> Standing {
    let is_pod = user.resource == "pods" && user.api_group.as_deref().unwrap_or_default().is_empty();
    match pods.iter().find(|pod| name(&pod.metadata) == user.name) {
        _ if !is_pod => Standing::Using,
        None => Standing::Unclear,
        Some(pod) if uid(&pod.metadata) != user.uid || is_done(pod) => Standing::Gone,
        Some(_) => Standing::Using,
    }
}

/// What a claim has too much: users that are gone, devices, a finalizer, itself.
fn plan_claim(claim: &ResourceClaim, pods: &[Arc<Pod>]) -> Plan {
    let mut plan = Plan::nothing();
    let space = namespace(&claim.metadata);
    let (mut left, mut unclear) = (Vec::new(), Vec::new());
    for user in users(claim) {
        match standing(user, pods) {
            Standing::Using => left.push(user.clone()),
            Standing::Gone => {}
            Standing::Unclear => {
                unclear.push(Action::require_absent(ResourceRef::of::<Pod>(), space, &user.name, &user.uid));
            }
        }
    }
    let has_finalizer = claim.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    let is_idle = left.is_empty();
    if left.len() < users(claim).len() {
        plan.push_step(unclear);
        let mut new = claim.clone();
        let status = new.status.get_or_insert_default();
        status.reserved_for = (!is_idle).then_some(left);
        if is_idle && has_finalizer {
            give_back(&mut new);
        }
        plan.push(Action::update_status(&new));
    } else if has_finalizer && is_deleting(&claim.metadata) && is_idle {
        let mut new = claim.clone();
        if is_allocated(claim) {
            give_back(&mut new);
            plan.push(Action::update_status(&new));
        } else {
            new.metadata.finalizers.iter_mut().for_each(|all| all.retain(|one| one != FINALIZER));
            plan.push(Action::update(&new));
        }
    }
    if is_idle && !is_deleting(&claim.metadata) && is_left_over(claim, pods) {
        let (name, uid) = (name(&claim.metadata), uid(&claim.metadata));
        plan.push(Action::delete::<ResourceClaim>(space, name, Some(uid), Propagation::Background, None));
    }
    plan
}

fn give_back(claim: &mut ResourceClaim) {
    if let Some(status) = &mut claim.status {
        status.allocation = None;
        // Drivers speak of devices that it has.
        status.devices = None;
    }
}

/// Whether the Pod that it was made for is not going to need it. One that is unknown is the garbage collector's matter.
fn is_left_over(claim: &ResourceClaim, pods: &[Arc<Pod>]) -> bool {
    let Some(owner) = owner(claim) else { return false };
    let pod = pods.iter().find(|pod| name(&pod.metadata) == owner.name);
    pod.is_some_and(|pod| uid(&pod.metadata) != owner.uid || is_done(pod))
}

#[cfg(test)]
mod tests;
