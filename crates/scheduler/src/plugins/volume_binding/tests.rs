use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::decide::{Choice, Decision, decide};
use crate::diagnosis::Diagnosis;
use crate::profile::{Profile, Profiles};
use crate::transform::parse;

const CLASSES: &str = "[
    {metadata: {name: now}, provisioner: p, volumeBindingMode: Immediate},
    {metadata: {name: late}, provisioner: p, volumeBindingMode: WaitForFirstConsumer},
    {metadata: {name: west}, provisioner: p, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [w]}]}]},
    {metadata: {name: roomy}, provisioner: counted, volumeBindingMode: WaitForFirstConsumer},
    {metadata: {name: manual}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}]";
const VOLUMES: &str = "[
    {metadata: {name: there}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: manual, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [e]}]}]}}}, status: {phase: Available}},
    {metadata: {name: west, labels: {topology.kubernetes.io/zone: w__x}}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, csi: {driver: few, volumeHandle: h}}, status: {phase: Bound}},
    {metadata: {name: disk}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, gcePersistentDisk: {pdName: disk}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [w]}]}]}}}, status: {phase: Bound}}]";

/// Two Nodes, `a` in the east and `b` in the west; Pods in `placed` are there already.
fn check(claims: &[&str], placed: &[(&str, &str)], expect: &str) {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("a", "e"), ("b", "w")] {
        let node = format!(
            "{{metadata: {{name: {name}, labels: {{zone: {zone}, topology.kubernetes.io/zone: {zone}, topology.gke.io/zone: {zone}}}}}, status: {{allocatable: {{pods: 9}}}}}}"
        );
        snapshot.set_node(Arc::new(parse::<Node>(&node)));
    }
    let storage = &mut snapshot.storage;
    for class in parse::<Vec<StorageClass>>(CLASSES) {
        storage.classes.insert(class.metadata.name.clone().unwrap(), Arc::new(class));
    }
    for volume in parse::<Vec<PersistentVolume>>(VOLUMES) {
        storage.volumes.insert(volume.metadata.name.clone().unwrap(), Arc::new(volume));
    }
    storage.drivers.insert(
        "counted".into(),
        Arc::new(parse("{metadata: {name: counted}, spec: {storageCapacity: true}}")),
    );
    let capacity = "{metadata: {name: r}, storageClassName: roomy, capacity: 5Gi, nodeTopology: {matchLabels: {zone: w}}}";
    storage.capacities.insert("x/r".into(), Arc::new(parse(capacity)));
    let few = "{metadata: {name: b}, spec: {drivers: [{name: few, nodeID: b, allocatable: {count: 1}}]}}";
    storage.csi_nodes.insert("b".into(), Arc::new(parse(few)));
    let mut volumes = Vec::new();
    for (number, claim) in claims.iter().enumerate() {
        volumes.push(format!("{{name: v{number}, persistentVolumeClaim: {{claimName: c{number}}}}}"));
        if claim.is_empty() {
            continue;
        }
        let claim: PersistentVolumeClaim = parse(&claim.replace("NAME", &format!("c{number}")));
        storage.claims.insert(claim_key(&claim), Arc::new(claim));
    }
    for (number, (node, claim)) in placed.iter().enumerate() {
        let pod = format!(
            "{{metadata: {{name: o, namespace: d, uid: o{number}}}, spec: {{containers: [], volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]}}}}"
        );
        snapshot.place(&Arc::new(parse(&pod)), node);
    }
    let pod = format!(
        "{{metadata: {{name: p, namespace: d, uid: u}}, spec: {{containers: [{{name: c}}], volumes: [{}]}}}}",
        volumes.join(", ")
    );
    let text = match decide(&parse(&pod), None, &snapshot, 0, &mut Diagnosis::default()) {
        Decision::Bind(choice) => choice.node,
        Decision::Unschedulable(why) | Decision::Failed(why) | Decision::Unheard(why) => why,
    };
    assert_eq!(text, expect, "{claims:?}");
}

fn claim(class: &str, more: &str) -> String {
    format!(
        "{{metadata: {{name: NAME, namespace: d{more}}}, spec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
    )
}

fn bound(volume: &str, mode: &str) -> String {
    format!(
        "{{metadata: {{name: NAME, namespace: d, annotations: {{pv.kubernetes.io/bind-completed: 'yes'}}}}, spec: {{accessModes: [{mode}], volumeName: {volume}}}}}"
    )
}

#[test]
fn a_claim_that_nobody_waits_for_is_waited_for() {
    check(
        &[&claim("now", "")],
        &[],
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    );
    check(&[""], &[], "0/2 nodes are available: persistentvolumeclaim \"c0\" not found.");
    let going = claim("late", ", deletionTimestamp: '2026-01-01T00:00:00Z'");
    check(&[&going], &[], "0/2 nodes are available: persistentvolumeclaim \"c0\" is being deleted.");
}

#[test]
fn a_volume_is_found_or_made_where_the_pod_goes() {
    check(&[&claim("late", "")], &[], "a");
    check(&[&claim("west", "")], &[], "b");
    check(&[&claim("roomy", "")], &[], "b");
    check(&[&claim("manual", "")], &[], "a");
    let none = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    check(&[&claim("manual", ""), &claim("manual", "")], &[], none);
    check(&[&claim("manual", ""), &claim("west", "")], &[], none);
    check(&[&claim("late", ", annotations: {volume.kubernetes.io/selected-node: b}")], &[], "b");
    let large = claim("roomy", "").replace("1Gi", "9Gi");
    check(&[&large], &[], "0/2 nodes are available: 2 node(s) did not have enough free storage.");
}

#[test]
fn a_bound_volume_is_reached_from_its_zone_and_counted() {
    check(&[&bound("west", "ReadWriteOnce")], &[], "b");
    check(&[&bound("there", "ReadWriteOnce")], &[], "a");
    // Its driver says on Nodes which zone they are in.
    check(&[&bound("disk", "ReadWriteOnce")], &[], "b");
    check(
        &[&bound("there", "ReadWriteOnce"), &bound("west", "ReadWriteOnce")],
        &[],
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) had no available volume zone.",
    );
    check(
        &[&bound("gone", "ReadWriteOnce")],
        &[],
        "0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
    );
}

/// Source: `TestFindPodVolumes*` of upstream's `plugins/volumebinding`: one claim after the other.
#[test]
fn every_reason_against_a_node_is_told_in_upstreams_order() {
    let both =
        |first: &str, rest: &str| format!("0/2 nodes are available: 1 node(s) {first}, 2 node(s) {rest}.");
    let (gone, there) = (bound("gone", "ReadWriteOnce"), bound("there", "ReadWriteOnce"));
    let large = claim("roomy", "").replace("1Gi", "9Gi");
    let (far, missing) = (
        "didn't match PersistentVolume's node affinity",
        "unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    );
    let full = "did not have enough free storage";
    check(&[&there, &large], &[], &both(far, full));
    check(&[&gone, &large], &[], &format!("0/2 nodes are available: 2 node(s) {full}, 2 node(s) {missing}."));
    // The first claim of those that are bound counts.
    check(&[&there, &gone], &[], &format!("0/2 nodes are available: 1 node(s) {far}, 1 node(s) {missing}."));
}

#[test]
fn a_claim_for_one_pod_has_one() {
    check(&[&bound("there", "ReadWriteOncePod")], &[], "a");
    check(&[&bound("there", "ReadWriteOnce")], &[("b", "c0")], "a");
    check(
        &[&bound("there", "ReadWriteOncePod")],
        &[("b", "c0")],
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod.",
    );
}

#[test]
fn a_node_has_as_many_volumes_as_its_driver_can() {
    let other = bound("west", "ReadWriteOnce").replace("NAME", "other");
    let mut snapshot = Snapshot::default();
    let node = "{metadata: {name: b}, status: {allocatable: {pods: 9}}}";
    snapshot.set_node(Arc::new(parse::<Node>(node)));
    let few = "{metadata: {name: b}, spec: {drivers: [{name: few, nodeID: b, allocatable: {count: 1}}]}}";
    snapshot.storage.csi_nodes.insert("b".into(), Arc::new(parse(few)));
    let few = few.replace("few", "ebs.csi.aws.com");
    snapshot.storage.csi_nodes.insert("b".into(), Arc::new(parse(&few)));
    // What the driver has taken over counts, whoever names it.
    for (volume, source) in [
        ("west", "csi: {driver: ebs.csi.aws.com, volumeHandle: west}"),
        ("more", "awsElasticBlockStore: {volumeID: 'aws://z/vol-more'}"),
    ] {
        let text = format!("{{metadata: {{name: {volume}}}, spec: {{{source}}}}}");
        snapshot.storage.volumes.insert(volume.into(), Arc::new(parse(&text)));
    }
    snapshot.storage.claims.insert("d/other".into(), Arc::new(parse(&other)));
    snapshot
        .storage
        .claims
        .insert("d/same".into(), Arc::new(parse(&other.replace("name: other", "name: same"))));
    snapshot
        .storage
        .claims
        .insert("d/more".into(), Arc::new(parse(&bound("more", "ReadWriteOnce").replace("NAME", "more"))));
    let pod = |name: &str, claim: &str| -> Pod {
        parse(&format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}}}, spec: {{containers: [], volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]}}}}"
        ))
    };
    snapshot.place(&Arc::new(pod("first", "other")), "b");
    let choice = Choice { node: "b".into(), volumes: None, devices: None };
    assert_eq!(
        decide(&pod("p", "same"), None, &snapshot, 0, &mut Diagnosis::default()),
        Decision::Bind(choice)
    );
    assert_eq!(
        decide(&pod("p", "more"), None, &snapshot, 0, &mut Diagnosis::default()),
        Decision::Unschedulable("0/1 nodes are available: 1 node(s) exceed max volume count.".into())
    );
    let own = "{metadata: {name: o, namespace: d, uid: o}, spec: {containers: [], volumes: [{name: v, awsElasticBlockStore: {volumeID: vol-own}}]}}";
    assert_eq!(
        decide(&parse(own), None, &snapshot, 0, &mut Diagnosis::default()),
        Decision::Unschedulable("0/1 nodes are available: 1 node(s) exceed max volume count.".into())
    );
}

/// A Node that its driver can attach one volume to; Pods in `placed` are there, and `attached` volumes too.
fn check_attached(placed: &[&str], attached: &[&str], wants: &str, takes: bool) {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(Arc::new(parse::<Node>("{metadata: {name: b}, status: {allocatable: {pods: 9}}}")));
    let few = "{metadata: {name: b}, spec: {drivers: [{name: few, nodeID: b, allocatable: {count: 1}}]}}";
    snapshot.storage.csi_nodes.insert("b".into(), Arc::new(parse(few)));
    for name in ["x", "y"] {
        let volume =
            format!("{{metadata: {{name: {name}}}, spec: {{csi: {{driver: few, volumeHandle: h-{name}}}}}}}");
        snapshot.storage.volumes.insert(name.into(), Arc::new(parse(&volume)));
        let claim = bound(name, "ReadWriteMany").replace("NAME", name);
        snapshot.storage.claims.insert(format!("d/{name}"), Arc::new(parse(&claim)));
    }
    for (number, spec) in attached.iter().enumerate() {
        let attachment =
            format!("{{metadata: {{name: a{number}}}, spec: {{{spec}}}, status: {{attached: true}}}}");
        snapshot.storage.attachments.insert(number.to_string(), Arc::new(parse(&attachment)));
    }
    let pod = |name: &str, claim: &str| -> Pod {
        parse(&format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}}}, spec: {{containers: [], volumes: [{{name: v, \
             persistentVolumeClaim: {{claimName: {claim}}}}}]}}}}"
        ))
    };
    for (number, claim) in placed.iter().enumerate() {
        snapshot.place(&Arc::new(pod(&format!("o{number}"), claim)), "b");
    }
    let decision = decide(&pod("p", wants), None, &snapshot, 0, &mut Diagnosis::default());
    let is_taken = matches!(decision, Decision::Bind(_));
    assert_eq!(is_taken, takes, "{placed:?} {attached:?} {wants}: {decision:?}");
}

#[test]
fn what_is_attached_counts_without_a_pod() {
    let attached = |node: &str, volume: &str| {
        format!("attacher: few, nodeName: {node}, source: {{persistentVolumeName: {volume}}}")
    };
    let (x, elsewhere) = (attached("b", "x"), attached("a", "x"));
    check_attached(&[], &[], "y", true);
    check_attached(&[], &[&x], "y", false);
    check_attached(&[], &[&elsewhere], "y", true);
    check_attached(&[], &[&x], "x", true);
    check_attached(&["x"], &[&x], "x", true);
    check_attached(&["x"], &[&x], "y", false);
    for nothing in [
        attached("b", "gone"),
        "attacher: other, nodeName: b, source: {persistentVolumeName: x}".to_owned(),
        "attacher: '', nodeName: b, source: {persistentVolumeName: x}".to_owned(),
        "attacher: few, nodeName: b, source: {}".to_owned(),
    ] {
        check_attached(&[], &[&nothing], "y", true);
    }
}

#[test]
fn what_is_promised_to_one_pod_is_not_promised_to_another() {
    let mut storage = Storage::default();
    for class in parse::<Vec<StorageClass>>(CLASSES) {
        storage.classes.insert(class.metadata.name.clone().unwrap(), Arc::new(class));
    }
    for volume in parse::<Vec<PersistentVolume>>(VOLUMES) {
        storage.volumes.insert(volume.metadata.name.clone().unwrap(), Arc::new(volume));
    }
    let node = NodeInfo::new(Arc::new(parse("{metadata: {name: a, labels: {zone: e}}}")));
    let state = |name: &str, class: &str| State {
        unbound: vec![Arc::new(parse(&claim(class, "").replace("NAME", name)))],
        ..State::default()
    };
    let pod_volumes = settle(&state("one", "manual"), &storage, &node).unwrap();
    assert_eq!((pod_volumes.bind.len(), pod_volumes.provision.len()), (1, 0));
    storage.assume("u", pod_volumes);
    assert_eq!(settle(&state("two", "manual"), &storage, &node), Err(NOTHING_FOUND));
    let shared = settle(&state("one", "manual"), &storage, &node).unwrap();
    assert_eq!(shared.bind.len(), 1, "a Pod that shares the claim has the same volume");
    let pod_volumes = settle(&state("three", "late"), &storage, &node).unwrap();
    assert_eq!(pod_volumes.provision.len(), 1);
    storage.assume("v", pod_volumes);
    let shared = settle(&state("three", "late"), &storage, &node).unwrap();
    assert_eq!((shared.bind.len(), shared.provision.len()), (0, 1));
    let elsewhere = NodeInfo::new(Arc::new(parse("{metadata: {name: b}}")));
    assert_eq!(settle(&state("three", "late"), &storage, &elsewhere), Err(NOTHING_FOUND));
    storage.settle("u");
    assert!(settle(&state("two", "manual"), &storage, &node).is_ok());
}

/// The scores of the Nodes `a`, `b` and `c` for a Pod that has the claims of `asked` (class and size), by `shape`.
///
/// `volumes` are local ones (name, class, size and Node), `capacities` what the driver `counted`, which every class has, says
/// (class, size, Node).
fn check_scores(
    shape: &[(i64, i64)],
    asked: &[(&str, &str)],
    volumes: &[(&str, &str, &str, &str)],
    capacities: &[(&str, &str, &str)],
    expect: [i64; 3],
) {
    let mut snapshot = Snapshot::default();
    let mut profile = Profile::default();
    profile.arguments.volumes.shape = shape.to_vec();
    snapshot.profiles = Profiles::new(profile, Vec::new());
    let names = ["a", "b", "c"];
    for name in names {
        let node = format!(
            "{{metadata: {{name: {name}, labels: {{on: {name}}}}}, status: {{allocatable: {{pods: 9}}}}}}"
        );
        snapshot.set_node(Arc::new(parse::<Node>(&node)));
    }
    let storage = &mut snapshot.storage;
    let driver = "{metadata: {name: counted}, spec: {storageCapacity: true}}";
    storage.drivers.insert("counted".into(), Arc::new(parse(driver)));
    for (name, provisioner) in [("hdd", "counted"), ("ssd", "counted"), ("any", "p")] {
        let class = format!(
            "{{metadata: {{name: {name}}}, provisioner: {provisioner}, volumeBindingMode: WaitForFirstConsumer}}"
        );
        storage.classes.insert(name.into(), Arc::new(parse(&class)));
    }
    for (name, class, size, node) in volumes {
        let volume = format!(
            "{{metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce], capacity: {{storage: {size}}}, storageClassName: {class}, \
             nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: on, operator: In, values: [{node}]}}]}}]}}}}}}, \
             status: {{phase: Available}}}}"
        );
        storage.volumes.insert((*name).to_owned(), Arc::new(parse(&volume)));
    }
    for (number, (class, size, node)) in capacities.iter().enumerate() {
        let capacity = format!(
            "{{metadata: {{name: r}}, storageClassName: {class}, {size}, nodeTopology: {{matchLabels: {{on: {node}}}}}}}"
        );
        storage.capacities.insert(format!("x/{number}"), Arc::new(parse(&capacity)));
    }
    let mut mounted = Vec::new();
    for (number, (class, size)) in asked.iter().enumerate() {
        mounted.push(format!("{{name: v{number}, persistentVolumeClaim: {{claimName: c{number}}}}}"));
        let claim = claim(class, "").replace("NAME", &format!("c{number}")).replace("1Gi", size);
        let claim: PersistentVolumeClaim = parse(&claim);
        storage.claims.insert(claim_key(&claim), Arc::new(claim));
    }
    let mounted = mounted.join(", ");
    let pod = parse(&format!(
        "{{metadata: {{name: p, namespace: d, uid: u}}, spec: {{containers: [], volumes: [{mounted}]}}}}"
    ));
    let candidate = Candidate::new(&pod, None, &snapshot);
    let scores = names.map(|name| score(&candidate, snapshot.node(name).unwrap()));
    let is_asked = candidate.scores().any(|(row, _)| row.name == "VolumeBinding");
    assert_eq!((scores, is_asked), (expect, !shape.is_empty() && !asked.is_empty()), "{asked:?}");
}

/// Source: the cases of `TestVolumeBinding` and of the scorer's `TestScore`.
#[test]
fn nodes_rank_by_the_share_of_storage_that_volumes_take() {
    const FULL: &[(i64, i64)] = &[(0, 0), (100, 100)];
    const FREE: &[(i64, i64)] = &[(0, 100), (100, 0)];
    const BENT: &[(i64, i64)] = &[(0, 0), (50, 30), (100, 50)];
    let local: &[(&str, &str, &str, &str)] = &[
        ("a", "hdd", "100Gi", "a"),
        ("b", "hdd", "200Gi", "b"),
        ("s", "ssd", "100Gi", "a"),
        ("t", "ssd", "50Gi", "b"),
    ];
    let hdd: &[(&str, &str)] = &[("hdd", "50Gi")];
    check_scores(FULL, hdd, local, &[], [50, 25, 0]);
    check_scores(FREE, hdd, local, &[], [50, 75, 0]);
    check_scores(BENT, hdd, local, &[], [30, 15, 0]);
    check_scores(FULL, &[("hdd", "50Gi"), ("ssd", "50Gi")], local, &[], [50, 63, 0]);
    // Two of one class count together.
    let two: &[(&str, &str, &str, &str)] =
        &[("a", "hdd", "100Gi", "a"), ("b", "hdd", "100Gi", "a"), ("c", "hdd", "80Gi", "b")];
    check_scores(FULL, &[("hdd", "20Gi"), ("hdd", "40Gi")], two, &[], [30, 0, 0]);
    // What is to be made takes of the driver's capacity, of which there is one for a class.
    let there: &[(&str, &str, &str)] =
        &[("hdd", "capacity: 100Gi", "a"), ("hdd", "capacity: 50Gi", "b"), ("hdd", "capacity: 1Gi", "c")];
    check_scores(FREE, hdd, &[], there, [50, 0, 0]);
    check_scores(FREE, &[("hdd", "20Gi"), ("hdd", "30Gi")], &[], there, [50, 0, 0]);
    check_scores(
        FREE,
        &[("hdd", "50Gi"), ("ssd", "10Gi")],
        &[],
        &[there[0], ("ssd", "capacity: 100Gi", "a")],
        [70, 0, 0],
    );
    // A volume that is there counts alone.
    check_scores(
        FULL,
        &[("hdd", "50Gi"), ("ssd", "10Gi")],
        &local[..1],
        &[("ssd", "capacity: 100Gi", "a")],
        [50, 0, 0],
    );
    // A limit of one volume alone says nothing about what is left.
    check_scores(FREE, hdd, &[], &[("hdd", "maximumVolumeSize: 60Gi", "a")], [0, 0, 0]);
    check_scores(FULL, hdd, &[], &[("hdd", "maximumVolumeSize: 60Gi", "a")], [100, 0, 0]);
    // Where the driver says nothing there is nothing to tell Nodes apart.
    check_scores(FREE, &[("any", "50Gi")], &[], there, [0, 0, 0]);
    check_scores(FULL, &[("hdd", "100Pi")], &[], &[("hdd", "capacity: 7Ei", "a")], [1, 0, 0]);
    check_scores(FULL, &[], &[], &[], [0, 0, 0]);
}

#[test]
fn storage_is_no_score_while_the_gate_is_off() {
    check_scores(&[], &[("hdd", "50Gi")], &[("a", "hdd", "100Gi", "a")], &[], [0, 0, 0]);
}
