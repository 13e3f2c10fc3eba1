//! The content of Gateways and their routes, as rows of the same table.
//!
//! Routes attach in the order of their age; what is too much is that of the youngest. Whatever is wrong with one of them is
//! told of it, and stops no other.
//! Source: `HTTPRouteRule.matches`, of which one goes before which; GEP-1911, GEP-3567.

mod filters;
mod grants;
mod kind;
mod listeners;
mod matches;
mod routes;
mod rules;
mod unsupported;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use controller::metadata::key;

use super::Planned;
use super::owners::{Owners, Party, Since};
use super::report::{Condition, GatewayReport, ParentReport, Refusal};
use super::snapshot::Snapshot;
use crate::gateway::{CONTROLLER_NAME, Gateway, ParentReference};
use crate::host::Host;
use crate::hosts::HostSet;
use crate::path::PathMatch;
use crate::table::{Entrance, Listener, Row};
use grants::Grants;
use kind::RouteKind;
use listeners::{Site, Sites};
use routes::Route;
use rules::{Lead, Resolver, Rules};

/// Rows of all routes together, and of those of one namespace.
const ROWS_MAX: usize = 100_000;
const ROWS_OF_NAMESPACE_MAX: usize = 20_000;

/// A Gateway of ours with its listeners.
struct Own<'a> {
    key: String,
    namespace: &'a str,
    gateway: &'a Gateway,
    sites: Vec<Site<'a>>,
}

/// A route that has come to hosts of listeners of a Gateway.
struct Attached {
    /// Which route.
    route: usize,
    /// Which of its references.
    parent: usize,
    /// By `namespace/name`.
    gateway: String,
    hosts: Vec<(Listener, Host)>,
}

/// What Gateways come to, with what is attached: whose hosts are is still open.
pub(super) struct Gateways<'a> {
    own: BTreeMap<String, Own<'a>>,
    routes: Vec<Route<'a>>,
    attached: Vec<Attached>,
    refused: BTreeMap<(usize, usize), Refusal>,
}

impl<'a> Gateways<'a> {
    /// Attaches what can be, and claims its hosts.
    pub(super) fn attach(snapshot: &'a Snapshot, grants: &'a GrantsOf<'a>, owners: &mut Owners) -> Self {
        let mut own = own(snapshot, &grants.0);
        let routes = Route::all(&snapshot.gateways);
        let (mut attached, mut refused) = (Vec::new(), BTreeMap::new());
        let mut kinds = Kinds::default();
        for (number, route) in routes.iter().enumerate() {
            for (index, parent) in route.parents.iter().enumerate() {
                let Some(name) = route.gateway(parent) else { continue };
                let Some(Own { key, namespace, sites, .. }) = own.get_mut(&name) else { continue };
                let namespaces = &snapshot.gateways.namespaces;
                let found = route.attach(parent, namespace, sites, namespaces);
                let hosts = found.and_then(|found| kinds.admit(key, sites, route.kind, found));
                match hosts {
                    Ok(hosts) => {
                        let (since, party) =
                            ((route.created, route.key.clone()), Party::Gateway(key.clone()));
                        hosts.iter().for_each(|(at, host)| owners.claim(at, host, &since, &party));
                        attached.push(Attached { route: number, parent: index, gateway: key.clone(), hosts });
                    }
                    Err(refusal) => {
                        refused.insert((number, index), refusal);
                    }
                }
            }
        }
        Self { own, routes, attached, refused }
    }

    /// Adds rows, certificates and what is told.
    pub(super) fn render(
        mut self,
        snapshot: &'a Snapshot,
        grants: &GrantsOf<'a>,
        owners: &Owners,
        planned: &mut Planned,
    ) {
        self.listeners(planned);
        let resolver = Resolver::of(snapshot, &grants.0);
        let rules = self.rules(&resolver);
        let (mut rows, mut counts): (Vec<(Order, Row)>, BTreeMap<&str, usize>) =
            (Vec::new(), BTreeMap::new());
        for Attached { route: number, parent, gateway, hosts } in &self.attached {
            let (Some(route), Some(rules)) = (self.routes.get(*number), rules.get(number)) else { continue };
            if hosts.is_empty() {
                // No listener that it has attached to is served.
                continue;
            }
            let party = Party::Gateway(gateway.clone());
            let hosts: Vec<_> = hosts.iter().filter(|(at, host)| owners.has(at, host, &party)).collect();
            let count = counts.entry(route.namespace).or_default();
            let more = rules.leads.len() * hosts.len();
            let refusal = if hosts.is_empty() {
                let message =
                    "the hostnames belong to an older route of another Gateway, or to an older Ingress";
                Some(Refusal::new("NoMatchingListenerHostname", message))
            } else if *count + more > ROWS_OF_NAMESPACE_MAX || rows.len() + more > ROWS_MAX {
                let message = format!(
                    "the routes of this namespace come to more than {ROWS_OF_NAMESPACE_MAX} matches of hostnames, or all \
                     to more than {ROWS_MAX}"
                );
                Some(Refusal::new("UnsupportedValue", message))
            } else {
                None
            };
            if let Some(refusal) = refusal {
                self.refused.insert((*number, *parent), refusal);
                continue;
            }
            *count += more;
            for (at, host) in hosts {
                rows.extend(rules.leads.iter().map(|lead| ordered(route, at, host, lead)));
            }
        }
        rows.sort_by(|(one, _), (two, _)| one.cmp(two));
        let mut last: Option<Row> = None;
        for (_, row) in rows {
            // Whoever is asked after the same was asked has nothing to say.
            let is_same = |last: &Row| {
                (&last.listener, &last.host, &last.path, &last.when)
                    == (&row.listener, &row.host, &row.path, &row.when)
            };
            if !last.as_ref().is_some_and(is_same) {
                last = Some(row.clone());
                planned.table.rows.push(row);
            }
        }
        self.report(snapshot, &rules, planned);
    }

    /// Where is listened, and with which certificates.
    fn listeners(&self, planned: &mut Planned) {
        let mut all = BTreeSet::new();
        for site in self.own.values().flat_map(|own| &own.sites) {
            let Some(listener) = site.listener() else { continue };
            all.insert(listener.clone());
            if let (Entrance::Port(port), Some(scheme)) = (listener.entrance, site.scheme) {
                planned.table.ports.insert(port, scheme);
            }
            if !site.shown.is_empty() {
                let shown = planned.certificates.entry((listener.clone(), Host::Any)).or_default();
                shown.extend(site.shown.iter().cloned());
            }
        }
        planned.table.listeners = all.into_iter().collect();
    }

    /// Of the routes that concern us, by their places.
    fn rules(&self, resolver: &Resolver<'_>) -> BTreeMap<usize, Rules> {
        let attached = self.attached.iter().map(|attached| attached.route);
        let refused = self.refused.keys().map(|(route, _)| *route);
        let all: BTreeSet<usize> = attached.chain(refused).collect();
        all.into_iter()
            .filter_map(|number| Some((number, resolver.rules(self.routes.get(number)?))))
            .collect()
    }

    fn report(&self, snapshot: &Snapshot, rules: &BTreeMap<usize, Rules>, planned: &mut Planned) {
        let report = &mut planned.report;
        for class in
            snapshot.gateways.classes.iter().filter(|class| class.spec.controller_name == CONTROLLER_NAME)
        {
            let accepted = match &class.spec.parameters_ref {
                None => Condition::yes("Accepted", "Accepted"),
                Some(_) => {
                    Condition::no("Accepted", "InvalidParameters", "there are no parameters for this class")
                }
            };
            report.classes.insert(class.metadata.name.clone().unwrap_or_default(), accepted);
        }
        for own in self.own.values() {
            report.gateways.insert(own.key.clone(), gateway_report(own));
        }
        for (number, route) in self.routes.iter().enumerate() {
            let Some(rules) = rules.get(&number) else { continue };
            let mut parents = Vec::new();
            for (index, parent) in route.parents.iter().enumerate() {
                let is_ours = route.gateway(parent).is_some_and(|name| self.own.contains_key(&name));
                if is_ours {
                    parents.push(parent_report(parent, self.refused.get(&(number, index)), rules));
                }
            }
            report.routes.insert((route.kind.as_str(), route.key.clone()), parents);
        }
    }
}

/// Who may name what, for as long as a plan is made.
pub(super) struct GrantsOf<'a>(Grants<'a>);

impl<'a> GrantsOf<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self(Grants::of(&snapshot.gateways.grants))
    }
}

/// The Gateways of our classes, by `namespace/name`; of those that compete the oldest is asked first.
fn own<'a>(snapshot: &'a Snapshot, grants: &'a Grants<'a>) -> BTreeMap<String, Own<'a>> {
    let objects = &snapshot.gateways;
    let classes = objects
        .classes
        .iter()
        .filter(|class| class.spec.controller_name == CONTROLLER_NAME && class.spec.parameters_ref.is_none());
    let classes: BTreeSet<&str> = classes.filter_map(|class| class.metadata.name.as_deref()).collect();
    let mut all: Vec<(Since, &'a Gateway)> = Vec::new();
    for gateway in &objects.gateways {
        let is_going = gateway.metadata.deletion_timestamp.is_some();
        if !is_going && classes.contains(gateway.spec.gateway_class_name.as_str()) {
            let created = gateway.metadata.creation_timestamp.as_ref().map(|time| time.0);
            all.push(((created, key(&gateway.metadata)), &**gateway));
        }
    }
    all.sort_by(|(one, _), (two, _)| one.cmp(two));
    let mut sites = Sites::of(snapshot, grants);
    let own = all.into_iter().map(|((_, key), gateway)| {
        let namespace = gateway.metadata.namespace.as_deref().unwrap_or_default();
        (key.clone(), Own { key, namespace, gateway, sites: sites.of_gateway(gateway) })
    });
    own.collect()
}

/// Which hosts of a listener are HTTPRoutes', and which are GRPCRoutes': none is both. Source: `GRPCRoute`.
#[derive(Default)]
struct Kinds(BTreeMap<(String, usize), [HostSet; 2]>);

impl Kinds {
    /// The places of a route that is younger than all others before.
    fn admit(
        &mut self,
        gateway: &str,
        sites: &[Site<'_>],
        kind: RouteKind,
        found: Vec<(usize, Vec<Host>)>,
    ) -> Result<Vec<(Listener, Host)>, Refusal> {
        let place = |index: usize| (gateway.to_owned(), index);
        let (own, other) = match kind {
            RouteKind::Http => (0, 1),
            RouteKind::Grpc => (1, 0),
        };
        for (index, hosts) in &found {
            let others = self.0.get(&place(*index)).and_then(|kinds| kinds.get(other));
            let is_theirs = |host: &&Host| others.is_some_and(|others| others.meets(host));
            if let Some(host) = hosts.iter().find(is_theirs) {
                let other = if kind == RouteKind::Http { "a GRPCRoute" } else { "an HTTPRoute" };
                let message = format!("hostname {host} of the listener belongs to {other} that is older");
                return Err(Refusal::new("NotAllowedByListeners", message));
            }
        }
        let mut places = Vec::new();
        for (index, hosts) in found {
            let kinds = self.0.entry(place(index)).or_default();
            if let Some(known) = kinds.get_mut(own) {
                hosts.iter().for_each(|host| known.insert(host));
            }
            let site = sites.get(index).filter(|site| site.is_served());
            if let Some(listener) = site.and_then(Site::listener) {
                places.extend(hosts.into_iter().map(|host| (listener.clone(), host)));
            }
        }
        Ok(places)
    }
}

/// Of rows for one listener and host: expressions stand together, the longest first; then as the standard says.
type Order = (
    (Listener, Host, Reverse<usize>, PathMatch),
    (Reverse<bool>, Reverse<usize>, Reverse<usize>),
    (Since, RouteKind, (usize, usize)),
);

fn ordered(route: &Route<'_>, listener: &Listener, host: &Host, lead: &Lead) -> (Order, Row) {
    let (path, when) = (lead.matched.path.clone(), lead.matched.when.clone());
    let length = match &path {
        PathMatch::Pattern(pattern) => pattern.as_str().len(),
        _ => 0,
    };
    let place = (listener.clone(), host.clone(), Reverse(length), path.clone());
    let narrow = (Reverse(when.method.is_some()), Reverse(when.headers.len()), Reverse(when.queries.len()));
    let age = ((route.created, route.key.clone()), route.kind, lead.place);
    let row =
        Row { listener: Some(listener.clone()), host: host.clone(), path, when, route: lead.route.clone() };
    ((place, narrow, age), row)
}

fn gateway_report(own: &Own<'_>) -> GatewayReport {
    let listeners: Vec<_> = own.sites.iter().map(Site::report).collect();
    let is_valid = |site: &Site<'_>| site.listener().is_some();
    let (valid, count) = (own.sites.iter().filter(|site| is_valid(site)).count(), own.sites.len());
    let accepted = match (valid, listeners::addresses(own.gateway)) {
        (_, Err(refusal)) => Condition::of("Accepted", "Accepted", &Err(refusal)),
        (0, Ok(())) => Condition::no("Accepted", "ListenersNotValid", "no listener can be served"),
        (valid, Ok(())) if valid < count => Condition {
            message: "some listeners cannot be served".to_owned(),
            ..Condition::yes("Accepted", "ListenersNotValid")
        },
        _ => Condition::yes("Accepted", "Accepted"),
    };
    GatewayReport { accepted, is_served: own.sites.iter().any(Site::is_served), listeners }
}

fn parent_report(parent: &ParentReference, refused: Option<&Refusal>, rules: &Rules) -> ParentReport {
    let unsupported = rules.unsupported.join("; ");
    let accepted = match refused {
        Some(refusal) => Err(refusal.clone()),
        None if rules.lost == rules.count && rules.lost > 0 => {
            Err(Refusal::new("UnsupportedValue", unsupported.clone()))
        }
        None => Ok(()),
    };
    let refs = rules.refs.clone().map_or(Ok(()), Err);
    let mut conditions = vec![
        Condition::of("Accepted", "Accepted", &accepted),
        Condition::of("ResolvedRefs", "ResolvedRefs", &refs),
    ];
    if accepted.is_ok() && !rules.unsupported.is_empty() {
        let message = format!("Dropped Rule: {unsupported}");
        conditions.push(Condition { message, ..Condition::yes("PartiallyInvalid", "UnsupportedValue") });
    }
    ParentReport { parent: parent.clone(), conditions }
}

#[cfg(test)]
mod tests;
