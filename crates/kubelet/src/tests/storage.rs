//! Volumes of a driver that needs everything, as its Pod, its claim and the driver itself see them.

use csi::{Code, server};

use super::csi_driver::{FakeDriver, NAME};
use super::*;

const CLAIM: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
const VOLUME: &str = "/api/v1/persistentvolumes/pv";

fn claim(size: &str, more: &Value) -> Value {
    let mut status = json!({"phase": "Bound", "capacity": {"storage": size}});
    for (key, value) in more.as_object().unwrap() {
        status[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": status,
        "metadata": {"name": "data", "namespace": "shop", "uid": "c1", "resourceVersion": "1",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]}})
}

fn volume(size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "resourceVersion": "1"},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "shop", "name": "data", "uid": "c1"},
            "csi": {"driver": NAME, "volumeHandle": "v1", "volumeAttributes": {"kind": "fast"}}}})
}

/// A node with the driver, whose object says `wishes`, and a claim of which the volume is attached.
fn start(wishes: &Value, claimed: &Value, size: &str) -> (Node, Arc<FakeDriver>) {
    assert!(nix::unistd::geteuid().is_root(), "these tests mount: run them as root");
    let api = Api::default();
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "spec": wishes,
        "metadata": {"name": NAME, "resourceVersion": "1"}});
    api.set(&format!("/apis/storage.k8s.io/v1/csidrivers/{NAME}"), driver);
    let source = k8s_openapi::api::core::v1::CSIPersistentVolumeSource {
        driver: NAME.into(),
        volume_handle: "v1".into(),
        ..Default::default()
    };
    let name = controller::volume::attachment_name(&source, "n1");
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": true, "attachmentMetadata": {"lun": "3"}}});
    api.set(&format!("/apis/storage.k8s.io/v1/volumeattachments/{name}"), attachment);
    let attached = json!([{"name": format!("kubernetes.io/csi/{NAME}^v1"), "devicePath": ""}]);
    api.set("/api/v1/nodes/n1", json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"}, "status": {"volumesAttached": attached}}));
    api.set(CLAIM, claimed.clone());
    api.set(VOLUME, volume(size));
    let node = Node::start_of(api, |_| {});
    let driver = FakeDriver::start(&node.dir.path().join("kubelet"), &node.tasks);
    (node, driver)
}

fn using() -> Value {
    pod(json!({
        "serviceAccountName": "clerk",
        "securityContext": {"fsGroup": 2000},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }))
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(folder) = self.dir.path().canonicalize() {
            sys::mount::detach_below(&folder).unwrap();
        }
    }
}

fn published(node: &Node) -> std::path::PathBuf {
    node.dir.path().join("kubelet/pods/u1/volumes/kubernetes.io~csi/pv/mount")
}

#[tokio::test]
async fn a_volume_goes_through_its_life_on_the_node() {
    let wishes = json!({"podInfoOnMount": true, "fsGroupPolicy": "File"});
    let (node, driver) = start(&wishes, &claim("1Gi", &json!({})), "1Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    let calls = driver.calls();
    assert_eq!(calls[0], "stage v1 [lun=3]");
    assert_eq!(
        calls[1],
        "publish v1 [csi.storage.k8s.io/ephemeral=false,csi.storage.k8s.io/pod.name=web,\
         csi.storage.k8s.io/pod.namespace=shop,csi.storage.k8s.io/pod.uid=u1,\
         csi.storage.k8s.io/serviceAccount.name=clerk,kind=fast]"
    );
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(published(&node)).unwrap().gid(), 2000);
    node.api.delete();
    node.until_gone().await;
    assert_eq!(driver.calls()[2..], ["unpublish v1", "unstage v1"]);
    assert!(!node.dir.path().join("kubelet/pods/u1").exists());
}

#[tokio::test]
async fn a_pod_that_has_ended_gives_its_volumes_back_and_keeps_its_logs() {
    let (node, driver) = start(&json!({"fsGroupPolicy": "None"}), &claim("1Gi", &json!({})), "1Gi");
    let mut once = using();
    once["spec"]["restartPolicy"] = json!("Never");
    node.api.put(once);
    node.until("readiness", is_ready).await;
    driver.fail("unpublish", Some((Code::Unavailable, "not now")));
    node.runtime.exit("main", 0);
    node.until("the end", |pod| pod["status"]["phase"] == "Succeeded").await;
    driver.until("unpublish v1", 1).await;
    // Whoever comes next goes on with it.
    node.stop_kubelet();
    driver.fail("unpublish", None);
    node.spawn_kubelet();
    driver.until("unstage v1", 1).await;
    let pod_dir = node.dir.path().join("kubelet/pods/u1");
    node.until_not_there(&pod_dir.join("volumes")).await;
    assert!(pod_dir.join("containers/main").exists(), "the last words are read there");
    assert!(node.dir.path().join("logs/shop_web_u1/main").exists());
    assert!(
        !node.runtime.calls().iter().any(|call| call.starts_with("remove")),
        "{:?}",
        node.runtime.calls()
    );
    node.api.delete();
    node.until_gone().await;
    assert!(!pod_dir.exists());
}

#[tokio::test]
async fn a_driver_that_wants_to_be_asked_again_is() {
    let wishes = json!({"requiresRepublish": true, "fsGroupPolicy": "None",
        "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}]});
    let (node, driver) = start(&wishes, &claim("1Gi", &json!({})), "1Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    driver.until("publish v1", 3).await;
    let token = r#"csi.storage.k8s.io/serviceAccount.tokens={"vault":{"expirationTimestamp":"2099-01-01T00:00:00Z","token":"secret"}}"#;
    let calls = driver.calls();
    assert!(
        calls.iter().filter(|call| call.starts_with("publish")).all(|call| call.contains(token)),
        "{calls:#?}"
    );
    assert_eq!(calls.iter().filter(|call| call.starts_with("stage")).count(), 1);
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(published(&node)).unwrap().gid(), 0, "the driver sees to the group");
}

#[tokio::test]
async fn a_driver_that_says_that_tokens_are_secrets_gets_them_as_such() {
    let wishes = json!({"serviceAccountTokenInSecrets": true, "tokenRequests": [{"audience": "vault"}]});
    let (node, driver) = start(&wishes, &claim("1Gi", &json!({})), "1Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    assert_eq!(
        driver.calls()[1],
        "publish v1 [kind=fast] secrets [csi.storage.k8s.io/serviceAccount.tokens=\
         {\"vault\":{\"expirationTimestamp\":\"2099-01-01T00:00:00Z\",\"token\":\"secret\"}}]"
    );
}

#[tokio::test]
async fn only_what_may_be_there_is_taken_back() {
    for (call, code, expect) in [
        ("stage", Code::InvalidArgument, &[][..]),
        ("stage", Code::DeadlineExceeded, &["unstage v1"]),
        ("publish", Code::InvalidArgument, &["unstage v1"]),
        ("publish", Code::Unavailable, &["unpublish v1", "unstage v1"]),
    ] {
        let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
        driver.fail(call, Some((code, "no")));
        node.api.put(using());
        driver.until(&format!("{call} v1"), 2).await;
        node.api.delete();
        node.until_gone().await;
        let calls = driver.calls();
        let back: Vec<&str> =
            calls.iter().map(String::as_str).filter(|call| call.starts_with("un")).collect();
        assert_eq!(back, expect, "{call} {code:?}");
        let staged = calls.iter().filter(|call| call.starts_with("stage")).count();
        assert!(call == "stage" || staged == 1, "{calls:#?}");
    }
}

#[tokio::test]
async fn a_volume_for_one_pod_is_not_published_for_a_second() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    node.stop_kubelet();
    let folder =
        node.dir.path().canonicalize().unwrap().join("kubelet/pods/other/volumes/kubernetes.io~csi/pv");
    std::fs::create_dir_all(&folder).unwrap();
    let noted = json!({"driverName": NAME, "volumeHandle": "v1", "specVolID": "pv", "nodeName": "n1",
        "targetPath": folder.join("mount")});
    std::fs::write(folder.join("vol_data.json"), noted.to_string()).unwrap();
    driver.fail("unpublish", Some((Code::Unavailable, "in a moment")));
    let mut volume = volume("1Gi");
    volume["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    node.api.set(VOLUME, volume);
    node.spawn_kubelet();
    node.api.put(using());
    let why = "MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and is \
               already in use by another pod";
    node.api.until_event("FailedMount", why).await;
    assert!(!driver.calls().iter().any(|call| call.starts_with("publish")));
    driver.fail("unpublish", None);
    node.until("readiness", is_ready).await;
}

#[tokio::test]
async fn a_pod_whose_volume_finds_no_room_for_long_fails_and_the_node_says_how_much_it_has() {
    let wishes = json!({"nodeAllocatableUpdatePeriodSeconds": 3600});
    let (node, driver) = start(&wishes, &claim("1Gi", &json!({})), "1Gi");
    node.stop_kubelet();
    node.api.set(
        "/api/v1/nodes/n1",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"}}),
    );
    let source = k8s_openapi::api::core::v1::CSIPersistentVolumeSource {
        driver: NAME.into(),
        volume_handle: "v1".into(),
        ..Default::default()
    };
    let name = controller::volume::attachment_name(&source, "n1");
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": false, "attachError": {"message": "full", "errorCode": 8}}});
    node.api.set(&format!("/apis/storage.k8s.io/v1/volumeattachments/{name}"), attachment);
    node.spawn_kubelet();
    let count = |count: i64| move |node: &Value| node["spec"]["drivers"][0]["allocatable"]["count"] == count;
    node.api.until_object("/apis/storage.k8s.io/v1/csinodes/n1", count(7)).await;
    driver.set_volumes_max(5);
    node.api.put(using());
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    let pod = node.until("the end", failed).await;
    assert_eq!(pod["status"]["reason"], "VolumeAttachmentLimitExceeded");
    let message = "Node has reached its volume attachment limit, rejecting pod";
    assert_eq!(pod["status"]["message"], format!("Pod was rejected: {message}"));
    node.api.until_event("VolumeAttachmentLimitExceeded", message).await;
    node.api.until_object("/apis/storage.k8s.io/v1/csinodes/n1", count(5)).await;
}

#[tokio::test]
async fn a_volume_grows_when_it_is_mounted_and_while_it_is() {
    let pending = json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}]});
    let (node, driver) = start(&json!({}), &claim("1Gi", &pending), "2Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    assert_eq!(driver.calls()[2], "expand v1 to 2147483648 staged true there true");
    let done = |claim: &Value| {
        claim["status"]["capacity"]["storage"] == "2Gi"
            && claim["status"]["conditions"] == json!([])
            && claim["status"]["allocatedResourceStatuses"] == json!({})
    };
    node.api.until_object(CLAIM, done).await;
    node.api.set(VOLUME, volume("3Gi"));
    driver.until("expand v1 to 3221225472", 1).await;
    node.api.until_object(CLAIM, |claim| claim["status"]["capacity"]["storage"] == "3Gi").await;
}

#[tokio::test]
async fn a_volume_that_cannot_grow_says_so_and_its_pod_runs() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "2Gi");
    driver.fail("expand", Some((Code::OutOfRange, "no disk is so large")));
    node.api.put(using());
    node.until("readiness", is_ready).await;
    let infeasible = |claim: &Value| {
        let condition = &claim["status"]["conditions"][0];
        claim["status"]["allocatedResourceStatuses"]["storage"] == "NodeResizeInfeasible"
            && condition["type"] == "NodeResizeError"
            && condition["message"]
                == "failed to expand pvc with rpc error: code = OutOfRange desc = no disk is so large"
    };
    node.api.until_object(CLAIM, infeasible).await;
    // The claim's resizer has come to terms with its owner: a smaller size.
    driver.fail("expand", None);
    let smaller = json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}});
    node.api.set(VOLUME, volume("1536Mi"));
    node.api.set(CLAIM, claim("1Gi", &smaller));
    driver.until("expand v1 to 1610612736", 1).await;
    node.api.until_object(CLAIM, |claim| claim["status"]["capacity"]["storage"] == "1536Mi").await;
}

#[tokio::test]
async fn a_pod_waits_for_a_driver_that_fails_in_passing() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    driver.fail("stage", Some((Code::Unavailable, "the disk is on its way")));
    node.api.put(using());
    driver.until("stage v1", 2).await;
    assert!(!is_ready(&node.api.pod()));
    driver.fail("stage", None);
    node.until("readiness", is_ready).await;
}

#[tokio::test]
async fn how_many_volumes_there_may_be_is_told_again_and_again() {
    let wishes = json!({"nodeAllocatableUpdatePeriodSeconds": 1});
    let (node, driver) = start(&wishes, &claim("1Gi", &json!({})), "1Gi");
    let count = |count: i64| move |node: &Value| node["spec"]["drivers"][0]["allocatable"]["count"] == count;
    node.api.until_object("/apis/storage.k8s.io/v1/csinodes/n1", count(7)).await;
    driver.set_volumes_max(5);
    node.api.until_object("/apis/storage.k8s.io/v1/csinodes/n1", count(5)).await;
}

#[tokio::test]
async fn a_driver_below_the_registry_comes_goes_is_replaced_and_comes_back() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    let root = node.dir.path().join("kubelet");
    let registry = root.join("plugins_registry");
    let socket = root.join("plugins").join(NAME).join("csi.sock");
    let drivers = |names: &'static [&'static str]| {
        move |node: &Value| {
            let all = node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
            all.iter().map(|driver| driver["name"].as_str().unwrap()).collect::<Vec<_>>() == names
        }
    };
    let until = |names| node.api.until_object("/apis/storage.k8s.io/v1/csinodes/n1", drivers(names));
    until(&[NAME]).await;
    driver.until("info", 1).await;
    std::fs::remove_file(registry.join("fake-reg.sock")).unwrap();
    until(&[]).await;
    // Folders that come with their sockets, or before them.
    let below = registry.join("vendor").join("driver");
    std::fs::create_dir_all(&below).unwrap();
    server::register(NAME, &socket, &below.join("reg.sock"), &node.tasks).unwrap();
    until(&[NAME]).await;
    driver.until("info", 2).await;
    // One that takes its place, as a driver's new version does.
    server::register(NAME, &socket, &registry.join(".new.sock"), &node.tasks).unwrap();
    std::fs::rename(registry.join(".new.sock"), below.join("reg.sock")).unwrap();
    driver.until("info", 3).await;
    until(&[NAME]).await;
    std::fs::rename(registry.join("vendor"), root.join("elsewhere")).unwrap();
    until(&[]).await;
    std::fs::rename(root.join("elsewhere"), registry.join("vendor")).unwrap();
    until(&[NAME]).await;
    // The registry itself.
    std::fs::remove_dir_all(&registry).unwrap();
    until(&[]).await;
    std::fs::create_dir(&registry).unwrap();
    server::register(NAME, &socket, &registry.join("fake-reg.sock"), &node.tasks).unwrap();
    until(&[NAME]).await;
}

#[tokio::test]
async fn a_kubelet_that_starts_anew_knows_what_is_published() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    node.spawn_kubelet();
    node.api.delete();
    node.until_gone().await;
    let calls = driver.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("stage")).count(), 1, "{calls:#?}");
    assert_eq!(calls.iter().filter(|call| call.starts_with("unstage")).count(), 1, "{calls:#?}");
}

#[tokio::test]
async fn a_volume_is_in_use_while_a_pod_waits_for_it_and_not_because_it_was_before() {
    let (node, _driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    let used = |names: Value| move |node: &Value| node["status"]["volumesInUse"] == names;
    node.stop_kubelet();
    // A kubelet has said so before it ended; nothing is attached.
    let before = json!(["kubernetes.io/csi/gone.example.com^v0"]);
    node.api.set(
        "/api/v1/nodes/n1",
        json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"}, "status": {"volumesInUse": before}}),
    );
    node.spawn_kubelet();
    node.api.until_node(used(json!([]))).await;
    node.api.put(using());
    node.api.until_node(used(json!([format!("kubernetes.io/csi/{NAME}^v1")]))).await;
}

#[tokio::test]
async fn a_pod_deleted_by_force_gives_its_volumes_back() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    node.api.vanish();
    node.until_not_there(&node.dir.path().join("kubelet/pods/u1")).await;
    assert_eq!(driver.calls()[2..], ["unpublish v1", "unstage v1"]);
}

#[tokio::test]
async fn a_volume_of_a_pod_that_went_while_no_kubelet_ran_is_taken_back() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    node.api.put(using());
    node.until("readiness", is_ready).await;
    node.stop_kubelet();
    node.api.vanish();
    assert!(sys::mount::is_mounted(&published(&node).canonicalize().unwrap()).unwrap());
    node.spawn_kubelet();
    node.until_not_there(&node.dir.path().join("kubelet/pods/u1")).await;
    assert_eq!(driver.calls()[2..], ["unpublish v1", "unstage v1"]);
}

#[tokio::test]
async fn a_folder_of_a_pod_that_nobody_knows_goes_with_its_volumes_and_no_file_of_theirs() {
    let (node, driver) = start(&json!({}), &claim("1Gi", &json!({})), "1Gi");
    node.stop_kubelet();
    let pod_dir = node.dir.path().canonicalize().unwrap().join("kubelet/pods/lost");
    let (volume, foreign) =
        (pod_dir.join("volumes/kubernetes.io~csi/pv"), pod_dir.join("volumes/other/data"));
    let outside = node.dir.path().join("outside");
    for folder in [&volume, &foreign, &outside] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(outside.join("file"), "kept").unwrap();
    sys::mount::bind(&outside, &foreign, sys::mount::BindOptions::default()).unwrap();
    let noted = json!({"driverName": NAME, "volumeHandle": "v1", "specVolID": "pv", "nodeName": "n1",
        "attachmentID": "csi-1", "volumeLifecycleMode": "Persistent",
        "targetPath": volume.join("mount"), "stagingPath": node.dir.path().join("staged/globalmount")});
    std::fs::write(volume.join("vol_data.json"), noted.to_string()).unwrap();
    driver.fail("unpublish", Some((Code::Unavailable, "in a moment")));
    node.spawn_kubelet();
    driver.until("unpublish v1", 2).await;
    driver.fail("unpublish", None);
    node.until_not_there(&pod_dir).await;
    assert_eq!(driver.calls().last().map(String::as_str), Some("unstage v1"));
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "kept");
}
