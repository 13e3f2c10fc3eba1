//! The default selector of a Pod: it selects the Pods of the same Services and of the same owner.
//!
//! Pods that say nothing about how they are spread are spread with those. Source: `DefaultSelector` of upstream's scheduler,
//! which the default constraints of `PodTopologySpread` stand on.

use controller::pod::Pod;
use controller::selector::{contains, is_empty};
use controller::{Informer, Informers};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The objects that default selectors are made of.
pub(crate) struct DefaultSelectors {
    services: Informer<Service>,
    controllers: Informer<ReplicationController>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
}

impl DefaultSelectors {
    /// Follows them.
    pub(crate) fn new(informers: &Informers) -> Self {
        Self {
            services: informers.informer(),
            controllers: informers.informer(),
            replica_sets: informers.informer(),
            stateful_sets: informers.informer(),
        }
    }

    /// Waits until everything is known.
    pub(crate) async fn synced(&self) {
        self.services.synced().await;
        self.controllers.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
    }

    /// The default selector of `pod`; nothing if it has no Service and no owner.
    pub(crate) fn of(&self, pod: &Pod) -> Option<LabelSelector> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let mut selector = LabelSelector::default();
        for service in self.services.in_namespace(namespace) {
            let wanted = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            if let Some(wanted) = wanted.filter(|wanted| contains(&labels, wanted)) {
                selector.match_labels.get_or_insert_default().extend(wanted.clone());
            }
        }
        let owner =
            pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        if let Some(owner) = owner {
            let key = format!("{namespace}/{}", owner.name);
            match (owner.api_version.as_str(), owner.kind.as_str()) {
                ("v1", "ReplicationController") => {
                    let spec = self.controllers.get(&key).and_then(|owner| owner.spec.clone());
                    let labels = spec.and_then(|spec| spec.selector);
                    selector.match_labels.get_or_insert_default().extend(labels.unwrap_or_default());
                }
                ("apps/v1", "ReplicaSet") => {
                    let spec = self.replica_sets.get(&key).and_then(|owner| owner.spec.clone());
                    add(&mut selector, spec.map(|spec| spec.selector));
                }
                ("apps/v1", "StatefulSet") => {
                    let spec = self.stateful_sets.get(&key).and_then(|owner| owner.spec.clone());
                    add(&mut selector, spec.map(|spec| spec.selector));
                }
                _ => {}
            }
        }
        (!is_empty(&selector)).then_some(selector)
    }
}

/// Both must hold.
fn add(selector: &mut LabelSelector, other: Option<LabelSelector>) {
    let other = other.unwrap_or_default();
    selector.match_labels.get_or_insert_default().extend(other.match_labels.unwrap_or_default());
    selector.match_expressions.get_or_insert_default().extend(other.match_expressions.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::transform::parse;

    fn check(pod: &str, expect: Expect) {
        let default_selectors = DefaultSelectors {
            services: Informer::fixed(vec![
                parse("{metadata: {name: web, namespace: d}, spec: {selector: {app: web}}}"),
                parse("{metadata: {name: other, namespace: d}, spec: {selector: {app: other}}}"),
                parse("{metadata: {name: all, namespace: e}, spec: {selector: {app: web}}}"),
            ]),
            controllers: Informer::fixed(vec![]),
            replica_sets: Informer::fixed(vec![parse(
                "{metadata: {name: web-1, namespace: d}, spec: {selector: {matchLabels: {hash: '1'}}}}",
            )]),
            stateful_sets: Informer::fixed(vec![]),
        };
        let selector = default_selectors.of(&parse(pod));
        expect.assert_eq(&serde_json::to_string(&selector).expect("a selector"));
    }

    #[test]
    fn it_selects_the_pods_of_the_same_services_and_the_same_owner() {
        check(
            "{metadata: {namespace: d, labels: {app: web, hash: '1'}, ownerReferences: [{apiVersion: apps/v1, kind: \
             ReplicaSet, name: web-1, uid: u, controller: true}]}}",
            expect![[r#"{"matchExpressions":[],"matchLabels":{"app":"web","hash":"1"}}"#]],
        );
        check(
            "{metadata: {namespace: d, labels: {app: web}}}",
            expect![[r#"{"matchLabels":{"app":"web"}}"#]],
        );
    }

    #[test]
    fn a_pod_of_nobody_has_none() {
        check("{metadata: {namespace: d, labels: {app: batch}}}", expect!["null"]);
        check("{metadata: {namespace: d}}", expect!["null"]);
    }
}
