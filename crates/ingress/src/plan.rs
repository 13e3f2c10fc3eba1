//! What Ingresses say, as one table.
//!
//! Rows of the oldest Ingress win, then those of the first by name. What cannot be followed is a finding of its Ingress, and
//! stops nothing else: a row whose Service is missing is there and leads to nobody, so that no other rule gets its requests.

mod annotations;
mod backend;
mod claims;
mod class;
mod finding;
mod snapshot;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::Ingress;

use crate::host::Host;
use crate::path::PathMatch;
use crate::table::{Plain, Route, Row, Table};
use annotations::Wishes;
use backend::Backends;
use claims::{Claim, Rank, claims, tls_claims};
pub use claims::{secrets_of, services_of};
pub use class::{Classes, DEFAULT_CLASS, is_default};
pub use finding::Finding;
pub use snapshot::{SECRET_TYPE, Snapshot, by_key, by_service, key};

/// What is to be served, and what cannot be.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// Where requests lead.
    pub table: Table,
    /// Which Secret's certificate is for which host: at most one for each.
    pub certificates: BTreeMap<Host, Arc<Secret>>,
    /// What is wrong, by the `namespace/name` of the Ingress.
    pub findings: BTreeMap<String, Vec<Finding>>,
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
                take(&mut winners, &mut planned.findings, (key, &wishes), &backends, claim);
            }
        }
    }
    planned.table.rows = winners.into_values().map(|(_, row)| row).collect();
    for (key, ingress) in &ingresses {
        let wishes = Wishes::of(ingress);
        add(&mut planned.findings, key, wishes.findings);
        certificates(&mut planned, snapshot, (key, ingress));
    }
    planned
}

/// Gives a row to whoever asks first, and says so to others.
fn take(
    winners: &mut BTreeMap<(Host, PathMatch), (Rank, Row)>,
    findings: &mut BTreeMap<String, Vec<Finding>>,
    (key, wishes): (&str, &Wishes),
    backends: &Backends<'_>,
    claim: Claim,
) {
    let Claim { host, path, rank, backend, has_tls } = claim;
    match winners.entry((host.clone(), path.clone())) {
        Entry::Occupied(taken) => {
            let (winner, row) = taken.get();
            // A default backend stands back for rules without a word, and its own Ingress may say the same twice.
            if *winner == rank && row.route.of != key {
                let namespace = |key: &str| key.split('/').next().map(str::to_owned);
                let is_near = namespace(&row.route.of) == namespace(key);
                let winner = row.route.of.split('/').nth(1).filter(|_| is_near).map(str::to_owned);
                add(findings, key, vec![Finding::Conflict { host, path, winner }]);
            }
        }
        Entry::Vacant(place) => {
            let (backend, found) = backends.resolve(key, &backend);
            add(findings, key, found);
            let plain = if has_tls { wishes.plain } else { Plain::Served };
            let response_timeout = wishes.response_timeout;
            let route = Arc::new(Route { of: key.to_owned(), plain, response_timeout, backend });
            place.insert((rank, Row { host, path, route }));
        }
    }
}

/// Whose certificate is shown for which host: the oldest Ingress's that names one.
fn certificates(planned: &mut Planned, snapshot: &Snapshot, (key, ingress): (&str, &Ingress)) {
    let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
    for (secret, hosts) in tls_claims(ingress) {
        match snapshot.secrets.get(&format!("{namespace}/{secret}")) {
            None => add(&mut planned.findings, key, vec![Finding::SecretMissing { name: secret }]),
            Some(found) => {
                for host in hosts {
                    planned.certificates.entry(host).or_insert_with(|| Arc::clone(found));
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
