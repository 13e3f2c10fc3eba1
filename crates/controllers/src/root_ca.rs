//! The root CA publisher: every namespace has a ConfigMap `kube-root-ca.crt` by which its Pods know the API server.

use std::sync::Arc;

use controller::metadata::{is_deleting, namespace};
use controller::{Action, Controller, Plan, Scope, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const CONFIG_MAP: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes \
     clusters.",
);

/// The PEM certificates to publish. A setting of the informers, made before the controller starts; without it nothing
/// is published. Source: `--root-ca-file` of kube-controller-manager.
pub struct Bundle(pub String);

/// The controller's row. Keys are namespaces.
pub const CONTROLLER: Controller = Controller {
    name: "root-ca-certificate-publisher-controller",
    queue: "root_ca_cert_publisher",
    sources: |_| {
        vec![
            Source::itself::<Namespace>(),
            Source::scoped::<ConfigMap>(scope(), |change, _| {
                change.object().map(|map| namespace(&map.metadata).to_owned()).into_iter().collect()
            }),
        ]
    },
    reconcile: |informers, key, now| {
        let (namespace, bundle) = (informers.informer::<Namespace>().get(key), informers.setting::<Bundle>());
        let (Some(namespace), Some(bundle)) = (namespace, bundle) else { return Plan::nothing() };
        let published = informers.scoped::<ConfigMap>(scope()).get(&format!("{key}/{CONFIG_MAP}"));
        plan(&Snapshot { namespace, published, bundle: bundle.0.clone() }, now)
    },
};

/// Only the ConfigMaps of that name: a cluster has many others.
fn scope() -> Scope {
    Scope { field_selector: Some(format!("metadata.name={CONFIG_MAP}")), ..Scope::default() }
}

/// The input of a decision about one namespace.
pub struct Snapshot {
    /// The namespace.
    pub namespace: Arc<Namespace>,
    /// Its ConfigMap.
    pub published: Option<Arc<ConfigMap>>,
    /// PEM certificates.
    pub bundle: String,
}

/// Decides whether to publish, or to put right what somebody changed.
pub fn plan(snapshot: &Snapshot, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if is_deleting(&snapshot.namespace.metadata) {
        return plan;
    }
    let data = [(FILE.to_owned(), snapshot.bundle.clone())];
    let (key, value) = DESCRIPTION;
    match &snapshot.published {
        None => plan.push(Action::create(&ConfigMap {
            metadata: ObjectMeta {
                name: Some(CONFIG_MAP.to_owned()),
                namespace: snapshot.namespace.metadata.name.clone(),
                annotations: Some([(key.to_owned(), value.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(data.into()),
            ..ConfigMap::default()
        })),
        Some(map) if map.data.as_ref() == Some(&data.clone().into()) => {}
        Some(map) => {
            plan.push(Action::update(&ConfigMap { data: Some(data.into()), ..(**map).clone() }));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(published: Option<&str>, expect: &str) {
        let published = published.map(|yaml| Arc::new(parse(yaml)));
        let snapshot = Snapshot {
            namespace: Arc::new(parse("{metadata: {name: team}}")),
            published,
            bundle: "PEM".into(),
        };
        assert_eq!(render(&plan(&snapshot, noon())), expect);
    }

    #[test]
    fn the_bundle_is_published_and_put_right() {
        check(None, "step\n  create configmaps kube-root-ca.crt\n");
        check(Some("{metadata: {name: kube-root-ca.crt}, data: {ca.crt: PEM}}"), "");
        check(
            Some("{metadata: {name: kube-root-ca.crt, uid: u}, data: {ca.crt: other, more: x}}"),
            "step\n  update configmaps kube-root-ca.crt {\"apiVersion\":\"v1\",\"data\":{\"ca.crt\":\"PEM\"},\
             \"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"kube-root-ca.crt\",\"uid\":\"u\"}}\n",
        );
    }
}
