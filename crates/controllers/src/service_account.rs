//! The ServiceAccount controller: every namespace has a ServiceAccount `default`.

use std::sync::Arc;

use controller::metadata::{is_deleting, name, namespace};
use controller::{Action, Controller, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const DEFAULT: &str = "default";

/// The controller's row. Keys are namespaces.
pub const CONTROLLER: Controller = Controller {
    name: "serviceaccount-controller",
    queue: "serviceaccount",
    sources: |_| {
        vec![
            Source::itself::<Namespace>(),
            Source::of::<ServiceAccount>(|change, _| {
                let gone = change.old.as_ref().filter(|_| change.new.is_none());
                let meta = gone.map(|account| &account.metadata).filter(|meta| name(meta) == DEFAULT);
                meta.map(|meta| namespace(meta).to_owned()).into_iter().collect()
            }),
        ]
    },
    reconcile: |informers, key, now| {
        let Some(namespace) = informers.informer::<Namespace>().get(key) else { return Plan::nothing() };
        let account = informers.informer::<ServiceAccount>().get(&format!("{key}/{DEFAULT}"));
        plan(&Snapshot { namespace, account }, now)
    },
};

/// The input of a decision about one namespace.
pub struct Snapshot {
    /// The namespace.
    pub namespace: Arc<Namespace>,
    /// Its ServiceAccount `default`.
    pub account: Option<Arc<ServiceAccount>>,
}

/// Decides whether the account is to be made.
pub fn plan(snapshot: &Snapshot, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if snapshot.account.is_none() && !is_deleting(&snapshot.namespace.metadata) {
        plan.push(Action::create(&ServiceAccount {
            metadata: ObjectMeta {
                name: Some(DEFAULT.to_owned()),
                namespace: snapshot.namespace.metadata.name.clone(),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        }));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(namespace: &str, account: Option<&str>, expect: &str) {
        let account = account.map(|yaml| Arc::new(parse(yaml)));
        let snapshot = Snapshot { namespace: Arc::new(parse(namespace)), account };
        assert_eq!(render(&plan(&snapshot, noon())), expect);
    }

    #[test]
    fn a_living_namespace_has_a_default_account() {
        check("{metadata: {name: team}}", None, "step\n  create serviceaccounts default\n");
        check("{metadata: {name: team}}", Some("{metadata: {name: default}}"), "");
        check("{metadata: {name: team, deletionTimestamp: '2026-01-01T11:00:00Z'}}", None, "");
    }
}
