//! The `pod-template-hash` label: tells the Pods of one ReplicaSet from those of another.
//!
//! Any stable hash will do, because a ReplicaSet is found again by its template and never by the hash.

use controller::metadata::name;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use sha2::{Digest, Sha256};

use crate::names::safe_encode;

/// The label's key. Source: `apps/v1`.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The hash of `template`, made different by `collision_count` when a name was taken already.
pub(crate) fn template_hash(template: &PodTemplateSpec, collision_count: Option<i32>) -> String {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(template).unwrap_or_default());
    hash.update(collision_count.unwrap_or_default().to_le_bytes());
    let digest = hash.finalize();
    let number = digest.iter().take(4).fold(0u32, |number, byte| (number << 8) | u32::from(*byte));
    safe_encode(&number.to_string())
}

/// The name of the ReplicaSet that `deployment` makes next.
pub(crate) fn replica_set_name(deployment: &Deployment) -> Option<String> {
    let spec = deployment.spec.as_ref()?;
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    Some(format!("{}-{}", name(&deployment.metadata), template_hash(&spec.template, collisions)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    #[test]
    fn a_collision_changes_the_hash_and_nothing_else_does() {
        let template: PodTemplateSpec =
            parse("{metadata: {labels: {app: web}}, spec: {containers: [{name: a}]}}");
        let hash = template_hash(&template, None);
        assert_eq!(hash, template_hash(&template.clone(), Some(0)));
        assert_ne!(hash, template_hash(&template, Some(1)));
    }
}
