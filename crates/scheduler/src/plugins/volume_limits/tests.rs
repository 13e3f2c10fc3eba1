//! The cases of upstream's `csi_test.go`.

use std::sync::Arc;

use controller::pod::Pod;

use crate::fixtures::{cluster, pod, refusals};
use crate::node_info::Snapshot;
use crate::transform::parse;

const EBS: &str = "ebs.csi.aws.com";
const PD: &str = "pd.csi.storage.gke.io";

/// A Pod with these volumes: each a claim, or `aws:` and the disk's name, or `own:` and what a claim is made for.
fn using(volumes: &[&str]) -> Pod {
    let volume = |(number, volume): (usize, &&str)| match volume.split_once(':') {
        Some(("aws", disk)) => format!("{{name: v{number}, awsElasticBlockStore: {{volumeID: {disk}}}}}"),
        Some((_, name)) => format!("{{name: {name}, ephemeral: {{}}}}"),
        None if *volume == "secret" => format!("{{name: v{number}, secret: {{secretName: s}}}}"),
        None => format!("{{name: v{number}, persistentVolumeClaim: {{claimName: {volume}}}}}"),
    };
    let volumes: Vec<_> = volumes.iter().enumerate().map(volume).collect();
    pod("", &format!("volumes: [{}]", volumes.join(", ")))
}

/// Claims `ebs-1`, `pd-1`, `aws-1`, `path-1` and so on are bound; `new` is not yet, `lost` to a volume that is not there,
/// `odd` has no class, `classy` has a driver's, but not its volume, and `p-own` is a Pod's own.
fn store(snapshot: &mut Snapshot) {
    let storage = &mut snapshot.storage;
    for (name, provisioner) in [("ebs", EBS), ("intree", "kubernetes.io/aws-ebs")] {
        let class = format!("{{metadata: {{name: {name}}}, provisioner: {provisioner}}}");
        storage.classes.insert(name.to_owned(), Arc::new(parse(&class)));
    }
    for number in 0..4 {
        for (kind, source) in [
            ("ebs", format!("csi: {{driver: {EBS}, volumeHandle: ebs-{number}}}")),
            ("pd", format!("csi: {{driver: {PD}, volumeHandle: pd-{number}}}")),
            ("aws", format!("awsElasticBlockStore: {{volumeID: aws-{number}}}")),
            ("path", format!("hostPath: {{path: /p{number}}}")),
        ] {
            let name = format!("{kind}-{number}");
            let volume = format!("{{metadata: {{name: {name}}}, spec: {{{source}}}}}");
            storage.volumes.insert(name.clone(), Arc::new(parse(&volume)));
            let claim = format!("{{metadata: {{name: {name}, namespace: d}}, spec: {{volumeName: {name}}}}}");
            storage.claims.insert(format!("d/{name}"), Arc::new(parse(&claim)));
        }
    }
    for (name, spec) in [
        ("new", "storageClassName: ebs"),
        ("new-intree", "storageClassName: intree"),
        ("lost", "storageClassName: ebs, volumeName: none"),
        ("odd", "storageClassName: gone"),
        ("classy", "storageClassName: ebs, volumeName: path-0"),
        ("p-own", "storageClassName: ebs"),
        ("p-more", "storageClassName: ebs"),
    ] {
        let claim = format!("{{metadata: {{name: {name}, namespace: d}}, spec: {{{spec}}}}}");
        storage.claims.insert(format!("d/{name}"), Arc::new(parse(&claim)));
    }
}

#[test]
fn volumes_of_each_driver_are_limited() {
    let two_ebs: &[&str] = &["ebs-1", "ebs-2"];
    let two_aws: &[&str] = &["aws-1", "aws-2"];
    for (case, wants, placed, limit, fits) in [
        ("below", &["ebs-0"][..], &[&["ebs-3"][..], two_ebs][..], Some(4), true),
        ("above", &["ebs-0"], &[&["ebs-3"], two_ebs], Some(2), false),
        ("no limit", &["ebs-0"], &[&["ebs-3"], two_ebs], None, true),
        ("one that is made", &["ebs-0"], &[&["new"], two_ebs], Some(3), false),
        ("the same that is made", &["ebs-0"], &[&["new"], &["new"], two_ebs], Some(4), true),
        ("one that is lost", &["ebs-0"], &[&["lost"], two_ebs], Some(3), false),
        ("one without a class", &["ebs-0"], &[&["ebs-3"], &["odd"]], Some(2), true),
        ("another driver's", &["ebs-0"], &[&["pd-1", "pd-2"], two_ebs], Some(2), false),
        ("only another driver's", &["pd-1", "pd-2"], &[two_ebs, &["ebs-3"]], Some(2), true),
        ("taken over", &["aws-0"], &[two_aws], Some(2), false),
        ("to be made and taken over", &["new-intree"], &[two_aws], Some(2), false),
        ("taken over without a limit", &["aws-0"], &[two_aws], None, true),
        ("nobody's", &["path-0"], &[two_ebs], Some(2), true),
        ("nobody's of a driver's class", &["classy"], &[two_ebs], Some(2), true),
        ("beside nobody's of a driver's class", &["ebs-0"], &[two_ebs, &["classy"]], Some(3), true),
        ("named by the Pod", &["aws:inline"], &[two_aws], Some(2), false),
        ("taken over beside the driver's", &["aws-0"], &[two_ebs], Some(2), false),
        ("all three", &["aws:inline"], &[two_ebs, &["aws-0"]], Some(3), false),
        ("the same disk", &["aws:ebs-1"], &[two_ebs, &["aws-0"]], Some(3), true),
        ("the driver's beside taken over", &["ebs-0"], &[two_aws], Some(2), false),
        ("its own", &["own:own"], &[&["ebs-3"], two_ebs], Some(2), false),
        ("another's own", &["ebs-0"], &[&["ebs-3"], &["own:own", "own:more"]], Some(3), false),
        ("another's own with room", &["ebs-0"], &[&["ebs-3"], &["own:own"], two_ebs], Some(5), true),
        ("no volumes that count", &["secret"], &[two_ebs], Some(0), true),
        ("some that count", &["secret", "ebs-0"], &[], Some(2), true),
        ("some that count, and no room", &["secret", "aws:inline"], &[two_aws], Some(2), false),
        ("those that are there are not new", &["ebs-1"], &[two_ebs], Some(1), true),
    ] {
        let placed: Vec<_> = placed.iter().map(|volumes| ("n", using(volumes))).collect();
        let mut snapshot = cluster(&[("n", "", "")], &placed);
        store(&mut snapshot);
        let room = limit.map_or_else(String::new, |limit: u32| format!(", allocatable: {{count: {limit}}}"));
        let driver = |name: &str| format!("{{name: {name}, nodeID: n{room}}}");
        let node = format!("{{metadata: {{name: n}}, spec: {{drivers: [{}, {}]}}}}", driver(EBS), driver(PD));
        snapshot.storage.csi_nodes.insert("n".to_owned(), Arc::new(parse(&node)));
        let expect = if fits { "" } else { "node(s) exceed max volume count" };
        assert_eq!(refusals("NodeVolumeLimits", &using(wants), &snapshot), [expect], "{case}");
        snapshot.storage.csi_nodes.clear();
        assert_eq!(refusals("NodeVolumeLimits", &using(wants), &snapshot), [""], "{case}, nothing known");
    }
}

/// In a process of its own, as all tests are: gates are turned on once.
#[test]
fn a_node_without_a_driver_waits_for_it_where_that_is_asked_for() {
    machinery::features::turn_on(&["VolumeLimitScaling=true".parse().unwrap()]).unwrap();
    let missing = |name: &str| format!("{name} CSI driver is not installed on the node");
    for (case, wants, known, on_node, expect) in [
        ("there", "ebs-0", &[EBS][..], Some(EBS), String::new()),
        ("another is there", "ebs-0", &[EBS], Some(PD), missing(EBS)),
        ("no CSINode", "pd-0", &[EBS, PD], None, missing(PD)),
        ("taken over", "aws-0", &[EBS], Some(PD), missing(EBS)),
        ("to be made", "new", &[EBS], None, missing(EBS)),
        ("a driver of which nothing is known", "ebs-0", &[PD], Some(PD), String::new()),
        ("no driver's", "path-0", &[EBS], None, String::new()),
    ] {
        let mut snapshot = cluster(&[("n", "", "")], &[]);
        store(&mut snapshot);
        for name in known {
            let driver = format!("{{metadata: {{name: {name}}}, spec: {{}}}}");
            snapshot.storage.drivers.insert((*name).to_owned(), Arc::new(parse(&driver)));
        }
        if let Some(name) = on_node {
            let node = format!("{{metadata: {{name: n}}, spec: {{drivers: [{{name: {name}, nodeID: n}}]}}}}");
            snapshot.storage.csi_nodes.insert("n".to_owned(), Arc::new(parse(&node)));
        }
        assert_eq!(refusals("NodeVolumeLimits", &using(&[wants]), &snapshot), [expect], "{case}");
    }
}
