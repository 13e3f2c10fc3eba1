//! The status of Gateways and routes for users: conditions, addresses, how many routes are attached; and the class
//! `knarr`, which is made when its kind appears.
//!
//! A controller of the control plane, with rights of its own: whoever carries requests writes nothing. All is decided together,
//! from the same plan, since a listener's status depends on routes and theirs on listeners.

mod conditions;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use controller::metadata::key;
use controller::{Action, Controller, EventType, Informers, Patch, Plan, ResourceRef, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::CLASS;
use crate::certificates::Checked;
use crate::gateway::{
    CONTROLLER_NAME, GROUP, Gateway, GatewayClass, GatewayInformers, GrpcRoute, HttpRoute, Object,
    ReferenceGrant, Spec, VERSIONS,
};
use crate::matching::Patterns;
use crate::plan::{
    Condition, Finding, GatewayObjects, GatewayReport, ParentReport, Planned, Ports, Report, Snapshot,
    by_key, plan,
};
use crate::run::certificates_scope;
use crate::status::addresses;
use conditions::Since;

/// Everything is one key: there is one plan.
const ALL: &str = "all";
/// Source: `GatewayStatus.addresses`, `GatewayStatus.listeners`, `RouteStatus.parents`.
const ADDRESSES_MAX: usize = 16;
const LISTENERS_MAX: usize = 64;
const PARENTS_MAX: usize = 32;

/// Source: `GatewayClassStatus.supportedFeatures`, in order of their names.
const FEATURES: &[&str] = &[
    "GRPCRoute",
    "Gateway",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
];

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "gateway-controller",
    queue: "gateway",
    sources: |_| {
        vec![
            Source::dynamic::<GatewayClass>(VERSIONS, |_, _| all(), |_| all()),
            Source::dynamic::<Gateway>(VERSIONS, |_, _| all(), |_| all()),
            Source::dynamic::<HttpRoute>(VERSIONS, |_, _| all(), |_| all()),
            Source::dynamic::<GrpcRoute>(VERSIONS, |_, _| all(), |_| all()),
            Source::dynamic::<ReferenceGrant>(VERSIONS, |_, _| all(), |_| all()),
            Source::of::<Service>(|_, informers| if_any(informers)),
            Source::of::<Namespace>(|_, informers| if_any(informers)),
            Source::of::<Ingress>(|_, informers| if_any(informers)),
            Source::of::<IngressClass>(|_, informers| if_any(informers)),
            Source::scoped::<Secret>(certificates_scope(), |_, informers| if_any(informers)),
            Source::of::<Node>(|change, informers| {
                let of = |node: &Option<Arc<Node>>| node.as_ref().map(|node| addresses([&**node]));
                if of(&change.old) == of(&change.new) { Vec::new() } else { if_any(informers) }
            }),
        ]
    },
    reconcile: |informers, _, now| {
        let known = GatewayInformers::of(informers);
        if !known.is_settled() {
            return Plan::nothing();
        }
        let memory = informers.setting_or(Memory::default);
        let snapshot = snapshot(informers, &known, &memory);
        let planned = plan(&snapshot);
        let nodes = informers.informer::<Node>().list();
        let decision = Decision {
            snapshot: &snapshot,
            planned: &planned,
            addresses: addresses(nodes.iter().map(|node| &**node)),
            resources: GatewayResources::of(&known),
            now,
        };
        decision.plan(&memory)
    },
};

fn all() -> Vec<String> {
    vec![ALL.to_owned()]
}

/// What concerns Gateways concerns nobody where there is none.
fn if_any(informers: &Informers) -> Vec<String> {
    let known = GatewayInformers::of(informers);
    if known.gateways.informer().is_empty() { Vec::new() } else { all() }
}

fn snapshot(informers: &Informers, known: &GatewayInformers, memory: &Memory) -> Snapshot {
    let secrets = informers.scoped::<Secret>(certificates_scope());
    Snapshot {
        ingresses: informers.informer::<Ingress>().list(),
        classes: informers.informer::<IngressClass>().list(),
        services: by_key(informers.informer::<Service>().list(), |service| &service.metadata),
        // Who answers right now is not told.
        slices: BTreeMap::new(),
        secrets: by_key(secrets.list(), |secret| &secret.metadata),
        gateways: GatewayObjects::of(known, informers.informer::<Namespace>().list()),
        ports: informers.setting::<Ports>().map(|ports| Ports::clone(&ports)).unwrap_or_default(),
        checked: memory.checked.clone(),
        patterns: memory.patterns.clone(),
    }
}

/// What is known from the last time.
#[derive(Default)]
struct Memory {
    checked: Checked,
    patterns: Patterns,
    /// Classes that were told their features: their definition may have no place for them.
    featured: Mutex<BTreeSet<String>>,
    /// What Ingresses were told.
    told: Mutex<BTreeMap<String, Vec<Finding>>>,
}

/// The resources by which objects of these kinds are written.
struct GatewayResources {
    classes: Option<ResourceRef>,
    gateways: Option<ResourceRef>,
    http_routes: Option<ResourceRef>,
    grpc_routes: Option<ResourceRef>,
}

impl GatewayResources {
    fn of(known: &GatewayInformers) -> Self {
        Self {
            classes: known.classes.resource(),
            gateways: known.gateways.resource(),
            http_routes: known.http_routes.resource(),
            grpc_routes: known.grpc_routes.resource(),
        }
    }
}

/// What is decided about.
struct Decision<'a> {
    snapshot: &'a Snapshot,
    planned: &'a Planned,
    addresses: Vec<IpAddr>,
    resources: GatewayResources,
    now: Timestamp,
}

impl Decision<'_> {
    fn plan(&self, memory: &Memory) -> Plan {
        let (objects, report) = (&self.snapshot.gateways, &self.planned.report);
        let mut actions = self.events(memory);
        if let Some(resource) = &self.resources.classes {
            actions.extend(self.class(resource));
            let classes =
                objects.classes.iter().filter_map(|class| self.class_status(resource, class, report, memory));
            actions.extend(classes);
        }
        if let Some(resource) = &self.resources.gateways {
            let gateways = objects.gateways.iter().filter_map(|gateway| {
                let report = report.gateways.get(&key(&gateway.metadata))?;
                patched(resource, gateway, self.gateway_status(gateway, report))
            });
            actions.extend(gateways);
        }
        if let Some(resource) = &self.resources.http_routes {
            actions
                .extend(objects.http_routes.iter().filter_map(|route| self.route(resource, route, report)));
        }
        if let Some(resource) = &self.resources.grpc_routes {
            actions
                .extend(objects.grpc_routes.iter().filter_map(|route| self.route(resource, route, report)));
        }
        let mut plan = Plan::nothing();
        plan.push_step(actions);
        plan
    }

    /// Tells Ingresses whose hosts are a Gateway's, once each.
    fn events(&self, memory: &Memory) -> Vec<Action> {
        let mut told = memory.told.lock();
        let (mut fresh, mut now) = (Vec::new(), BTreeMap::new());
        for ingress in &self.snapshot.ingresses {
            let key = key(&ingress.metadata);
            let found = self.planned.findings.get(&key).into_iter().flatten();
            let found: Vec<Finding> =
                found.filter(|finding| matches!(finding, Finding::HostTaken { .. })).cloned().collect();
            if found.is_empty() {
                continue;
            }
            let before = told.get(&key).map(Vec::as_slice).unwrap_or_default();
            let new = found.iter().filter(|finding| !before.contains(finding));
            fresh.extend(new.map(|finding| {
                Action::event(&**ingress, EventType::Warning, finding.reason(), finding.to_string())
            }));
            now.insert(key, found);
        }
        *told = now;
        fresh
    }

    /// The class, if it is not there.
    fn class(&self, resource: &ResourceRef) -> Option<Action> {
        let mut known = self.snapshot.gateways.classes.iter();
        if known.any(|class| class.metadata.name.as_deref() == Some(CLASS)) {
            return None;
        }
        let body = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": {"name": CLASS},
            "spec": {"controllerName": CONTROLLER_NAME},
        });
        Some(Action::create_ref(resource.clone(), "", CLASS, body))
    }

    fn class_status(
        &self,
        resource: &ResourceRef,
        class: &GatewayClass,
        report: &Report,
        memory: &Memory,
    ) -> Option<Action> {
        let accepted = report.classes.get(class.metadata.name.as_deref()?)?;
        let conditions = self.since(class).conditions(class.status.get("conditions"), [accepted]);
        let features: Vec<Value> = FEATURES.iter().map(|name| json!({"name": name})).collect();
        let mut status = json!({"conditions": conditions});
        let uid = class.metadata.uid.clone().unwrap_or_default();
        // Where there is no place for them they are offered once.
        if class.status.get("supportedFeatures").is_some() || memory.featured.lock().insert(uid) {
            status["supportedFeatures"] = Value::Array(features);
        }
        patched(resource, class, status)
    }

    fn gateway_status(&self, gateway: &Gateway, report: &GatewayReport) -> Value {
        let since = self.since(gateway);
        let (addresses, programmed) = self.programmed(gateway, report);
        let addresses: Vec<Value> = addresses
            .into_iter()
            .take(ADDRESSES_MAX)
            .map(|address| json!({"type": "IPAddress", "value": address.to_string()}))
            .collect();
        let before = gateway.status.get("listeners").and_then(Value::as_array);
        let listeners = report.listeners.iter().take(LISTENERS_MAX).map(|listener| {
            let is_it =
                |known: &&Value| known.get("name").and_then(Value::as_str) == Some(listener.name.as_str());
            let before = before.into_iter().flatten().find(is_it).and_then(|known| known.get("conditions"));
            let kinds: Vec<_> =
                listener.kinds.iter().map(|kind| json!({"group": GROUP, "kind": kind})).collect();
            json!({
                "name": listener.name,
                "supportedKinds": kinds,
                "attachedRoutes": listener.attached,
                "conditions": since.conditions(before, &listener.conditions),
            })
        });
        json!({
            "addresses": addresses,
            "conditions": since.conditions(gateway.status.get("conditions"), [&report.accepted, &programmed]),
            "listeners": listeners.collect::<Vec<_>>(),
        })
    }

    /// The addresses of a Gateway, and whether it is reached there.
    fn programmed(&self, gateway: &Gateway, report: &GatewayReport) -> (Vec<IpAddr>, Condition) {
        let no = |reason, message: &str| Condition::no("Programmed", reason, message);
        if !report.accepted.is_true {
            return (Vec::new(), no("Invalid", "the Gateway is not accepted"));
        }
        let asked: Vec<&str> =
            gateway.spec.addresses.iter().filter_map(|address| address.value.as_deref()).collect();
        let is_asked =
            |address: &&IpAddr| asked.is_empty() || asked.iter().any(|text| text.parse() == Ok(**address));
        let usable: Vec<IpAddr> = self.addresses.iter().filter(is_asked).copied().collect();
        let programmed = if usable.is_empty() && asked.is_empty() {
            no("AddressNotAssigned", "no Node is ready")
        } else if usable.len() < asked.len() {
            no("AddressNotUsable", "the addresses that are asked for must be those of ready Nodes")
        } else if !report.is_served {
            no("Invalid", "no listener is served")
        } else {
            Condition::yes("Programmed", "Programmed")
        };
        (usable, programmed)
    }

    fn route<S: Spec>(&self, resource: &ResourceRef, route: &Object<S>, report: &Report) -> Option<Action> {
        let reports =
            report.routes.get(&(S::KIND, key(&route.metadata))).map(Vec::as_slice).unwrap_or_default();
        let before =
            route.status.get("parents").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_ours =
            |parent: &&Value| parent.get("controllerName").and_then(Value::as_str) == Some(CONTROLLER_NAME);
        if reports.is_empty() && !before.iter().any(|parent| is_ours(&parent)) {
            return None;
        }
        let since = self.since(route);
        let mut parents: Vec<Value> = before.iter().filter(|parent| !is_ours(parent)).cloned().collect();
        for ParentReport { parent, conditions } in reports {
            let parent = serde_json::to_value(parent).unwrap_or_default();
            let known = before.iter().filter(is_ours).find(|known| known.get("parentRef") == Some(&parent));
            let conditions = since.conditions(known.and_then(|known| known.get("conditions")), conditions);
            parents.push(json!({
                "parentRef": parent,
                "controllerName": CONTROLLER_NAME,
                "conditions": conditions,
            }));
        }
        parents.truncate(PARENTS_MAX);
        patched(resource, route, json!({"parents": parents}))
    }

    fn since<S: Spec>(&self, object: &Object<S>) -> Since {
        Since { now: self.now, generation: object.metadata.generation.unwrap_or_default() }
    }
}

/// Writes what is not so yet. It is of this very version of the object: others write there, too.
fn patched<S: Spec>(resource: &ResourceRef, object: &Object<S>, status: Value) -> Option<Action> {
    let fields = status.as_object()?;
    if fields.iter().all(|(name, value)| object.status.get(name) == Some(value)) {
        return None;
    }
    let metadata = &object.metadata;
    let version = json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version});
    let patch = Patch::Merge(json!({"metadata": version, "status": status}));
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    Some(Action::patch_ref(
        resource.clone(),
        namespace.unwrap_or_default(),
        name.unwrap_or_default(),
        "status",
        patch,
    ))
}

#[cfg(test)]
mod tests;
