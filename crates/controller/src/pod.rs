//! Pods as controllers and the scheduler keep them: of all fields those that one of them reads.
//!
//! There are as many Pods as there is of nothing else, and most of what upstream's types of a Pod and its containers take up
//! is room for what only a kubelet reads: 2.4 and 2.1 kB before the first text. Names are upstream's; what stands in a field
//! is of upstream's type where it is rarely there, and in a box where it is large. What one reads and the other does not is
//! left out by lists (`transform.rs` of each). Whoever comes to read a field adds it here.
//!
//! A Pod that is known in part cannot be written: it is not [`Serialize`]. What is made of a template is upstream's type.

mod interned;
mod pairs;

use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, ContainerStateTerminated, EnvFromSource, EnvVar, LocalObjectReference,
    PodCondition, PodIP, PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, Toleration,
    TopologySpreadConstraint, Volume, WorkloadReference,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize};

pub use interned::{Interned, Recent, Repeated};
pub use pairs::Pairs;

/// A Pod, in part. Source: `Pod`, core/v1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are upstream's")]
pub struct Pod {
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    pub spec: Option<PodSpec>,
    pub status: Option<PodStatus>,
}

/// Types of which every field may be absent.
macro_rules! in_part {
    ($($(#[$about:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        #[expect(missing_docs, reason = "the names are upstream's")]
        pub struct $name {$(
            #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
            $(#[$attribute])*
            pub $field: $type,
        )*}

        #[cfg(test)]
        impl $name {
            const FIELDS: usize = [$(stringify!($field)),*].len();
        }
    )*};
}

in_part! {
    /// What it is to be. Source: `PodSpec`.
    PodSpec {
        active_deadline_seconds: Option<i64>,
        affinity: Option<Interned<Affinity>>,
        containers: Interned<[Container]>,
        ephemeral_containers: Option<Interned<[Container]>>,
        host_network: Option<bool>,
        hostname: Option<String>,
        image_pull_secrets: Option<Vec<LocalObjectReference>>,
        init_containers: Option<Interned<[Container]>>,
        node_name: Option<String>,
        node_selector: Option<Pairs<String>>,
        overhead: Option<Pairs<Quantity>>,
        preemption_policy: Option<Interned<str>>,
        priority: Option<i32>,
        priority_class_name: Option<String>,
        resource_claims: Option<Vec<PodResourceClaim>>,
        resources: Option<ResourceRequirements>,
        restart_policy: Option<Interned<str>>,
        scheduler_name: Option<Interned<str>>,
        scheduling_gates: Option<Vec<PodSchedulingGate>>,
        subdomain: Option<String>,
        tolerations: Option<Interned<[Toleration]>>,
        topology_spread_constraints: Option<Interned<[TopologySpreadConstraint]>>,
        volumes: Option<Vec<Volume>>,
        workload_ref: Option<Box<WorkloadReference>>,
    }

    /// One of its containers, of whatever kind. Source: `Container`, `EphemeralContainer`.
    Container {
        env: Option<Vec<EnvVar>>,
        env_from: Option<Vec<EnvFromSource>>,
        image: Option<String>,
        name: String,
        ports: Option<Vec<ContainerPort>>,
        resources: Option<ResourceRequirements>,
        restart_policy: Option<String>,
    }

    /// What it, or a container, asks for. Source: `ResourceRequirements`.
    ResourceRequirements {
        limits: Option<Pairs<Quantity>>,
        requests: Option<Pairs<Quantity>>,
    }

    /// What has become of it. Source: `PodStatus`.
    PodStatus {
        conditions: Option<Vec<PodCondition>>,
        container_statuses: Option<Vec<ContainerStatus>>,
        init_container_statuses: Option<Vec<ContainerStatus>>,
        nominated_node_name: Option<String>,
        phase: Option<Interned<str>>,
        #[serde(rename = "podIP")]
        pod_ip: Option<String>,
        #[serde(rename = "podIPs")]
        pod_ips: Option<Vec<PodIP>>,
        reason: Option<String>,
        resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
        start_time: Option<Time>,
    }

    /// What has become of a container. Source: `ContainerStatus`.
    ContainerStatus {
        allocated_resources: Option<Pairs<Quantity>>,
        name: String,
        ready: bool,
        resources: Option<ResourceRequirements>,
        restart_count: i32,
        state: Option<ContainerState>,
    }

    /// How far a container is. Source: `ContainerState`.
    ContainerState {
        terminated: Option<Box<ContainerStateTerminated>>,
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

crate::part_of!(Pod, k8s_openapi::api::core::v1::Pod);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod as WholePod;
    use serde_json::{Value, json};

    use super::*;

    /// Every field that is kept.
    fn pod() -> Value {
        let resources = json!({"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}});
        let container = |name: &str| {
            json!({
                "name": name, "image": "i", "resources": resources, "restartPolicy": "Always",
                "env": [{"name": "A", "value": "a"}], "envFrom": [{"secretRef": {"name": "s"}}],
                "ports": [{"containerPort": 80, "hostPort": 8080, "name": "web"}],
            })
        };
        let expressions = json!([{"key": "k", "operator": "Exists"}]);
        let near = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
        let spec = json!({
            "activeDeadlineSeconds": 5,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near}},
            "containers": [container("a")],
            "ephemeralContainers": [container("b")],
            "hostNetwork": true,
            "hostname": "h",
            "imagePullSecrets": [{"name": "s"}],
            "initContainers": [container("c")],
            "nodeName": "n",
            "nodeSelector": {"k": "v"},
            "overhead": {"cpu": "1m"},
            "preemptionPolicy": "Never",
            "priority": -3,
            "priorityClassName": "low",
            "resourceClaims": [{"name": "r", "resourceClaimName": "c"}],
            "resources": resources,
            "restartPolicy": "OnFailure",
            "schedulerName": "s",
            "schedulingGates": [{"name": "g"}],
            "subdomain": "d",
            "tolerations": [{"operator": "Exists"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "workloadRef": {"name": "w", "podGroup": "p"},
        });
        let status = |name: &str| {
            json!({
                "allocatedResources": {"cpu": "1"}, "image": "", "imageID": "", "name": name, "ready": true,
                "resources": resources, "restartCount": 3, "state": {"terminated": {"exitCode": 7}},
            })
        };
        let since = "2026-01-01T00:00:00Z";
        let status = json!({
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since, "reason": "R"}],
            "containerStatuses": [status("a")],
            "initContainerStatuses": [status("c")],
            "nominatedNodeName": "m",
            "phase": "Running",
            "podIP": "192.0.2.1",
            "podIPs": [{"ip": "192.0.2.1"}],
            "reason": "Evicted",
            "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "made"}],
            "startTime": since,
        });
        json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec, "status": status})
    }

    #[test]
    fn what_is_kept_is_what_upstreams_type_has() {
        let text = pod().to_string();
        let whole: WholePod = serde_json::from_str(&text).expect("a whole Pod");
        let known: Pod = serde_json::from_str(&text).expect("a Pod");
        assert_eq!(known.metadata, whole.metadata);
        assert_eq!(json!(known.spec), json!(whole.spec));
        let mut expect = json!(whole.status);
        // Upstream's type has what upstream's API always says of a container, and is always empty here.
        for list in ["containerStatuses", "initContainerStatuses"] {
            let status = expect[list][0].as_object_mut().expect("a status");
            assert!(status.remove("image").is_some() && status.remove("imageID").is_some());
        }
        assert_eq!(json!(known.status), expect);
    }

    #[test]
    fn every_field_that_is_kept_is_looked_at() {
        let known: Pod = serde_json::from_value(pod()).expect("a Pod");
        let (spec, status) = (json!(known.spec), json!(known.status));
        for (part, fields) in [
            (&spec, PodSpec::FIELDS),
            (&spec["containers"][0], Container::FIELDS),
            (&spec["resources"], ResourceRequirements::FIELDS),
            (&status, PodStatus::FIELDS),
            (&status["containerStatuses"][0], ContainerStatus::FIELDS),
            (&status["containerStatuses"][0]["state"], ContainerState::FIELDS),
        ] {
            assert_eq!(part.as_object().map(|all| all.len()), Some(fields), "{part}");
        }
    }

    #[test]
    fn what_is_nothing_is_absent() {
        let text = r#"{"metadata":null,"spec":{"containers":null,"dnsPolicy":"Default","hostname":null,"volumes":[]}}"#;
        let known: Pod = serde_json::from_str(text).expect("a Pod");
        let spec = PodSpec { volumes: Some(Vec::new()), ..PodSpec::default() };
        assert_eq!(known, Pod { spec: Some(spec), ..Pod::default() });
    }

    /// Upstream's types take up 2,440, 2,144 and 752 bytes; whoever adds a field sees what it costs all Pods of a cluster.
    #[test]
    fn little_room_is_taken_up_before_the_first_text() {
        use std::mem::size_of;

        let sizes = [size_of::<Pod>(), size_of::<Container>(), size_of::<ContainerStatus>()];
        assert_eq!(sizes, [1032, 184, 104]);
    }
}
