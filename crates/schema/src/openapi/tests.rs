use super::*;
use serde_json::{Value, json};

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

const DEPLOYMENTS: Resource<'static> = Resource {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    plural: "deployments",
    namespaced: true,
    verbs: VERBS,
    is_deletion_answered: false,
    subresources: &[
        Subresource {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale",
            verbs: &["get", "patch", "update"],
        },
        Subresource {
            name: "status",
            group: "apps",
            version: "v1",
            kind: "Deployment",
            verbs: &["get", "patch", "update"],
        },
    ],
};

const NODES: Resource<'static> = Resource {
    group: "",
    version: "v1",
    kind: "Node",
    plural: "nodes",
    namespaced: false,
    verbs: VERBS,
    is_deletion_answered: false,
    subresources: &[],
};

/// Every reference in a document has its definition.
pub(super) fn check_references(document: &Value, definitions: &Value, prefix: &str) {
    match document {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                let name = reference.strip_prefix(prefix).expect("the prefix");
                assert!(definitions[name].is_object(), "{name} is missing");
            }
            object.values().for_each(|value| check_references(value, definitions, prefix));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(value, definitions, prefix)),
        _ => {}
    }
}

fn v3(resource: Resource<'_>) -> Value {
    let bytes = v3::document(crate::builtin(), resource.group, resource.version, &[resource]);
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn no_reference_dangles() {
    for resource in [DEPLOYMENTS, NODES] {
        let document = v3(resource);
        check_references(&document, &document["components"]["schemas"], "#/components/schemas/");
    }
    let document = v2::document(crate::builtin(), &[DEPLOYMENTS, NODES], &plain::all(["apps"]));
    check_references(&document, &document["definitions"], "#/definitions/");
}

#[test]
fn all_kinds_together_have_no_dangling_reference() {
    let rows: Vec<Resource<'_>> = crate::builtin()
        .kinds()
        .map(|(kind, _)| Resource {
            group: &kind.group,
            version: &kind.version,
            kind: &kind.kind,
            plural: &kind.kind,
            namespaced: true,
            verbs: VERBS,
            is_deletion_answered: false,
            subresources: &[],
        })
        .collect();
    let document = v2::document(crate::builtin(), &rows, &[]);
    check_references(&document, &document["definitions"], "#/definitions/");
    assert!(!v2::to_protobuf(&document).is_empty());
}

#[test]
fn a_patch_lists_the_parameters_that_kubectl_looks_for() {
    let document = v3(DEPLOYMENTS);
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force", "pretty"]);
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert_eq!(patch["x-kubernetes-action"], "patch");
}

#[test]
fn definitions_carry_the_facts_of_merging() {
    let document = v3(DEPLOYMENTS);
    let schemas = &document["components"]["schemas"];
    let facts = |message: &str, field: &str| {
        let mut facts = schemas[message]["properties"][field].clone();
        let text = facts.as_object_mut().expect("a property").remove("description");
        assert!(text.is_some_and(|text| text.as_str().is_some_and(|text| text.len() > 20)), "{field}");
        facts
    };
    assert_eq!(
        facts("io.k8s.api.core.v1.PodSpec", "containers"),
        json!({
            "type": "array",
            "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
        })
    );
    assert_eq!(
        facts("io.k8s.api.apps.v1.DeploymentSpec", "strategy"),
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}],
            "x-kubernetes-patch-strategy": "retainKeys",
        })
    );
    assert_eq!(
        schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    assert_eq!(schemas["io.k8s.api.apps.v1.DeploymentSpec"]["required"], json!(["selector", "template"]));
}

#[test]
fn the_index_names_documents_with_their_hashes() {
    let bytes = v3::index([("api/v1", "AB")]);
    let index: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(index, json!({"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=AB"}}}));
    let hashes = [v3::hash("", "v1", &[NODES], ""), v3::hash("", "v1", &[], "")];
    assert_ne!(hashes[0], hashes[1]);
}

/// Every message and nearly every field of a document says what it is for.
#[test]
fn definitions_describe_themselves() {
    for document in [v3(DEPLOYMENTS)["components"]["schemas"].clone(), v2_definitions()] {
        let mut silent = Vec::new();
        for (name, definition) in document.as_object().expect("an object") {
            let fields = definition["properties"].as_object().into_iter().flatten();
            let fields = fields.map(|(field, property)| (format!("{name}.{field}"), property));
            for (name, value) in fields.chain([(name.clone(), definition)]) {
                if value["description"].as_str().is_none_or(str::is_empty) {
                    silent.push(name);
                }
            }
        }
        assert!(silent.len() < 12, "{silent:#?}");
    }
}

fn v2_definitions() -> Value {
    v2::document(crate::builtin(), &[DEPLOYMENTS], &[])["definitions"].clone()
}

#[test]
fn unions_name_their_discriminator() {
    let document = v3(DEPLOYMENTS);
    assert_eq!(
        document["components"]["schemas"]["io.k8s.api.core.v1.SeccompProfile"]["x-kubernetes-unions"],
        json!([{"discriminator": "type", "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"}}])
    );
}

/// Ids and tags, which client generators make functions and classes of.
#[test]
fn operations_are_called_what_upstream_calls_them() {
    const CONNECT: &[&str] = &["create", "get"];
    let below = |name, kind, verbs| Subresource { name, group: "", version: "v1", kind, verbs };
    let pods = Resource {
        group: "",
        kind: "Pod",
        plural: "pods",
        is_deletion_answered: true,
        subresources: &[
            below("exec", "PodExecOptions", CONNECT),
            below("log", "Pod", &["get"]),
            below("proxy", "PodProxyOptions", &["get"]),
        ],
        ..DEPLOYMENTS
    };
    let roles = Resource {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        subresources: &[],
        ..DEPLOYMENTS
    };
    let mut found = Vec::new();
    for resource in [pods, roles, DEPLOYMENTS] {
        for (path, item) in v3(resource)["paths"].as_object().expect("paths") {
            for (method, operation) in
                item.as_object().expect("methods").iter().filter(|(name, _)| *name != "parameters")
            {
                let text = |name: &str| operation[name].as_str().unwrap_or("-").to_owned();
                let tag = operation["tags"][0].as_str().expect("a tag");
                let depth = path.matches('/').count();
                if depth > 6 || resource.kind == "Role" || path.ends_with('/') {
                    let (id, action) = (text("operationId"), text("x-kubernetes-action"));
                    found.push(format!("{method} {tag} {id} {action}"));
                }
            }
        }
    }
    expect_test::expect![[r#"
        get core_v1 getCoreV1APIResources -
        get core_v1 connectCoreV1GetNamespacedPodExec connect
        post core_v1 connectCoreV1PostNamespacedPodExec connect
        get core_v1 readCoreV1NamespacedPodLog get
        get core_v1 connectCoreV1GetNamespacedPodProxy connect
        get core_v1 connectCoreV1GetNamespacedPodProxyWithPath connect
        get rbacAuthorization_v1 getRbacAuthorizationV1APIResources -
        delete rbacAuthorization_v1 deleteRbacAuthorizationV1CollectionNamespacedRole deletecollection
        get rbacAuthorization_v1 listRbacAuthorizationV1NamespacedRole list
        post rbacAuthorization_v1 createRbacAuthorizationV1NamespacedRole post
        delete rbacAuthorization_v1 deleteRbacAuthorizationV1NamespacedRole delete
        get rbacAuthorization_v1 readRbacAuthorizationV1NamespacedRole get
        patch rbacAuthorization_v1 patchRbacAuthorizationV1NamespacedRole patch
        put rbacAuthorization_v1 replaceRbacAuthorizationV1NamespacedRole put
        get rbacAuthorization_v1 listRbacAuthorizationV1RoleForAllNamespaces list
        get apps_v1 getAppsV1APIResources -
        delete apps_v1 deleteAppsV1NamespacedDeployment delete
        get apps_v1 readAppsV1NamespacedDeployment get
        patch apps_v1 patchAppsV1NamespacedDeployment patch
        put apps_v1 replaceAppsV1NamespacedDeployment put
        get apps_v1 readAppsV1NamespacedDeploymentScale get
        patch apps_v1 patchAppsV1NamespacedDeploymentScale patch
        put apps_v1 replaceAppsV1NamespacedDeploymentScale put
        get apps_v1 readAppsV1NamespacedDeploymentStatus get
        patch apps_v1 patchAppsV1NamespacedDeploymentStatus patch
        put apps_v1 replaceAppsV1NamespacedDeploymentStatus put"#]]
    .assert_eq(&found.join("\n"));
    let document = v3(pods);
    let item = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"];
    let answer = &item["delete"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(answer, "#/components/schemas/io.k8s.api.core.v1.Pod");
}

#[test]
fn what_is_no_resource_is_described_too() {
    let mut found = Vec::new();
    for plain in plain::all(["apps", "rbac.authorization.k8s.io"]) {
        let bytes = v3::plain_document(crate::builtin(), &plain);
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        check_references(&document, &document["components"]["schemas"], "#/components/schemas/");
        let get = &document["paths"][format!("/{}/", plain.path)]["get"];
        let types: Vec<&String> =
            get["responses"]["200"]["content"].as_object().expect("content").keys().collect();
        found.push(format!("{} {} {} {}", plain.path, get["tags"][0], get["operationId"], types.len()));
    }
    expect_test::expect![[r#"
        api "core" "getCoreAPIVersions" 3
        apis "apis" "getAPIVersions" 3
        apis/apps "apps" "getAppsAPIGroup" 3
        apis/rbac.authorization.k8s.io "rbacAuthorization" "getRbacAuthorizationAPIGroup" 3
        version "version" "getCodeVersion" 1
        .well-known/openid-configuration "WellKnown" "getServiceAccountIssuerOpenIDConfiguration" 1
        openid/v1/jwks "openid" "getServiceAccountIssuerOpenIDKeyset" 1"#]]
    .assert_eq(&found.join("\n"));
}

/// The numbers are those of gnostic's `OpenAPIv3.proto`; what is read here is what clients look for.
#[test]
fn a_v3_document_in_protobuf_has_its_paths_and_schemas() {
    let bytes = v3::document(crate::builtin(), "apps", "v1", &[DEPLOYMENTS]);
    let packed = v3::to_protobuf(&bytes);
    let fields = |bytes: &[u8]| -> Vec<(u16, Vec<u8>)> {
        let mut reader = crate::proto::wire::Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some((number, value)) = reader.next().expect("a field") {
            if let crate::proto::wire::Wire::Bytes(bytes) = value {
                fields.push((number, bytes.to_vec()));
            }
        }
        fields
    };
    let inner = |bytes: &[u8], number: u16| -> Vec<Vec<u8>> {
        fields(bytes).into_iter().filter(|(found, _)| *found == number).map(|(_, bytes)| bytes).collect()
    };
    assert_eq!(inner(&packed, 1), [b"3.0.0".to_vec()]);
    let names = |all: &[Vec<u8>]| -> Vec<String> {
        all.iter().map(|named| String::from_utf8(inner(named, 1).remove(0)).expect("text")).collect()
    };
    let paths = inner(&inner(&packed, 4)[0], 1);
    assert!(names(&paths).contains(&"/apis/apps/v1/deployments".to_owned()));
    let schemas = inner(&inner(&inner(&packed, 5)[0], 1)[0], 1);
    let at =
        names(&schemas).iter().position(|name| name == "io.k8s.api.apps.v1.Deployment").expect("a schema");
    let schema = inner(&inner(&schemas[at], 2)[0], 1).remove(0);
    assert_eq!(inner(&schema, 25), [b"object".to_vec()]);
    assert_eq!(
        names(&inner(&inner(&schema, 31)[0], 1)),
        ["apiVersion", "kind", "metadata", "spec", "status"]
    );
    assert_eq!(names(&inner(&schema, 36)), ["x-kubernetes-group-version-kind"]);
}
