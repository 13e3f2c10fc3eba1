//! Defaults, per message type, of the built-in kinds.
//!
//! The schema's walk calls a row's function on every object of that type, wherever it stands: a container in a Pod
//! and one in a Deployment's template get the same. Each function only fills what is absent (or zero, where
//! upstream does not tell the two apart) and is a no-op when run again.
//! Source: `k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`, and `+default` markers of `k8s.io/api`.

mod apps;
mod authn;
mod core;
mod extension;
mod networking;
mod pod;
mod policy;
mod service;
mod storage;

use std::sync::LazyLock;

use machinery::quantity::{Quantity, rewritten};
use serde_json::{Map, Value};

/// Type name and the function that fills in its defaults.
pub type Row = (&'static str, fn(&mut Map<String, Value>));

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    [
        pod::ROWS,
        core::ROWS,
        service::ROWS,
        apps::ROWS,
        authn::ROWS,
        extension::ROWS,
        networking::ROWS,
        policy::ROWS,
        storage::ROWS,
    ]
    .concat()
});

/// Every row.
pub fn rows() -> &'static [Row] {
    &ROWS
}

/// Sets a pointer field: only where it is absent.
fn absent(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_owned(), value.into());
    }
}

/// Sets a plain field: also where it is `""` or 0, which upstream's types cannot tell from absent.
fn unset(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let is_unset = match map.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(_) => false,
    };
    if is_unset {
        map.insert(name.to_owned(), value.into());
    }
}

/// The object under `name`, made if absent.
fn object<'a>(map: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    absent(map, name, Map::new());
    map.get_mut(name)?.as_object_mut()
}

fn text<'a>(map: &'a Map<String, Value>, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn objects<'a>(
    map: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Writes the quantity under `name` as upstream does; one that cannot be read is left for validation.
fn quantity(map: &mut Map<String, Value>, name: &str) {
    map.get_mut(name).into_iter().for_each(rewrite);
}

/// Writes the quantities of a list or map under `name` as upstream does.
fn each_quantity(map: &mut Map<String, Value>, name: &str) {
    match map.get_mut(name) {
        Some(Value::Array(list)) => list.iter_mut().for_each(rewrite),
        Some(Value::Object(map)) => map.values_mut().for_each(rewrite),
        _ => {}
    }
}

/// Rounds every quantity of the resource list under `name` up to thousandths. Source: `SetDefaults_ResourceList`.
fn quantities(map: &mut Map<String, Value>, name: &str) {
    let list = map.get_mut(name).and_then(Value::as_object_mut);
    for value in list.into_iter().flat_map(Map::values_mut) {
        rewrite(value);
        let rounded = |text: &str| {
            let quantity: Quantity = text.parse().ok()?;
            Some(quantity.rounded_to_milli()).filter(|rounded| *rounded != quantity)
        };
        if let Some(rounded) = value.as_str().and_then(rounded) {
            *value = rounded.to_string().into();
        }
    }
}

fn rewrite(value: &mut Value) {
    let read = match value {
        Value::String(text) => rewritten(text),
        Value::Number(number) => rewritten(&number.to_string()),
        _ => return,
    };
    if let Ok(written) = read {
        *value = written.into();
    }
}

/// Copies entries of the resource list `from` that `to` has not.
fn fill_resources(map: &mut Map<String, Value>, from: &str, to: &str) {
    let Some(source) = map.get(from).and_then(Value::as_object).cloned() else { return };
    let Some(target) = object(map, to) else { return };
    for (name, amount) in source {
        target.entry(name).or_insert(amount);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(message: &str, object: Value, expect: Expect) {
        let mut object = object;
        let (_, fill) = rows().iter().find(|(name, _)| *name == message).unwrap();
        fill(object.as_object_mut().unwrap());
        let once = object.clone();
        fill(object.as_object_mut().unwrap());
        assert_eq!(once, object, "a second run changes nothing");
        expect.assert_eq(&object.to_string());
    }

    #[test]
    fn no_message_has_two_rows() {
        let names: std::collections::BTreeSet<_> = rows().iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), rows().len());
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("r:5000/nginx", "Always"),
            ("nginx@sha256:abc", "IfNotPresent"),
        ] {
            let mut container = json!({"image": image});
            let (_, fill) = rows().iter().find(|(name, _)| *name == "io.k8s.api.core.v1.Container").unwrap();
            fill(container.as_object_mut().unwrap());
            assert_eq!(container["imagePullPolicy"], policy, "{image}");
        }
    }

    #[test]
    fn a_pod_takes_requests_from_limits() {
        check(
            "io.k8s.api.core.v1.Pod",
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "0.5"}, "requests": {"memory": 1}}}]}}),
            expect![[
                r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"0.5"},"requests":{"cpu":"0.5","memory":1}}}],"enableServiceLinks":true}}"#
            ]],
        );
    }

    #[test]
    fn quantities_are_written_as_upstream_writes_them() {
        check(
            "io.k8s.api.core.v1.ResourceRequirements",
            json!({"limits": {"cpu": "0.5", "memory": 1_000, "x": "bad!", "y": "1E3", "z": "+5"}}),
            expect![[r#"{"limits":{"cpu":"500m","memory":"1k","x":"bad!","y":"1E3","z":"+5"}}"#]],
        );
        // Resource lists know no less than thousandths.
        check(
            "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
            json!({"allocatedResources": {"storage": "1.5Gi"}, "capacity": {"a": "100u", "b": "1500100u", "c": "1.005"}}),
            expect![[
                r#"{"allocatedResources":{"storage":"1536Mi"},"capacity":{"a":"1m","b":"1501m","c":"1.005"}}"#
            ]],
        );
        check(
            "io.k8s.api.node.v1.Overhead",
            json!({"podFixed": {"cpu": "100u", "memory": "1024Ki"}}),
            expect![[r#"{"podFixed":{"cpu":"100u","memory":"1Mi"}}"#]],
        );
        check(
            "io.k8s.api.resource.v1.CapacityRequestPolicy",
            json!({"default": "1024Mi", "validValues": ["1000M", "2G"]}),
            expect![[r#"{"default":"1Gi","validValues":["1G","2G"]}"#]],
        );
    }

    #[test]
    fn a_deployment_rolls_by_quarters() {
        check(
            "io.k8s.api.apps.v1.Deployment",
            json!({"spec": {}}),
            expect![[
                r#"{"spec":{"progressDeadlineSeconds":600,"replicas":1,"revisionHistoryLimit":10,"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}}}"#
            ]],
        );
    }

    #[test]
    fn a_service_port_targets_itself() {
        check(
            "io.k8s.api.core.v1.Service",
            json!({"spec": {"ports": [{"port": 80}]}}),
            expect![[
                r#"{"spec":{"internalTrafficPolicy":"Cluster","ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"ClusterIP"}}"#
            ]],
        );
    }

    #[test]
    fn string_data_of_a_secret_becomes_data() {
        check(
            "io.k8s.api.core.v1.Secret",
            json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}}),
            expect![[r#"{"data":{"a":"eQ==","b":"eg=="},"type":"Opaque"}"#]],
        );
    }
}
