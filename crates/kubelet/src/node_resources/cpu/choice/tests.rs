//! Which CPUs are taken, in which order, and what is free as a whole.

use super::*;
use crate::node_resources::cpu::tests::machines::{self, rows};

/// Two sockets, each a NUMA node of two cores of two threads: 0,4 1,5 and 2,6 3,7.
fn layout() -> Layout {
    let place = |cpu: usize| {
        let core = cpu % 4;
        Place { node: core / 2, socket: core / 2, core, cache: 0 }
    };
    Layout { cpus: (0..8).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() }
}

fn check(free: &str, count: usize, expect: Option<&str>) {
    let chosen = choose(&layout(), &free.parse().unwrap(), count, Caches::Ignored);
    assert_eq!(chosen.map(|set| set.to_string()).as_deref(), expect, "{count} of {free}");
}

#[test]
fn cpus_lie_together_as_far_as_they_can() {
    check("0-7", 4, Some("0-1,4-5"));
    check("1-7", 4, Some("2-3,6-7"));
    check("0-7", 2, Some("0,4"));
    check("1-7", 2, Some("1,5"));
    check("0-7", 6, Some("0-2,4-6"));
    check("1-7", 1, Some("4"));
    check("0-7", 3, Some("0-1,4"));
    check("0,1,6", 2, Some("0,6"));
    check("0-7", 8, Some("0-7"));
    check("0-3", 5, None);
}

#[test]
fn cpus_of_one_cache_lie_together_if_that_is_wanted() {
    // One node of twelve CPUs, of which each four share a cache.
    let place = |cpu: usize| Place { core: cpu, cache: cpu / 4 * 4, ..Place::default() };
    let layout = Layout { cpus: (0..12).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() };
    let check = |free: &str, count: usize, caches, expect: &str| {
        let chosen = choose(&layout, &free.parse().unwrap(), count, caches).unwrap();
        assert_eq!(chosen.to_string(), expect, "{count} of {free}");
    };
    check("2-11", 4, Caches::Ignored, "2-5");
    check("2-11", 4, Caches::Preferred, "4-7");
    check("2-11", 3, Caches::Preferred, "4-6");
    check("2-11", 2, Caches::Preferred, "2-3");
    check("2-11", 6, Caches::Preferred, "2-7");
    check("1,5,9", 2, Caches::Preferred, "1,5");
}

/// Source of this and of what follows: `cpu_assignment_test.go` of upstream's `pkg/kubelet/cm/cpumanager`.
#[test]
fn cpus_are_taken_where_least_is_free() {
    // Four cores of two threads; then twice three, by turns; then two sockets of two nodes of ten each.
    let one = machine(8, |cpu| Place { core: cpu % 4, ..Place::default() });
    let two = machine(12, |cpu| Place { node: cpu % 2, socket: cpu % 2, core: cpu % 6, cache: 0 });
    let four = machine(80, |cpu| {
        let core = cpu % 40;
        Place { node: core / 10, socket: core / 20, core, cache: 0 }
    });
    for (layout, free, count, expect) in [
        (&one, "0,2,4,6", 5, None),
        (&one, "0-7", 0, Some("")),
        (&one, "0-7", 1, Some("0")),
        (&one, "1,3,5-7", 1, Some("6")),
        (&one, "0-7", 2, Some("0,4")),
        (&one, "0-7", 8, Some("0-7")),
        (&one, "0-3,6", 2, Some("2,6")),
        (&two, "0-11", 6, Some("0,2,4,6,8,10")),
        (&two, "1-5,7-11", 1, Some("2")),
        (&two, "0-11", 8, Some("0-2,4,6-8,10")),
        (&four, "0-79", 40, Some("0-19,40-59")),
        (&four, "0-79", 20, Some("0-9,40-49")),
        (&four, "10-39,50-79", 20, Some("10-19,50-59")),
        (&four, "0-79", 60, Some("0-29,40-69")),
        (&four, "1-39,41-79", 60, Some("10-39,50-79")),
        (&four, "0-79", 64, Some("0-31,40-71")),
        // A whole socket comes before two nodes of two sockets, and a node beside others before a free socket's.
        (&four, "10-39,50-79", 40, Some("20-39,60-79")),
        (&four, "0-19,30-59,70-79", 20, Some("30-39,70-79")),
        (&four, "0-29,40-69", 2, Some("20,60")),
    ] {
        let chosen = choose(layout, &free.parse().unwrap(), count, Caches::Ignored);
        assert_eq!(chosen.map(|set| set.to_string()).as_deref(), expect, "{count} of {free}");
    }
}

#[test]
fn caches_are_taken_whole_before_parts_of_others() {
    let place = |socket, core, cache| Place { node: socket, socket, core, cache };
    let one = machine(16, |cpu| place(0, cpu, cpu / 4));
    let two = machine(16, |cpu| place(cpu / 8, cpu, cpu / 4));
    let nodes = machine(16, |cpu| Place { node: cpu / 8, ..place(0, cpu, cpu / 4) });
    let threads = machine(16, |cpu| place(0, cpu % 8, cpu % 8 / 4));
    for (layout, free, count, expect) in [
        (&one, "1-15", 10, "1-2,4-11"),
        (&two, "0-15", 4, "0-3"),
        (&two, "2-15", 6, "2-7"),
        (&two, "8-15", 4, "8-11"),
        (&nodes, "3-8,12", 2, "4-5"),
        (&threads, "2-7,10-15", 6, "4-6,12-14"),
        (&threads, "1-7,9-15", 10, "1,4-7,9,12-15"),
    ] {
        let chosen = choose(layout, &free.parse().unwrap(), count, Caches::Preferred).unwrap();
        assert_eq!(chosen.to_string(), expect, "{count} of {free}");
    }
}

#[test]
fn cpus_are_taken_one_by_one_where_least_is_free() {
    for [name, free, expect] in rows(include_str!("tests/order.txt")) {
        let layout = machines::machine(name);
        let free: CpuSet = free.parse().unwrap();
        let mut before = CpuSet::default();
        let mut order = Vec::new();
        for count in 1..=free.len() {
            let mut choice = Choice::of(&layout, &free, count);
            choice.take_rest();
            order.push(choice.taken.minus(&before).to_string());
            before = choice.taken;
        }
        assert_eq!(order.join(" "), expect, "{free} of {name}");
    }
}

#[test]
fn what_is_whole_has_all_of_its_cpus_free() {
    for [name, free, sockets, nodes, cores] in rows(include_str!("tests/whole.txt")) {
        let layout = machines::machine(name);
        let free: CpuSet = free.parse().unwrap();
        let whole = |groups: Vec<usize>, group_of: fn(&Place) -> usize| {
            let is_whole = |group: &usize| {
                let mut own = layout.cpus.iter().filter(|(_, place)| group_of(place) == *group);
                own.all(|(cpu, _)| free.contains(*cpu))
            };
            let mut choice = Choice::of(&layout, &free, free.len());
            choice.take_whole(&groups, |place| group_of(&place));
            let taken = |group: &usize| {
                let mut own = choice.taken.iter().map(|cpu| group_of(&layout.cpus[&cpu]));
                own.any(|other| other == *group)
            };
            assert!(groups.iter().all(|group| taken(group) == is_whole(group)), "{free} of {name}");
            groups.into_iter().filter(taken).map(|group| group.to_string()).collect::<Vec<_>>()
        };
        let choice = Choice::of(&layout, &free, 0);
        let sorted = |mut groups: Vec<String>| {
            groups.sort();
            groups.join(" ")
        };
        assert_eq!(
            sorted(whole(choice.sockets(), |place| place.socket)),
            sockets,
            "sockets: {free} of {name}"
        );
        assert_eq!(sorted(whole(choice.nodes(), |place| place.node)), nodes, "nodes: {free} of {name}");
        if cores != "*" {
            let found = whole(choice.cores(), |place| place.core).join(" ");
            assert_eq!(found, cores, "cores: {free} of {name}");
        }
    }
}
