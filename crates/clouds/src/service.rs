//! The service controller: a Service of type LoadBalancer gets one from its cloud, whose address is in its status; the load
//! balancer goes before the Service does.
//!
//! A finalizer is there before the cloud is asked for anything. What a load balancer was made for, and what came of it, is
//! remembered: the cloud is asked again only if one of these has changed, or the Nodes have, or this process has just begun.
//! Services with a class are somebody else's. Source: `cloud-provider/controllers/service`.

mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use controller::load_balancer::{is_candidate, is_included};
use controller::metadata::{key, name, namespace, uid};
use controller::{Action, Change, Controller, EventType, Informers, Outcome, Patch, Plan, Source};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;
use serde_json::json;

use crate::cloud::{Cloud, ask};
use crate::message::{self, provider_id};
use crate::provider::{Provider, Refusal, RefusalKind};
use crate::v1;
use status::Ingress;

/// Keeps a Service until its load balancer is gone. Source: `servicehelper.LoadBalancerCleanupFinalizer`.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Names of Nodes that an event lists. Source: `maxNodeNamesToLog`.
const NODE_NAMES_MAX: usize = 20;

/// What a load balancer was made for, and what came of it.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    service: v1::Service,
    /// Provider ids by name.
    nodes: BTreeMap<String, String>,
    /// Where it is reached; nothing if somebody else makes it.
    ingress: Option<Vec<Ingress>>,
}

/// By the Service's key; those of Services that are gone are forgotten with them.
#[derive(Default)]
struct Known(Mutex<HashMap<String, Made>>);

impl Known {
    fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }

    fn put(informers: &Informers, service: &Service, made: Made) {
        Self::of(informers).0.lock().insert(key(&service.metadata), made);
    }

    fn forget(informers: &Informers, key: &str) {
        Self::of(informers).0.lock().remove(key);
    }
}

/// The controller's row. Keys are Services.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "service-lb-controller",
    queue: "service",
    sources: |_| vec![Source::of::<Service>(of_service), Source::of::<Node>(of_node)],
    reconcile: |informers, key, _| {
        let made = Known::of(informers).0.lock().get(key).cloned();
        let cluster_name = Cloud::options(informers).cluster_name;
        let service = informers.informer::<Service>().get(key);
        let there = service.as_ref().map(|service| uid(&service.metadata).to_owned());
        match (made, service) {
            // Somebody has taken its finalizer away, and the Service with it.
            (Some(made), _) if there.as_ref() != Some(&made.service.uid) => {
                forgotten(key, &made, &cluster_name)
            }
            (_, None) => Plan::nothing(),
            (made, Some(service)) => {
                let nodes = informers.informer::<Node>().list();
                plan(&Snapshot { service, nodes, made, cluster_name })
            }
        }
    },
};

/// What a decision about a Service is made from.
struct Snapshot {
    service: Arc<Service>,
    /// All that there are.
    nodes: Vec<Arc<Node>>,
    made: Option<Made>,
    cluster_name: String,
}

fn of_service(change: &Change<Service>, _: &Informers) -> Vec<String> {
    if is_news(change) { vec![change.key.to_string()] } else { Vec::new() }
}

/// What is looked at of a Service that is a load balancer's, or was one's.
fn is_news(change: &Change<Service>) -> bool {
    let facts = |service: &Arc<Service>| {
        // A finalizer of ours that comes or goes is no news.
        (facts(service), status::of(service), service.metadata.deletion_timestamp.is_some())
    };
    let is_concerned = |service: &Arc<Service>| is_wanted(service) || is_left(service);
    let (old, new) = (change.old.as_ref(), change.new.as_ref());
    let is_ours = old.is_some_and(is_concerned) || new.is_some_and(is_concerned);
    let wants = |service: Option<&Arc<Service>>| service.is_some_and(|service| is_wanted(service));
    let is_same = wants(old) == wants(new) && old.map(facts) == new.map(facts);
    is_ours && !is_same
}

/// Load balancers lead to other Nodes when one comes, goes, takes part no more or gets its name in the cloud.
fn of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    if !concerns_load_balancers(change) {
        return Vec::new();
    }
    let services = informers.informer::<Service>().list();
    services.iter().filter(|service| is_wanted(service)).map(|service| key(&service.metadata)).collect()
}

/// A Node that is about to go is no news: its load balancers see by their own checks that it drains, and connections to it
/// end in order (KEP-3458). Source: `shouldSyncUpdatedNode`.
fn concerns_load_balancers(change: &Change<Node>) -> bool {
    let facts = |node: &Arc<Node>| (is_included(node), provider_id(node).to_owned());
    change.old.as_ref().map(facts) != change.new.as_ref().map(facts)
}

fn kind_and_class(service: &Service) -> (Option<&str>, Option<&str>) {
    let spec = service.spec.as_ref();
    (spec.and_then(|spec| spec.type_.as_deref()), spec.and_then(|spec| spec.load_balancer_class.as_deref()))
}

/// Source: `wantsLoadBalancer`.
fn is_wanted(service: &Service) -> bool {
    kind_and_class(service) == (Some("LoadBalancer"), None)
}

fn holds_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
}

/// Whether a load balancer may be there that is wanted no more. Source: `needsCleanup`.
fn is_left(service: &Service) -> bool {
    let (kind, class) = kind_and_class(service);
    let is_others = kind == Some("LoadBalancer") && class.is_some();
    let is_going = service.metadata.deletion_timestamp.is_some();
    holds_finalizer(service) && !is_others && (is_going || kind != Some("LoadBalancer"))
}

/// What a load balancer depends on. Source: `needsUpdate`.
fn facts(service: &Service) -> v1::Service {
    let service = message::service(service);
    v1::Service { labels: BTreeMap::new(), cluster_ips: Vec::new(), ..service }
}

/// Decides for one Service.
fn plan(snapshot: &Snapshot) -> Plan {
    let service = &snapshot.service;
    if is_left(service) {
        return take_back(snapshot);
    }
    if !is_wanted(service) || service.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let targets: Vec<&Arc<Node>> = snapshot.nodes.iter().filter(|node| is_candidate(node)).collect();
    let named = |node: &&Arc<Node>| (name(&node.metadata).to_owned(), provider_id(node).to_owned());
    let wanted = Made { service: facts(service), nodes: targets.iter().map(named).collect(), ingress: None };
    let nodes: Vec<v1::Node> = targets.iter().map(|node| message::node(node)).collect();
    match &snapshot.made {
        Some(made) if made.service != wanted.service || !holds_finalizer(service) => {
            ensure(snapshot, wanted, nodes)
        }
        Some(made) if made.nodes != wanted.nodes => update(snapshot, wanted, made.ingress.clone(), nodes),
        Some(made) => {
            let mut plan = Plan::nothing();
            let told = made.ingress.as_ref().and_then(|ingress| status::patch(service, ingress));
            plan.push_step(told.into_iter().collect());
            plan
        }
        None => ensure(snapshot, wanted, nodes),
    }
}

fn event(service: &Service, kind: EventType, reason: &str, message: impl Into<String>) -> Action {
    Action::event(service, kind, reason, message)
}

const NO_NODES: (&str, &str) = ("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer");

/// Has the cloud make it, or make it as the Service says.
fn ensure(snapshot: &Snapshot, wanted: Made, nodes: Vec<v1::Node>) -> Plan {
    let service = &snapshot.service;
    let mut plan = Plan::nothing();
    plan.push(event(service, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer"));
    if !holds_finalizer(service) {
        // By the status, which is what upstream's role lets it write.
        let meta = &service.metadata;
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid(meta), "finalizers": [FINALIZER]}}));
        plan.push(Action::patch_status::<Service>(namespace(meta), name(meta), patch));
    }
    if nodes.is_empty() {
        plan.push(event(service, EventType::Warning, NO_NODES.0, NO_NODES.1));
    }
    let request = v1::EnsureLoadBalancerRequest {
        cluster_name: snapshot.cluster_name.clone(),
        service: Some(message::service(service)),
        nodes,
    };
    let what = format!("EnsureLoadBalancer {} {}", key(&service.metadata), list(&wanted.nodes));
    let call = move |provider: Arc<dyn Provider>| {
        let request = request.clone();
        async move { provider.ensure_load_balancer(request).await }.boxed()
    };
    let about = service.clone();
    plan.push(ask(what, call, move |informers, answer| {
        let read = answer.and_then(|answer| status::read(answer.status));
        let (ingress, outcome) = ensured(&about, read);
        match ingress {
            Some(ingress) => Known::put(informers, &about, Made { ingress, ..wanted.clone() }),
            None => Known::forget(informers, &key(&about.metadata)),
        }
        outcome
    }));
    plan
}

/// What is to be remembered, if it was made, and what follows.
fn ensured(
    service: &Service,
    answer: Result<Vec<Ingress>, Refusal>,
) -> (Option<Option<Vec<Ingress>>>, Outcome) {
    let mut plan = Plan::nothing();
    match answer {
        Ok(ingress) => {
            plan.push_step(status::patch(service, &ingress).into_iter().collect());
            plan.push(event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer"));
            (Some(Some(ingress)), Outcome::done(plan))
        }
        Err(refusal) if refusal.kind == RefusalKind::Elsewhere => (Some(None), Outcome::done(plan)),
        Err(refusal) => (None, failed(service, "failed to ensure load balancer", &refusal)),
    }
}

fn failed(service: &Service, what: &str, refusal: &Refusal) -> Outcome {
    let mut plan = Plan::nothing();
    let message = format!("Error syncing load balancer: {what}: {refusal}");
    plan.push(event(service, EventType::Warning, "SyncLoadBalancerFailed", message));
    Outcome::failed(plan, refusal.into())
}

/// Has it lead to other Nodes.
fn update(snapshot: &Snapshot, wanted: Made, ingress: Option<Vec<Ingress>>, nodes: Vec<v1::Node>) -> Plan {
    let service = &snapshot.service;
    let request = v1::UpdateLoadBalancerRequest {
        cluster_name: snapshot.cluster_name.clone(),
        service: Some(message::service(service)),
        nodes,
    };
    let what = format!("UpdateLoadBalancer {} {}", key(&service.metadata), list(&wanted.nodes));
    let call = move |provider: Arc<dyn Provider>| {
        let request = request.clone();
        async move { provider.update_load_balancer(request).await }.boxed()
    };
    let (about, made) = (service.clone(), Made { ingress, ..wanted });
    let mut plan = Plan::nothing();
    plan.push(ask(what, call, move |informers, answer| {
        let outcome = updated(&about, &made.nodes, answer.map(drop));
        match outcome.failure {
            None => Known::put(informers, &about, made.clone()),
            // Made anew as a whole, as upstream does.
            Some(_) => Known::forget(informers, &key(&about.metadata)),
        }
        outcome
    }));
    plan
}

fn updated(service: &Service, nodes: &BTreeMap<String, String>, answer: Result<(), Refusal>) -> Outcome {
    let mut plan = Plan::nothing();
    match answer {
        Ok(()) if nodes.is_empty() => plan.push(event(service, EventType::Warning, NO_NODES.0, NO_NODES.1)),
        Ok(()) => {
            let message = "Updated load balancer with new hosts";
            plan.push(event(service, EventType::Normal, "UpdatedLoadBalancer", message));
        }
        Err(refusal) if refusal.kind == RefusalKind::Elsewhere => {}
        Err(refusal) => {
            let message = format!(
                "Error updating load balancer with new hosts {} [node names limited, total number of nodes: {}], error: \
                 {refusal}",
                list(nodes),
                nodes.len()
            );
            plan.push(event(service, EventType::Warning, "UpdateLoadBalancerFailed", message));
            return Outcome::failed(plan, (&refusal).into());
        }
    }
    Outcome::done(plan)
}

/// Names, as Go prints them. Source: `loggableNodeNames`.
fn list(nodes: &BTreeMap<String, String>) -> String {
    let names: Vec<&str> = nodes.keys().take(NODE_NAMES_MAX).map(String::as_str).collect();
    let more = nodes.len().saturating_sub(NODE_NAMES_MAX);
    let more = if more > 0 { format!(" <{more} more>") } else { String::new() };
    format!("[{}{more}]", names.join(" "))
}

/// Takes the load balancer away of a Service that is not there any more; another of its name comes after it.
/// Source: `processServiceDeletion`.
fn forgotten(service_key: &str, made: &Made, cluster_name: &str) -> Plan {
    let request = v1::LoadBalancerRequest {
        cluster_name: cluster_name.to_owned(),
        service: Some(made.service.clone()),
    };
    let call = move |provider: Arc<dyn Provider>| {
        let request = request.clone();
        async move { provider.ensure_load_balancer_deleted(request).await }.boxed()
    };
    let of = service_key.to_owned();
    let mut plan = Plan::nothing();
    let then = move |informers: &Informers,
                     answer: Result<v1::EnsureLoadBalancerDeletedResponse, Refusal>| {
        match answer {
            Err(refusal) if refusal.kind == RefusalKind::Failed => {
                Outcome::failed(Plan::nothing(), (&refusal).into())
            }
            _ => {
                Known::forget(informers, &of);
                let mut plan = Plan::nothing();
                plan.requeue(std::time::Duration::ZERO);
                Outcome::done(plan)
            }
        }
    };
    plan.push(ask(format!("EnsureLoadBalancerDeleted {service_key}"), call, then));
    plan
}

/// Takes a load balancer away, and then the finalizer.
fn take_back(snapshot: &Snapshot) -> Plan {
    let service = &snapshot.service;
    let request = v1::LoadBalancerRequest {
        cluster_name: snapshot.cluster_name.clone(),
        service: Some(message::service(service)),
    };
    let asked = request.clone();
    let call = move |provider: Arc<dyn Provider>| {
        let request = asked.clone();
        async move { provider.get_load_balancer(request).await }.boxed()
    };
    let about = service.clone();
    let mut plan = Plan::nothing();
    plan.push(ask(format!("GetLoadBalancer {}", key(&service.metadata)), call, move |informers, answer| {
        // From here on its finalizer stands for it.
        Known::forget(informers, &key(&about.metadata));
        found(&about, &request, answer.map(|answer| answer.exists))
    }));
    plan
}

fn found(
    service: &Arc<Service>,
    request: &v1::LoadBalancerRequest,
    answer: Result<bool, Refusal>,
) -> Outcome {
    match answer {
        Ok(true) => {
            let mut plan = Plan::nothing();
            plan.push(event(service, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer"));
            let (about, request) = (service.clone(), request.clone());
            let call = move |provider: Arc<dyn Provider>| {
                let request = request.clone();
                async move { provider.ensure_load_balancer_deleted(request).await }.boxed()
            };
            let what = format!("EnsureLoadBalancerDeleted {}", key(&service.metadata));
            plan.push(ask(what, call, move |_, answer| taken_back(&about, answer.map(drop))));
            Outcome::done(plan)
        }
        Ok(false) => Outcome::done(let_go(service)),
        Err(refusal) if refusal.kind == RefusalKind::NotFound => Outcome::done(let_go(service)),
        Err(refusal) => failed(service, "failed to check if load balancer exists before cleanup", &refusal),
    }
}

fn taken_back(service: &Service, answer: Result<(), Refusal>) -> Outcome {
    match answer {
        Ok(()) => Outcome::done(let_go(service)),
        Err(refusal) if matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Elsewhere) => {
            Outcome::done(let_go(service))
        }
        Err(refusal) => failed(service, "failed to delete load balancer", &refusal),
    }
}

/// Status and finalizer go at once: nobody is told of an address that is nobody's any more.
fn let_go(service: &Service) -> Plan {
    let meta = &service.metadata;
    let mut patch =
        json!({"metadata": {"uid": uid(meta), "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    if !status::of(service).is_empty() {
        patch["status"] = json!({"loadBalancer": {"ingress": null}});
    }
    let mut plan = Plan::nothing();
    plan.push(Action::patch_status::<Service>(namespace(meta), name(meta), Patch::Strategic(patch)));
    plan.push(event(service, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer"));
    plan
}
