//! Which images go, and when.

use super::*;
use std::time::Duration;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn image(id: &str, size: u64, pinned: bool) -> v1::Image {
    v1::Image { id: id.into(), repo_tags: vec![format!("{id}:1")], size, pinned, ..Default::default() }
}

fn used(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn ids(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| candidate.id.as_str()).collect()
}

#[test]
fn the_longest_unused_goes_first_and_used_young_and_pinned_images_stay() {
    let all = [image("a", 1, false), image("b", 2, false), image("c", 3, true), image("d", 4, false)];
    let mut records = Records::default();
    records.detect(&all, &used(&["a", "b:1"]), at(1000));
    records.detect(&all, &used(&["a"]), at(2000));
    let young = [&all[..], &[image("e", 5, false)]].concat();
    records.detect(&young, &used(&["d"]), at(3000));
    let policy = ImageGcPolicy::default();
    assert_eq!(ids(&records.to_make_room(&policy, at(3000))), ["b", "a"]);
    assert_eq!(ids(&records.to_make_room(&policy, at(3119))), ["b", "a", "d"], "d is not used any more");
    assert_eq!(ids(&records.to_make_room(&policy, at(3120))), ["e", "b", "a", "d"]);
    records.detect(&all[..1], &used(&[]), at(4000));
    assert_eq!(records.ids(), used(&["a"]));
}

#[test]
fn old_images_go_once_the_kubelet_has_looked_for_long_enough() {
    let mut records = Records::default();
    records.detect(&[image("a", 1, false), image("b", 1, false)], &used(&["b"]), at(1000));
    let none = ImageGcPolicy::default();
    let policy = ImageGcPolicy { maximum_age: Duration::from_secs(100), ..ImageGcPolicy::default() };
    assert_eq!(ids(&records.too_old(&none, at(0), at(9000))), [""; 0], "turned off");
    assert_eq!(ids(&records.too_old(&policy, at(950), at(1040))), [""; 0], "just started");
    assert_eq!(ids(&records.too_old(&policy, at(960), at(1060))), [""; 0], "just so long ago");
    assert_eq!(ids(&records.too_old(&policy, at(950), at(1060))), ["a"]);
    assert_eq!(ids(&records.too_old(&policy, at(950), at(1100))), ["a"], "b is as old as it may be");
    assert_eq!(ids(&records.too_old(&policy, at(950), at(1101))), ["a", "b"]);
}

#[test]
fn so_much_goes_that_the_lower_threshold_is_met() {
    let policy = ImageGcPolicy::default();
    for (name, capacity, available, expect) in [
        ("below", 1000, 160, None),
        ("percents are whole, and free ones are rounded down", 1000, 151, Some(49)),
        ("at the threshold", 1000, 150, Some(50)),
        ("full", 1000, 0, Some(200)),
        ("more available than there is", 1000, 2000, None),
    ] {
        assert_eq!(Disk { capacity, available }.to_free(&policy), expect, "{name}");
    }
    let off = ImageGcPolicy { high_threshold_percent: 100, ..policy };
    assert_eq!(Disk { capacity: 1000, available: 0 }.to_free(&off), None);
    let complaint = Disk { capacity: 10 << 30, available: 1 << 30 }.complaint(7);
    assert!(complaint.starts_with(
        "Insufficient free disk space on the node's image filesystem (90% of 10.0 GiB used). Failed to free \
         sufficient space by deleting unused images (freed 7 bytes)."
    ));
}

/// A moment of a story: images in words (`name:size`, with `*` behind pinned ones), those in use, and who goes then to make
/// room and for age.
type Moment<'a> = (i64, &'a str, &'a str, &'a str, &'a str);

fn tell(name: &str, policy: &ImageGcPolicy, moments: &[Moment<'_>]) {
    let mut records = Records::default();
    let began = moments[0].0;
    for (second, images, in_use, room, age) in moments {
        let images: Vec<v1::Image> = images
            .split_whitespace()
            .map(|word| {
                let (id, size) = word.trim_end_matches('*').split_once(':').unwrap();
                image(id, size.parse().unwrap(), word.ends_with('*'))
            })
            .collect();
        let in_use: Vec<&str> = in_use.split_whitespace().collect();
        records.detect(&images, &used(&in_use), at(*second));
        let found = |candidates: Vec<Candidate>| ids(&candidates).join(" ");
        assert_eq!(found(records.to_make_room(policy, at(*second))), *room, "{name} at {second}");
        assert_eq!(found(records.too_old(policy, at(began), at(*second))), *age, "{name} at {second}");
    }
}

/// Source: `image_gc_manager_test.go` of upstream's `pkg/kubelet/images`.
#[test]
fn images_come_are_used_and_go() {
    let policy = |minimum: u64, maximum: u64| ImageGcPolicy {
        minimum_age: Duration::from_secs(minimum),
        maximum_age: Duration::from_secs(maximum),
        ..ImageGcPolicy::default()
    };
    let (at_once, later, old) = (policy(0, 0), policy(60, 0), policy(0, 60));
    tell("in use", &at_once, &[(100, "a:1024 b:2048", "a b", "", "")]);
    tell("one is in use by its name", &at_once, &[(100, "a:1024 b:2048", "a:1", "b", "")]);
    tell("nobody uses any", &at_once, &[(100, "a:1024 b:2048", "", "a b", "")]);
    tell("pinned ones stay", &at_once, &[(100, "a:1024* b:1024", "", "b", "")]);
    tell("all are pinned", &at_once, &[(100, "a:1024* b:1024*", "", "", "")]);
    tell("one is pinned later", &at_once, &[(100, "a:1", "", "a", ""), (200, "a:1*", "", "", "")]);
    tell("one is pinned no more", &at_once, &[(100, "a:1*", "", "", ""), (200, "a:1", "", "a", "")]);
    tell("a container ends", &at_once, &[(100, "a:1 b:2", "b", "a", ""), (200, "a:1 b:2", "", "a b", "")]);
    tell("one is removed", &at_once, &[(100, "a:1 b:2", "", "a b", ""), (200, "b:2", "", "b", "")]);
    tell(
        "one comes back as a new one",
        &later,
        &[
            (100, "a:1", "", "a", ""),
            (200, "", "", "", ""),
            (300, "a:1", "", "", ""),
            (360, "a:1", "", "a", ""),
        ],
    );
    tell(
        "the one that was used last goes last",
        &at_once,
        &[
            (100, "a:1024 b:2048", "a b", "", ""),
            (200, "a:1024 b:2048", "a", "b", ""),
            (300, "a:1024 b:2048", "", "b a", ""),
        ],
    );
    tell(
        "of those that nobody has used the one that came first goes first",
        &at_once,
        &[
            (100, "b:2048", "b", "", ""),
            (200, "b:2048 a:1024", "a b", "", ""),
            (300, "b:2048 a:1024", "", "b a", ""),
        ],
    );
    tell(
        "a new one stays for a while",
        &later,
        &[
            (100, "a:1", "a", "", ""),
            (200, "a:1 b:2", "", "a", ""),
            (259, "a:1 b:2", "", "a", ""),
            (260, "a:1 b:2", "", "b a", ""),
        ],
    );
    tell("those that were there at the start are old enough", &later, &[(100, "a:1", "", "a", "")]);
    tell(
        "too old",
        &old,
        &[
            (100, "a:1 b:2", "a b", "", ""),
            (160, "a:1 b:2", "b", "a", ""),
            (161, "a:1 b:2", "b", "a", "a"),
            (221, "a:1 b:2", "", "a b", "a"),
            (222, "a:1 b:2", "", "a b", "a b"),
        ],
    );
    tell("no age is too old", &at_once, &[(100, "a:1", "", "a", ""), (9_999_999, "a:1", "", "a", "")]);
    tell("pinned ones are never too old", &old, &[(100, "a:1*", "", "", ""), (1000, "a:1*", "", "", "")]);
    tell("one in use is never too old", &old, &[(100, "a:1", "a", "", ""), (1000, "a:1", "a", "", "")]);
}

/// Source: `TestGarbageCollectBelowLowThreshold`, `TestGarbageCollectBelowSuccess`, `TestGarbageCollectNotEnoughFreed` of
/// upstream's `pkg/kubelet/images`.
#[test]
fn thresholds_are_of_the_whole_disk() {
    let policy = |high: u8, low: u8| ImageGcPolicy {
        high_threshold_percent: high,
        low_threshold_percent: low,
        ..ImageGcPolicy::default()
    };
    for (name, (high, low), capacity, available, expect) in [
        ("below", (90, 80), 1000, 600, None),
        ("full", (90, 80), 1000, 0, Some(200)),
        ("just at it", (90, 80), 1000, 100, Some(100)),
        ("just below it", (90, 80), 1000, 101, Some(99)),
        ("a percent below it", (90, 80), 1000, 110, None),
        ("both are the same", (90, 90), 1000, 50, Some(50)),
        ("both are nothing", (0, 0), 1000, 1000, Some(0)),
        ("nothing is to be left", (99, 100), 1000, 0, Some(0)),
        ("never", (100, 80), 1000, 0, None),
        ("a disk without room", (90, 80), 0, 0, Some(0)),
        ("as large as can be", (90, 80), u64::MAX, 0, Some(3_689_348_814_741_910_323)),
    ] {
        assert_eq!(Disk { capacity, available }.to_free(&policy(high, low)), expect, "{name}");
    }
}
