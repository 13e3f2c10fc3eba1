//! The content of Ingresses, Gateways and their routes, as one table.
//!
//! Of Ingresses, rows of the oldest Ingress win, then those of the first by name. What cannot be followed is a finding of its
//! Ingress, and stops nothing else: a row whose Service is missing is there and leads to nobody, so that no other rule gets its
//! requests.

mod annotations;
mod backend;
mod claims;
mod class;
mod finding;
mod gateways;
mod owners;
mod ports;
mod report;
mod snapshot;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use controller::metadata::key;
use k8s_openapi::api::networking::v1::Ingress;

use crate::certificates::Shown;
use crate::filters::Edits;
use crate::host::Host;
use crate::matching::When;
use crate::path::PathMatch;
use crate::table::{Action, Entrance, Forward, Listener, Plain, Route, Row, Table, Timeouts, Weighted};
use annotations::Wishes;
use backend::Backends;
use claims::{Claim, Rank, claims, tls_claims};
pub use claims::{secrets_of, services_of};
pub use class::{Classes, DEFAULT_CLASS, is_default};
pub use finding::Finding;
use gateways::{Gateways, GrantsOf};
use owners::{Owners, Party};
pub use ports::{PortRefused, Ports};
pub use report::{Condition, GatewayReport, ListenerReport, ParentReport, Report};
pub use snapshot::{GatewayObjects, SECRET_TYPE, Snapshot, by_key, by_service};

/// The table to be served, and the parts that cannot be.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// The table by which requests are answered.
    pub table: Table,
    /// The Secrets whose certificates are shown, by place; of Ingresses at most one for each host.
    pub certificates: Shown,
    /// The findings, by the `namespace/name` of the Ingress.
    pub findings: BTreeMap<String, Vec<Finding>>,
    /// The report on Gateways and routes.
    pub report: Report,
}

/// The Ingresses of our classes, the oldest first.
fn ours(snapshot: &Snapshot) -> Vec<(String, Arc<Ingress>)> {
    let classes = Classes::of(&snapshot.classes);
    let is_going = |ingress: &Ingress| ingress.metadata.deletion_timestamp.is_some();
    let all = snapshot.ingresses.iter().filter(|ingress| classes.is_ours(ingress) && !is_going(ingress));
    let mut all: Vec<_> = all.map(|ingress| (key(&ingress.metadata), Arc::clone(ingress))).collect();
    all.sort_by_cached_key(|(key, ingress)| {
        (ingress.metadata.creation_timestamp.as_ref().map(|time| time.0), key.clone())
    });
    all
}

/// Decides what is served.
#[expect(clippy::mutable_key_type, reason = "an expression is compared by its text alone")]
pub fn plan(snapshot: &Snapshot) -> Planned {
    let mut planned = Planned::default();
    let ingresses = ours(snapshot);
    let backends = Backends::of(snapshot);
    let mut winners: BTreeMap<(Host, PathMatch), (Rank, Row)> = BTreeMap::new();
    for rank in [Rank::Rule, Rank::Default] {
        for (key, ingress) in &ingresses {
            let wishes = Wishes::of(ingress);
            let claims = claims(ingress).into_iter().filter(|claim| claim.rank == rank);
            for claim in claims {
                let found = take(&mut winners, key, &wishes, &backends, claim);
                add(&mut planned.findings, key, found);
            }
        }
    }
    let mut owners = Owners::default();
    for (key, ingress) in &ingresses {
        let since = (ingress.metadata.creation_timestamp.as_ref().map(|time| time.0), key.clone());
        for host in claims(ingress).into_iter().map(|claim| claim.host) {
            of_ingresses().for_each(|at| owners.claim(&at, &host, &since, &Party::Ingresses));
        }
    }
    let grants = GrantsOf::of(snapshot);
    let gateways = Gateways::attach(snapshot, &grants, &mut owners);
    for (_, row) in winners.into_values() {
        hand_over(row, &owners, &mut planned);
    }
    gateways.render(snapshot, &grants, &owners, &mut planned);
    for (key, ingress) in &ingresses {
        let wishes = Wishes::of(ingress);
        add(&mut planned.findings, key, wishes.findings);
        certificates(&mut planned, snapshot, key, ingress);
    }
    planned
}

/// Where Ingresses are served: they have no listeners of their own.
fn of_ingresses() -> impl Iterator<Item = Listener> {
    Entrance::OF_INGRESSES.into_iter().map(|entrance| Listener { entrance, host: Host::Any })
}

/// Puts a row of an Ingress where no Gateway has its host.
fn hand_over(row: Row, owners: &Owners, planned: &mut Planned) {
    let has = |at: &Listener| owners.has(at, &row.host, &Party::Ingresses);
    let own: Vec<Listener> = of_ingresses().filter(has).collect();
    match own.as_slice() {
        [] => {
            let finding = Finding::HostTaken { host: row.host.clone() };
            add(&mut planned.findings, &row.route.of, vec![finding]);
        }
        [one] => planned.table.rows.push(Row { listener: Some(one.clone()), ..row }),
        _ => planned.table.rows.push(row),
    }
}

/// Gives a row to whoever asks first; answers what is to be told of it, to others that somebody else has it.
#[expect(clippy::mutable_key_type, reason = "an expression is compared by its text alone")]
fn take(
    winners: &mut BTreeMap<(Host, PathMatch), (Rank, Row)>,
    key: &str,
    wishes: &Wishes,
    backends: &Backends<'_>,
    claim: Claim,
) -> Vec<Finding> {
    let Claim { host, path, rank, backend, has_tls } = claim;
    match winners.entry((host.clone(), path.clone())) {
        Entry::Occupied(taken) => {
            let (winner, row) = taken.get();
            // A default backend stands back for rules without a word, and its own Ingress may say the same twice.
            if *winner != rank || row.route.of == key {
                return Vec::new();
            }
            let namespace = |key: &str| key.split('/').next().map(str::to_owned);
            let is_near = namespace(&row.route.of) == namespace(key);
            let winner = row.route.of.split('/').nth(1).filter(|_| is_near).map(str::to_owned);
            vec![Finding::Conflict { host, path, winner }]
        }
        Entry::Vacant(place) => {
            let (backend, found) = backends.resolve(key, &backend);
            let plain = if has_tls { wishes.plain } else { Plain::Served };
            let timeouts = Timeouts { response: Some(wishes.response_timeout), ..Timeouts::default() };
            let backends = vec![Weighted { weight: 1, edits: Edits::default(), backend }];
            let action = Action::Forward(Forward { backends, ..Forward::default() });
            let route = Route { of: key.to_owned(), plain, timeouts, edits: Edits::default(), action };
            let row = Row { listener: None, host, path, when: When::default(), route: Arc::new(route) };
            place.insert((rank, row));
            found
        }
    }
}

/// Whose certificate is shown for which host: the oldest Ingress's that names one.
fn certificates(planned: &mut Planned, snapshot: &Snapshot, key: &str, ingress: &Ingress) {
    let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
    for (secret, hosts) in tls_claims(ingress) {
        match snapshot.secrets.get(&format!("{namespace}/{secret}")) {
            None => add(&mut planned.findings, key, vec![Finding::SecretMissing { name: secret }]),
            Some(found) => {
                for host in hosts {
                    let at = Listener { entrance: Entrance::Https, host: Host::Any };
                    planned.certificates.entry((at, host)).or_insert_with(|| vec![Arc::clone(found)]);
                }
            }
        }
    }
}

fn add(findings: &mut BTreeMap<String, Vec<Finding>>, key: &str, found: Vec<Finding>) {
    if found.is_empty() {
        return;
    }
    let known = findings.entry(key.to_owned()).or_default();
    for finding in found {
        if !known.contains(&finding) {
            known.push(finding);
        }
    }
}

#[cfg(test)]
mod tests;
