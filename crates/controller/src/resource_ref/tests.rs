use super::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};

#[test]
fn paths_are_those_of_the_api() {
    assert_eq!(ResourceRef::of::<Pod>().object_path("default", "web"), "/api/v1/namespaces/default/pods/web");
    assert_eq!(ResourceRef::of::<Deployment>().collection_path(""), "/apis/apps/v1/deployments");
    assert_eq!(ResourceRef::of::<Node>().object_path("", "a"), "/api/v1/nodes/a");
    assert!(!ResourceRef::of::<Node>().namespaced);
}

#[test]
fn names_and_keys_are_put_together_and_taken_apart() {
    let deployments = ResourceRef::of::<Deployment>();
    assert_eq!(
        (deployments.api_version(), deployments.full_name()),
        ("apps/v1".into(), "deployments.apps".into())
    );
    let pods = ResourceRef::of::<Pod>();
    assert_eq!((pods.api_version(), pods.full_name()), ("v1".into(), "pods".into()));
    assert_eq!(deployments.collection_path("shop"), "/apis/apps/v1/namespaces/shop/deployments");
    assert_eq!(
        ResourceRef::of::<Node>().collection_path("shop"),
        "/api/v1/nodes",
        "a Node is in no namespace"
    );
    for (namespace, name, key) in [(Some("a"), "b", "a/b"), (Some(""), "b", "b"), (None, "b", "b")] {
        assert_eq!(key_of(namespace, name), key);
        assert_eq!(split_key(key), (namespace.unwrap_or_default(), name));
    }
    assert_eq!(split_key(""), ("", ""));
}
