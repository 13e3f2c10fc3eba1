//! The status of an Ingress for users: where it is reached, and what of it is not followed.
//!
//! A controller of the control plane, with rights of its own: whoever carries requests writes nothing. What was told
//! once is told again when it changes, or by the next process.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Source};
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, IngressLoadBalancerIngress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde_json::json;

use crate::certificates;
use crate::plan::{Classes, Finding, Snapshot, by_key, plan, secrets_of, services_of};
use crate::run::certificates_scope;

/// Nodes that take no traffic from outside. Source: `LabelNodeExcludeBalancers`.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The controller's row. Keys are Ingresses.
pub const CONTROLLER: Controller = Controller {
    name: "ingress-controller",
    queue: "ingress",
    sources: |_| {
        vec![
            Source::of::<Ingress>(rivals),
            Source::of::<IngressClass>(|_, informers| every(informers)),
            Source::of::<Node>(|change, informers| {
                let of = |node: &Option<Arc<Node>>| node.as_ref().map(|node| addresses([&**node]));
                if of(&change.old) == of(&change.new) { Vec::new() } else { every(informers) }
            }),
            Source::of::<Service>(|change, informers| {
                let metadata = change.object().map(|service| service.metadata.clone());
                naming(informers, metadata, services_of)
            }),
            Source::scoped::<Secret>(certificates_scope(), |change, informers| {
                let metadata = change.object().map(|secret| secret.metadata.clone());
                naming(informers, metadata, secrets_of)
            }),
        ]
    },
    reconcile: |informers, key, _| {
        let told = informers.setting_or(Told::default);
        let ingress = informers.informer::<Ingress>().get(key);
        let Some(ingress) = ingress else {
            told.0.lock().remove(key);
            return Plan::nothing();
        };
        let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
        let secrets = informers.scoped::<Secret>(certificates_scope());
        let snapshot = Snapshot {
            ingresses: informers.informer::<Ingress>().list(),
            classes: informers.informer::<IngressClass>().list(),
            services: by_key(informers.informer::<Service>().in_namespace(namespace), |service| {
                &service.metadata
            }),
            slices: BTreeMap::new(),
            secrets: by_key(secrets.in_namespace(namespace), |secret| &secret.metadata),
            ..Snapshot::default()
        };
        let nodes = informers.informer::<Node>().list();
        let found = findings(&snapshot, key, &ingress);
        let mut all = told.0.lock();
        let before = all.insert(key.to_owned(), found.clone()).unwrap_or_default();
        let fresh: Vec<Finding> = found.into_iter().filter(|finding| !before.contains(finding)).collect();
        decide(&snapshot, &ingress, &nodes, &fresh)
    },
};

/// What was told of each Ingress.
#[derive(Default)]
struct Told(Mutex<BTreeMap<String, Vec<Finding>>>);

/// An Ingress, and those that have a host of its rules, before or now: what it has they do not.
fn rivals(change: &Change<Ingress>, informers: &Informers) -> Vec<String> {
    let generation = |ingress: &Option<Arc<Ingress>>| {
        let metadata = ingress.as_ref().map(|ingress| &ingress.metadata);
        metadata.map(|metadata| {
            (metadata.generation, metadata.annotations.clone(), metadata.deletion_timestamp.is_some())
        })
    };
    // Its status is nobody else's matter.
    if generation(&change.old) == generation(&change.new) {
        return vec![change.key.to_string()];
    }
    let both = [change.old.as_deref(), change.new.as_deref()];
    let mine: Vec<&str> = both.into_iter().flatten().flat_map(hosts).collect();
    let others = informers.informer::<Ingress>().list();
    let rivals = others.iter().filter(|other| hosts(other).any(|host| mine.contains(&host)));
    let keys =
        rivals.map(|other| controller::metadata::key(&other.metadata)).filter(|key| **key != *change.key);
    [change.key.to_string()].into_iter().chain(keys).collect()
}

/// Of the rules; what is for all hosts has the empty one.
fn hosts(ingress: &Ingress) -> impl Iterator<Item = &str> {
    let spec = ingress.spec.as_ref();
    let default = spec.and_then(|spec| spec.default_backend.as_ref()).map(|_| "");
    let rules = spec.into_iter().flat_map(|spec| spec.rules.iter().flatten());
    rules.map(|rule| rule.host.as_deref().unwrap_or_default()).chain(default)
}

fn every(informers: &Informers) -> Vec<String> {
    informers
        .informer::<Ingress>()
        .list()
        .iter()
        .map(|ingress| controller::metadata::key(&ingress.metadata))
        .collect()
}

/// The Ingresses of the object's namespace that name it.
fn naming(
    informers: &Informers,
    metadata: Option<ObjectMeta>,
    names: fn(&Ingress) -> Vec<String>,
) -> Vec<String> {
    let Some(ObjectMeta { namespace: Some(namespace), name: Some(name), .. }) = metadata else {
        return Vec::new();
    };
    let all = informers.informer::<Ingress>().in_namespace(&namespace);
    let naming = all.iter().filter(|ingress| names(ingress).contains(&name));
    naming.map(|ingress| controller::metadata::key(&ingress.metadata)).collect()
}

/// The parts of an Ingress that are not followed.
pub fn findings(snapshot: &Snapshot, key: &str, ingress: &Ingress) -> Vec<Finding> {
    if !Classes::of(&snapshot.classes).is_ours(ingress) {
        return Vec::new();
    }
    let mut findings = plan(snapshot).findings.remove(key).unwrap_or_default();
    let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
    for name in secrets_of(ingress) {
        let secret = snapshot.secrets.get(&format!("{namespace}/{name}"));
        if let Some(Err(why)) = secret.map(|secret| certificates::of_secret(secret)) {
            findings.push(Finding::SecretUnusable { name, why: why.to_string() });
        }
    }
    findings
}

/// Decides what is written of an Ingress: its addresses, and what was found that nobody was told yet.
pub fn decide(snapshot: &Snapshot, ingress: &Ingress, nodes: &[Arc<Node>], fresh: &[Finding]) -> Plan {
    let mut plan = Plan::nothing();
    let is_going = ingress.metadata.deletion_timestamp.is_some();
    if is_going || !Classes::of(&snapshot.classes).is_ours(ingress) {
        return plan;
    }
    let events = fresh
        .iter()
        .map(|finding| Action::event(ingress, EventType::Warning, finding.reason(), finding.to_string()));
    plan.push_step(events.collect());
    let wanted = addresses(nodes.iter().map(|node| &**node));
    let status = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let written = status.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    let is_written = |(written, wanted): (&IngressLoadBalancerIngress, &IpAddr)| {
        written.ip.as_deref() == Some(&wanted.to_string()) && written.hostname.is_none()
    };
    if written.len() != wanted.len() || !written.iter().zip(&wanted).all(is_written) {
        let list: Vec<_> = wanted.iter().map(|address| json!({"ip": address.to_string()})).collect();
        let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": list}}}));
        let metadata = &ingress.metadata;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        plan.push(Action::patch_status::<Ingress>(
            namespace.unwrap_or_default(),
            name.unwrap_or_default(),
            patch,
        ));
    }
    plan
}

/// Where Nodes are reached: those that are ready, by their outer addresses where they have some.
pub(crate) fn addresses<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<IpAddr> {
    let of = |node: &Node| -> Vec<IpAddr> {
        let status = node.status.as_ref();
        let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True");
        let is_excluded = node.metadata.labels.iter().flatten().any(|(name, _)| name == EXCLUDED);
        if !is_ready || is_excluded || node.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        let all = |kind: &str| -> Vec<IpAddr> {
            let all = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
            all.filter(|address| address.type_ == kind)
                .filter_map(|address| address.address.parse().ok())
                .collect()
        };
        let outer = all("ExternalIP");
        if outer.is_empty() { all("InternalIP") } else { outer }
    };
    let mut all: Vec<IpAddr> = nodes.into_iter().flat_map(of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller::Action;

    fn parse<K: k8s_openapi::serde::de::DeserializeOwned>(yaml: &str) -> Arc<K> {
        let value: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn node(name: &str, more: &str) -> Arc<Node> {
        parse(&format!("{{metadata: {{name: {name}}}, status: {{{more}}}}}"))
    }

    const READY: &str = "conditions: [{type: Ready, status: 'True'}]";

    fn nodes() -> Vec<Arc<Node>> {
        vec![
            node("b", &format!("{READY}, addresses: [{{type: InternalIP, address: 192.0.2.2}}]")),
            node(
                "a",
                &format!(
                    "{READY}, addresses: [{{type: InternalIP, address: 10.0.0.1}}, {{type: ExternalIP, address: 192.0.2.1}}]"
                ),
            ),
            node(
                "away",
                "conditions: [{type: Ready, status: Unknown}], addresses: [{type: InternalIP, address: 192.0.2.3}]",
            ),
            parse(&format!(
                "{{metadata: {{name: d, labels: {{{EXCLUDED}: ''}}}}, status: {{{READY}, addresses: [{{type: InternalIP, address: 192.0.2.4}}]}}}}"
            )),
        ]
    }

    fn texts(ingress: &str) -> Vec<String> {
        let ingress: Arc<Ingress> = parse(ingress);
        let snapshot = Snapshot {
            ingresses: vec![ingress.clone()],
            classes: vec![parse("{metadata: {name: knarr}, spec: {controller: knarr.io/ingress}}")],
            ..Snapshot::default()
        };
        let fresh = findings(&snapshot, "a/web", &ingress);
        let plan = decide(&snapshot, &ingress, &nodes(), &fresh);
        let text = |action: &Action| match action {
            Action::Request(request) => request.body.to_string(),
            Action::Event(event) => format!("{}: {}", event.reason, event.message),
            Action::Count(_) | Action::Operation(_) => "count".to_owned(),
        };
        plan.actions().map(text).collect()
    }

    #[test]
    fn an_ingress_is_reached_where_ready_nodes_are() {
        let written = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"ip":"192.0.2.2"}]}}}"#;
        assert_eq!(
            texts("{metadata: {name: web, namespace: a}, spec: {ingressClassName: knarr}}"),
            [written]
        );
        let same = "{metadata: {name: web, namespace: a}, spec: {ingressClassName: knarr},
            status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {ip: 192.0.2.2}]}}}";
        assert!(texts(same).is_empty());
        assert!(texts("{metadata: {name: web, namespace: a}, spec: {ingressClassName: other}}").is_empty());
    }

    #[test]
    fn what_is_not_followed_is_told_in_events() {
        let told = texts(
            "{metadata: {name: web, namespace: a}, spec: {ingressClassName: knarr,
              tls: [{hosts: [x.example], secretName: gone}],
              rules: [{host: x.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: away, port: {number: 80}}}}]}}]}}",
        );
        let reasons: Vec<&str> = told.iter().filter_map(|told| Some(told.split_once(": ")?.0)).collect();
        assert_eq!(reasons[..2], ["ServiceNotFound", "SecretNotFound"]);
    }
}
