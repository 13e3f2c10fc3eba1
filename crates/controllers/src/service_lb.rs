//! The built-in load balancer: a Service of type LoadBalancer is reached at the Nodes' addresses, or at one of a pool.
//!
//! What is decided is only written into the Service's status: proxies make rules of it, and put a pool's address on one
//! of the Nodes. Services with a class are left to whoever has that class. Two Services never have one address with one
//! port: who has it keeps it, then the older one gets it, and the other is told whose it is. One key stands for all
//! Services. Without [`Settings`] nothing is given.
//!
//! Source: `cloud-provider/controllers/service` for finalizer and events; k3s' servicelb for what users see.

mod nodes;
mod pool;
mod port_owners;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use controller::load_balancer::{CLASS, CONDITION, WAITING, condition};
use controller::metadata::{created, is_deleting, key, label, name, namespace, time, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery::address_range::AddressRange;
use machinery::net::Family;
use serde_json::json;

use crate::service_pods;
use port_owners::{HostPort, PortOwners};

/// Keeps a Service until its load balancer is gone. Source: `servicehelper.LoadBalancerCleanupFinalizer`.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The settings of the load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The ranges that Services get addresses of; those of the Nodes, if there is none.
    pub pool: Vec<AddressRange>,
    /// TCP ports that every Node answers at itself.
    pub own_ports: BTreeSet<u16>,
}

/// The controller's row. There is one key.
pub const CONTROLLER: Controller = Controller {
    name: "servicelb-controller",
    queue: "service",
    sources: |informers| match informers.setting::<Settings>() {
        Some(_) => vec![
            Source::of::<Service>(of_service),
            Source::of::<Node>(of_node),
            Source::of::<EndpointSlice>(of_slice),
            Source::of::<Pod>(of_pod),
        ],
        None => Vec::new(),
    },
    reconcile: |informers, _, now| match informers.setting::<Settings>() {
        Some(settings) => plan(&gather(informers, settings), now),
        None => Plan::nothing(),
    },
};

/// The input of a decision about all Services.
pub struct Snapshot {
    settings: Arc<Settings>,
    /// All of them: the others have ports of Nodes, too.
    services: Vec<Arc<Service>>,
    nodes: Vec<Arc<Node>>,
    /// Those of balanced Services whose traffic stays on a Node.
    slices: Vec<Arc<EndpointSlice>>,
    host_ports: Vec<HostPort>,
}

fn wake(is_news: bool) -> Vec<String> {
    if is_news { vec![String::new()] } else { Vec::new() }
}

/// A Service that is or was ours; and any other whose ports of Nodes change while some are ours.
fn of_service(change: &Change<Service>, _: &Informers) -> Vec<String> {
    let both = [&change.old, &change.new];
    let is_concerned = |service: &&Arc<Service>| is_balanced(service) || condition(service).is_some();
    let ports = |service: &Option<Arc<Service>>| service.as_deref().map(port_owners::node_ports);
    wake(both.into_iter().flatten().any(|one| is_concerned(&one)) || ports(&change.old) != ports(&change.new))
}

/// What is looked at of a Node: heartbeats wake nobody.
fn of_node(change: &Change<Node>, _: &Informers) -> Vec<String> {
    let facts = |node: &Option<Arc<Node>>| node.as_deref().map(nodes::Facts::of);
    wake(facts(&change.old) != facts(&change.new))
}

fn of_slice(change: &Change<EndpointSlice>, informers: &Informers) -> Vec<String> {
    let services = informers.informer::<Service>();
    let of = |slice: &Arc<EndpointSlice>| services.get(&service_of(slice)?);
    let both = [&change.old, &change.new];
    wake(both.into_iter().flatten().filter_map(of).any(|service| is_local(&service)))
}

fn of_pod(change: &Change<Pod>, _: &Informers) -> Vec<String> {
    let ports = |pod: &Option<Arc<Pod>>| pod.as_deref().map(port_owners::host_ports).unwrap_or_default();
    wake(ports(&change.old) != ports(&change.new))
}

fn gather(informers: &Informers, settings: Arc<Settings>) -> Snapshot {
    let services = informers.informer::<Service>();
    let is_of_local = |slice: &Arc<EndpointSlice>| {
        service_of(slice).and_then(|key| services.get(&key)).is_some_and(|service| is_local(&service))
    };
    let all = services.list();
    let has_local = all.iter().any(|service| is_local(service));
    let slices = if has_local { informers.informer::<EndpointSlice>().list() } else { Vec::new() };
    let pods = if settings.pool.is_empty() { informers.informer::<Pod>().list() } else { Vec::new() };
    Snapshot {
        slices: slices.into_iter().filter(is_of_local).collect(),
        host_ports: pods.iter().flat_map(|pod| port_owners::host_ports(pod)).collect(),
        nodes: informers.informer::<Node>().list(),
        services: all,
        settings,
    }
}

fn service_of(slice: &EndpointSlice) -> Option<String> {
    let service = label(&slice.metadata, SERVICE_NAME)?;
    Some(format!("{}/{service}", namespace(&slice.metadata)))
}

fn spec_of(service: &Service) -> Option<&ServiceSpec> {
    service.spec.as_ref()
}

/// Whether a load balancer of ours is wanted, whatever else is the case.
fn is_balanced(service: &Service) -> bool {
    spec_of(service).is_some_and(|spec| {
        let class = spec.load_balancer_class.as_deref();
        spec.type_.as_deref() == Some("LoadBalancer") && class.is_none_or(|class| class == CLASS)
    })
}

/// Whether it is reached at those Nodes only that have its endpoints.
fn is_local(service: &Service) -> bool {
    is_balanced(service)
        && spec_of(service).is_some_and(|spec| spec.external_traffic_policy.as_deref() == Some("Local"))
}

fn holds_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// Addresses of its status.
fn ingress(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

/// The families that a Service has addresses of, the first one first.
fn families(service: &Service) -> Vec<Family> {
    service_pods::families(service).into_iter().filter_map(Family::parse).collect()
}

/// What a Service gets.
#[derive(Debug, PartialEq, Eq)]
struct Given {
    reason: &'static str,
    addresses: Vec<IpAddr>,
    message: String,
}

/// Why a Service gets nothing.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// There is no Node that could take its traffic.
    NoNodes,
    /// None of those that could has a ready endpoint.
    NoEndpoints,
    /// Anything else.
    Failed(String),
}

/// Decides what every Service gets, and takes back what none has a right to any more.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let (mut told, mut held) = (Vec::new(), Vec::new());
    let is_ours = |service: &&Arc<Service>| is_balanced(service) && !is_deleting(&service.metadata);
    let mut ours: Vec<&Arc<Service>> = snapshot.services.iter().filter(is_ours).collect();
    ours.sort_by_key(|service| {
        let has_address = condition(service).is_some() && !ingress(service).is_empty();
        (!has_address, created(&service.metadata), key(&service.metadata))
    });
    let mut owners = PortOwners::of(snapshot);
    let mut taken = pool::Taken::of(snapshot);
    for service in ours {
        let decided = match snapshot.settings.pool.as_slice() {
            [] => nodes::give(service, snapshot, &mut owners),
            pool => taken.give(service, pool),
        };
        told.extend(tell(service, decided, now));
        if !holds_finalizer(service) {
            let patch = json!({"metadata": {"uid": uid(&service.metadata), "finalizers": [FINALIZER]}});
            held.push(patch_of(service, patch));
        }
    }
    for service in snapshot.services.iter().filter(|service| !is_ours(service)) {
        let (status, finalizer) = take_back(service);
        told.extend(status);
        held.extend(finalizer);
    }
    let mut plan = Plan::nothing();
    plan.push_step(told);
    plan.push_step(held);
    plan
}

fn patch_of(service: &Service, patch: serde_json::Value) -> Action {
    let meta = &service.metadata;
    Action::patch::<Service>(namespace(meta), name(meta), Patch::Strategic(patch))
}

/// Status and events, if they say anything new.
fn tell(service: &Service, decided: Result<Given, Refusal>, now: Timestamp) -> Vec<Action> {
    let event = |kind, reason: &str, message: &str| Action::event(service, kind, reason, message);
    let (status, given, failure) = match decided {
        Ok(given) => ("True", given, None),
        Err(refusal) => {
            let message = refusal.to_string();
            ("False", Given { reason: WAITING, addresses: Vec::new(), message }, Some(refusal))
        }
    };
    let before = condition(service);
    let is_told = before.is_some_and(|old| {
        (old.status.as_str(), old.reason.as_str(), &old.message) == (status, given.reason, &given.message)
    });
    let has_addresses = ingress(service) == given.addresses;
    if is_told && has_addresses {
        return Vec::new();
    }
    let since = before.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    let condition = json!({
        "type": CONDITION, "status": status, "reason": given.reason, "message": given.message,
        "lastTransitionTime": since.unwrap_or_else(|| time(now)),
    });
    let addresses: Vec<_> = given.addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let meta = &service.metadata;
    let patch = json!({
        "metadata": {"uid": uid(meta)},
        "status": {"loadBalancer": {"ingress": addresses}, "conditions": [condition]},
    });
    let patch = Action::patch_status::<Service>(namespace(meta), name(meta), Patch::Strategic(patch));
    let was_given = before.is_some_and(|old| old.status == "True");
    match failure {
        None if was_given && has_addresses => vec![patch],
        None if was_given => vec![
            patch,
            event(EventType::Normal, "UpdatedLoadBalancer", "Updated load balancer with new hosts"),
        ],
        None => vec![
            event(EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer"),
            patch,
            event(EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer"),
        ],
        Some(refusal) => vec![patch, event(EventType::Warning, refusal.reason(), &refusal.told())],
    }
}

impl Refusal {
    fn reason(&self) -> &'static str {
        match self {
            Self::NoNodes | Self::NoEndpoints => "UnAvailableLoadBalancer",
            Self::Failed(_) => "SyncLoadBalancerFailed",
        }
    }

    fn told(&self) -> String {
        match self {
            Self::NoNodes | Self::NoEndpoints => self.to_string(),
            Self::Failed(why) => {
                format!("Error syncing load balancer: failed to ensure load balancer: {why}")
            }
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoNodes => f.write_str("There are no available nodes for LoadBalancer"),
            Self::NoEndpoints => {
                f.write_str("No available node has a ready endpoint, and externalTrafficPolicy is Local")
            }
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// Status and finalizer of a Service that we know, and that is not ours any more.
fn take_back(service: &Service) -> (Vec<Action>, Option<Action>) {
    let meta = &service.metadata;
    // A Service without a class is nobody else's, even where we were stopped before we had written it down.
    let is_known = condition(service).is_some() || (is_balanced(service) && holds_finalizer(service));
    if !is_known {
        return (Vec::new(), None);
    }
    let event = |reason: &str, message: &str| Action::event(service, EventType::Normal, reason, message);
    let mut told = vec![event("DeletingLoadBalancer", "Deleting load balancer")];
    if condition(service).is_some() {
        let patch = json!({
            "metadata": {"uid": uid(meta)},
            "status": {"loadBalancer": {"ingress": null}, "conditions": [{"type": CONDITION, "$patch": "delete"}]},
        });
        told.push(Action::patch_status::<Service>(namespace(meta), name(meta), Patch::Strategic(patch)));
    }
    told.push(event("DeletedLoadBalancer", "Deleted load balancer"));
    let finalizer = holds_finalizer(service).then(|| {
        patch_of(
            service,
            json!({"metadata": {"uid": uid(meta), "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}),
        )
    });
    (told, finalizer)
}
