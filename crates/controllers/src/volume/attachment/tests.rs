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
    let snapshot = Snapshot {
        volume: Arc::new(parse(volume)),
        wanted: by_node,
        attachments: list(attachments),
        nodes,
        having: vec!["one".into(), "two".into()],
        is_attachable: true,
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
