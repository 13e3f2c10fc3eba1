use super::*;
use crate::config::alignment::{Alignment, Policy, Scope};
use crate::machine::layout::Place;

pub(super) mod machines;
mod upstream;

fn spec(cpu: &str) -> PodSpec {
    let resources = resources(cpu);
    let text = format!("{{containers: [{{name: a, resources: {resources}}}]}}");
    serde_saphyr::from_str(&text).unwrap()
}

fn resources(cpu: &str) -> String {
    let amounts = format!("{{cpu: '{cpu}', memory: 1Gi}}");
    format!("{{limits: {amounts}, requests: {amounts}}}")
}

/// Four CPUs on two NUMA nodes: 0, 1 and 2, 3.
fn layout() -> Arc<Layout> {
    let place = |cpu: usize| Place { node: cpu / 2, socket: cpu / 2, core: cpu, cache: 0 };
    Arc::new(Layout { cpus: (0..4).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() })
}

fn open(folder: &Path, policy: StaticPolicy) -> CpuManager {
    let policy = StaticPolicy { reserved: "0".parse().unwrap(), ..policy };
    CpuManager::open(folder, layout(), policy).unwrap()
}

fn give(manager: &CpuManager, uid: &str, spec: &PodSpec, policy: Policy) -> Result<(), String> {
    let alignment = Alignment { policy, scope: Scope::Container, ..Alignment::default() };
    let given = alignment.allocate(&manager.layout, uid, spec, &[manager]);
    given.map_err(|rejection| format!("{}: {}", rejection.reason, rejection.message))
}

#[test]
fn whole_cpus_are_given_alone_and_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let open = || open(folder.path(), StaticPolicy::default());
    let manager = open();
    give(&manager, "one", &spec("2"), Policy::None).unwrap();
    assert_eq!(manager.cpus("one", "a"), "2-3", "a whole node");
    assert_eq!(manager.cpus("other", "a"), "0-1", "the others share the rest and the reserved ones");
    assert_eq!(manager.exclusive("other", "a").to_string(), "");
    give(&manager, "fraction", &spec("1500m"), Policy::None).unwrap();
    assert_eq!(manager.cpus("fraction", "a"), "0-1");
    assert_eq!(
        give(&manager, "two", &spec("2"), Policy::None).unwrap_err(),
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=2, available=1, which is unexpected"
    );
    let manager = open();
    assert_eq!(manager.cpus("one", "a"), "2-3", "the checkpoint has it");
    give(&manager, "one", &spec("2"), Policy::None).unwrap();
    assert_eq!(manager.cpus("one", "a"), "2-3", "asking again changes nothing");
    assert!(manager.release("one") && !manager.release("one"));
    give(&manager, "two", &spec("3"), Policy::None).unwrap();
    assert_eq!(manager.cpus("two", "a"), "1-3");
    let mut whole = spec("1");
    whole.resources = whole.containers[0].resources.clone();
    give(&manager, "whole", &whole, Policy::None).unwrap();
    assert_eq!(manager.exclusive("whole", "a").to_string(), "", "not of a Pod with resources of its own");
    assert_eq!(manager.split(), (1, vec![(0, 1), (1, 2)]));
    let text = std::fs::read_to_string(folder.path().join(CHECKPOINT)).unwrap();
    assert_eq!(text, r#"{"policyName":"static","defaultCpuSet":"0","entries":{"two":{"a":"1-3"}}}"#);
    manager.keep_only(&std::collections::BTreeSet::new());
    assert_eq!(manager.cpus("two", "a"), "0-3");
    assert_eq!(manager.allocatable().to_string(), "1-3");
}

#[test]
fn cpus_that_do_not_lie_together_are_refused_where_they_must() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(folder.path(), StaticPolicy::default());
    give(&manager, "one", &spec("1"), Policy::SingleNumaNode).unwrap();
    assert_eq!(manager.cpus("one", "a"), "1");
    give(&manager, "two", &spec("1"), Policy::Restricted).unwrap();
    assert_eq!(manager.cpus("two", "a"), "2");
    manager.release("one");
    let refused = give(&manager, "three", &spec("2"), Policy::Restricted).unwrap_err();
    assert_eq!(refused, "TopologyAffinityError: Resources cannot be allocated with Topology locality");
    give(&manager, "three", &spec("2"), Policy::BestEffort).unwrap();
    assert_eq!(manager.cpus("three", "a"), "1,3");
}

#[test]
fn a_container_has_what_the_init_container_before_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(folder.path(), StaticPolicy::default());
    let text = format!(
        "{{initContainers: [{{name: i, resources: {one}}}], containers: [{{name: a, resources: {two}}}]}}",
        one = resources("1"),
        two = resources("2"),
    );
    let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
    give(&manager, "u", &spec, Policy::None).unwrap();
    assert_eq!((manager.cpus("u", "i").as_str(), manager.cpus("u", "a").as_str()), ("1", "1-2"));
    assert_eq!(exclusive_of_pod(&spec), 2);
}

#[test]
fn options_keep_cores_whole_and_reserved_cpus_empty() {
    let folder = tempfile::tempdir().unwrap();
    let strict = StaticPolicy { is_reservation_strict: true, ..StaticPolicy::default() };
    assert_eq!(open(folder.path(), strict.clone()).cpus("u", "a"), "1-3");
    assert_eq!(open(folder.path(), strict).cpus("u", "a"), "1-3");
    let place = |cpu: usize| Place { core: cpu % 2, ..Place::default() };
    let layout = Layout { cpus: (0..4).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() };
    let whole = StaticPolicy { is_full_cores_only: true, ..StaticPolicy::default() };
    let manager = CpuManager::open(&folder.path().join("none"), Arc::new(layout), whole).unwrap();
    assert_eq!(
        give(&manager, "u", &spec("1"), Policy::None).unwrap_err(),
        "SMTAlignmentError: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"
    );
    give(&manager, "u", &spec("2"), Policy::None).unwrap();
    assert_eq!(manager.cpus("u", "a"), "0,2");
    // Three are free; one of them shares a core with the one that is reserved.
    let manager = {
        let layout = Layout { cpus: (0..4).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() };
        let reserved = "0".parse().unwrap();
        let whole = StaticPolicy { reserved, is_full_cores_only: true, ..StaticPolicy::default() };
        CpuManager::open(&folder.path().join("none"), Arc::new(layout), whole).unwrap()
    };
    assert_eq!(
        give(&manager, "u", &spec("4"), Policy::None).unwrap_err(),
        "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, CPUs per core = 2"
    );
    give(&manager, "u", &spec("2"), Policy::None).unwrap();
    assert_eq!(manager.cpus("u", "a"), "1,3");
}

#[test]
fn a_checkpoint_that_cannot_be_so_is_told_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CHECKPOINT);
    let state = |policy: &str, shared: &str, own: &str| {
        format!(
            r#"{{"policyName":"{policy}","defaultCpuSet":"{shared}","entries":{{"u":{{"a":"{own}"}}}},"checksum":7}}"#
        )
    };
    for (text, why) in [
        (String::new(), "EOF while parsing a value at line 1 column 0"),
        (r#"{"policyName":"static","entries":7}"#.into(), "invalid type: integer `7`, expected a map"),
        ("[]".into(), r#"configured policy "static" differs from state checkpoint policy """#),
        (state("none", "", ""), r#"configured policy "static" differs from state checkpoint policy "none""#),
        (
            state("static", "0-1", "x"),
            r#"could not parse cpuset "x" for container "a" in pod "u": "x" is no list of CPUs, such as 0-3,8"#,
        ),
        (
            state("static", "x", "2-3"),
            r#"could not parse default cpu set "x": "x" is no list of CPUs, such as 0-3,8"#,
        ),
        (
            state("static", "0-2", "2-3"),
            r#"pod: u, container: a cpuset: "2-3" overlaps with default cpuset "0-2""#,
        ),
        (state("static", "1", "2-3"), r#"not all reserved cpus: "0" are present in defaultCpuSet: "1""#),
        (
            state("static", "0-1,4", "2-3"),
            r#"current set of available CPUs "0-3" doesn't match with CPUs in state "0-4""#,
        ),
    ] {
        std::fs::write(&path, &text).unwrap();
        let policy = StaticPolicy { reserved: "0".parse().unwrap(), ..StaticPolicy::default() };
        let error = CpuManager::open(folder.path(), layout(), policy).map(drop).unwrap_err().to_string();
        let told = format!(
            "could not restore state from checkpoint: {why}, please drain this node and delete the CPU manager checkpoint file {path:?} before restarting Kubelet"
        );
        assert_eq!(error, told, "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, state("static", "0-1", "2-3")).unwrap();
    assert_eq!(
        open(folder.path(), StaticPolicy::default()).cpus("u", "a"),
        "2-3",
        "as upstream's kubelet left it"
    );
    let strict = StaticPolicy {
        reserved: "0".parse().unwrap(),
        is_reservation_strict: true,
        ..StaticPolicy::default()
    };
    let error = CpuManager::open(folder.path(), layout(), strict).map(drop).unwrap_err().to_string();
    assert!(
        error.contains(r#"some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-1""#),
        "{error}"
    );
    let error = CpuManager::check_none(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(r#"configured policy "none" differs from state checkpoint policy "static""#),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    CpuManager::check_none(folder.path()).unwrap();
}
