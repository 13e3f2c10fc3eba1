//! Subresources that change a part of the object itself, other than `status`.
//!
//! The verbs call `prepare`, which puts everything else back, and then `validate`.
//! Source: `podEphemeralContainersStrategy`, `podResizeStrategy`, `namespaceFinalizeStrategy` of `k8s.io/kubernetes`.

use machinery::field::FieldErrors;
use machinery::metadata::{self, Metadata};
use serde_json::{Map, Value};

use crate::resource::Resource;
use crate::validation as v;

/// The part of the object that a subresource changes, and the rules for it.
#[derive(Clone, Copy, Debug)]
pub struct PartialStrategy {
    /// The kind of the object, in the core group.
    kind: &'static str,
    /// The subresource's name.
    subresource: &'static str,
    /// The fields of the spec that it changes.
    spec_fields: &'static [&'static str],
    /// What it changes of each item of those fields, and the item's key; all of it if empty.
    item_fields: &'static [&'static str],
    /// Makes the new object the old one with the changed part: `(new, old)`.
    prepare: fn(&mut Value, &Value),
    /// The broken rules, metadata apart: `(new, old)`.
    validate: fn(&Value, &Value) -> FieldErrors,
}

const ROWS: &[PartialStrategy] = &[
    PartialStrategy {
        kind: "Pod",
        subresource: "ephemeralcontainers",
        spec_fields: &["ephemeralContainers"],
        item_fields: &[],
        prepare: |new, old| take_spec_field(new, old, "ephemeralContainers"),
        validate: v::pod_ephemeral::update,
    },
    PartialStrategy {
        kind: "Pod",
        subresource: "resize",
        spec_fields: &["containers", "initContainers", "resources"],
        item_fields: &["name", "resources", "resizePolicy"],
        prepare: take_resources,
        validate: v::pod_resize::update,
    },
    PartialStrategy {
        kind: "Namespace",
        subresource: "finalize",
        spec_fields: &["finalizers"],
        item_fields: &[],
        prepare: |new, old| take_spec_field(new, old, "finalizers"),
        validate: v::namespace::finalize,
    },
];

/// The strategy of a subresource that changes a part of `resource`.
pub fn partial(resource: &Resource, subresource: &str) -> Option<&'static PartialStrategy> {
    let is_core = resource.group.is_empty();
    ROWS.iter().find(|row| is_core && row.kind == resource.kind && row.subresource == subresource)
}

impl PartialStrategy {
    /// Prepares a write, in place: what the subresource does not change is as it was, and the generation follows the
    /// spec.
    pub fn begin_update(&self, new: &mut Value, old: &Value) {
        let managed_fields = Metadata::of(new).get("managedFields").cloned();
        let resource_version = Metadata::of(new).get("resourceVersion").cloned();
        (self.prepare)(new, old);
        for (name, value) in [("managedFields", managed_fields), ("resourceVersion", resource_version)] {
            if let Some(value) = value {
                metadata::set(new, name, value);
            }
        }
        let generation = Metadata::of(old).generation();
        if generation != 0 && new.get("spec") != old.get("spec") {
            metadata::set(new, "generation", generation + 1);
        }
    }

    /// The part of an applied configuration that counts: its identity, and the part that the subresource changes.
    pub fn only(&self, config: &Value) -> Value {
        const IDENTITY: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];
        let mut bare = Map::new();
        for name in ["apiVersion", "kind"] {
            bare.extend(config.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        let named = |object: &Value, names: &[&str]| -> Map<String, Value> {
            let fields = object.as_object().into_iter().flatten();
            let kept = fields.filter(|(name, _)| names.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        if let Some(meta) = config.get("metadata") {
            bare.insert("metadata".to_owned(), named(meta, &IDENTITY).into());
        }
        let Some(spec) = config.get("spec") else { return bare.into() };
        let mut spec = named(spec, self.spec_fields);
        if !self.item_fields.is_empty() {
            for list in spec.values_mut().filter_map(Value::as_array_mut) {
                list.iter_mut().for_each(|item| *item = named(item, self.item_fields).into());
            }
        }
        bare.insert("spec".to_owned(), spec.into());
        bare.into()
    }

    /// Every broken rule of a write, metadata included.
    pub fn validate(&self, resource: &Resource, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = v::metadata::update(resource, new, old);
        errors.extend((self.validate)(new, old));
        errors
    }
}

/// The old object with one field of the new one's spec.
fn take_spec_field(new: &mut Value, old: &Value, field: &str) {
    let taken = new.get_mut("spec").and_then(|spec| spec.get_mut(field)).map(Value::take);
    *new = old.clone();
    let Some(map) = new.as_object_mut() else { return };
    let spec = map.entry("spec").or_insert_with(|| Map::new().into());
    let Some(spec) = spec.as_object_mut() else { return };
    match taken {
        Some(value) => spec.insert(field.to_owned(), value),
        None => spec.remove(field),
    };
}

/// The old Pod with the resources of the new one's containers. Whoever adds, drops, renames or reorders containers is
/// told by validation: such a list stays as it was sent.
fn take_resources(new: &mut Value, old: &Value) {
    let sent = std::mem::replace(new, old.clone());
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for list in ["containers", "initContainers"] {
        let Some(sent) = sent.pointer(&format!("/spec/{list}")).and_then(Value::as_array) else {
            spec.remove(list);
            continue;
        };
        let had = spec.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        spec.insert(list.to_owned(), resized(sent, had).into());
    }
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        match sent.pointer("/spec/resources") {
            Some(resources) => spec.insert("resources".to_owned(), resources.clone()),
            None => spec.remove("resources"),
        };
    }
}

/// The containers that there were, with the resources that were sent.
fn resized(sent: &[Value], had: &[Value]) -> Vec<Value> {
    let is_same_list =
        sent.len() == had.len() && sent.iter().zip(had).all(|(new, old)| new.get("name") == old.get("name"));
    if !is_same_list {
        return sent.to_vec();
    }
    let mut containers = had.to_vec();
    for (container, sent) in containers.iter_mut().filter_map(Value::as_object_mut).zip(sent) {
        for field in ["resources", "resizePolicy"] {
            match sent.get(field) {
                Some(value) => container.insert(field.to_owned(), value.clone()),
                None => container.remove(field),
            };
        }
    }
    containers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(subresource: &str, new: Value, old: &Value) -> (Value, FieldErrors) {
        let row = crate::find("", "v1", "pods").unwrap();
        let strategy = partial(row, subresource).unwrap();
        let mut new = new;
        strategy.begin_update(&mut new, old);
        let errors = strategy.validate(row, &new, old);
        (new, errors)
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "generation": 1},
            "spec": {
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                "containers": [{
                    "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                }],
            },
            "status": {"qosClass": "Burstable"},
        })
    }

    #[test]
    fn a_pod_whose_node_cannot_do_it_is_not_resized() {
        let mut old = pod();
        old["status"]["containerStatuses"] = json!([{"name": "c", "state": {"running": {}}}]);
        let mut new = old.clone();
        new["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "3".into();
        let (_, errors) = write("resize", new, &old);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["spec: Forbidden: Pod running on node without support for resize"]);
        old["status"]["containerStatuses"][0]["resources"] = json!({});
        let mut new = old.clone();
        new["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "3".into();
        assert_eq!(*write("resize", new, &old).1, []);
    }

    #[test]
    fn an_applied_configuration_counts_only_where_the_subresource_does() {
        let row = crate::find("", "v1", "pods").unwrap();
        let config = json!({"kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}});
        assert_eq!(
            partial(row, "resize").unwrap().only(&config),
            json!({"kind": "Pod", "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}})
        );
        assert_eq!(partial(row, "ephemeralcontainers").unwrap().only(&config)["spec"], json!({}));
    }

    #[test]
    fn a_resize_changes_cpu_and_memory_only() {
        let old = pod();
        let mut new = pod();
        new["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "3".into();
        new["spec"]["containers"][0]["image"] = "j".into();
        let (new, errors) = write("resize", new, &old);
        assert_eq!(*errors, []);
        assert_eq!(new["spec"]["containers"][0]["image"], "i");
        assert_eq!(new["spec"]["containers"][0]["resources"]["limits"]["cpu"], "3");
        assert_eq!(new["metadata"]["generation"], 2);
    }

    #[test]
    fn a_resize_removes_nothing_and_keeps_the_quality_of_service() {
        let old = pod();
        let mut new = pod();
        new["spec"]["containers"][0]["resources"] = json!({});
        let (_, errors) = write("resize", new, &old);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                r#"spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing"#,
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
                "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            ]
        );
    }

    #[test]
    fn a_resize_neither_adds_nor_renames_nor_reorders_containers() {
        let mut old = pod();
        let mut second = old["spec"]["containers"][0].clone();
        second["name"] = "d".into();
        old["spec"]["containers"].as_array_mut().unwrap().push(second);
        let texts =
            |new: Value| write("resize", new, &old).1.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut swapped = old.clone();
        swapped["spec"]["containers"].as_array_mut().unwrap().reverse();
        assert_eq!(
            texts(swapped),
            [
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
                "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
            ]
        );
        assert_eq!(
            texts(pod()),
            ["spec.containers: Forbidden: containers may not be added or removed on resize"]
        );
    }

    #[test]
    fn ephemeral_containers_come_and_stay() {
        let debugger = json!({"name": "debug", "image": "i", "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File", "targetContainerName": "c"});
        let mut with = pod();
        with["spec"]["ephemeralContainers"] = json!([debugger]);
        let (stored, errors) = write("ephemeralcontainers", with.clone(), &pod());
        assert_eq!(*errors, []);
        assert_eq!(stored["spec"]["ephemeralContainers"][0]["name"], "debug");
        let (_, errors) = write("ephemeralcontainers", pod(), &with);
        assert_eq!(
            errors.first().unwrap().to_string(),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n"
        );
        with["spec"]["ephemeralContainers"][0]["targetContainerName"] = "x".into();
        let (_, errors) = write("ephemeralcontainers", with, &pod());
        assert_eq!(
            errors.first().unwrap().to_string(),
            r#"spec.ephemeralContainers[0].targetContainerName: Not found: "x""#
        );
    }
}
