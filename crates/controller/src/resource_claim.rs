//! The rules about ResourceClaims that controller, scheduler and kubelet share: which claim a Pod means, whose it is,
//! and who may use it.
//!
//! Pure. Source: `k8s.io/dynamic-resource-allocation/resourceclaim`, KEP-4381.

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Pod as WholePod, PodResourceClaim, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::pod::Pod;

/// The finalizer that keeps an allocated claim until nobody uses it. Source: `resource.k8s.io/v1.Finalizer`.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of a claim made from a template: which of its Pod's claims it is. Source: `PodResourceClaimAnnotation`.
pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The number of users that a claim can have. Source: `ResourceClaimReservedForMaxSize`.
pub const USERS_MAX: usize = 256;

/// The claim that a Pod means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    /// The claim of that name, whoever made it.
    Named(String),
    /// The claim of that name, which must have been made for this Pod.
    Made(String),
    /// None: its controller has found that none is needed.
    Nothing,
    /// Its claim is to be made from a template, and has not been yet.
    NotYet,
    /// Nothing that is known says which claim it is.
    Unknown,
}

impl Meant {
    /// The claim's name, if there is one by now.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) | Self::Made(name) => Some(name),
            Self::Nothing | Self::NotYet | Self::Unknown => None,
        }
    }
}

/// A Pod, known in part or whole.
pub trait Claiming: Metadata<Ty = ObjectMeta> {
    /// The claims that it lists.
    fn claims(&self) -> Option<&Vec<PodResourceClaim>>;
    /// What has become of them.
    fn claim_statuses(&self) -> Option<&Vec<PodResourceClaimStatus>>;
}

/// Says of a type of Pods where claims are.
macro_rules! claiming {
    ($($pod:ty)*) => {$(
        impl Claiming for $pod {
            fn claims(&self) -> Option<&Vec<PodResourceClaim>> {
                self.spec.as_ref()?.resource_claims.as_ref()
            }

            fn claim_statuses(&self) -> Option<&Vec<PodResourceClaimStatus>> {
                self.status.as_ref()?.resource_claim_statuses.as_ref()
            }
        }
    )*};
}

claiming! { Pod WholePod }

/// The reason why a Pod cannot go on with a claim, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The Pod has none yet.
    #[error("pod \"{0}\": ResourceClaim not created yet")]
    NotYet(String),
    /// Nobody knows which one the Pod's entry means.
    #[error("pod \"{0}\", spec.resourceClaim \"{1}\": none of the supported fields are set")]
    Unknown(String, String),
    /// The claim was not made for the Pod.
    #[error("ResourceClaim {0} was not created for pod {1} (pod is not owner)")]
    NotOfPod(String, String),
}

/// The claims that a Pod lists.
pub fn of_pod(pod: &impl Claiming) -> &[PodResourceClaim] {
    pod.claims().map(Vec::as_slice).unwrap_or_default()
}

/// The claim that one of the Pod's entries means.
pub fn meant(pod: &impl Claiming, claim: &PodResourceClaim) -> Meant {
    if let Some(name) = &claim.resource_claim_name {
        return Meant::Named(name.clone());
    }
    if claim.resource_claim_template_name.is_none() {
        return Meant::Unknown;
    }
    let known = pod.claim_statuses().into_iter().flatten().find(|status| status.name == claim.name);
    match known.map(|status| status.resource_claim_name.clone()) {
        None => Meant::NotYet,
        Some(None) => Meant::Nothing,
        Some(Some(name)) => Meant::Made(name),
    }
}

/// The same, for those that cannot go on without a claim; `None` if no claim is needed.
///
/// # Errors
/// There is none yet, or nobody knows which.
pub fn must_be(pod: &impl Claiming, claim: &PodResourceClaim) -> Result<Option<Meant>, ClaimError> {
    match meant(pod, claim) {
        Meant::Nothing => Ok(None),
        Meant::NotYet => Err(ClaimError::NotYet(key_of(pod.metadata()))),
        Meant::Unknown => Err(ClaimError::Unknown(key_of(pod.metadata()), claim.name.clone())),
        meant => Ok(Some(meant)),
    }
}

/// The Pod that a claim was made for.
pub fn owner(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.api_version == "v1" && owner.kind == "Pod")
}

/// Refuses a claim that was not made for this very Pod.
///
/// # Errors
/// It was made for another, or by hand.
pub fn check_owner(pod: &impl Metadata<Ty = ObjectMeta>, claim: &ResourceClaim) -> Result<(), ClaimError> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata().uid.as_ref()) {
        return Ok(());
    }
    Err(ClaimError::NotOfPod(key_of(&claim.metadata), key_of(pod.metadata())))
}

/// The users of the claim, or those that are about to use it.
pub fn users(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// `true` if the Pod is among them.
pub fn is_reserved_for(pod: &impl Metadata<Ty = ObjectMeta>, claim: &ResourceClaim) -> bool {
    users(claim).iter().any(|user| Some(&user.uid) == pod.metadata().uid.as_ref())
}

/// `true` if one more may use it.
pub fn can_be_reserved(claim: &ResourceClaim) -> bool {
    users(claim).len() < USERS_MAX
}

/// `true` if it has devices.
pub fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// Adds the Pod to the claim's users.
pub fn reserve(claim: &mut ResourceClaim, pod: &impl Metadata<Ty = ObjectMeta>) {
    let user = ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: part(&pod.metadata().name).to_owned(),
        uid: part(&pod.metadata().uid).to_owned(),
    };
    claim.status.get_or_insert_default().reserved_for.get_or_insert_default().push(user);
}

/// `true` if none of the Pod's containers runs, or ever will. Source: `isPodDone` of the resourceclaim controller.
pub fn is_done(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    matches!(phase, Some("Succeeded" | "Failed"))
        || (pod.metadata.deletion_timestamp.is_some() && node.is_empty())
}

fn key_of(meta: &ObjectMeta) -> String {
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}

fn part(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod upstream;
#[cfg(test)]
mod tests {
    use super::*;

    fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
        serde_saphyr::from_str(yaml).expect("valid YAML")
    }

    /// A Pod with one claim of this kind and this status.
    fn check(claim: &str, statuses: &str, expect: Result<Option<Meant>, &str>) {
        let pod: Pod = parse(&format!(
            "{{metadata: {{name: p, namespace: d, uid: u}}, spec: {{containers: [], \
             resourceClaims: [{{name: gpu{claim}}}]}}, status: {{resourceClaimStatuses: [{statuses}]}}}}"
        ));
        let found = must_be(&pod, &of_pod(&pod)[0]).map_err(|error| error.to_string());
        assert_eq!(found, expect.map_err(str::to_owned), "{claim} {statuses}");
    }

    #[test]
    fn a_pod_means_the_claim_that_it_names_or_that_was_made_for_it() {
        check(", resourceClaimName: mine", "", Ok(Some(Meant::Named("mine".into()))));
        let template = ", resourceClaimTemplateName: t";
        check(template, "", Err("pod \"d/p\": ResourceClaim not created yet"));
        check(
            template,
            "{name: other, resourceClaimName: x}",
            Err("pod \"d/p\": ResourceClaim not created yet"),
        );
        check(template, "{name: gpu, resourceClaimName: p-gpu-1}", Ok(Some(Meant::Made("p-gpu-1".into()))));
        check(template, "{name: gpu}", Ok(None));
        check("", "", Err("pod \"d/p\", spec.resourceClaim \"gpu\": none of the supported fields are set"));
    }

    #[test]
    fn a_claim_is_for_the_pod_that_controls_it() {
        let claim = |uid: &str, is_controller: bool| -> ResourceClaim {
            parse(&format!(
                "{{metadata: {{name: c, namespace: d, ownerReferences: [{{apiVersion: v1, kind: Pod, name: p, \
                 uid: {uid}, controller: {is_controller}}}]}}, spec: {{}}}}"
            ))
        };
        let pod: Pod = parse("{metadata: {name: p, namespace: d, uid: u}}");
        assert_eq!(check_owner(&pod, &claim("u", true)), Ok(()));
        for other in [claim("v", true), claim("u", false)] {
            let why = "ResourceClaim d/c was not created for pod d/p (pod is not owner)";
            assert_eq!(check_owner(&pod, &other).unwrap_err().to_string(), why);
        }
    }
}
