//! The core group, `v1`, and Events of `events.k8s.io`.

use crate::columns as c;
use crate::conversion;
use crate::fields;
use crate::resource::{Resource, SCALE, STATUS, Scope, Subresource};
use crate::strategies as s;
use crate::strategy::STATUS_ONLY;

const V1: (&str, &str) = ("", "v1");
const EVENT_TTL_SECONDS: u32 = 3600;
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

const fn namespaced(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
    Resource::new(V1, plural, singular, kind, Scope::Namespaced)
}

const fn cluster(plural: &'static str, singular: &'static str, kind: &'static str) -> Resource {
    Resource::new(V1, plural, singular, kind, Scope::Cluster)
}

const fn below(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, group: "", version: "v1", kind, verbs }
}

const POD_SUBRESOURCES: &[Subresource] = &[
    below("attach", "PodAttachOptions", &["create", "get"]),
    below("binding", "Binding", &["create"]),
    below("ephemeralcontainers", "Pod", &["get", "patch", "update"]),
    Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: &["create"] },
    below("exec", "PodExecOptions", &["create", "get"]),
    below("log", "Pod", &["get"]),
    below("portforward", "PodPortForwardOptions", &["create", "get"]),
    below("proxy", "PodProxyOptions", PROXY_VERBS),
    below("resize", "Pod", &["get", "patch", "update"]),
    STATUS,
];

const TOKEN: Subresource = Subresource {
    name: "token",
    group: "authentication.k8s.io",
    version: "v1",
    kind: "TokenRequest",
    verbs: &["create"],
};

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    namespaced("bindings", "binding", "Binding").virtual_kind(),
    cluster("componentstatuses", "componentstatus", "ComponentStatus")
        .short(&["cs"])
        .deprecated("v1 ComponentStatus is deprecated in v1.19+")
        .verbs(&["get", "list"])
        .columns(c::COMPONENT_STATUS),
    namespaced("configmaps", "configmap", "ConfigMap")
        .short(&["cm"])
        .strategy(&s::CONFIG_MAP)
        .columns(c::CONFIG_MAP),
    namespaced("endpoints", "endpoints", "Endpoints")
        .short(&["ep"])
        .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        .stored_at("/registry/services/endpoints/")
        .strategy(&s::ENDPOINTS)
        .columns(c::ENDPOINTS),
    namespaced("events", "event", "Event")
        .short(&["ev"])
        .fields(fields::EVENT)
        .ttl(EVENT_TTL_SECONDS)
        .relaxed()
        .strategy(&s::EVENT)
        .columns(c::EVENT),
    namespaced("limitranges", "limitrange", "LimitRange")
        .short(&["limits"])
        .strategy(&s::LIMIT_RANGE)
        .columns(c::CREATED_AT),
    cluster("namespaces", "namespace", "Namespace")
        .short(&["ns"])
        .verbs(&["create", "delete", "get", "list", "patch", "update", "watch"])
        .sub(&[below("finalize", "Namespace", &["update"]), STATUS])
        .fields(fields::NAMESPACE)
        .strategy(&s::NAMESPACE)
        .columns(c::NAMESPACE),
    cluster("nodes", "node", "Node")
        .short(&["no"])
        .stored_at("/registry/minions/")
        .sub(&[below("proxy", "NodeProxyOptions", PROXY_VERBS), STATUS])
        .fields(fields::NODE)
        .strategy(&s::NODE)
        .columns(c::NODE),
    namespaced("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim")
        .short(&["pvc"])
        .sub(&[STATUS])
        .strategy(&s::PERSISTENT_VOLUME_CLAIM)
        .columns(c::PERSISTENT_VOLUME_CLAIM),
    cluster("persistentvolumes", "persistentvolume", "PersistentVolume")
        .short(&["pv"])
        .sub(&[STATUS])
        .strategy(&s::PERSISTENT_VOLUME)
        .columns(c::PERSISTENT_VOLUME),
    namespaced("pods", "pod", "Pod")
        .short(&["po"])
        .in_all()
        .sub(POD_SUBRESOURCES)
        .fields(fields::POD)
        .strategy(&s::POD)
        .columns(c::POD),
    namespaced("podtemplates", "podtemplate", "PodTemplate")
        .strategy(&s::POD_TEMPLATE)
        .columns(c::POD_TEMPLATE),
    namespaced("replicationcontrollers", "replicationcontroller", "ReplicationController")
        .short(&["rc"])
        .in_all()
        .stored_at("/registry/controllers/")
        .sub(&[SCALE, STATUS])
        .fields(fields::REPLICAS)
        .strategy(&s::REPLICATION_CONTROLLER)
        .columns(c::REPLICATION_CONTROLLER),
    namespaced("resourcequotas", "resourcequota", "ResourceQuota")
        .short(&["quota"])
        .sub(&[STATUS])
        .strategy(&STATUS_ONLY)
        .columns(c::RESOURCE_QUOTA),
    namespaced("secrets", "secret", "Secret").fields(fields::SECRET).strategy(&s::SECRET).columns(c::SECRET),
    namespaced("serviceaccounts", "serviceaccount", "ServiceAccount")
        .short(&["sa"])
        .sub(&[TOKEN])
        .strategy(&s::SERVICE_ACCOUNT)
        .columns(c::SERVICE_ACCOUNT),
    namespaced("services", "service", "Service")
        .short(&["svc"])
        .in_all()
        .stored_at("/registry/services/specs/")
        .sub(&[below("proxy", "ServiceProxyOptions", PROXY_VERBS), STATUS])
        .fields(fields::SERVICE)
        .strategy(&s::SERVICE)
        .columns(c::SERVICE),
    Resource::new(("events.k8s.io", "v1"), "events", "event", "Event", Scope::Namespaced)
        .short(&["ev"])
        .stored_as("v1", Some(&conversion::EVENT))
        .fields(fields::EVENT_V1)
        .ttl(EVENT_TTL_SECONDS)
        .relaxed()
        .strategy(&s::EVENT)
        .columns(c::EVENT),
];
