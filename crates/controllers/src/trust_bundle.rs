//! The trust bundle publisher: by whom the API server's certificates are signed, as a ClusterTrustBundle that any Pod
//! can mount. Runs if the feature ClusterTrustBundle is on.
//!
//! Source: `pkg/controller/certificates/clustertrustbundlepublisher`, KEP-3257.

use std::sync::Arc;

use controller::metadata::{name, uid};
use controller::{Action, Controller, Plan, Propagation, Scope, Source};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::root_ca::Bundle;

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// Of the bundle's digest, what its name has.
const DIGEST_BYTES: usize = 12;
/// There is one key: everything is about one bundle.
const KEY: &str = "kube-apiserver-serving";

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    queue: "ClusterTrustBundle",
    sources: |_| {
        vec![
            // There always is one, which wakes the controller when it starts.
            Source::scoped::<Namespace>(system(), |_, _| vec![KEY.to_owned()]),
            Source::scoped::<ClusterTrustBundle>(own(), |_, _| vec![KEY.to_owned()]),
        ]
    },
    reconcile: |informers, _, now| match informers.setting::<Bundle>() {
        Some(bundle) => {
            let published = informers.scoped::<ClusterTrustBundle>(own()).list();
            plan(&Snapshot { published, bundle: bundle.0.clone() }, now)
        }
        None => Plan::nothing(),
    },
};

fn system() -> Scope {
    Scope { field_selector: Some("metadata.name=kube-system".to_owned()), ..Scope::default() }
}

/// Only the signer's.
fn own() -> Scope {
    Scope { field_selector: Some(format!("spec.signerName={SIGNER}")), ..Scope::default() }
}

/// The input of the decision.
pub struct Snapshot {
    /// The signer's bundles.
    pub published: Vec<Arc<ClusterTrustBundle>>,
    /// PEM certificates.
    pub bundle: String,
}

/// Decides whether to publish, to put right what somebody changed, and which bundles are of an earlier authority.
pub fn plan(snapshot: &Snapshot, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let wanted = name_of(&snapshot.bundle);
    let mut published = snapshot.published.clone();
    published.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let (own, others): (Vec<_>, Vec<_>) =
        published.into_iter().partition(|bundle| name(&bundle.metadata) == wanted);
    match own.first() {
        None => plan.push(Action::create(&ClusterTrustBundle {
            metadata: ObjectMeta { name: Some(wanted), ..ObjectMeta::default() },
            spec: ClusterTrustBundleSpec {
                signer_name: Some(SIGNER.to_owned()),
                trust_bundle: snapshot.bundle.clone(),
            },
        })),
        Some(bundle) if bundle.spec.trust_bundle == snapshot.bundle => {}
        Some(bundle) => {
            let mut bundle = (**bundle).clone();
            bundle.spec.trust_bundle.clone_from(&snapshot.bundle);
            plan.push(Action::update(&bundle));
        }
    }
    for bundle in others {
        let meta = &bundle.metadata;
        plan.push(Action::delete::<ClusterTrustBundle>(
            "",
            name(meta),
            Some(uid(meta)),
            Propagation::Background,
            None,
        ));
    }
    plan
}

/// `kubernetes.io:kube-apiserver-serving:<the first bytes of the bundle's SHA-256, in hex>`
fn name_of(bundle: &str) -> String {
    let digest: String =
        Sha256::digest(bundle).iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{digest}", SIGNER.replace('/', ":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    const NAME: &str = "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9";

    fn check(published: &[&str], expect: &str) {
        let published = published.iter().map(|yaml| Arc::new(parse(yaml))).collect();
        let snapshot = Snapshot { published, bundle: "PEM".into() };
        assert_eq!(render(&plan(&snapshot, noon())), expect);
    }

    #[test]
    fn the_bundle_is_published_and_put_right_and_older_ones_go() {
        let own = |text: &str| {
            format!("{{metadata: {{name: {:?}, uid: u}}, spec: {{trustBundle: {text}}}}}", name_of("PEM"))
        };
        assert_eq!(name_of("PEM"), NAME);
        check(&[], &format!("step\n  create clustertrustbundles {NAME}\n"));
        check(&[&own("PEM")], "");
        let mended = format!(
            "{{\"apiVersion\":\"certificates.k8s.io/v1beta1\",\"kind\":\"ClusterTrustBundle\",\"metadata\":\
             {{\"name\":\"{NAME}\",\"uid\":\"u\"}},\"spec\":{{\"trustBundle\":\"PEM\"}}}}"
        );
        check(&[&own("other")], &format!("step\n  update clustertrustbundles {NAME} {mended}\n"));
        let old = "{metadata: {name: old, uid: o}, spec: {trustBundle: OLD}}";
        check(&[old, &own("PEM")], "step\n  delete clustertrustbundles old\n");
    }
}
