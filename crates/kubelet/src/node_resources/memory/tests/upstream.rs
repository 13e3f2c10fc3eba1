//! Upstream's cases for the static policy: `pkg/kubelet/cm/memorymanager/policy_static_test.go`.

use super::*;

const MI: i64 = 1 << 20;
const HUGE: &str = "hugepages-2Mi";

/// The rows of a table with so many columns; `-` is empty.
fn rows<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let row: Vec<&str> = line.split(" | ").map(|word| if word == "-" { "" } else { word }).collect();
        row.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
}

/// Such as `1024/16`: memory and huge pages, in MiB.
fn pair(text: &str) -> [i64; 2] {
    let (memory, huge) = text.split_once('/').unwrap_or((text, "0"));
    [memory, huge].map(|number| number.parse::<i64>().unwrap() * MI)
}

fn set(nodes: &str) -> Nodes {
    nodes.split('+').map(|node| node.parse::<usize>().unwrap()).collect()
}

/// A machine in words, a node each: what Pods can have of its memory and of its huge pages, and what is reserved.
fn machine(words: &str) -> (Arc<Layout>, ReservedMemory) {
    let (mut layout, mut reserved) = (Layout::default(), ReservedMemory::new());
    for (node, word) in words.split(' ').enumerate() {
        let (amounts, kept) = word.rsplit_once('/').unwrap();
        let ([memory, huge], kept) = (pair(amounts), kept.parse::<i64>().unwrap() * MI);
        let total = [("memory".to_owned(), memory + huge + kept), (HUGE.to_owned(), huge)];
        layout.memory.insert(node, total.into());
        reserved.insert(node, [("memory".to_owned(), kept)].into());
    }
    (Arc::new(layout), reserved)
}

/// What others have, such as `0+1=2048/24`.
fn taken(words: &str) -> BTreeMap<String, Vec<Block>> {
    let mut all = BTreeMap::new();
    for (index, word) in words.split_whitespace().enumerate() {
        let (nodes, amounts) = word.split_once('=').unwrap();
        let [memory, huge] = pair(amounts);
        let nodes: Vec<usize> = set(nodes).iter().collect();
        let block = |(resource, size): (&str, i64)| Block {
            numa_affinity: nodes.clone(),
            resource: resource.to_owned(),
            size,
        };
        let blocks = [("memory", memory), (HUGE, huge)].map(block);
        let blocks = blocks.into_iter().filter(|block| block.size > 0).collect();
        all.insert(format!("c{index}"), blocks);
    }
    all
}

/// Containers in words: `i` in front of init containers, `s` of sidecars, then memory and huge pages.
fn pod(words: &str) -> PodSpec {
    let (mut init, mut regular) = (Vec::new(), Vec::new());
    for (index, word) in words.split(' ').enumerate() {
        let asks = word.trim_start_matches(['i', 's']);
        let policy = if word.starts_with('s') { ", restartPolicy: Always" } else { "" };
        let [memory, huge] = pair(asks);
        let huge = if huge > 0 { format!(", {HUGE}: '{huge}'") } else { String::new() };
        let text = format!(
            "{{name: c{index}, resources: {}{policy}}}",
            resources(&format!("memory: '{memory}'{huge}"))
        );
        if word == asks { regular.push(text) } else { init.push(text) }
    }
    let text = format!("{{initContainers: [{}], containers: [{}]}}", init.join(", "), regular.join(", "));
    serde_saphyr::from_str(&text).unwrap()
}

fn shown(hints: &[Hint]) -> String {
    let one = |hint: &Hint| {
        let nodes: Vec<String> = hint.nodes.unwrap().iter().map(|node| node.to_string()).collect();
        format!("{}{}", if hint.is_preferred { "" } else { "!" }, nodes.join("+"))
    };
    hints.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn nodes_are_those_that_have_enough_of_everything_and_may_be_used() {
    for [what, nodes, others, own, asks, expect] in rows(include_str!("hints.txt")) {
        let folder = tempfile::tempdir().unwrap();
        let (layout, reserved) = machine(nodes);
        let manager = MemoryManager::open(folder.path(), layout, reserved).unwrap();
        manager.entries.lock().insert("other".into(), taken(others));
        if !own.is_empty() {
            manager.entries.lock().insert("u".into(), taken(own));
        }
        let spec = pod(asks);
        let hints = manager.hints("u", &spec, Asker::Container(&spec.containers[0]));
        assert!(hints.values().all(|list| list == &hints["memory"]), "{what}: the same for all resources");
        let found = hints.get("memory").map(|list| shown(list.as_deref().unwrap_or_default()));
        assert_eq!(found.as_deref().unwrap_or("*"), expect, "{what}");
    }
}

#[test]
fn containers_have_what_init_containers_before_them_had() {
    for [asks, expect] in rows(include_str!("reuse.txt")) {
        let folder = tempfile::tempdir().unwrap();
        let (layout, reserved) = machine("10240/10240/512");
        let manager = MemoryManager::open(folder.path(), layout, reserved).unwrap();
        let spec = pod(asks);
        let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
        for container in containers() {
            manager.allocate("u", &spec, container, &Hint::ANY).unwrap();
        }
        let of = |container: &Container| {
            let blocks = manager.blocks("u", &container.name);
            let size = |resource: &str| {
                blocks.iter().find(|block| block.resource == resource).map_or(0, |block| block.size / MI)
            };
            format!("{}/{}", size("memory"), size(HUGE))
        };
        assert_eq!(containers().map(of).collect::<Vec<_>>().join(" "), expect, "{asks}");
    }
}

/// Source: `Test_getPodRequestedResources`.
#[test]
fn a_pod_needs_as_much_as_its_containers_have_at_the_same_time() {
    for [asks, expect] in rows(include_str!("pods.txt")) {
        let asked = asked_by_pod(&pod(asks));
        let of = |name: &str| asked.get(name).copied().unwrap_or(0) / MI;
        assert_eq!(format!("{}/{}", of("memory"), of(HUGE)), expect, "{asks}");
    }
}

#[test]
fn what_is_set_aside_is_taken_from_the_first_nodes_that_have_it() {
    for [what, nodes, others, expect] in rows(include_str!("states.txt")) {
        let (layout, reserved) = machine(nodes);
        let states = node_states(&layout, &reserved, &[("u".to_owned(), taken(others))].into());
        let shown = |state: &NodeState| {
            let json = serde_json::to_value(&state.memory_map).unwrap();
            let of = |resource: &str, part: &str| json[resource][part].as_i64().unwrap() / MI;
            let cells: Vec<String> = state.cells.iter().map(ToString::to_string).collect();
            format!(
                "{}/{} {}/{} {} {}",
                of("memory", "free"),
                of(HUGE, "free"),
                of("memory", "reserved"),
                of(HUGE, "reserved"),
                state.number_of_assignments,
                cells.join("+")
            )
        };
        assert_eq!(states.values().map(shown).collect::<Vec<_>>().join(", "), expect, "{what}");
    }
}

/// Source: `Test_isAffinityViolatingNUMAAllocations`.
#[test]
fn nodes_that_are_used_apart_are_not_used_together() {
    for (states, nodes, expect) in [
        ("1:0+1 1:0+1 1:2 0:3", "1+2", false),
        ("0:0+1 1:1", "0+1", false),
        ("0:0 0:1", "0+1", true),
        ("1:0+1 1:0+1 1:2 0:3", "0+1", true),
        ("1:0+1 1:0+1 1:2 0:3", "2", true),
        ("1:0+1 1:0+1 1:2 0:3", "1", false),
        ("1:0+1 1:0+1 1:2 0:3", "2+3", false),
        ("1:0+1 1:0+1 1:2 0:3", "3", true),
        ("1:0+1 1:0+1 0:2 0:3", "2+3", true),
        ("1:0+1 1:0+1 0:2 0:3", "0+1+2", false),
    ] {
        let state = |word: &str| {
            let (count, cells) = word.split_once(':').unwrap();
            let (number_of_assignments, cells) = (count.parse().unwrap(), set(cells).iter().collect());
            NodeState { number_of_assignments, cells, ..NodeState::default() }
        };
        let states = states.split(' ').map(state).enumerate().collect();
        assert_eq!(may_use_together(&states, set(nodes)), expect, "{nodes} of {states:?}");
    }
}
