//! Which devices are given, and which could be.

use super::super::api::{NumaNode, TopologyInfo};
use super::*;

const GPU: &str = "example.com/gpu";

fn spec(count: usize) -> PodSpec {
    let text = format!("{{containers: [{{name: a, resources: {{limits: {{example.com/gpu: {count}}}}}}}]}}");
    serde_saphyr::from_str(&text).unwrap()
}

fn devices(ids: &[(&str, &str)]) -> Vec<Device> {
    ids.iter()
        .map(|(id, health)| Device { id: (*id).into(), health: (*health).into(), topology: None })
        .collect()
}

fn give(pool: &mut Pool, uid: &str, count: usize, hint: &Hint) -> Result<(), String> {
    let spec = spec(count);
    pool.allocate(uid, &spec, &spec.containers[0], hint).map_err(|rejection| rejection.message)
}

#[test]
fn devices_are_given_once_and_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = Pool::open(folder.path());
    assert!(give(&mut pool, "early", 1, &Hint::ANY).is_ok(), "no plugin has them: not ours to judge");
    let three = devices(&[("0", HEALTHY), ("1", "Unhealthy"), ("2", HEALTHY)]);
    assert!(pool.set(GPU, &three) && !pool.set(GPU, &three));
    assert_eq!(pool.counts()[GPU], (3, 2));
    give(&mut pool, "one", 1, &Hint::ANY).unwrap();
    assert_eq!(
        give(&mut pool, "two", 2, &Hint::ANY).unwrap_err(),
        "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected"
    );
    pool.prefer(("one", "a"), GPU, &["2".into()]);
    pool.prefer(("one", "a"), GPU, &["1".into()]);
    let mut pool = Pool::open(folder.path());
    assert_eq!(pool.counts()[GPU], (0, 0), "its plugin has not come back");
    let none = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/gpu, which is unexpected";
    assert_eq!(give(&mut pool, "three", 1, &Hint::ANY).unwrap_err(), none);
    pool.set(GPU, &three);
    assert_eq!(pool.assigned("one", "a").unwrap()[GPU], ["2"]);
    assert_eq!(pool.free(GPU), ["0"]);
    let loss = pool.lose(GPU);
    assert_eq!((pool.counts()[GPU], pool.free(GPU).len()), ((3, 0), 0));
    assert_eq!(give(&mut pool, "three", 1, &Hint::ANY).unwrap_err(), none);
    pool.set(GPU, &three);
    let again = pool.lose(GPU);
    assert!(!pool.forget(GPU, loss) && pool.counts()[GPU] == (3, 0), "it was back meanwhile");
    assert!(pool.forget(GPU, again) && pool.counts()[GPU] == (0, 0));
    pool.keep_only(&BTreeSet::new());
    assert!(pool.assigned("one", "a").is_none());
}

/// What goes for containers that do not run. Source: `TestPodContainerDeviceToAllocate`.
#[test]
fn what_a_container_was_given_before_must_still_be_well() {
    const BAD: &str = "Unhealthy";
    let refused = |why: &str| Err(format!("Allocate failed due to {why}, which is unexpected"));
    let bad = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu";
    let none = "no healthy devices present; cannot allocate unhealthy devices example.com/gpu";
    let changed = |had, wants| {
        format!(
            r#"pod "u" container "a" changed request for resource "example.com/gpu" from {had} to {wants}"#
        )
    };
    for (case, now, wants, expect) in [
        ("as before", devices(&[("0", HEALTHY), ("1", HEALTHY)]), 2, Ok(())),
        ("another is bad", devices(&[("0", HEALTHY), ("1", HEALTHY), ("2", BAD)]), 2, Ok(())),
        ("one has gone bad", devices(&[("0", HEALTHY), ("1", BAD), ("2", HEALTHY)]), 2, refused(bad)),
        ("one is gone", devices(&[("0", HEALTHY), ("2", HEALTHY)]), 2, refused(bad)),
        ("all have gone bad", devices(&[("0", BAD), ("1", BAD)]), 2, refused(none)),
        ("there are none", Vec::new(), 2, refused(none)),
        ("it wants more", devices(&[("0", HEALTHY), ("1", HEALTHY)]), 3, refused(&changed(2, 3))),
        ("it wants less, and they are bad", devices(&[("0", BAD)]), 1, refused(&changed(2, 1))),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut pool = Pool::open(folder.path());
        pool.set(GPU, &devices(&[("0", HEALTHY), ("1", HEALTHY)]));
        give(&mut pool, "u", 2, &Hint::ANY).unwrap();
        let mut pool = Pool::open(folder.path());
        pool.set(GPU, &now);
        assert_eq!(give(&mut pool, "u", wants, &Hint::ANY), expect, "{case}");
        assert_eq!(pool.assigned("u", "a").unwrap()[GPU], ["0", "1"], "{case}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut pool = Pool::open(folder.path());
    pool.assign("u", "a", GPU, vec!["0".into()]);
    let unregistered = refused("cannot allocate unregistered device example.com/gpu");
    for uid in ["u", "another"] {
        assert_eq!(give(&mut pool, uid, 1, &Hint::ANY), unregistered, "{uid}");
    }
}

#[test]
fn devices_are_given_where_they_are_near() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = Pool::open(folder.path());
    let device = |id: &str, nodes: &[i64]| Device {
        id: id.into(),
        health: HEALTHY.into(),
        topology: Some(TopologyInfo { nodes: nodes.iter().map(|id| NumaNode { id: *id }).collect() }),
    };
    pool.set(GPU, &[device("0", &[0]), device("1", &[1]), device("2", &[1]), device("3", &[])]);
    let all: Nodes = [0, 1].into_iter().collect();
    let hints = |pool: &Pool, count: usize| {
        let spec = spec(count);
        let found = pool.hints(all, "u", &spec, Asker::Container(&spec.containers[0]));
        let found = found[GPU].clone().unwrap();
        found.iter().map(|h| format!("{:?}{}", h.nodes.unwrap(), h.is_preferred)).collect::<Vec<_>>()
    };
    assert_eq!(hints(&pool, 1), ["{0}true", "{1}true", "{0, 1}false"]);
    assert_eq!(hints(&pool, 2), ["{1}true", "{0, 1}false"]);
    let near = Hint { nodes: Some([1].into_iter().collect()), is_preferred: true };
    give(&mut pool, "u", 2, &near).unwrap();
    assert_eq!(pool.assigned("u", "a").unwrap()[GPU], ["1", "2"]);
    assert_eq!(pool.nodes_of(GPU, "2"), [1]);
    give(&mut pool, "v", 1, &near).unwrap();
    assert_eq!(pool.assigned("v", "a").unwrap()[GPU], ["0"], "one that is near nothing comes last");
    assert_eq!(pool.healthy().count(), 4);
}

/// The rows of a table with so many columns; `-` is empty.
fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let row: Vec<&str> = line.split(" | ").map(|word| if word == "-" { "" } else { word }).collect();
        row.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
}

/// Such as `1,3-5@0+1`: ids with the nodes that they are near.
fn listed(text: &str) -> Vec<Device> {
    let mut all = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (ids, nodes) = word.split_once('@').map_or((word, None), |(ids, nodes)| (ids, Some(nodes)));
        let nodes = nodes.map(|nodes| {
            let ids = nodes.split('+').filter_map(|id| id.parse().ok());
            TopologyInfo { nodes: ids.map(|id| NumaNode { id }).collect() }
        });
        let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
        let range = first.parse::<u32>().unwrap()..=last.parse().unwrap();
        let device = |id: u32| Device { id: id.to_string(), health: HEALTHY.into(), topology: nodes.clone() };
        all.extend(range.map(device));
    }
    all
}

fn name(resource: &str) -> String {
    format!("example.com/{resource}")
}

/// Containers `c0`, `c1` and so on, such as `a=1,b=2`, with `i` in front of init containers and `s` of sidecars.
fn pod(words: &str) -> PodSpec {
    let (mut init, mut regular) = (Vec::new(), Vec::new());
    for (index, word) in words.split(' ').enumerate() {
        let asks = word.trim_start_matches(['i', 's']);
        let policy = if word.starts_with('s') { ", restartPolicy: Always" } else { "" };
        let limits = asks.split(',').map(|asked| {
            let (resource, count) = asked.split_once('=').unwrap();
            if resource == "cpu" { format!("cpu: {count}") } else { format!("{}: {count}", name(resource)) }
        });
        let limits = limits.collect::<Vec<_>>().join(", ");
        let text = format!("{{name: c{index}, resources: {{limits: {{{limits}}}}}{policy}}}");
        if word == asks { regular.push(text) } else { init.push(text) }
    }
    let text = format!("{{initContainers: [{}], containers: [{}]}}", init.join(", "), regular.join(", "));
    serde_saphyr::from_str(&text).unwrap()
}

fn ids(text: &str) -> Vec<String> {
    text.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

fn near(nodes: &str) -> Hint {
    let numbers = nodes.split('+').filter_map(|node| node.parse().ok());
    Hint { nodes: (!nodes.is_empty()).then(|| numbers.collect()), is_preferred: true }
}

fn shown(hints: &[Hint]) -> String {
    let one = |hint: &Hint| {
        let nodes: Vec<String> = hint.nodes.unwrap().iter().map(|node| node.to_string()).collect();
        format!("{}{}", if hint.is_preferred { "" } else { "!" }, nodes.join("+"))
    };
    hints.iter().map(one).collect::<Vec<_>>().join(",")
}

#[test]
fn nodes_are_those_that_have_enough_devices_and_the_fewest_are_preferred() {
    for [what, devices, taken, scope, asks, expect] in rows(include_str!("tests/hints.txt")) {
        let folder = tempfile::tempdir().unwrap();
        let mut pool = Pool::open(folder.path());
        for (resource, list) in devices.split(' ').map(|word| word.split_once('=').unwrap()) {
            pool.set(&name(resource), &listed(list));
        }
        for (who, what) in taken.split_whitespace().map(|word| word.split_once(':').unwrap()) {
            let ((uid, container), (resource, list)) =
                (who.split_once('.').unwrap(), what.split_once('=').unwrap());
            pool.assign(uid, container, &name(resource), ids(list));
        }
        let spec = pod(asks);
        let asker = match scope {
            "pod" => Asker::Pod,
            "second" => Asker::Container(&spec.containers[0]),
            _ => Asker::Container(
                spec.init_containers.iter().flatten().chain(&spec.containers).next().unwrap(),
            ),
        };
        let hints = pool.hints([0, 1].into_iter().collect(), "u", &spec, asker);
        let found = hints.iter().map(|(resource, hints)| {
            let hints = match hints.as_deref() {
                None => "any".to_owned(),
                Some([]) => "none".to_owned(),
                Some(hints) => shown(hints),
            };
            format!("{}={hints}", resource.trim_start_matches("example.com/"))
        });
        assert_eq!(found.collect::<Vec<_>>().join(" "), expect, "{what}");
    }
}

#[test]
fn a_pod_needs_as_many_devices_as_its_containers_have_at_the_same_time() {
    for [asks, expect] in rows(include_str!("tests/pods.txt")) {
        let found = asked_by_pod(&pod(asks));
        let found =
            found.iter().map(|(name, count)| format!("{}={count}", name.trim_start_matches("example.com/")));
        assert_eq!(found.collect::<Vec<_>>().join(" "), expect, "{asks}");
    }
}

#[test]
fn what_the_plugin_prefers_is_given_as_far_as_it_is_near() {
    for [what, devices, count, nodes, preferred, expect, kept] in rows(include_str!("tests/aligned.txt")) {
        let folder = tempfile::tempdir().unwrap();
        let mut pool = Pool::open(folder.path());
        pool.set(GPU, &listed(devices));
        give(&mut pool, "u", count.parse().unwrap(), &near(nodes)).unwrap();
        pool.prefer(("u", "a"), GPU, &ids(preferred));
        let given = &pool.assigned("u", "a").unwrap()[GPU];
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len().to_string(), count, "{what}");
        assert!(ids(kept).iter().all(|id| given.contains(id)), "{what}: {given:?}");
        let mut of_nodes = BTreeMap::<i64, usize>::new();
        for node in given.iter().filter_map(|id| pool.nodes_of(GPU, id).first()) {
            *of_nodes.entry(*node).or_default() += 1;
        }
        let found = of_nodes.iter().map(|(node, count)| format!("{node}:{count}"));
        assert_eq!(found.collect::<Vec<_>>().join(" "), expect, "{what}");
        let again = Pool::open(folder.path());
        assert_eq!(again.assigned("u", "a").unwrap()[GPU], *given, "{what}");
    }
}

#[test]
fn the_plugin_chooses_among_those_that_are_near_if_they_are_enough() {
    for [what, devices, taken, had, count, nodes, available, must] in rows(include_str!("tests/offers.txt")) {
        let folder = tempfile::tempdir().unwrap();
        let mut pool = Pool::open(folder.path());
        pool.set(GPU, &listed(devices));
        pool.assign("other", "a", GPU, ids(taken));
        pool.assign("u", "c0", GPU, ids(had));
        let spec = pod(&format!("igpu={count} gpu={count}"));
        pool.allocate("u", &spec, &spec.containers[0], &near(nodes)).unwrap();
        let offer = pool.offer(("u", "c1"), GPU);
        let sorted = |mut ids: Vec<String>| {
            ids.sort();
            ids.join(",")
        };
        let found = offer.clone().unwrap_or_default();
        assert_eq!(sorted(found.available), available, "{what}");
        assert_eq!(sorted(found.must_include), must, "{what}");
        assert!(offer.is_none_or(|offer| offer.size.to_string() == count), "{what}");
    }
}
