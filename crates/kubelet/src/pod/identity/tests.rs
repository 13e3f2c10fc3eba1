//! Where Pods come from and how much they matter: `TestIsMirrorPod`, `TestIsStaticPod`, `TestIsCriticalPod`,
//! `TestGetPodSource` of upstream's `pkg/kubelet/types`.

use super::*;

fn pod(annotations: &str, priority: Option<i64>) -> Pod {
    let spec = priority
        .map_or_else(String::new, |priority| format!(", spec: {{containers: [], priority: {priority}}}"));
    let text =
        format!("{{metadata: {{name: foo, namespace: default, annotations: {{{annotations}}}}}{spec}}}");
    serde_saphyr::from_str(&text).unwrap()
}

#[test]
fn what_comes_from_elsewhere_than_the_api_is_static_and_critical() {
    for (name, annotations, priority, statics, mirrors, criticals) in [
        ("of the API", "", None, false, false, false),
        ("of the API, and it says so", "kubernetes.io/config.source: api", None, false, false, false),
        ("from a file", "kubernetes.io/config.source: file", None, true, false, true),
        ("from a server", "kubernetes.io/config.source: http", None, true, false, true),
        ("from somewhere", "kubernetes.io/config.source: host-ipc-sources", None, true, false, true),
        (
            "a mirror",
            "kubernetes.io/config.mirror: h1, kubernetes.io/config.source: file",
            None,
            false,
            true,
            false,
        ),
        ("a mirror of nothing", "kubernetes.io/config.mirror: ''", None, false, true, false),
        ("of a system's priority", "", Some(2_000_000_000), false, false, true),
        ("of a higher one", "", Some(2_000_001_000), false, false, true),
        ("of a user's highest", "", Some(1_000_000_000), false, false, false),
        ("just below a system's", "", Some(1_999_999_999), false, false, false),
        ("of a lower one than none", "", Some(-10), false, false, false),
    ] {
        let pod = pod(annotations, priority);
        assert_eq!(
            (is_static(&pod), is_mirror(&pod), is_critical(&pod)),
            (statics, mirrors, criticals),
            "{name}"
        );
        assert_eq!(super::priority(&pod), priority.unwrap_or(0), "{name}");
    }
}

#[test]
fn names_of_what_has_none_are_empty() {
    let text =
        |name: &str, namespace: &str, uid: &str| (name.to_owned(), namespace.to_owned(), uid.to_owned());
    assert_eq!(identity(&pod("", None)), text("foo", "default", ""));
    assert_eq!(namespaced_name(&pod("", None)), "default/foo");
    assert_eq!(identity(&Pod::default()), text("", "", ""));
    assert_eq!(namespaced_name(&Pod::default()), "/");
}

#[test]
fn a_mirror_says_whose_it_is() {
    let both = pod("kubernetes.io/config.hash: h1, kubernetes.io/config.mirror: h2", None);
    assert_eq!((hash(&both), mirrored_hash(&both)), (Some("h1"), Some("h2")));
    assert_eq!((hash(&pod("", None)), mirrored_hash(&pod("", None))), (None, None));
}

/// Source: `TestHashContainer` of upstream's `pkg/kubelet/container`, of which containers are others.
#[test]
fn a_container_is_another_one_if_its_name_or_image_is() {
    let hash = |text: &str| spec_hash(&serde_saphyr::from_str(text).unwrap());
    let one = hash("{name: test_container, image: foo/image:v1}");
    for (other, is_same) in [
        (
            "{name: test_container, image: foo/image:v1, command: [echo, abc], ports: [{containerPort: 1}]}",
            true,
        ),
        ("{name: test_container, image: foo/image:v1, resources: {limits: {cpu: 100m}}}", true),
        ("{name: test_container, image: foo/image:v2}", false),
        ("{name: test_container2, image: foo/image:v1}", false),
        ("{name: test_container}", false),
        ("{name: test_containerfoo/image:v1}", false),
    ] {
        assert_eq!(hash(other) == one, is_same, "{other}");
    }
    assert!(one.len() <= 8 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
}
