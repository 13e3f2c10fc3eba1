//! The route controller: the cloud leads packets for a Node's Pods to its machine, and says so by the Node's condition
//! NetworkUnavailable.
//!
//! One key stands for all routes: they are listed, and what differs is made or taken away, of those in the cluster's networks
//! only. Source: `cloud-provider/controllers/route`.

mod listed;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use controller::metadata::{name, uid};
use controller::{Action, Change, Controller, EventType, Informers, Outcome, Patch, Plan, Source};
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::cloud::{Cloud, Options, ask};
use crate::message::addresses;
use crate::provider::{Provider, Refusal};
use crate::v1;
use listed::Listed;

const KEY: &str = "routes";

/// The controller's row. There is one key.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "node-route-controller",
    queue: "Routes",
    sources: |_| vec![Source::of::<Node>(of_node)],
    reconcile: |informers, _, _| plan(&Cloud::options(informers)),
};

fn of_node(change: &Change<Node>, _: &Informers) -> Vec<String> {
    if is_news(change) { vec![KEY.to_owned()] } else { Vec::new() }
}

/// A Node that comes or goes, or gets other ranges or addresses. Source: `handleNodeUpdate`.
fn is_news(change: &Change<Node>) -> bool {
    let facts = |node: &Arc<Node>| (uid(&node.metadata).to_owned(), ranges(node), addresses(node));
    change.old.as_ref().map(facts) != change.new.as_ref().map(facts)
}

/// The ranges of a Node's Pods.
fn ranges(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

/// Asks for the routes that there are.
fn plan(options: &Options) -> Plan {
    let request = v1::ListRoutesRequest { cluster_name: options.cluster_name.clone() };
    let call = move |provider: Arc<dyn Provider>| {
        let request = request.clone();
        async move { provider.list_routes(request).await }.boxed()
    };
    let of = options.clone();
    let mut plan = Plan::nothing();
    plan.push(ask("ListRoutes".to_owned(), call, move |informers, answer| {
        let nodes = informers.informer::<Node>().list();
        let read = answer.and_then(|answer| Listed::read(answer.routes));
        match read {
            Ok(routes) => Outcome::done(compare(&nodes, &routes, &of, informers.clock().now())),
            Err(refusal) => Outcome::failed(Plan::nothing(), (&refusal).into()),
        }
    }));
    plan.requeue(options.route_reconciliation_period);
    plan
}

/// What is to be done about the routes that there are: those that are not wanted go before others come.
fn compare(nodes: &[Arc<Node>], routes: &[Listed], options: &Options, now: Timestamp) -> Plan {
    let clusters: Vec<_> = options.cluster_cidr.iter().flat_map(|cidrs| cidrs.iter()).collect();
    let is_wanted = |route: &Listed| {
        nodes.iter().any(|node| ranges(node).iter().any(|range| route.leads(node, range, &addresses(node))))
    };
    let superfluous = routes.iter().filter(|route| route.is_in(&clusters) && !is_wanted(route));
    let mut plan = Plan::nothing();
    plan.push_step(superfluous.map(|route| delete(route, options)).collect());
    let (mut conditions, mut creations) = (Vec::new(), Vec::new());
    for node in nodes {
        let missing: Vec<String> = ranges(node)
            .into_iter()
            .filter(|range| !routes.iter().any(|route| route.leads(node, range, &addresses(node))))
            .collect();
        // Without a range it has no routes, and nobody's judgement.
        if missing.is_empty() && !ranges(node).is_empty() {
            conditions.extend(condition(node, true, now));
        }
        creations.extend(create(node, missing, options, now));
    }
    plan.push_step(conditions);
    plan.push_step(creations);
    plan
}

fn delete(route: &Listed, options: &Options) -> Action {
    let request =
        v1::DeleteRouteRequest { cluster_name: options.cluster_name.clone(), route: Some(route.as_listed()) };
    let what = format!("DeleteRoute {} {}", route.name(), route.destination());
    let call = move |provider: Arc<dyn Provider>| {
        let request = request.clone();
        async move { provider.delete_route(request).await }.boxed()
    };
    let about = what.clone();
    ask(what, call, move |_, answer: Result<v1::DeleteRouteResponse, Refusal>| {
        if let Err(why) = answer {
            // It is listed again, and tried again.
            tracing::warn!(route = about, %why, "a route was not deleted");
        }
        Outcome::default()
    })
}

/// Makes a Node's routes, one after the other; then it has all of them.
fn create(node: &Arc<Node>, mut missing: Vec<String>, options: &Options, now: Timestamp) -> Option<Action> {
    let range = missing.pop()?;
    let meta = &node.metadata;
    let request = v1::CreateRouteRequest {
        cluster_name: options.cluster_name.clone(),
        name_hint: uid(meta).to_owned(),
        route: Some(v1::Route {
            target_node: name(meta).to_owned(),
            target_node_addresses: addresses(node),
            destination_cidr: range.clone(),
            ..v1::Route::default()
        }),
    };
    let what = format!("CreateRoute {range} {}", name(meta));
    let call = move |provider: Arc<dyn Provider>| {
        let request = request.clone();
        async move { provider.create_route(request).await }.boxed()
    };
    let (about, options) = (node.clone(), options.clone());
    Some(ask(what, call, move |_, answer: Result<v1::CreateRouteResponse, Refusal>| match answer {
        Ok(_) => Outcome::done(created(&about, missing.clone(), &options, now)),
        Err(why) => Outcome::done(not_created(&about, &range, &why, now)),
    }))
}

fn created(node: &Arc<Node>, missing: Vec<String>, options: &Options, now: Timestamp) -> Plan {
    let next = create(node, missing, options, now).or_else(|| condition(node, true, now));
    let mut plan = Plan::nothing();
    plan.push_step(next.into_iter().collect());
    plan
}

/// That a route could not be made is told of its Node; the others have theirs all the same, and it is tried again with the next
/// comparison.
fn not_created(node: &Node, range: &str, why: &Refusal, now: Timestamp) -> Plan {
    let meta = &node.metadata;
    let message = format!("Could not create route {} {range} for node {}: {why}", uid(meta), name(meta));
    let mut plan = Plan::nothing();
    plan.push(Action::event(node, EventType::Warning, "FailedToCreateRoute", message));
    plan.push_step(condition(node, false, now).into_iter().collect());
    plan
}

/// Says whether a Node has its routes, if its condition does not say so already. Source: `updateNetworkingCondition`.
fn condition(node: &Node, is_there: bool, now: Timestamp) -> Option<Action> {
    let (status, reason, message) = match is_there {
        true => ("False", "RouteCreated", "RouteController created a route"),
        false => ("True", "NoRouteCreated", "RouteController failed to create a route"),
    };
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut known = conditions.into_iter().filter(|condition| condition.type_ == "NetworkUnavailable");
    if known.any(|condition| condition.status == status && condition.reason.as_deref() == Some(reason)) {
        return None;
    }
    let at = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let condition = json!({
        "type": "NetworkUnavailable", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": at, "lastTransitionTime": at,
    });
    let meta = &node.metadata;
    let patch = json!({"metadata": {"uid": uid(meta)}, "status": {"conditions": [condition]}});
    Some(Action::patch_status::<Node>("", name(meta), Patch::Strategic(patch)))
}
