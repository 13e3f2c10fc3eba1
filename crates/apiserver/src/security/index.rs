//! Keeps the authorizers' indexes level with the watch cache.

use auth::authorizer::Authorizer;
use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use schema::walk::zeros;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cache::{CacheEvent, CachedObject, EventType};

const CLUSTER_ROLES: &str = "/registry/clusterroles/";
const CLUSTER_ROLE_BINDINGS: &str = "/registry/clusterrolebindings/";
const ROLES: &str = "/registry/roles/";
const ROLE_BINDINGS: &str = "/registry/rolebindings/";
const PODS: &str = "/registry/pods/";
const VOLUMES: &str = "/registry/persistentvolumes/";
const ATTACHMENTS: &str = "/registry/volumeattachments/";
const SLICES: &str = "/registry/resourceslices/";
const CERTIFICATE_REQUESTS: &str = "/registry/podcertificaterequests/";

/// What the authorizers look at.
pub(super) const PREFIXES: [&str; 9] = [
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
    PODS,
    VOLUMES,
    ATTACHMENTS,
    SLICES,
    CERTIFICATE_REQUESTS,
];

/// Whether a change can matter: most changes of Pods do not move them.
fn is_relevant(prefix: &str, event: &CacheEvent) -> bool {
    if prefix != PODS || event.event_type == EventType::Deleted {
        return PREFIXES.contains(&prefix);
    }
    let needs = needs_of(&event.object);
    !needs.spec.node_name.is_empty()
        && event.previous.as_ref().is_none_or(|previous| needs_of(previous) != needs)
}

/// What of a Pod can change that decides what its node may touch: where it is, and the claims made for it.
#[derive(Deserialize, Default, PartialEq)]
struct Needs {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default, PartialEq)]
struct Spec {
    #[serde(default, rename = "nodeName")]
    node_name: String,
}

#[derive(Deserialize, Default, PartialEq)]
struct Status {
    #[serde(default, rename = "resourceClaimStatuses")]
    claims: serde_json::Value,
}

fn needs_of(pod: &CachedObject) -> Needs {
    serde_json::from_slice(&pod.json).unwrap_or_default()
}

/// What a change does to the indexes: what there is to read of it is read before anybody has to wait.
pub(super) type Update = Box<dyn FnOnce(&mut Authorizer)>;

/// What one change means, if it can matter.
pub(super) fn update(prefix: &str, event: &CacheEvent) -> Option<Update> {
    if !is_relevant(prefix, event) {
        return None;
    }
    if event.event_type != EventType::Deleted {
        return insertion(prefix, &event.object);
    }
    removal(prefix, &event.object)
}

/// What is taken away with one object.
fn removal(prefix: &str, object: &CachedObject) -> Option<Update> {
    let rest = object.key.strip_prefix(prefix).unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Some(match prefix {
        CLUSTER_ROLES => Box::new(move |all| all.rbac_mut().remove_cluster_role(&name)),
        CLUSTER_ROLE_BINDINGS => Box::new(move |all| all.rbac_mut().remove_cluster_role_binding(&name)),
        ROLES => Box::new(move |all| all.rbac_mut().remove_role(&namespace, &name)),
        ROLE_BINDINGS => Box::new(move |all| all.rbac_mut().remove_role_binding(&namespace, &name)),
        PODS => Box::new(move |all| all.nodes_mut().remove_pod(&namespace, &name)),
        VOLUMES => Box::new(move |all| all.nodes_mut().remove_volume(&name)),
        ATTACHMENTS => Box::new(move |all| all.nodes_mut().remove_attachment(&name)),
        SLICES => Box::new(move |all| all.nodes_mut().remove_slice(&name)),
        CERTIFICATE_REQUESTS => {
            Box::new(move |all| all.nodes_mut().remove_certificate_request(&namespace, &name))
        }
        _ => return None,
    })
}

/// What one object adds. One that cannot be read adds nothing, and what it added before is taken away: nobody may do by
/// an old version what the new one may not mean.
pub(super) fn insertion(prefix: &str, object: &CachedObject) -> Option<Update> {
    let added = match prefix {
        CLUSTER_ROLES => with::<ClusterRole>(object, |all, role| all.rbac_mut().insert_cluster_role(role)),
        CLUSTER_ROLE_BINDINGS => with::<ClusterRoleBinding>(object, |all, binding| {
            all.rbac_mut().insert_cluster_role_binding(binding)
        }),
        ROLES => with::<Role>(object, |all, role| all.rbac_mut().insert_role(role)),
        ROLE_BINDINGS => {
            with::<RoleBinding>(object, |all, binding| all.rbac_mut().insert_role_binding(binding))
        }
        PODS => part(["", "v1", "Pod"], object, |all, pod| all.nodes_mut().insert_pod(pod)),
        VOLUMES => part(["", "v1", "PersistentVolume"], object, |all, volume| {
            all.nodes_mut().insert_volume(volume);
        }),
        ATTACHMENTS => part(["storage.k8s.io", "v1", "VolumeAttachment"], object, |all, attachment| {
            all.nodes_mut().insert_attachment(attachment);
        }),
        SLICES => part(["resource.k8s.io", "v1", "ResourceSlice"], object, |all, slice| {
            all.nodes_mut().insert_slice(slice);
        }),
        CERTIFICATE_REQUESTS => {
            part(["certificates.k8s.io", "v1beta1", "PodCertificateRequest"], object, |all, request| {
                all.nodes_mut().insert_certificate_request(request);
            })
        }
        _ => return None,
    };
    match added {
        Ok(added) => Some(added),
        Err(failure) => {
            tracing::warn!(key = %object.key, %failure, "an object is not what its kind says");
            removal(prefix, object)
        }
    }
}

fn with<K: DeserializeOwned + Resource + 'static>(
    object: &CachedObject,
    take: impl FnOnce(&mut Authorizer, &K) + 'static,
) -> Result<Update, serde_json::Error> {
    part([K::GROUP, K::VERSION, K::KIND], object, take)
}

/// The same of a type that has a part of the kind's fields.
fn part<K: DeserializeOwned + 'static>(
    kind: [&str; 3],
    object: &CachedObject,
    take: impl FnOnce(&mut Authorizer, &K) + 'static,
) -> Result<Update, serde_json::Error> {
    let typed: K = zeros::decode(kind, &object.json)?;
    Ok(Box::new(move |authorizer| take(authorizer, &typed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_cannot_be_read_grants_nothing_of_what_it_granted() {
        let role = |spec: &str| {
            let stored = format!(r#"{{"metadata":{{"name":"a"}},{spec}}}"#);
            CachedObject::from_stored("/registry/clusterroles/a".into(), stored.as_bytes(), 1)
                .expect("an object")
        };
        let binding = r#"{"metadata":{"name":"a"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
            "name":"a"},"subjects":[null,{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"}]}"#;
        let key = "/registry/clusterrolebindings/a";
        let binding = CachedObject::from_stored(key.into(), binding.as_bytes(), 1).expect("an object");
        let mut all = Authorizer::new();
        let put = |all: &mut Authorizer, prefix, object: &CachedObject| {
            insertion(prefix, object).expect("an update")(all);
        };
        put(&mut all, CLUSTER_ROLE_BINDINGS, &binding);
        let user = auth::UserInfo { name: "alice".to_owned(), ..auth::UserInfo::default() };
        let attributes = auth::Attributes {
            verb: "get".to_owned(),
            resource: "pods".to_owned(),
            is_resource: true,
            ..auth::Attributes::default()
        };
        for (spec, is_allowed) in [
            (
                r#""rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":null}]"#,
                true,
            ),
            (r#""rules":[null,{"verbs":["get"],"apiGroups":[""],"resources":["pods",null]}]"#, true),
            (r#""rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]},{"verbs":7}]"#, false),
        ] {
            put(&mut all, CLUSTER_ROLES, &role(spec));
            let found = matches!(all.authorize(&user, &attributes), auth::Decision::Allow(_));
            assert_eq!(found, is_allowed, "{spec}");
        }
    }
}
