//! The storage version garbage collector: StorageVersions say in which version each API server stores a resource; what they say
//! of servers that are gone is taken out, and one that then says nothing goes. Runs if the feature StorageVersionAPI is on.
//!
//! A server is there while `kube-system` has its identity Lease. That it has none, the server is asked before anything is taken
//! out: a Lease is made before its server's first StorageVersion, and may be known later all the same.
//! Source: `pkg/controller/storageversiongc`; KEP-2339.

use std::sync::Arc;

use controller::metadata::{key, label};
use controller::{Action, Change, Controller, Informers, Plan, Propagation, ResourceRef, Scope, Source};
use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{ServerStorageVersion, StorageVersion};
use k8s_openapi::api::coordination::v1::Lease;

const NAMESPACE: &str = "kube-system";
/// On a Lease: which component's identity it is.
const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const API_SERVER: &str = "kube-apiserver";

/// The controller's row. Keys are StorageVersions.
pub const CONTROLLER: Controller = Controller {
    name: "storageversion-garbage-collector-controller",
    queue: "storage_version_garbage_collector_storageversions",
    sources: |_| {
        vec![Source::itself::<StorageVersion>(), Source::scoped::<Lease>(leases(), versions_of_gone)]
    },
    reconcile: |informers, key, now| {
        let Some(version) = informers.informer::<StorageVersion>().get(key) else { return Plan::nothing() };
        let leases = informers.scoped::<Lease>(leases());
        let identity = |entry: &ServerStorageVersion| {
            leases.get(&format!("{NAMESPACE}/{}", server(entry))).map_or(Identity::Unseen, |lease| of(&lease))
        };
        let identities = entries(&version).iter().map(identity).collect();
        plan(&Snapshot { version, identities }, now)
    },
};

/// Others than API servers' identities are seen, too: one of another component is none.
fn leases() -> Scope {
    Scope { namespace: Some(NAMESPACE.to_owned()), ..Scope::default() }
}

fn of(lease: &Lease) -> Identity {
    match label(&lease.metadata, IDENTITY) {
        Some(API_SERVER) => Identity::Seen,
        _ => Identity::Foreign,
    }
}

/// The StorageVersions that name a server whose Lease has gone.
fn versions_of_gone(change: &Change<Lease>, informers: &Informers) -> Vec<String> {
    let is_seen = |lease: &Option<Arc<Lease>>| lease.as_deref().map(of) == Some(Identity::Seen);
    let (_, gone) = controller::resource_ref::split_key(&change.key);
    if is_seen(&change.new) || !is_seen(&change.old) {
        return Vec::new();
    }
    let all = informers.informer::<StorageVersion>().list();
    let names = |version: &&Arc<StorageVersion>| entries(version).iter().any(|entry| server(entry) == gone);
    all.iter().filter(names).map(|version| key(&version.metadata)).collect()
}

/// The input of a decision about one StorageVersion.
pub struct Snapshot {
    /// The StorageVersion.
    pub version: Arc<StorageVersion>,
    /// What is known of the server of each of its entries, in their order.
    pub identities: Vec<Identity>,
}

/// A server, as far as its Lease is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// It has one.
    Seen,
    /// What has its name is something else.
    Foreign,
    /// There is none, or it is too young to be known.
    Unseen,
}

fn entries(version: &StorageVersion) -> &[ServerStorageVersion] {
    version.status.storage_versions.as_deref().unwrap_or_default()
}

fn server(entry: &ServerStorageVersion) -> &str {
    entry.api_server_id.as_deref().unwrap_or_default()
}

/// Decides what the StorageVersion no longer says.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let version = &*snapshot.version;
    let all = || entries(version).iter().zip(&snapshot.identities);
    let kept: Vec<_> = all().filter(|(_, identity)| **identity == Identity::Seen).collect();
    let mut plan = Plan::nothing();
    if kept.len() == all().count() {
        return plan;
    }
    let unseen =
        all().filter(|(entry, identity)| **identity == Identity::Unseen && !server(entry).is_empty());
    let resource = ResourceRef::of::<Lease>();
    let absent = |entry| Action::require_absent(resource.clone(), NAMESPACE, server(entry), "");
    plan.push_step(unseen.map(|(entry, _)| absent(entry)).collect());
    if kept.is_empty() {
        plan.push(Action::delete_version(version, Propagation::Background));
        return plan;
    }
    let mut new = version.clone();
    new.status.storage_versions = Some(kept.into_iter().map(|(entry, _)| entry.clone()).collect());
    resources::storage_versions::agree(&mut new.status, version.metadata.generation, now);
    plan.push(Action::update_status(&new));
    plan
}

#[cfg(test)]
mod tests;
