use super::*;

type Row = (&'static str, &'static str, &'static str, ChangePolicy);

use ChangePolicy::{MountOption, Recursive};

impl VolumeCache {
    /// A line for each volume and Pod.
    pub(in crate::volume::selinux_warning) fn describe(&self) -> String {
        let line = |volume: &str, used: &UsedVolume, pod: &str, usage: &Usage| {
            let Usage { label, change_policy } = usage;
            format!("{volume} of {}: {pod} {:?} {}\n", used.driver, &**label, change_policy.as_str())
        };
        let of_volume = |(volume, used): (&String, &UsedVolume)| -> String {
            used.pods.iter().map(|(pod, usage)| line(volume, used, pod, usage)).collect()
        };
        self.volumes.iter().map(of_volume).collect()
    }
}

fn usage(label: &str, change_policy: ChangePolicy) -> Usage {
    Usage { label: Interned::of(label.to_owned()), change_policy }
}

fn add(cache: &mut VolumeCache, (pod, volume, label, policy): Row) -> Vec<Conflict> {
    let conflicts = cache.add(volume, "driver", pod, usage(label, policy));
    is_consistent(cache);
    conflicts
}

fn known(rows: &[Row]) -> VolumeCache {
    let mut cache = VolumeCache::default();
    for row in rows {
        add(&mut cache, *row);
    }
    cache
}

/// What is known by volume is known by Pod, and the other way round.
fn is_consistent(cache: &VolumeCache) {
    let by_volume: BTreeSet<(&String, &String)> = cache
        .volumes
        .iter()
        .flat_map(|(volume, used)| used.pods.keys().map(move |pod| (pod, volume)))
        .collect();
    let by_pod: BTreeSet<(&String, &String)> = cache
        .pods
        .iter()
        .flat_map(|(pod, known)| known.volumes.iter().map(move |volume| (pod, volume)))
        .collect();
    assert_eq!(by_volume, by_pod);
    assert!(cache.volumes.values().all(|used| !used.pods.is_empty()));
}

fn told(conflicts: impl IntoIterator<Item = Conflict>) -> BTreeSet<String> {
    let line = |one: Conflict| {
        let Conflict { property, pod, value, other_pod, other_value } = one;
        format!("{}: {pod} {value:?}, {other_pod} {other_value:?}", property.name())
    };
    conflicts.into_iter().map(line).collect()
}

/// Pods on volumes of their own, or on one with another Pod that wants the same.
const PODS: [Row; 10] = [
    ("ns1/mounts", "vol1", "system_u:system_r:label1", MountOption),
    ("ns2/recursive", "vol2", "", Recursive),
    ("ns3/pod3-1", "vol3", "", Recursive),
    ("ns3/pod3-2", "vol3", "", Recursive),
    ("ns4/pod4-1", "vol4", "system_u:system_r:label4", MountOption),
    ("ns4/pod4-2", "vol4", "system_u:system_r:label4", MountOption),
    ("ns5/pod5", "vol5", "::label5", MountOption),
    ("ns6/pod6", "vol6", ":system_r:label6", MountOption),
    ("ns7/pod7", "vol7", "::label7:c0,c1", MountOption),
    ("ns8/pod8", "vol8", "", MountOption),
];

/// Source: `TestVolumeCache_AddVolumeGetConflicts`.
#[test]
fn a_conflict_is_told_to_both_when_a_pod_brings_it() {
    let new = "testns/testpod";
    for (name, row, expect) in [
        ("a new volume", (new, "vol-new", "system_u:system_r:label-new", MountOption), None),
        ("the same policy and label", (new, "vol1", "system_u:system_r:label1", MountOption), None),
        (
            "another label",
            (new, "vol1", "system_u:system_r:label-new", MountOption),
            Some(("SELinuxLabel", "system_u:system_r:label-new", "ns1/mounts", "system_u:system_r:label1")),
        ),
        (
            "another policy",
            (new, "vol1", "", Recursive),
            Some(("SELinuxChangePolicy", "Recursive", "ns1/mounts", "MountOption")),
        ),
        (
            "a known Pod that wants something else of what is its own",
            ("ns2/recursive", "vol2", "system_u:system_r:label-new", MountOption),
            None,
        ),
        (
            "a known Pod that wants something else of what it shares",
            ("ns3/pod3-1", "vol3", "system_u:system_r:label-new", MountOption),
            Some(("SELinuxChangePolicy", "MountOption", "ns3/pod3-2", "Recursive")),
        ),
        (
            "a label beside one without user and role",
            (new, "vol5", "system_u:system_r:label5", MountOption),
            None,
        ),
        (
            "another type, both without user and role",
            (new, "vol5", "::label6", MountOption),
            Some(("SELinuxLabel", "::label6", "ns5/pod5", "::label5")),
        ),
        ("each lacks another part", (new, "vol6", "system_u::label6", MountOption), None),
        (
            "no categories beside some",
            (new, "vol7", "system_u:system_r:label7", MountOption),
            Some(("SELinuxLabel", "system_u:system_r:label7", "ns7/pod7", "::label7:c0,c1")),
        ),
        ("a label beside none", (new, "vol8", "system_u:system_r:label8", MountOption), None),
        (
            "categories beside nothing",
            (new, "vol8", "system_u:system_r:label8:c0,c1", MountOption),
            Some(("SELinuxLabel", "system_u:system_r:label8:c0,c1", "ns8/pod8", "")),
        ),
    ] {
        let mut cache = known(&PODS);
        assert_eq!(told(cache.conflicts()), BTreeSet::new(), "before {name}");
        let (pod, ..) = row;
        let mut lines = BTreeSet::new();
        if let Some((property, value, other, other_value)) = expect {
            lines.insert(format!("{property}: {pod} {value:?}, {other} {other_value:?}"));
            lines.insert(format!("{property}: {other} {other_value:?}, {pod} {value:?}"));
        }
        assert_eq!(told(add(&mut cache, row)), lines, "{name}");
        assert_eq!(told(cache.conflicts()), lines, "{name}");
        assert_eq!(add(&mut cache, row), [], "{name}: it is no news a second time");
        let alone = told(add(&mut VolumeCache::default(), row));
        assert_eq!(alone, BTreeSet::new(), "{name}, in an empty cache");
    }
}

/// Source: `TestVolumeCache_MultiVolumeConflicts`.
#[test]
fn a_conflict_over_several_volumes_is_one_and_those_with_several_pods_are_several() {
    let mut cache = known(&[
        ("ns/b", "vol1", "u:r:B", MountOption),
        ("ns/c", "vol2", "u:r:C", MountOption),
        ("ns/a", "vol1", "u:r:A", MountOption),
        ("ns/a", "vol2", "u:r:A", MountOption),
    ]);
    assert_eq!(cache.conflicts().len(), 4);
    cache.remove_pod("ns/a");
    assert!(cache.conflicts().is_empty());
    let mut news = Vec::new();
    for volume in ["vol3", "vol4"] {
        add(&mut cache, ("ns/d", volume, "u:r:D", MountOption));
        news.extend(add(&mut cache, ("ns/e", volume, "u:r:E", MountOption)));
    }
    assert_eq!((news.len(), cache.conflicts().len()), (4, 2));
}

/// Source: `TestVolumeCache_DeletePodConflicts`.
#[test]
fn a_pod_takes_its_conflicts_with_it_and_no_others() {
    const A: Row = ("ns/a", "vol1", "u:r:A", MountOption);
    const B: Row = ("ns/b", "vol1", "u:r:B", MountOption);
    const C: Row = ("ns/c", "vol2", "u:r:C", MountOption);
    let also = |row: Row, volume| (row.0, volume, row.2, row.3);
    let pair = |one: Row, other: Row| {
        let line =
            |one: Row, other: Row| format!("SELinuxLabel: {} {:?}, {} {:?}", one.0, one.2, other.0, other.2);
        BTreeSet::from([line(one, other), line(other, one)])
    };
    for (name, rows, gone, expect) in [
        ("one of two", vec![A, B], "ns/a", BTreeSet::new()),
        ("somebody else", vec![A, B, C], "ns/c", pair(A, B)),
        ("one of three", vec![A, B, also(C, "vol1")], "ns/a", pair(B, C)),
        ("one with two volumes", vec![B, C, A, also(A, "vol2")], "ns/a", BTreeSet::new()),
        (
            "other volumes stay",
            vec![A, B, C, also(("ns/d", "", "u:r:D", MountOption), "vol2")],
            "ns/a",
            pair(C, ("ns/d", "", "u:r:D", MountOption)),
        ),
        ("nobody", vec![A, B], "ns/nobody", pair(A, B)),
    ] {
        let mut cache = known(&rows);
        for time in ["once", "twice"] {
            cache.remove_pod(gone);
            is_consistent(&cache);
            assert_eq!(told(cache.conflicts()), expect, "{name}, {time}");
        }
    }
}

/// Source: `TestVolumeCache_DeleteAll`.
#[test]
fn nothing_is_left_when_all_pods_are_gone() {
    let mut cache = VolumeCache::default();
    let pods: Vec<String> = (0..16).map(|number| format!("ns{}/pod{}", number / 4, number % 4)).collect();
    for pod in &pods {
        cache.begin(pod, "u");
        for volume in ["vol1", "vol2", "vol3", "vol4"] {
            assert_eq!(cache.add(volume, "driver", pod, usage("label1", MountOption)), []);
        }
    }
    is_consistent(&cache);
    assert_eq!(cache.volumes.len(), 4);
    for pod in &pods {
        cache.remove_pod(pod);
    }
    assert!(cache.volumes.is_empty() && cache.pods.is_empty());
}

#[test]
fn a_namesake_has_nothing_of_what_its_predecessor_used() {
    let mut cache = VolumeCache::default();
    for (uid, volume) in [("1", "vol1"), ("1", "vol2"), ("2", "vol2")] {
        cache.begin("ns/a", uid);
        cache.add(volume, "driver", "ns/a", usage("u:r:A", MountOption));
    }
    is_consistent(&cache);
    assert_eq!(add(&mut cache, ("ns/b", "vol1", "u:r:B", MountOption)), []);
    assert_eq!(add(&mut cache, ("ns/b", "vol2", "u:r:B", MountOption)).len(), 2);
}

/// Source: `TestVolumeCache_GetPodsForCSIDriver`.
#[test]
fn the_pods_of_a_driver_are_those_that_use_its_volumes() {
    let mut cache = VolumeCache::default();
    for (driver, pod, volume) in [
        ("driver1", "ns1/pod1", "vol1"),
        ("driver2", "ns2/pod2", "vol2"),
        ("driver2", "ns3/pod3-1", "vol3"),
        ("driver2", "ns3/pod3-2", "vol3"),
        ("driver2", "ns3/pod3-2", "vol2"),
        ("driver3", "ns4/pod4-1", "vol4"),
        ("", "ns5/pod5", "vol5"),
    ] {
        cache.add(volume, driver, pod, usage("", Recursive));
    }
    for (driver, expect) in [
        ("driver1", vec!["ns1/pod1"]),
        ("driver2", vec!["ns2/pod2", "ns3/pod3-1", "ns3/pod3-2"]),
        ("driver3", vec!["ns4/pod4-1"]),
        ("driver4", vec![]),
        ("driver", vec![]),
    ] {
        assert_eq!(cache.pods_of_driver(driver), expect, "{driver}");
    }
}

#[test]
fn what_is_in_another_namespace_is_not_told() {
    let conflict = |property, pod: &str, other_pod: &str| Conflict {
        property,
        pod: pod.to_owned(),
        value: "::mine".to_owned(),
        other_pod: other_pod.to_owned(),
        other_value: "::theirs".to_owned(),
    };
    for (conflict, expect) in [
        (
            conflict(Property::Label, "shop/a", "shop/b"),
            "SELinuxLabel \"::mine\" conflicts with pod b that uses the same volume as this pod with SELinuxLabel \
             \"::theirs\". If both pods land on the same node, only one of them may access the volume.",
        ),
        (
            conflict(Property::Label, "shop/a", "secret/b"),
            "SELinuxLabel\"::mine\" conflicts with another pod that uses the same volume as this pod with a different \
             SELinuxLabel. If both pods land on the same node, only one of them may access the volume.",
        ),
        (
            conflict(Property::ChangePolicy, "shop/a", "shopping/b"),
            "SELinuxChangePolicy\"::mine\" conflicts with another pod that uses the same volume as this pod with a \
             different SELinuxChangePolicy. If both pods land on the same node, only one of them may access the volume.",
        ),
    ] {
        assert_eq!(conflict.message(), expect);
    }
}
