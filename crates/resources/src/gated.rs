//! Fields of features that are off by default: a write does not set them, unless the object has them already.
//!
//! A path leads from the object to a field; `*` stands for every item of a list, or every value of a map.
//! Source: the `dropDisabledFields` functions of `pkg/api/*/util.go` and `pkg/registry/*/*/strategy.go`, and the
//! defaults of `pkg/features/kube_features.go`, at v1.35.

use machinery::features::Feature;
use serde_json::Value;

/// A feature, and the fields that are gated until it is on.
pub type UntilOn = (Feature, &'static [&'static str]);

/// Of a Pod's spec, wherever it is.
const OF_PODS: &[&str] = &[
    // ContainerStopSignals.
    "containers/*/lifecycle/stopSignal",
    "initContainers/*/lifecycle/stopSignal",
    "ephemeralContainers/*/lifecycle/stopSignal",
];

/// The same, until a feature is turned on.
const OF_PODS_UNTIL_ON: &[UntilOn] = &[
    (Feature::ClusterTrustBundleProjection, &["volumes/*/projected/sources/*/clusterTrustBundle"]),
    (Feature::GenericWorkload, &["workloadRef"]),
    (Feature::PodCertificateRequest, &["volumes/*/projected/sources/*/podCertificate"]),
];

/// The gated fields of a Pod: ResourceHealthStatus, DRAExtendedResource, InPlacePodLevelResourcesVerticalScaling.
pub const POD: &[&str] = &[
    "status/containerStatuses/*/allocatedResourcesStatus",
    "status/initContainerStatuses/*/allocatedResourcesStatus",
    "status/ephemeralContainerStatuses/*/allocatedResourcesStatus",
    "status/extendedResourceClaimStatus",
    "status/resources",
    "status/allocatedResources",
];
/// The gated fields of a Node: NodeDeclaredFeatures.
pub const NODE: &[&str] = &["status/declaredFeatures"];
/// The gated fields of a DeviceClass: DRAExtendedResource.
pub const DEVICE_CLASS: &[&str] = &["spec/extendedResourceName"];
/// The gated fields of a ResourceClaim: DRAConsumableCapacity, DRADeviceBindingConditions.
pub const RESOURCE_CLAIM: &[&str] = &[
    "spec/devices/requests/*/exactly/capacity",
    "spec/devices/requests/*/firstAvailable/*/capacity",
    "spec/devices/constraints/*/distinctAttribute",
    "status/allocation/allocationTimestamp",
    "status/allocation/devices/results/*/bindingConditions",
    "status/allocation/devices/results/*/bindingFailureConditions",
    "status/allocation/devices/results/*/shareID",
    "status/allocation/devices/results/*/consumedCapacity",
    "status/devices/*/shareID",
];
/// The fields of a ResourceClaim whose features can be turned on. The tolerations of its devices come from these.
pub const RESOURCE_CLAIM_UNTIL_ON: &[UntilOn] = &[(
    Feature::DraDeviceTaints,
    &["spec/devices/requests/*/exactly/tolerations", "spec/devices/requests/*/firstAvailable/*/tolerations"],
)];
/// The gated fields of a ResourceClaimTemplate: as of a claim.
pub const RESOURCE_CLAIM_TEMPLATE: &[&str] = &[
    "spec/spec/devices/requests/*/exactly/capacity",
    "spec/spec/devices/requests/*/firstAvailable/*/capacity",
    "spec/spec/devices/constraints/*/distinctAttribute",
];
/// The fields of a ResourceClaimTemplate whose features can be turned on.
pub const RESOURCE_CLAIM_TEMPLATE_UNTIL_ON: &[UntilOn] = &[(
    Feature::DraDeviceTaints,
    &[
        "spec/spec/devices/requests/*/exactly/tolerations",
        "spec/spec/devices/requests/*/firstAvailable/*/tolerations",
    ],
)];
/// The gated fields of a ResourceSlice: DRAPartitionableDevices, DRADeviceBindingConditions, DRAConsumableCapacity.
pub const RESOURCE_SLICE: &[&str] = &[
    "spec/perDeviceNodeSelection",
    "spec/sharedCounters",
    "spec/devices/*/consumesCounters",
    "spec/devices/*/nodeName",
    "spec/devices/*/nodeSelector",
    "spec/devices/*/allNodes",
    "spec/devices/*/bindsToNode",
    "spec/devices/*/bindingConditions",
    "spec/devices/*/bindingFailureConditions",
    "spec/devices/*/allowMultipleAllocations",
    "spec/devices/*/capacity/*/requestPolicy",
];
/// The fields of a ResourceSlice whose features can be turned on.
pub const RESOURCE_SLICE_UNTIL_ON: &[UntilOn] = &[(Feature::DraDeviceTaints, &["spec/devices/*/taints"])];

/// The gated fields of a Lease: CoordinatedLeaderElection.
pub const LEASE: &[&str] = &["spec/strategy", "spec/preferredHolder"];

/// Of a new StatefulSet: MaxUnavailableStatefulSet.
pub(super) fn stateful_set_create(new: &mut Value) {
    stateful_set(new, None);
}

/// Of a changed StatefulSet.
pub(super) fn stateful_set_update(new: &mut Value, old: &Value) {
    stateful_set(new, Some(old));
}

fn stateful_set(new: &mut Value, old: Option<&Value>) {
    if !Feature::MaxUnavailableStatefulSet.is_on() {
        take_new(&["spec/updateStrategy/rollingUpdate/maxUnavailable"], new, old);
    }
}

/// Takes the fields `paths` out of `new` that `old` has not; and those of Pods out of the Pod's spec at the pointer
/// `pod_spec`, if the kind has one.
pub(crate) fn drop_disabled(paths: &[&str], pod_spec: &str, new: &mut Value, old: Option<&Value>) {
    take_new(paths, new, old);
    if pod_spec.is_empty() {
        return;
    }
    let old = old.and_then(|old| old.pointer(pod_spec));
    if let Some(spec) = new.pointer_mut(pod_spec) {
        take_new(OF_PODS, spec, old);
        drop_until_on(OF_PODS_UNTIL_ON, spec, old);
    }
}

/// Takes the fields of those features out of `new` that are not on, unless `old` has them.
pub(crate) fn drop_until_on(fields: &[UntilOn], new: &mut Value, old: Option<&Value>) {
    for (_, paths) in fields.iter().filter(|(feature, _)| !feature.is_on()) {
        take_new(paths, new, old);
    }
}

fn take_new(paths: &[&str], new: &mut Value, old: Option<&Value>) {
    for path in paths {
        let steps: Vec<&str> = path.split('/').collect();
        if !old.is_some_and(|old| has(&steps, old)) {
            take(&steps, new);
        }
    }
}

fn has(steps: &[&str], value: &Value) -> bool {
    match steps {
        [] => !value.is_null(),
        ["*", rest @ ..] => match value {
            Value::Array(list) => list.iter().any(|item| has(rest, item)),
            Value::Object(map) => map.values().any(|item| has(rest, item)),
            _ => false,
        },
        [field, rest @ ..] => value.get(field).is_some_and(|value| has(rest, value)),
    }
}

fn take(steps: &[&str], value: &mut Value) {
    match steps {
        [] => {}
        ["*", rest @ ..] => match value {
            Value::Array(list) => list.iter_mut().for_each(|item| take(rest, item)),
            Value::Object(map) => map.values_mut().for_each(|item| take(rest, item)),
            _ => {}
        },
        [field] => {
            value.as_object_mut().map(|map| map.remove(*field));
        }
        [field, rest @ ..] => {
            let Some(inner) = value.get_mut(field) else { return };
            let had_something = inner.as_object().is_some_and(|map| !map.is_empty());
            take(rest, inner);
            // A lifecycle that said nothing else is none.
            let is_emptied = had_something && inner.as_object().is_some_and(serde_json::Map::is_empty);
            if is_emptied && *field == "lifecycle" {
                value.as_object_mut().map(|map| map.remove(*field));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pod_spec: &str, new: Value, old: Option<&Value>, expect: &Value) {
        let mut new = new;
        drop_disabled(POD, pod_spec, &mut new, old);
        assert_eq!(new, *expect);
    }

    #[test]
    fn what_is_off_is_not_set() {
        let pod = json!({
            "spec": {
                "workloadRef": {"name": "w"},
                "containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGINT"}}],
                "volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}, {"podCertificate": {"keyPath": "k"}}, {"secret": {}}]}}],
            },
            "status": {"resources": {}, "phase": "Pending"},
        });
        let kept = json!({
            "spec": {
                "containers": [{"name": "c"}],
                "volumes": [{"name": "v", "projected": {"sources": [{}, {}, {"secret": {}}]}}],
            },
            "status": {"phase": "Pending"},
        });
        check("/spec", pod.clone(), None, &kept);
        check("/spec", pod.clone(), Some(&kept), &kept);
        check("/spec", pod.clone(), Some(&pod), &pod);
    }

    #[test]
    fn templates_are_no_way_around() {
        let template = json!({"spec": {"template": {"spec": {"workloadRef": {}, "initContainers": [
            {"lifecycle": {"stopSignal": "SIGINT", "preStop": {}}}, {"lifecycle": {}}]}}}});
        let kept = json!({"spec": {"template": {"spec": {"initContainers": [
            {"lifecycle": {"preStop": {}}}, {"lifecycle": {}}]}}}});
        check("/spec/template/spec", template, None, &kept);
    }

    /// A slice, a claim and a template that use device taints, and the same without.
    fn tainted() -> [(&'static [UntilOn], Value, Value); 3] {
        let claim = |has: bool| {
            let mut one = json!({"deviceClassName": "c", "tolerations": [{"operator": "Exists"}]});
            if !has {
                one.as_object_mut().unwrap().remove("tolerations");
            }
            json!({"devices": {"requests": [{"exactly": one}, {"firstAvailable": [one]}]}})
        };
        let slice = |device: Value| json!({"spec": {"devices": [{"name": "a"}, device]}});
        [
            (
                RESOURCE_SLICE_UNTIL_ON,
                slice(json!({"name": "d", "taints": [{"key": "k"}]})),
                slice(json!({"name": "d"})),
            ),
            (RESOURCE_CLAIM_UNTIL_ON, json!({"spec": claim(true)}), json!({"spec": claim(false)})),
            (
                RESOURCE_CLAIM_TEMPLATE_UNTIL_ON,
                json!({"spec": {"spec": claim(true)}}),
                json!({"spec": {"spec": claim(false)}}),
            ),
        ]
    }

    #[test]
    fn taints_and_tolerations_are_not_set_until_their_feature_is_on() {
        for (fields, with, without) in tainted() {
            for (old, expect) in [(None, &without), (Some(&without), &without), (Some(&with), &with)] {
                let mut new = with.clone();
                drop_until_on(fields, &mut new, old);
                assert_eq!(new, *expect, "{old:?}");
            }
        }
    }

    #[test]
    fn taints_and_tolerations_are_set_once_their_feature_is_on() {
        machinery::features::turn_on(&["DRADeviceTaints=true".parse().unwrap()]).unwrap();
        for (fields, with, _) in tainted() {
            let mut new = with.clone();
            drop_until_on(fields, &mut new, None);
            assert_eq!(new, with);
        }
    }

    #[test]
    fn values_of_maps_are_looked_at() {
        let mut slice =
            json!({"spec": {"devices": [{"capacity": {"m": {"value": "1", "requestPolicy": {}}}}]}});
        drop_disabled(RESOURCE_SLICE, "", &mut slice, None);
        assert_eq!(slice, json!({"spec": {"devices": [{"capacity": {"m": {"value": "1"}}}]}}));
    }
}
