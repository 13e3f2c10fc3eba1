use super::*;
use serde_json::json;

mod hostile;

/// Encodes and decodes; the value must stay as it is.
fn check(kind: (&str, &str, &str), value: Value) {
    let schema = crate::builtin().kind(kind.0, kind.1, kind.2).expect("a kind");
    let normal =
        from_json(schema, value.to_string().as_bytes(), FieldValidation::Strict).expect("valid").value;
    let bytes = encode(schema, &normal).expect("encodes");
    assert_eq!(decode(schema, &open(&bytes).expect("opens")).expect("decodes"), normal);
    for length in 0..bytes.len() {
        // Cut off anywhere: an error or a smaller object, never a panic.
        if let Ok(envelope) = open(&bytes[..length]) {
            drop(decode(schema, &envelope));
        }
    }
}

#[test]
fn a_pod_survives_the_round_trip() {
    check(
        ("", "v1", "Pod"),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"x": "y", "z": ""}, "creationTimestamp": "2024-01-02T03:04:05Z",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}, "time": "2024-01-02T03:04:05Z"}],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": false}]},
            "spec": {
                "enableServiceLinks": false, "priority": -5, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}},
                    "ports": [{"containerPort": 80}],
                    "livenessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 3},
                    "readinessProbe": {"httpGet": {"port": 80}},
                    "env": [{"name": "e", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}],
                "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m", "defaultMode": 420}}]},
            "status": {"phase": "Running"}}),
    );
}

#[test]
fn embedded_messages_nest_twice() {
    check(
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "a"},
            "spec": {"matchConstraints": {"resourceRules": [
                {"apiGroups": ["apps"], "operations": ["CREATE"], "resources": ["x"], "resourceNames": ["n"], "scope": "*"}]}}}),
    );
}

#[test]
fn special_types_survive_the_round_trip() {
    check(
        ("", "v1", "Secret"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "AAECAw==", "b": ""}}),
    );
    check(
        ("coordination.k8s.io", "v1", "Lease"),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": "me", "renewTime": "2024-01-02T03:04:05.678901Z", "leaseDurationSeconds": 40}}),
    );
    check(
        ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}),
    );
    check(
        ("authorization.k8s.io", "v1", "SubjectAccessReview"),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": "u", "extra": {"a": ["b", "c"]}, "groups": ["g"]}, "status": {"allowed": true}}),
    );
    check(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
            "spec": {"group": "g", "names": {"plural": "xs", "kind": "X"}, "scope": "Namespaced", "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                    "minimum": 1.5, "properties": {"a": {"type": "array", "items": {"type": "string"}, "default": [1, "x"]}},
                    "additionalProperties": false}}}]}}),
    );
    check(
        ("apps", "v1", "ControllerRevision"),
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {}, "revision": 3,
            "data": {"spec": {"a": [1, null]}}}),
    );
}

#[test]
fn options_are_found_in_every_group() {
    check(
        ("apps", "v1", "DeleteOptions"),
        json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u"}, "propagationPolicy": "Background", "dryRun": ["All"]}),
    );
    check(
        ("", "v1", "Status"),
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404,
            "details": {"name": "x", "causes": [{"field": "spec"}]}}),
    );
}

#[test]
fn bytes_are_those_that_go_writes() {
    let schema = crate::builtin().kind("", "v1", "ConfigMap").expect("a kind");
    let value =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let expect = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x12\x06\x0a\x01k\x12\x01v\x0a\x03\x0a\x01a\x1a\0\x22\0";
    assert_eq!(encode(schema, &value).expect("encodes"), expect);
}

#[test]
fn zero_values_that_go_always_writes_are_dropped() {
    let schema = crate::builtin().kind("", "v1", "ConfigMap").expect("a kind");
    // ObjectMeta with an empty generateName, generation 0 and a zero creationTimestamp.
    let raw = b"\x0a\x09\x0a\x01a\x12\0\x38\0\x42\0";
    assert_eq!(decode_message(schema, raw).expect("decodes"), json!({"metadata": {"name": "a"}}));
}

#[test]
fn lists_and_events_are_put_together_from_encoded_objects() {
    let schema = crate::builtin().kind("", "v1", "ConfigMap").expect("a kind");
    let item = encode_message(schema, &json!({"metadata": {"name": "a"}})).expect("encodes");
    let frame = list_frame("v1", "ConfigMapList", &json!({"resourceVersion": "7"}), [item.len()]);
    let frame = frame.expect("encodes");
    let body = [&*frame.head, list_item_head(item.len()).as_ref(), &item, &*frame.tail].concat();
    let lists = crate::builtin().kind("", "v1", "ConfigMapList").expect("a kind");
    let expect = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "a"}}]});
    assert_eq!(decode(lists, &open(&body).expect("opens")).expect("decodes"), expect);

    let frame = watch_event("ADDED", &seal("v1", "ConfigMap", &item));
    let events = crate::builtin().kind("", "v1", "WatchEvent").expect("a kind");
    let length = u32::from_be_bytes(*frame.first_chunk().expect("a length"));
    assert_eq!(length as usize, frame.len() - 4);
    let expect = json!({"type": "ADDED",
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}});
    assert_eq!(decode_message(events, &frame[4..]).expect("decodes"), expect);
}

#[test]
fn the_metadata_of_any_message_is_that_of_its_partial_form() {
    let schema = crate::builtin().kind("", "v1", "ConfigMap").expect("a kind");
    let object = json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "data": {"d": "e"}});
    let message = encode_message(schema, &object).expect("encodes");
    let partial = crate::builtin().kind("meta.k8s.io", "v1", "PartialObjectMetadata").expect("a kind");
    let decoded = decode_message(partial, &partial_message(&message).expect("a message"));
    assert_eq!(decoded.expect("decodes"), json!({"metadata": object["metadata"]}));
}

#[test]
fn bad_bytes_are_refused() {
    let schema = crate::builtin().kind("", "v1", "ConfigMap").expect("a kind");
    assert_eq!(open(b"{}"), Err(ProtoError::Magic));
    assert_eq!(open(b"k8s\0\x0a\xff\xff\xff\xff\x0f"), Err(ProtoError::Truncated));
    assert!(decode_message(schema, b"\x0a\x03\x0a\x01\xff").is_err());
}

#[test]
fn deep_nesting_is_refused() {
    let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let props = crate::builtin().message(props).expect("a message");
    let number = props.field("not").expect("a field").number;
    let nested = |levels: usize| {
        (0..levels).fold(Vec::new(), |inner, _| {
            let mut outer = Vec::new();
            wire::bytes(&mut outer, number, &inner);
            outer
        })
    };
    assert!(decode_message(props, &nested(100)).is_ok());
    assert!(decode_message(props, &nested(10_000)).is_err());
}

#[test]
fn flipped_bytes_never_panic() {
    let schema = crate::builtin().kind("", "v1", "Pod").expect("a kind");
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": "2024-01-02T03:04:05Z", "labels": {"x": "y"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
        "spec": {"priority": -5, "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}},
            "livenessProbe": {"httpGet": {"port": 80}}}], "volumes": [{"name": "v", "emptyDir": {}}]}});
    let bytes = encode(schema, &pod).expect("encodes");
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..20_000 {
        let mut broken = bytes.clone();
        for _ in 0..3 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let at = usize::try_from(seed >> 16).unwrap_or(0) % broken.len();
            broken[at] = seed.to_le_bytes()[0];
        }
        let decoded = open(&broken).and_then(|envelope| decode(schema, &envelope));
        if let Ok(value) = decoded {
            // What decodes has the schema's types.
            let again = crate::walk::decode::from_value(schema, value.clone(), FieldValidation::Strict);
            assert_eq!(again.map(|decoded| decoded.value), Ok(value), "seed {seed}");
        }
    }
}
