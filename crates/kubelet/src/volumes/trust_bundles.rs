//! The trust anchors that a projected volume takes from ClusterTrustBundles. Pure.
//!
//! Source: `pkg/kubelet/clustertrustbundle` and `ClusterTrustBundleProjection`, core/v1; KEP-3257.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ClusterTrustBundleProjection, Pod};
use machinery::features::Feature;

use crate::volumes::pem;

/// Whether a volume of the Pod takes anchors from them.
pub(crate) fn are_mounted(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut sources = volumes.filter_map(|v| v.projected.as_ref()).flat_map(|p| p.sources.iter().flatten());
    Feature::ClusterTrustBundleProjection.is_on()
        && sources.any(|source| source.cluster_trust_bundle.is_some())
}

/// Nothing is chosen, and the projection is not optional.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnchors {
    #[error("ClusterTrustBundle projection requires either name or signerName")]
    Unnamed,
    #[error("while getting ClusterTrustBundle: clustertrustbundle \"{0}\" not found")]
    NotFound(String),
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoneMatched,
}

/// The anchors that `projection` chooses among `bundles`, as PEM: each once, in an order that does not change.
///
/// # Errors
/// In upstream's words: there is no such bundle, and the projection is not optional.
pub(super) fn anchors(
    projection: &ClusterTrustBundleProjection,
    bundles: &[Arc<ClusterTrustBundle>],
) -> Result<String, NoAnchors> {
    let may_lack = projection.optional == Some(true);
    let chosen: Vec<&Arc<ClusterTrustBundle>> = match (&projection.name, &projection.signer_name) {
        (Some(name), _) => bundles.iter().filter(|it| it.metadata.name.as_ref() == Some(name)).collect(),
        (None, Some(signer)) => bundles.iter().filter(|it| is_of(it, signer, projection)).collect(),
        (None, None) => return Err(NoAnchors::Unnamed),
    };
    if chosen.is_empty() && !may_lack {
        return Err(match &projection.name {
            Some(name) => NoAnchors::NotFound(name.clone()),
            None => NoAnchors::NoneMatched,
        });
    }
    let anchors: BTreeSet<Vec<u8>> =
        chosen.iter().flat_map(|bundle| pem::blocks(&bundle.spec.trust_bundle)).collect();
    Ok(anchors.iter().map(|anchor| pem::write("CERTIFICATE", anchor)).collect())
}

/// Without a selector nothing is meant, with an empty one everything of the signer.
fn is_of(bundle: &ClusterTrustBundle, signer: &str, projection: &ClusterTrustBundleProjection) -> bool {
    let labels = bundle.metadata.labels.as_ref();
    bundle.spec.signer_name.as_deref() == Some(signer)
        && projection.label_selector.as_ref().is_some_and(|it| controller::selector::selects(it, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n";
    const B: &str = "-----BEGIN CERTIFICATE-----\nQkJC\n-----END CERTIFICATE-----\n";

    fn check(projection: &str, expect: Result<&str, &str>) {
        let bundle = |name: &str, signer: Option<&str>, label: &str, pem: &str| {
            let text = serde_json::json!({
                "metadata": {"name": name, "labels": {"env": label}},
                "spec": {"signerName": signer, "trustBundle": pem},
            });
            Arc::new(serde_json::from_value(text).unwrap())
        };
        let bundles = [
            bundle("plain", None, "x", &format!("by hand\n{B}{A}{B}")),
            bundle("a.b:c:1", Some("a.b/c"), "live", A),
            bundle("a.b:c:2", Some("a.b/c"), "canary", &format!("{A}{B}")),
        ];
        let projection = serde_saphyr::from_str(projection).unwrap();
        let found = anchors(&projection, &bundles).map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expect, "{projection:?}");
    }

    #[test]
    fn anchors_are_chosen_and_told_once() {
        let both = format!("{A}{B}");
        check("{name: plain, path: x}", Ok(&both));
        check("{signerName: a.b/c, labelSelector: {}, path: x}", Ok(&both));
        check("{signerName: a.b/c, labelSelector: {matchLabels: {env: live}}, path: x}", Ok(A));
        let none = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
        check("{signerName: a.b/c, path: x}", Err(none));
        check("{signerName: a.b/d, labelSelector: {}, path: x}", Err(none));
        check("{signerName: a.b/d, labelSelector: {}, optional: true, path: x}", Ok(""));
        let missing = "while getting ClusterTrustBundle: clustertrustbundle \"y\" not found";
        check("{name: y, path: x}", Err(missing));
        check("{name: y, optional: true, path: x}", Ok(""));
    }
}
