//! The Endpoints controller: the older form of EndpointSlices, one object per Service.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use controller::metadata::{is_deleting, label, uid};
use controller::pod::Pod;
use controller::resource_ref::split_key;
use controller::{Action, Controller, Informers, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::pod::{is_finished, is_ready, node_name};
use crate::service_pods::{self, HEADLESS, ServicePods, TRIGGER_TIME};

/// Addresses in one object; more are left out, which an annotation says. Source: core/v1.
const ADDRESSES_MAX: usize = 1_000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "endpoints-controller",
    queue: "endpoint",
    sources: |_| {
        vec![
            Source::itself::<Service>(),
            Source::itself::<Endpoints>(),
            Source::of::<Pod>(service_pods::services_of_pod),
        ]
    },
    reconcile: |informers, key, now| plan(&gather(informers, key), key, now),
};

/// The input of a decision about one Service's Endpoints.
pub struct Snapshot {
    /// The Service and its Pods; none if there is no such Service, or its endpoints are not made here.
    pub service_pods: Option<ServicePods>,
    /// `true` if there is a Service of that name at all.
    pub has_service: bool,
    /// The object as it is.
    pub endpoints: Option<Arc<Endpoints>>,
}

fn gather(informers: &Informers, key: &str) -> Snapshot {
    Snapshot {
        service_pods: ServicePods::gather(informers, key),
        has_service: informers.informer::<Service>().get(key).is_some(),
        endpoints: informers.informer::<Endpoints>().get(key),
    }
}

/// Decides what to do about the Endpoints under `key`.
pub fn plan(snapshot: &Snapshot, key: &str, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let existing = snapshot.endpoints.as_deref();
    let Some(service_pods) = &snapshot.service_pods else {
        if let Some(left) = existing.filter(|_| !snapshot.has_service)
            && label(&left.metadata, MANAGED_BY) == Some(MANAGER)
        {
            let ((namespace, name), uid) = (split_key(key), uid(&left.metadata));
            plan.push(Action::delete::<Endpoints>(namespace, name, Some(uid), Propagation::Background, None));
        }
        return plan;
    };
    if is_deleting(&service_pods.service.metadata) {
        return plan;
    }
    let wanted = endpoints(service_pods);
    match existing {
        None => plan.push(Action::create(&wanted)),
        Some(existing) => plan.push_step(change(existing, wanted).into_iter().collect()),
    }
    plan
}

fn endpoints(service_pods: &ServicePods) -> Endpoints {
    let service = &*service_pods.service;
    let (subsets, is_truncated) = truncate(subsets(service_pods), ADDRESSES_MAX);
    let mut labels = service_pods::copied_labels(service);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = service_pods::copied_annotations(service);
    annotations.insert(TRIGGER_TIME.to_owned(), service_pods.trigger_time());
    if is_truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        subsets: (!subsets.is_empty()).then_some(subsets),
    }
}

/// Pods with the same ports form a subset.
fn subsets(service_pods: &ServicePods) -> Vec<EndpointSubset> {
    let service = &*service_pods.service;
    let takes_unready = service_pods::publishes_not_ready(service);
    let mut subsets: Vec<EndpointSubset> = Vec::new();
    for pod in service_pods.pods.iter().filter(|pod| !is_finished(pod)) {
        let Some(address) = address(service, pod).filter(|_| takes_unready || !is_deleting(&pod.metadata))
        else {
            continue;
        };
        let ports = resolved_ports(service, pod);
        if ports.is_empty() && !service_pods::ports(service).is_empty() {
            continue;
        }
        let ports = (!ports.is_empty()).then_some(ports);
        let index = subsets.iter().position(|subset| subset.ports == ports).unwrap_or_else(|| {
            subsets.push(EndpointSubset { ports, ..EndpointSubset::default() });
            subsets.len() - 1
        });
        let Some(subset) = subsets.get_mut(index) else { continue };
        let list = if takes_unready || is_ready(pod) {
            &mut subset.addresses
        } else {
            &mut subset.not_ready_addresses
        };
        list.get_or_insert_default().push(address);
    }
    for subset in &mut subsets {
        for list in [&mut subset.addresses, &mut subset.not_ready_addresses].into_iter().flatten() {
            list.sort_by_key(|address| address.ip.parse::<IpAddr>().ok());
        }
    }
    subsets
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let families = service_pods::families(service);
    let found = service_pods::addresses(pod)
        .into_iter()
        .find(|ip| families.first() == Some(&service_pods::family(ip)))?;
    let node = node_name(pod);
    Some(EndpointAddress {
        ip: found.to_string(),
        hostname: service_pods::hostname(service, pod),
        node_name: (!node.is_empty()).then(|| node.to_owned()),
        target_ref: Some(service_pods::target(pod)),
    })
}

fn resolved_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let resolved = service_pods::ports(service).iter().filter_map(|port| {
        Some(EndpointPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: service_pods::resolve(port, pod)?,
            protocol: Some(service_pods::protocol(port).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}

/// Keeps at most `most` addresses, ready ones before others. Says whether any were left out.
fn truncate(mut subsets: Vec<EndpointSubset>, most: usize) -> (Vec<EndpointSubset>, bool) {
    let (mut room, mut is_truncated) = (most, false);
    let mut keep = |list: &mut Option<Vec<EndpointAddress>>| {
        let Some(addresses) = list else { return };
        is_truncated |= addresses.len() > room;
        addresses.truncate(room);
        room -= addresses.len();
        if addresses.is_empty() {
            *list = None;
        }
    };
    subsets.iter_mut().for_each(|subset| keep(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| keep(&mut subset.not_ready_addresses));
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    (subsets, is_truncated)
}

/// The update that makes `existing` what is wanted, or nothing when it is so already. When it changed is no
/// reason to change it; labels and annotations of others stay.
fn change(existing: &Endpoints, wanted: Endpoints) -> Option<Action> {
    let meta = &existing.metadata;
    let is_subset_same =
        existing.subsets.as_deref().unwrap_or_default() == wanted.subsets.as_deref().unwrap_or_default();
    let labels = merged(meta.labels.as_ref(), wanted.metadata.labels, &[HEADLESS]);
    let mut annotations = merged(meta.annotations.as_ref(), wanted.metadata.annotations, &[OVER_CAPACITY]);
    let triggered = annotations.remove(TRIGGER_TIME);
    let mut known = meta.annotations.clone().unwrap_or_default();
    known.remove(TRIGGER_TIME);
    if is_subset_same && labels == meta.labels.clone().unwrap_or_default() && annotations == known {
        return None;
    }
    annotations.extend(triggered.map(|time| (TRIGGER_TIME.to_owned(), time)));
    let metadata = ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..meta.clone() };
    Some(Action::update(&Endpoints { metadata, subsets: wanted.subsets }))
}

/// What there `is` with what is `wanted`; of what is there beyond that, only `own` keys are taken away.
fn merged(
    is: Option<&BTreeMap<String, String>>,
    wanted: Option<BTreeMap<String, String>>,
    own: &[&str],
) -> BTreeMap<String, String> {
    let mut merged = is.cloned().unwrap_or_default();
    merged.retain(|key, _| !own.contains(&key.as_str()));
    merged.extend(wanted.into_iter().flatten());
    merged
}
