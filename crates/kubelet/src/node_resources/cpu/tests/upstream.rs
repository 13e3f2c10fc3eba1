//! Upstream's cases for the static policy: what containers get on machines of many kinds, what they could get, and what
//! checkpoints can say. Source: `pkg/kubelet/cm/cpumanager`.

use super::machines::{machine, rows};
use super::*;

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn options(words: &str) -> StaticPolicy {
    StaticPolicy {
        is_full_cores_only: words.contains("full-pcpus-only"),
        is_reservation_strict: words.contains("strict-cpu-reservation"),
        prefers_caches: words.contains("prefer-align-cpus-by-uncorecache"),
        ..StaticPolicy::default()
    }
}

/// Containers in words: what of CPU each asks for, `i` in front of an init container and `s` of a sidecar.
fn pod(words: &str) -> PodSpec {
    let (mut init, mut regular) = (Vec::new(), Vec::new());
    for (index, word) in words.split(' ').enumerate() {
        let cpu = word.trim_start_matches(['i', 's']);
        let policy = if word.starts_with('s') { ", restartPolicy: Always" } else { "" };
        let amounts = format!("{{cpu: '{cpu}', memory: 1G}}");
        let resources = format!("{{limits: {amounts}, requests: {amounts}}}");
        let text = format!("{{name: c{index}, resources: {resources}{policy}}}");
        if word == cpu { regular.push(text) } else { init.push(text) }
    }
    let text = format!("{{initContainers: [{}], containers: [{}]}}", init.join(", "), regular.join(", "));
    serde_saphyr::from_str(&text).unwrap()
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// A manager of that machine on which another Pod has some CPUs.
fn manager(folder: &Path, machine: &Arc<Layout>, policy: StaticPolicy, taken: &str) -> CpuManager {
    let manager = CpuManager::open(folder, machine.clone(), policy).unwrap();
    if !taken.is_empty() {
        let of_other = BTreeMap::from([("a".to_owned(), taken.to_owned())]);
        manager.state.lock().entries.insert("other".into(), of_other);
    }
    manager
}

fn allocated(manager: &CpuManager, spec: &PodSpec, nodes: &str) -> Result<Vec<CpuSet>, String> {
    let numbers = nodes.split('+').filter_map(|node| node.parse().ok());
    let hint = Hint { nodes: (!nodes.is_empty()).then(|| numbers.collect()), is_preferred: true };
    for container in containers(spec) {
        manager.allocate("u", spec, container, &hint).map_err(|rejection| rejection.message)?;
    }
    Ok(containers(spec).map(|container| manager.exclusive("u", &container.name)).collect())
}

fn check(row: [&str; 8], words: &str) {
    let [name, machine_name, _, reserved, taken, asks, nodes, expect] = row;
    let folder = tempfile::tempdir().unwrap();
    let machine = machine(machine_name);
    let policy = StaticPolicy { reserved: set(reserved), ..options(words) };
    let manager = manager(folder.path(), &machine, policy, taken);
    let found = allocated(&manager, &pod(asks), nodes);
    let found = match (found, expect.strip_prefix("caches ")) {
        (Ok(sets), Some(_)) => {
            let caches = sets.iter().flat_map(CpuSet::iter).map(|cpu| machine.cpus[&cpu].cache);
            format!("caches {}", caches.collect::<CpuSet>())
        }
        (Ok(sets), None) => sets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        (Err(message), _) => {
            let message = message.trim_start_matches("Allocate failed due to ");
            message.trim_end_matches(", which is unexpected").to_owned()
        }
    };
    assert_eq!(found, expect, "{name}, {words}");
}

#[test]
fn containers_get_what_upstream_gives_them() {
    for row in rows::<8>(include_str!("allocate.txt")) {
        let words = if row[2] == "any" { &["", "full-pcpus-only"][..] } else { &row[2..3] };
        words.iter().for_each(|words| check(row, words));
    }
}

#[test]
fn nodes_are_those_that_have_enough_and_the_fewest_are_preferred() {
    for [name, own, free, asks, expect] in rows(include_str!("hints.txt")) {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine("halves");
        let taken = set("0-11").minus(&set(own)).minus(&set(free)).to_string();
        let manager = manager(folder.path(), &machine, StaticPolicy::default(), &taken);
        let spec = pod(asks);
        if !own.is_empty() {
            let entry = BTreeMap::from([("c0".to_owned(), own.to_owned())]);
            manager.state.lock().entries.insert("u".into(), entry);
        }
        let hints = manager.hints("u", &spec, Asker::Container(&spec.containers[0]));
        let shown = |hint: &Hint| {
            let nodes: Vec<String> = hint.nodes.unwrap().iter().map(|node| node.to_string()).collect();
            format!("{}{}", if hint.is_preferred { "" } else { "!" }, nodes.join("+"))
        };
        let found = match hints.get("cpu") {
            Some(list) => list.iter().flatten().map(shown).collect::<Vec<_>>().join(" "),
            None => "*".to_owned(),
        };
        assert_eq!(found, expect, "{name}");
    }
}

#[test]
fn a_pod_with_resources_of_its_own_is_asked_about_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path(), &machine("halves"), StaticPolicy::default(), "");
    let mut spec = pod("4");
    let asker = |spec: &PodSpec| manager.hints("u", spec, Asker::Pod).len();
    assert_eq!(asker(&spec), 1);
    spec.resources = pod("5").containers[0].resources.clone();
    assert_eq!(asker(&spec), 0);
}

#[test]
fn a_pod_needs_as_many_cpus_as_its_containers_have_at_the_same_time() {
    for [asks, expect] in rows(include_str!("pods.txt")) {
        assert_eq!(exclusive_of_pod(&pod(asks)).to_string(), expect, "{asks}");
    }
}

#[test]
fn a_checkpoint_is_taken_up_if_it_can_be_so() {
    for [name, words, reserved, shared, who, expect] in rows(include_str!("start.txt")) {
        let mut state =
            State { policy_name: "static".into(), default_cpu_set: shared.into(), ..State::default() };
        for word in who.split_whitespace() {
            let (container, cpus) = word.split_once('=').unwrap();
            let (pod, container) = container.split_once('.').unwrap();
            state.entries.entry(pod.into()).or_default().insert(container.into(), cpus.into());
        }
        let folder = tempfile::tempdir().unwrap();
        let text = serde_json::to_string(&state).unwrap();
        std::fs::write(folder.path().join(CHECKPOINT), text).unwrap();
        let policy = StaticPolicy { reserved: set(reserved), ..options(words) };
        match CpuManager::open(folder.path(), machine("dual"), policy) {
            Ok(manager) => assert_eq!(manager.cpus("nobody", ""), expect, "{name}"),
            Err(error) => {
                let error = error.to_string();
                let why = error.strip_prefix("could not restore state from checkpoint: ").unwrap_or_default();
                let why = why.split(", please drain this node").next().unwrap_or_default();
                assert_eq!(why, expect, "{name}");
            }
        }
    }
}

/// Source: `NewStaticPolicy` of upstream's `policy_static.go`.
#[test]
fn reserved_cpus_that_nobody_names_are_whole_cores_first() {
    for (name, count, words, expect) in [
        ("single", 0, "", ""),
        ("single", 1, "", "0"),
        ("single", 2, "", "0,4"),
        ("dual", 2, "", "0,6"),
        ("dual", 3, "", "0,2,6"),
        ("dual", 7, "", "0-2,4,6,8,10"),
        ("plain", 2, "", "0-1"),
        ("four-nodes", 20, "", "0-9,40-49"),
        ("caches-of-threads", 4, "prefer-align-cpus-by-uncorecache", "0-1,8-9"),
        ("single", 9, "", "0-7"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let policy = StaticPolicy { reserved_count: count, ..options(words) };
        let manager = CpuManager::open(folder.path(), machine(name), policy).unwrap();
        assert_eq!(manager.policy.reserved.to_string(), expect, "{count} of {name}");
    }
}
