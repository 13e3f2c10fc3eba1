//! The EndpointSliceMirroring controller: Endpoints that people write for a Service without a selector become
//! EndpointSlices, since nothing else reads Endpoints.
//!
//! Each set of ports makes one slice per address family. Source: `pkg/controller/endpointslicemirroring`, KEP-752.

mod repack;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use controller::metadata::{annotation, controller_reference, is_deleting, label, name, namespace, uid};
use controller::resource_ref::split_key;
use controller::{Action, Change, Controller, EventType, Informers, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::names::{generate_name, names};
use crate::options::Options;
use crate::service_pods::{TRIGGER_TIME, family};
use repack::{Subset, repack};

/// Names the Service of a slice. Source: discovery/v1.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Names who keeps a slice. Source: discovery/v1.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Endpoints with this label, `true`, have slices of their own. Source: discovery/v1.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints with this annotation are a lock and no endpoints. Source: `LeaderElectionRecordAnnotationKey`.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The controller's row. Keys are Endpoints.
pub const CONTROLLER: Controller = Controller {
    name: "endpointslice-mirroring-controller",
    queue: "endpoint_slice_mirroring",
    sources: |_| {
        vec![
            Source::itself::<Endpoints>(),
            Source::of::<Service>(|change, _| {
                let selects = |service: &Option<Arc<Service>>| service.as_deref().map(is_selecting);
                let matters = selects(&change.old) != selects(&change.new);
                matters.then(|| change.key.to_string()).into_iter().collect()
            }),
            Source::of::<EndpointSlice>(endpoints_of_slice),
        ]
    },
    reconcile: |informers, key, now| plan(&gather(informers, key), now),
};

/// The input of a decision about one object of Endpoints.
pub struct Snapshot {
    /// The Endpoints.
    pub endpoints: Option<Arc<Endpoints>>,
    /// The Service of that name.
    pub service: Option<Arc<Service>>,
    /// The slices of that Service that this controller keeps, in key order.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The newest revision of any slice seen.
    pub revision: u64,
    /// Most addresses of a subset. Source: `--mirroring-max-endpoints-per-subset`.
    pub addresses_max: usize,
}

fn gather(informers: &Informers, key: &str) -> Snapshot {
    let (namespace, name) = split_key(key);
    let informer = informers.informer::<EndpointSlice>();
    let revision = informer.revision();
    let mut slices = informer.in_namespace(namespace);
    slices.retain(|slice| is_own(slice) && label(&slice.metadata, SERVICE_NAME) == Some(name));
    Snapshot {
        endpoints: informers.informer::<Endpoints>().get(key),
        service: informers.informer::<Service>().get(key),
        slices,
        revision,
        addresses_max: Options::of(informers).mirroring_max_endpoints_per_subset,
    }
}

fn endpoints_of_slice(change: &Change<EndpointSlice>, _: &Informers) -> Vec<String> {
    let key = |slice: &Arc<EndpointSlice>| {
        let service = label(&slice.metadata, SERVICE_NAME).filter(|_| is_own(slice))?;
        Some(format!("{}/{service}", namespace(&slice.metadata)))
    };
    let mut keys: Vec<String> = [&change.old, &change.new].into_iter().flatten().filter_map(key).collect();
    keys.dedup();
    keys
}

fn is_own(slice: &EndpointSlice) -> bool {
    label(&slice.metadata, MANAGED_BY) == Some(MANAGER)
}

fn is_selecting(service: &Service) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| !selector.is_empty())
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let meta = &endpoints.metadata;
    label(meta, SKIP_MIRROR) != Some("true") && annotation(meta, LEADER).is_none()
}

/// What one slice shall be.
struct Wanted {
    family: &'static str,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

/// Decides what to do about the slices of one object of Endpoints.
pub fn plan(snapshot: &Snapshot, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let service = snapshot.service.as_deref().filter(|service| !is_selecting(service));
    let endpoints = snapshot.endpoints.as_deref().filter(|endpoints| is_mirrored(endpoints));
    let (Some(endpoints), Some(_)) = (endpoints, service) else {
        plan.push_step(snapshot.slices.iter().map(delete).collect());
        return plan;
    };
    let (wanted, told) = wanted(endpoints, snapshot.addresses_max);
    let mut slices = snapshot.slices.clone();
    // Each takes the slice that is nearest: of the same ports, or one that would go.
    let of = |wanted: &Wanted, slice: &EndpointSlice| {
        slice.address_type == wanted.family && slice.ports.as_deref().unwrap_or_default() == wanted.ports
    };
    let mut placed: Vec<(Wanted, Option<Arc<EndpointSlice>>)> = Vec::new();
    for wanted in wanted {
        let same = slices.iter().position(|slice| of(&wanted, slice));
        placed.push((wanted, same.map(|index| slices.remove(index))));
    }
    for (wanted, slice) in placed.iter_mut().filter(|(_, slice)| slice.is_none()) {
        let spare = slices.iter().position(|slice| slice.address_type == wanted.family);
        *slice = spare.map(|index| slices.remove(index));
    }
    let taken = snapshot.slices.iter().map(|slice| name(&slice.metadata).to_owned()).collect();
    let mut names = names(&endpoints.metadata, taken, snapshot.revision);
    let mut actions: Vec<Action> = placed
        .into_iter()
        .filter_map(|(wanted, slice)| match slice {
            Some(slice) => change(endpoints, &slice, wanted),
            None if is_deleting(&endpoints.metadata) => None,
            None => Some(create(endpoints, wanted, names.next()?)),
        })
        .collect();
    actions.extend(slices.iter().map(delete));
    plan.push_step(actions);
    plan.push_step(told);
    plan
}

/// What there shall be, and what is to be told of addresses that are left out.
fn wanted(endpoints: &Endpoints, addresses_max: usize) -> (Vec<Wanted>, Vec<Action>) {
    let (mut all, mut invalid, mut skipped) = (Vec::new(), 0, 0);
    for Subset { ports, addresses } in repack(endpoints.subsets.as_deref().unwrap_or_default()) {
        let mut by_family: BTreeMap<&str, Vec<Endpoint>> = BTreeMap::new();
        let (total, mut added) = (addresses.len(), 0);
        for (address, is_ready) in addresses {
            if added == addresses_max {
                break;
            }
            match address.ip.parse::<IpAddr>() {
                Ok(ip) => {
                    by_family.entry(family(&ip)).or_default().push(endpoint(address, ip, is_ready));
                    added += 1;
                }
                Err(_) => invalid += 1,
            }
        }
        skipped += total - added;
        all.extend(by_family.into_iter().map(|(family, endpoints)| Wanted {
            family,
            ports: ports.clone(),
            endpoints,
        }));
    }
    let mut told = Vec::new();
    let mut tell = |reason: &str, message: String| {
        told.push(Action::event(endpoints, EventType::Warning, reason, message));
    };
    if invalid > 0 {
        tell(
            "InvalidIPAddress",
            format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"),
        );
    }
    if skipped > invalid {
        tell(
            "TooManyAddressesToMirror",
            format!(
                "A max of {addresses_max} addresses can be mirrored to EndpointSlices per Endpoints subset. \
                 {skipped} addresses were skipped"
            ),
        );
    }
    (all, told)
}

fn endpoint(address: EndpointAddress, ip: IpAddr, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() }),
        hostname: address.hostname.filter(|hostname| !hostname.is_empty()),
        node_name: address.node_name,
        target_ref: address.target_ref,
        ..Endpoint::default()
    }
}

fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name(&endpoints.metadata).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != TRIGGER_TIME && key != LAST_APPLIED);
    annotations
}

fn slice(endpoints: &Endpoints, wanted: Wanted, metadata: ObjectMeta) -> EndpointSlice {
    let annotations = annotations(endpoints);
    EndpointSlice {
        metadata: ObjectMeta {
            labels: Some(labels(endpoints)),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![controller_reference(endpoints)]),
            ..metadata
        },
        address_type: wanted.family.to_owned(),
        endpoints: wanted.endpoints,
        ports: Some(wanted.ports),
    }
}

fn create(endpoints: &Endpoints, wanted: Wanted, name: String) -> Action {
    let metadata = ObjectMeta {
        name: Some(name),
        generate_name: Some(generate_name(&endpoints.metadata)),
        namespace: endpoints.metadata.namespace.clone(),
        ..ObjectMeta::default()
    };
    Action::create(&slice(endpoints, wanted, metadata))
}

/// The update that makes `known` what is wanted, or nothing when it is so already.
fn change(endpoints: &Endpoints, known: &EndpointSlice, wanted: Wanted) -> Option<Action> {
    let wanted = slice(endpoints, wanted, known.metadata.clone());
    (wanted != *known).then(|| Action::update(&wanted))
}

fn delete(slice: &Arc<EndpointSlice>) -> Action {
    let meta = &slice.metadata;
    let (namespace, name, uid) = (namespace(meta), name(meta), uid(meta));
    Action::delete::<EndpointSlice>(namespace, name, Some(uid), Propagation::Background, None)
}
