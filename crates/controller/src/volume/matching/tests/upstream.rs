//! The cases of upstream's `index_test.go` (of the binder) and `pv_helpers_test.go` (of the scheduler too).

use super::*;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"))
}

const ONE: &str = "ReadWriteOnce";
const TWO: &str = "ReadWriteOnce, ReadOnlyMany";
const THREE: &str = "ReadWriteOnce, ReadOnlyMany, ReadWriteMany";

/// A free volume, unless what it has more says otherwise.
fn volume((name, size, modes, more): (&str, &str, &str, &str)) -> Arc<PersistentVolume> {
    let (phase, spec) = more.split_once('|').unwrap_or(("Available", more));
    let labels = if matches!(name, "pd-2" | "silver1") { "should-exist: 'true'" } else { "" };
    Arc::new(parse(&format!(
        "{{metadata: {{name: {name}, labels: {{{labels}}}}}, status: {{phase: '{phase}'}}, \
         spec: {{capacity: {{storage: {size}}}, accessModes: [{modes}], {spec}}}}}"
    )))
}

fn claim(name: &str, size: &str, modes: &str, more: &str) -> PersistentVolumeClaim {
    parse(&format!(
        "{{metadata: {{name: {name}, namespace: myns, uid: u}}, spec: {{accessModes: [{modes}], \
         resources: {{requests: {{storage: {size}}}}}, {more}}}}}"
    ))
}

fn check(
    case: &str,
    volumes: &[Arc<PersistentVolume>],
    wanted: &PersistentVolumeClaim,
    search: Search<'_>,
    expect: &str,
) {
    // The order in which volumes are looked at makes no difference.
    let found = find(wanted, volumes, search).and_then(|found| found.metadata.name.as_deref());
    let found_backwards =
        find(wanted, volumes.iter().rev(), search).and_then(|found| found.metadata.name.as_deref());
    let expect = Some(expect).filter(|name| !name.is_empty());
    assert_eq!((found, found_backwards), (expect, expect), "{case}");
}

const NEAR: &str = "storageClassName: wait, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: \
                    [{key: key1, operator: In, values: [value1]}]}]}}";

fn volumes() -> Vec<Arc<PersistentVolume>> {
    let (near3, near4) = (NEAR.replace("value1", "value3"), NEAR.replace("value1", "value4"));
    let prebound = format!("{NEAR}, claimRef: {{name: claim02, namespace: myns}}");
    let (pending, failed) = (format!("Pending|{near4}"), format!("Failed|{near4}"));
    let (released, empty) = (format!("Released|{near4}"), format!("|{near4}"));
    [
        ("pd-10", "10G", TWO, ""),
        ("pd-20", "20G", TWO, "Bound|claimRef: {uid: def456}"),
        ("nfs-5", "5G", THREE, ""),
        ("pd-1", "1G", TWO, "Bound|claimRef: {uid: abc123}"),
        ("nfs-10", "10G", THREE, ""),
        ("pd-5", "5G", TWO, ""),
        ("nfs-1", "1G", THREE, ""),
        ("pd-2", "20000G", ONE, ""),
        ("silver1", "10000G", ONE, "storageClassName: silver"),
        ("silver2", "100G", ONE, "storageClassName: silver"),
        ("gold", "50G", ONE, "storageClassName: gold"),
        ("very-large", "200E", THREE, "storageClassName: large"),
        ("extremely-large", "800E", THREE, "storageClassName: large"),
        ("near", "100G", TWO, NEAR),
        ("near2", "150G", TWO, NEAR),
        ("prebound", "100G", TWO, &prebound),
        ("near3", "200G", TWO, &near3),
        ("pending", "200G", TWO, &pending),
        ("failed", "200G", TWO, &failed),
        ("released", "200G", TWO, &released),
        ("no-phase", "200G", TWO, &empty),
        ("vac", "100G", TWO, "volumeAttributesClassName: silver"),
    ]
    .map(volume)
    .into()
}

#[test]
fn a_binder_takes_the_fewest_modes_and_then_the_smallest() {
    let all = volumes();
    let labelled = "selector: {matchLabels: {should-exist: 'true'}}";
    let labelled_silver = format!("{labelled}, storageClassName: silver");
    for (case, size, modes, more, expect) in [
        ("the smallest that is large enough", "8G", TWO, "", "pd-10"),
        ("all modes", "5G", THREE, "", "nfs-5"),
        ("not one with more modes", "1G", TWO, "", "pd-5"),
        ("too large", "999G", TWO, "", ""),
        ("no such label", "999G", TWO, "selector: {matchLabels: {should-not-exist: 'true'}}", ""),
        ("labelled, but not for two", "20000G", TWO, labelled, ""),
        ("labelled", "20000G", ONE, labelled, "pd-2"),
        ("an empty selector", "8G", TWO, "selector: {}", "pd-10"),
        ("an empty class of attributes", "8G", TWO, "volumeAttributesClassName: ''", "pd-10"),
        ("a class of attributes", "1G", TWO, "volumeAttributesClassName: silver", "vac"),
        ("no such class of attributes", "1G", TWO, "volumeAttributesClassName: none", ""),
        ("a class and a label", "1G", ONE, &labelled_silver, "silver1"),
        ("a class", "1G", ONE, "storageClassName: silver", "silver2"),
        ("very large", "1E", ONE, "storageClassName: large", "very-large"),
        ("exactly as large", "800E", ONE, "storageClassName: large", "extremely-large"),
        ("larger still", "950E", ONE, "storageClassName: large", ""),
        ("not free", "150G", ONE, "storageClassName: wait, selector: {matchLabels: {none: x}}", ""),
        ("a block device", "1G", ONE, "volumeMode: Block", ""),
    ] {
        check(case, &all, &claim("claim01", size, modes, more), Search::All, expect);
        check(case, &all, &claim("claim01", size, modes, more), Search::SetAside, "");
    }
    let mine = claim("claim02", "100G", ONE, "storageClassName: wait");
    check("made for the claim", &all, &mine, Search::All, "prebound");
    check("even if the scheduler decides", &all, &mine, Search::SetAside, "prebound");
}

#[test]
fn a_volume_that_was_made_for_the_claim_is_taken_if_it_fits() {
    let mine = "claimRef: {name: claim01, namespace: myns}";
    let theirs = "claimRef: {name: foo, namespace: bar}";
    let wanted = claim("claim01", "1Gi", ONE, "");
    for (case, [one, eight, bad_size, bad_mode], expect) in [
        ("none is", ["", "", "", ""], "pv1"),
        ("the exact one is another's", [theirs, "", "", ""], "pv5"),
        ("the largest is", ["", mine, "", ""], "pv8"),
        ("one that is too small is", ["", "", mine, ""], "pv1"),
        ("one for reading only is", ["", "", "", mine], "pv1"),
    ] {
        let all = [
            ("pv1", "1Gi", ONE, one),
            ("pv5", "5Gi", ONE, ""),
            ("pv8", "8Gi", ONE, eight),
            ("bad-size", "1Mi", ONE, bad_size),
            ("bad-mode", "1Gi", "ReadOnlyMany", bad_mode),
        ]
        .map(volume);
        check(case, &all, &wanted, Search::All, expect);
    }
    let several = [("more-modes", "1Gi", THREE, mine), ("free", "5Gi", ONE, "")].map(volume);
    check("but not before one with fewer modes", &several, &wanted, Search::All, "free");
    check("unless the scheduler decides about that", &several, &wanted, Search::SetAside, "more-modes");
    check("nor does the scheduler look at modes", &several, &wanted, Search::On(None), "more-modes");
    let by_uid = |uid: &str| {
        volume(("pv", "1Gi", ONE, &format!("claimRef: {{name: claim01, namespace: myns, uid: {uid}}}")))
    };
    check("of this uid", &[by_uid("u")], &wanted, Search::All, "pv");
    check("of an earlier claim", &[by_uid("v")], &wanted, Search::All, "");
}

#[test]
fn a_scheduler_takes_what_the_node_can_reach() {
    let all = volumes();
    let taken = |names: &[&str]| -> Vec<Arc<PersistentVolume>> {
        let is_left =
            |one: &&Arc<PersistentVolume>| !names.contains(&one.metadata.name.as_deref().unwrap_or_default());
        all.iter().filter(is_left).cloned().collect()
    };
    let node = |value: &str| BTreeMap::from([("key1".to_owned(), value.to_owned())]);
    for (case, name, modes, at, excluded, expect) in [
        ("there", "claim01", ONE, "value1", &[][..], "near"),
        ("made for the claim", "claim02", ONE, "value1", &[], "prebound"),
        ("the first is taken", "claim01", ONE, "value1", &["near"], "near2"),
        ("all are taken", "claim01", ONE, "value1", &["near", "near2"], ""),
        ("another mode", "claim01", "ReadWriteMany", "value1", &[], ""),
        ("nothing is there", "claim01", ONE, "value2", &[], ""),
        ("made for the claim, elsewhere", "claim02", ONE, "value3", &[], ""),
        ("none that is there is free", "claim04", ONE, "value4", &[], ""),
        ("there and elsewhere", "claim03", ONE, "value3", &[], "near3"),
    ] {
        let wanted = claim(name, "100G", modes, "storageClassName: wait");
        check(case, &taken(excluded), &wanted, Search::On(Some(&node(at))), expect);
    }
    let silver = "storageClassName: wait, volumeAttributesClassName: silver";
    check("attributes", &all, &claim("claim01", "100G", ONE, silver), Search::On(Some(&node("value1"))), "");
    check("of its own", &all, &claim("claim02", "100G", ONE, silver), Search::On(Some(&node("value1"))), "");
    let two = [volume(("few", "2G", ONE, "")), volume(("many", "1G", THREE, ""))];
    check("modes do not count", &two, &claim("claim01", "1G", ONE, ""), Search::On(None), "many");
}
