//! The cases of upstream's `volume_zone_test.go`.

use std::sync::Arc;

use crate::fixtures::{cluster, pod, refusals};
use crate::transform::parse;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const OLD_REGION: &str = "failure-domain.beta.kubernetes.io/region";

#[test]
fn a_volume_is_used_where_its_labels_say() {
    let label = |key: &str, value: &str| format!("{key}: {value}, useless: none");
    let both = format!("{ZONE}: us-west1-a, {REGION}: us-west1-a");
    for (case, volume, node, fits) in [
        ("the Node has no labels", label(OLD_ZONE, "us-west1-a"), String::new(), true),
        ("old zone", label(OLD_ZONE, "us-west1-a"), label(OLD_ZONE, "us-west1-a"), true),
        ("old region", label(OLD_REGION, "us-west1"), label(OLD_REGION, "us-west1"), true),
        ("another old region", label(OLD_REGION, "us-west1"), label(OLD_REGION, "no"), false),
        ("another old zone", label(OLD_ZONE, "us-west1-a"), label(OLD_ZONE, "no"), false),
        ("zone", label(ZONE, "us-west1-a"), label(ZONE, "us-west1-a"), true),
        ("region", label(REGION, "us-west1"), label(REGION, "us-west1"), true),
        ("another region", label(REGION, "us-west1"), label(REGION, "no"), false),
        ("another zone", label(ZONE, "us-west1-a"), label(ZONE, "no"), false),
        ("the Node has only one of two", both.clone(), label(ZONE, "us-west1-a"), false),
        ("the Node has both", both.clone(), both, true),
        ("new volume, old Node", label(ZONE, "us-west1-a"), label(OLD_ZONE, "us-west1-a"), false),
        ("old volume, new Node", label(OLD_ZONE, "us-west1-a"), label(ZONE, "us-west1-a"), true),
        ("old volume, another new Node", label(OLD_ZONE, "us-west1-a"), label(ZONE, "us-west1-b"), false),
        ("several zones", label(OLD_ZONE, "us-west1-c__us-west1-a"), label(OLD_ZONE, "us-west1-a"), true),
        ("several zones, new", label(ZONE, "us-west1-c__us-west1-a"), label(ZONE, "us-west1-a"), true),
        ("none of several", label(ZONE, "us-west1-c__us-west1-a"), label(ZONE, "us-west1-b"), false),
        ("a volume without labels", "useless: none".to_owned(), label(ZONE, "us-west1-a"), true),
    ] {
        let mut snapshot = cluster(&[("n", &node, "")], &[]);
        let (storage, claim) = (
            &mut snapshot.storage,
            "{metadata: {name: c, namespace: d, annotations: \
            {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: v}}",
        );
        storage.claims.insert("d/c".to_owned(), Arc::new(parse(claim)));
        let volume = format!("{{metadata: {{name: v, labels: {{{volume}}}}}}}");
        storage.volumes.insert("v".to_owned(), Arc::new(parse(&volume)));
        let uses = pod("", "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]");
        let expect = if fits { "" } else { "!node(s) had no available volume zone" };
        assert_eq!(refusals("VolumeZone", &uses, &snapshot), [expect], "{case}");
    }
}
