//! The EndpointSlice controller: publishes which Pods stand behind each Service, a hundred to a slice.
//!
//! A change touches as few slices as it can: an endpoint stays in the slice that it is in. A Service always has
//! a slice, so that who waits for one knows that it was looked at. For whom each endpoint is meant is in `hints`.

mod fill;
pub mod hints;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::metadata::{controller_reference, is_deleting, key, label, name, namespace, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, Informers, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::names::{generate_name, names};
use crate::options::Options;
use crate::pod::{is_finished, is_ready, node_name};
use crate::service_pods::{self, HEADLESS, ServicePods, TRIGGER_TIME};
use fill::fill;

/// Names the Service of a slice. Source: discovery/v1.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Names who keeps a slice. Source: discovery/v1.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "endpointslice-controller",
    queue: "endpoint_slice",
    sources: |_| {
        vec![
            Source::itself::<Service>(),
            Source::of::<EndpointSlice>(service_of_slice),
            Source::of::<Pod>(service_pods::services_of_pod),
            Source::of::<Node>(services_of_node),
        ]
    },
    reconcile: |informers, key, now| {
        let sharing = informers.setting_or(Sharing::default);
        let Some(seen) = gather(informers, key, &sharing) else {
            sharing.set(key, false);
            return Plan::nothing();
        };
        let (plan, has_shares) = decide(&seen, now);
        sharing.set(key, has_shares);
        plan
    },
};

/// The Services whose endpoints this process has shared out among zones, by key.
#[derive(Default)]
struct Sharing(Mutex<BTreeSet<String>>);

impl Sharing {
    fn has(&self, service: &str) -> bool {
        self.0.lock().contains(service)
    }

    fn set(&self, service: &str, has_shares: bool) {
        let mut all = self.0.lock();
        if has_shares {
            all.insert(service.to_owned());
        } else {
            all.remove(service);
        }
    }
}

/// The input of a decision about one Service's slices.
pub struct Snapshot {
    /// The Service and its Pods.
    pub service_pods: ServicePods,
    /// The slices of the Service that this controller keeps, in key order.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The share of all CPUs that zones have; filled in where it matters.
    pub shares: hints::Shares,
    /// `true` if zones had their shares of the endpoints.
    pub had_shares: bool,
    /// Endpoints in one slice. Source: `--max-endpoints-per-slice`.
    pub endpoints_max: usize,
}

fn gather(informers: &Informers, key: &str, sharing: &Sharing) -> Option<Snapshot> {
    let service_pods = ServicePods::gather(informers, key)?;
    let mut slices = informers.informer::<EndpointSlice>().owned_by(uid(&service_pods.service.metadata));
    slices.retain(|slice| label(&slice.metadata, MANAGED_BY) == Some(MANAGER));
    let shares = match hints::wants_shares(&service_pods.service) {
        true => hints::shares(&informers.informer::<Node>().list()),
        false => None,
    };
    let endpoints_max = Options::of(informers).max_endpoints_per_slice;
    Some(Snapshot { service_pods, slices, shares, had_shares: sharing.has(key), endpoints_max })
}

/// Services with endpoints when a Node comes, goes or changes its zone; when it becomes ready or stops being it, those whose
/// endpoints are shared out.
fn services_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let keys = service_pods::services_of_node(change, informers);
    let ready = |node: &Option<Arc<Node>>| node.as_deref().is_some_and(hints::is_ready);
    if !keys.is_empty() || ready(&change.old) == ready(&change.new) {
        return keys;
    }
    let services = informers.informer::<Service>().list();
    let shared = services.iter().filter(|one| service_pods::is_selecting(one) && hints::wants_shares(one));
    shared.map(|service| key(&service.metadata)).collect()
}

fn service_of_slice(change: &Change<EndpointSlice>, _: &Informers) -> Vec<String> {
    let key = |slice: &Arc<EndpointSlice>| {
        let meta = &slice.metadata;
        let is_own = label(meta, MANAGED_BY) == Some(MANAGER);
        label(meta, SERVICE_NAME).filter(|_| is_own).map(|service| format!("{}/{service}", namespace(meta)))
    };
    let mut keys: Vec<String> = [&change.old, &change.new].into_iter().flatten().filter_map(key).collect();
    keys.dedup();
    keys
}

/// Ports as a slice has them; slices hold endpoints that have all their ports in common.
pub(crate) type Ports = Vec<EndpointPort>;

/// What one slice shall be.
pub(crate) struct Wanted {
    /// The slice that becomes so; a new one if none.
    pub(crate) slice: Option<Arc<EndpointSlice>>,
    pub(crate) ports: Ports,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Wanted {
    /// Whether the slice has the endpoints that it shall have, whomever they are for.
    fn has_its_endpoints(&self) -> bool {
        let Some(slice) = &self.slice else { return false };
        let is_same = |(old, new): (&Endpoint, &Endpoint)| {
            old == new || *old == Endpoint { hints: old.hints.clone(), ..new.clone() }
        };
        slice.endpoints.len() == self.endpoints.len()
            && slice.endpoints.iter().zip(&self.endpoints).all(is_same)
    }
}

/// Decides what to do about one Service's slices; and whether zones have their shares of its endpoints then.
pub fn decide(snapshot: &Snapshot, _: Timestamp) -> (Plan, bool) {
    let service = &*snapshot.service_pods.service;
    let mut plan = Plan::nothing();
    let mut has_shares = snapshot.had_shares;
    if is_deleting(&service.metadata) {
        return (plan, has_shares);
    }
    let families = service_pods::families(service);
    let (slices, obsolete): (Vec<_>, Vec<_>) =
        snapshot.slices.iter().cloned().partition(|slice| families.contains(&slice.address_type.as_str()));
    let taken = snapshot.slices.iter().map(|slice| name(&slice.metadata).to_owned()).collect();
    let mut names = names(&service.metadata, taken, snapshot.service_pods.revision);
    let (mut actions, mut events) = (Vec::new(), Vec::new());
    for family in families {
        let groups = endpoints_by_ports(&snapshot.service_pods, family);
        let own = slices.iter().filter(|slice| slice.address_type == family).cloned().collect();
        let (mut wanted, surplus) = fill(groups, own, snapshot.endpoints_max);
        let told;
        (has_shares, told) = hints::hint(service, &snapshot.shares, has_shares, family, &mut wanted);
        let event = |(event_type, reason, message)| Action::event(service, event_type, reason, message);
        events.extend(told.map(event));
        actions.extend(wanted.into_iter().filter_map(|wanted| match &wanted.slice {
            Some(slice) => change(&snapshot.service_pods, slice, &wanted),
            None => Some(create(&snapshot.service_pods, family, wanted, names.next()?)),
        }));
        actions.extend(surplus.iter().map(delete));
    }
    actions.extend(obsolete.iter().map(delete));
    // First: what fails after it is tried again without it.
    plan.push_step(events);
    plan.push_step(actions);
    (plan, has_shares)
}

/// The endpoints of one address type, grouped by the ports that their Pods really have.
fn endpoints_by_ports(service_pods: &ServicePods, family: &str) -> Vec<(Ports, Vec<Endpoint>)> {
    let mut groups: Vec<(Ports, Vec<Endpoint>)> = Vec::new();
    for pod in service_pods.pods.iter().filter(|pod| !is_finished(pod) && is_somewhere(service_pods, pod)) {
        let Some(endpoint) = endpoint(service_pods, pod, family) else { continue };
        let ports = resolved_ports(&service_pods.service, pod);
        match groups.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => groups.push((ports, vec![endpoint])),
        }
    }
    groups
}

/// Whether a Pod's Node is there: one that is left of a Node that is gone answers nobody, until it is collected. Source:
/// `reconcileByAddressType` of `k8s.io/endpointslice`.
fn is_somewhere(service_pods: &ServicePods, pod: &Pod) -> bool {
    service_pods.nodes.contains_key(node_name(pod))
        || service_pods::publishes_not_ready(&service_pods.service)
}

fn endpoint(service_pods: &ServicePods, pod: &Pod, family: &str) -> Option<Endpoint> {
    let addresses: Vec<String> = service_pods::addresses(pod)
        .iter()
        .filter(|address| service_pods::family(address) == family)
        .map(ToString::to_string)
        .collect();
    if addresses.is_empty() {
        return None;
    }
    let (is_serving, is_terminating) = (is_ready(pod), is_deleting(&pod.metadata));
    let node = node_name(pod);
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(
                service_pods::publishes_not_ready(&service_pods.service) || (is_serving && !is_terminating),
            ),
            serving: Some(is_serving),
            terminating: Some(is_terminating),
        }),
        hostname: service_pods::hostname(&service_pods.service, pod),
        node_name: (!node.is_empty()).then(|| node.to_owned()),
        target_ref: Some(service_pods::target(pod)),
        zone: service_pods.nodes.get(node).cloned().flatten(),
        ..Endpoint::default()
    })
}

fn resolved_ports(service: &Service, pod: &Pod) -> Ports {
    let resolved = service_pods::ports(service).iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(service_pods::resolve(port, pod)?),
            protocol: Some(service_pods::protocol(port).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service_pods::copied_labels(service);
    labels.insert(SERVICE_NAME.to_owned(), name(&service.metadata).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn create(service_pods: &ServicePods, family: &str, wanted: Wanted, name: String) -> Action {
    let service = &*service_pods.service;
    Action::create(&EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name),
            generate_name: Some(generate_name(&service.metadata)),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service)),
            annotations: Some([(TRIGGER_TIME.to_owned(), service_pods.trigger_time())].into()),
            owner_references: Some(vec![controller_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: wanted.endpoints,
        ports: Some(wanted.ports),
    })
}

/// The update that makes `slice` what is wanted, or nothing when it is so already. Annotations and labels of others stay.
fn change(service_pods: &ServicePods, slice: &EndpointSlice, wanted: &Wanted) -> Option<Action> {
    let mut all = slice.metadata.labels.clone().unwrap_or_default();
    all.remove(HEADLESS);
    all.extend(labels(&service_pods.service));
    let is_same = slice.endpoints == wanted.endpoints
        && slice.ports.as_deref().unwrap_or_default() == wanted.ports
        && slice.metadata.labels.as_ref() == Some(&all);
    if is_same {
        return None;
    }
    let mut annotations = slice.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(TRIGGER_TIME.to_owned(), service_pods.trigger_time());
    Some(Action::update(&EndpointSlice {
        metadata: ObjectMeta { labels: Some(all), annotations: Some(annotations), ..slice.metadata.clone() },
        address_type: slice.address_type.clone(),
        endpoints: wanted.endpoints.clone(),
        ports: Some(wanted.ports.clone()),
    }))
}

fn delete(slice: &Arc<EndpointSlice>) -> Action {
    let meta = &slice.metadata;
    let (namespace, name, uid) = (namespace(meta), name(meta), uid(meta));
    Action::delete::<EndpointSlice>(namespace, name, Some(uid), Propagation::Background, None)
}
