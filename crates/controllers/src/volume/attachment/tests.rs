mod killed;

use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{list, noon, parse, render};

const VOLUME: &str =
    "{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: h}}}";

fn check(volume: &str, wanted: &[(&str, &str)], attachments: &str, nodes: &str, expect: Expect) {
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for (node, pod) in wanted {
        let pod = format!("{{metadata: {{name: {pod}, namespace: x}}, spec: {{containers: []}}}}");
        by_node.entry((*node).to_owned()).or_default().push(Arc::new(parse(&pod)));
    }
    let nodes = list::<Node>(nodes).into_iter().map(|node| (name(&node.metadata).to_owned(), node)).collect();
    let volume = Arc::new(parse::<PersistentVolume>(volume));
    let snapshot = Snapshot {
        key: volume.metadata.name.clone().unwrap(),
        volume: migration::translated(&volume),
        wanted: by_node,
        attachments: list(attachments),
        nodes,
        having: vec!["one".into(), "two".into()],
        is_attachable: true,
        options: Arc::default(),
    };
    let text = render(&plan(&snapshot, noon()));
    let short = text
        .replace(&attachment_name(csi(&snapshot.volume).unwrap(), "one"), "csi-one")
        .replace(&attachment_name(csi(&snapshot.volume).unwrap(), "two"), "csi-two");
    expect.assert_eq(&short);
}

fn attachment(node: &str, is_attached: bool) -> String {
    format!(
        "[{{metadata: {{name: a-{node}, uid: u}}, spec: {{attacher: d, nodeName: {node}, source: {{persistentVolumeName: v}}}}, status: {{attached: {is_attached}}}}}]"
    )
}

fn node(more: &str, status: &str) -> String {
    format!("[{{metadata: {{name: one, resourceVersion: '7'}}, spec: {{{more}}}, status: {{{status}}}}}]")
}

#[test]
fn a_volume_is_attached_where_pods_want_it() {
    check(
        VOLUME,
        &[("one", "p")],
        "[]",
        "[]",
        expect![[r#"
        step
          create volumeattachments csi-one
    "#]],
    );
    check(VOLUME, &[("elsewhere", "p")], "[]", "[]", expect![""]);
    check(
        VOLUME,
        &[("one", "p")],
        &attachment("one", true),
        &node("", ""),
        expect![[r#"
        step
          patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[{"devicePath":"","name":"kubernetes.io/csi/d^h"}]}}
        step
          Normal SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "v" 
    "#]],
    );
    let known = node("", "volumesAttached: [{name: 'kubernetes.io/csi/d^h', devicePath: ''}]");
    check(VOLUME, &[("one", "p")], &attachment("one", true), &known, expect![""]);
    let failed = attachment("one", false).replace("false", "false, attachError: {message: no disk}");
    check(
        VOLUME,
        &[("one", "p")],
        &failed,
        &node("", ""),
        expect![[r#"
        step
          Warning FailedAttachVolume: AttachVolume.Attach failed for volume "v" : no disk
    "#]],
    );
}

#[test]
fn only_one_node_has_a_volume_that_is_for_one() {
    check(
        VOLUME,
        &[("one", "p"), ("two", "q")],
        &attachment("one", false),
        &node("", ""),
        expect![[r#"
        step
          Warning FailedAttachVolume: Multi-Attach error for volume "v" Volume is already used by pod(s) p
    "#]],
    );
    // The Pod there is gone, and its node has yet to let go.
    check(
        VOLUME,
        &[("two", "q")],
        &attachment("one", true),
        &node("", "volumesInUse: ['kubernetes.io/csi/d^h'], conditions: [{type: Ready, status: 'True'}]"),
        expect![[r#"
        step
          Warning FailedAttachVolume: Multi-Attach error for volume "v" Volume is already exclusively attached to one node and can't be attached to another
    "#]],
    );
    let once = VOLUME.replace("ReadWriteOnce", "ReadWriteOncePod");
    check(
        &once,
        &[("one", "p"), ("two", "q")],
        "[]",
        "[]",
        expect![[r#"
        step
          create volumeattachments csi-one
        step
          Warning FailedAttachVolume: Multi-Attach error for volume "v" Volume is already used by pod(s) p
    "#]],
    );
    let shared = VOLUME.replace("ReadWriteOnce", "ReadWriteMany");
    check(
        &shared,
        &[("one", "p"), ("two", "q")],
        &attachment("one", false),
        &node("", ""),
        expect![[r#"
        step
          create volumeattachments csi-two
    "#]],
    );
}

#[test]
fn a_volume_in_use_stays_until_its_node_is_given_up() {
    let used = "volumesInUse: ['kubernetes.io/csi/d^h'], volumesAttached: [{name: 'kubernetes.io/csi/d^h', devicePath: ''}]";
    let attached = attachment("one", true);
    check(
        VOLUME,
        &[],
        &attached,
        &node("", &format!("{used}, conditions: [{{type: Ready, status: 'True'}}]")),
        expect![""],
    );
    let since = |time: &str| {
        node(
            "",
            &format!("{used}, conditions: [{{type: Ready, status: Unknown, lastTransitionTime: '{time}'}}]"),
        )
    };
    check(
        VOLUME,
        &[],
        &attached,
        &since("2026-01-01T11:58:00Z"),
        expect![[r#"
        again after 240s
    "#]],
    );
    let detached = expect![[r#"
        step
          patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[]}}
        step
          delete volumeattachments a-one
    "#]];
    check(VOLUME, &[], &attached, &since("2026-01-01T11:54:00Z"), detached);
    let taint = "taints: [{key: node.kubernetes.io/out-of-service, effect: NoExecute}]";
    check(
        VOLUME,
        &[],
        &attached,
        &node(taint, used),
        expect![[r#"
        step
          patch nodes/status one {"metadata":{"resourceVersion":"7"},"status":{"volumesAttached":[]}}
        step
          delete volumeattachments a-one
    "#]],
    );
}

#[test]
fn a_volume_that_a_driver_has_taken_over_is_attached_by_it() {
    let disk = "{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], awsElasticBlockStore: {volumeID: 'aws://z/vol-1'}}}";
    let volume = migration::translated(&Arc::new(parse(disk)));
    assert_eq!(unique_name(csi(&volume).unwrap()), "kubernetes.io/csi/ebs.csi.aws.com^vol-1");
    check(
        disk,
        &[("one", "p")],
        "[]",
        "[]",
        expect![[r#"
        step
          create volumeattachments csi-one
    "#]],
    );
}

#[test]
fn a_volume_that_a_pod_names_itself_is_attached_as_it_names_it() {
    let pod = "{metadata: {name: p, namespace: x}, spec: {nodeName: one, containers: [], volumes: [{name: d, gcePersistentDisk: {pdName: disk}}]}}";
    let pod = Arc::new(parse::<Pod>(pod));
    let (key, _) = own_volumes(&pod).next().unwrap();
    assert_eq!(
        key,
        "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
    );
    let snapshot = |wanted: ByNode, attachments: Vec<Arc<VolumeAttachment>>| Snapshot {
        volume: own_volume(&key, wanted.values().flatten(), &attachments).unwrap(),
        key: key.clone(),
        wanted,
        attachments,
        nodes: BTreeMap::new(),
        having: vec!["one".into()],
        is_attachable: true,
        options: Arc::default(),
    };
    let first = plan(&snapshot(by_node([pod.clone()].into_iter()), Vec::new()), noon());
    let [Action::Request(request)] = first.steps.concat().try_into().map(|one: [Action; 1]| one).unwrap()
    else {
        panic!("one request")
    };
    let made: VolumeAttachment = serde_json::from_value(request.body.clone()).unwrap();
    assert_eq!(key_of(&made).as_ref(), Some(&key));
    expect![[r#"{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"pd.csi.storage.gke.io","volumeAttributes":{"partition":""},"volumeHandle":"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"},"volumeMode":"Filesystem"}}"#]].assert_eq(&json!(made.spec.source).to_string());
    // The Pod is gone, and the node is.
    let last = plan(&snapshot(ByNode::new(), vec![Arc::new(made)]), noon());
    assert!(render(&last).contains("delete volumeattachments csi-"), "{}", render(&last));
}

#[test]
fn names_of_pods_stay_in_their_namespace() {
    let pod = |namespace: &str, name: &str| -> Arc<Pod> {
        Arc::new(parse(&format!("{{metadata: {{name: {name}, namespace: {namespace}}}}}")))
    };
    let (a, b, far) = (pod("near", "a"), pod("near", "b"), pod("far", "secret"));
    for (pods, expect) in [
        (vec![], "Volume is already exclusively attached to one node and can't be attached to another"),
        (vec![&a, &b], "Volume is already used by pod(s) a, b"),
        (vec![&far], "Volume is already used by 1 pod(s) in different namespaces"),
        (vec![&a, &far], "Volume is already used by pod(s) a and 1 pod(s) in different namespaces"),
    ] {
        assert_eq!(users("near", &pods), expect);
    }
}
