use super::*;
use crate::config::alignment::{Alignment, Policy, Scope};

mod upstream;

const GI: i64 = 1 << 30;

fn resources(memory: &str) -> String {
    let amounts = format!("{{cpu: 500m, {memory}}}");
    format!("{{limits: {amounts}, requests: {amounts}}}")
}

fn spec(memory: &str) -> PodSpec {
    let resources = resources(memory);
    serde_saphyr::from_str(&format!("{{containers: [{{name: a, resources: {resources}}}]}}")).unwrap()
}

/// Two nodes of 4 GiB each, of which the second has 1 GiB in huge pages; 1 GiB of the first is reserved.
fn open(folder: &Path) -> MemoryManager {
    try_open(folder).unwrap()
}

fn try_open(folder: &Path) -> Result<MemoryManager, Unusable> {
    let node =
        |huge: i64| BTreeMap::from([("memory".to_owned(), 4 * GI), ("hugepages-2Mi".to_owned(), huge)]);
    let layout = Layout { memory: [(0, node(0)), (1, node(GI))].into(), ..Layout::default() };
    let reserved = [(0, BTreeMap::from([("memory".to_owned(), GI)]))].into();
    MemoryManager::open(folder, Arc::new(layout), reserved)
}

fn give(manager: &MemoryManager, uid: &str, memory: &str, policy: Policy) -> Result<String, String> {
    let alignment = Alignment { policy, scope: Scope::Container, ..Alignment::default() };
    let given = alignment.allocate(&manager.layout, uid, &spec(memory), &[manager]);
    given.map(|()| manager.nodes(uid, "a")).map_err(|rejection| rejection.message)
}

#[test]
fn memory_is_set_aside_on_as_few_nodes_as_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(folder.path());
    for policy in [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
        assert_eq!(give(&manager, "u", "memory: 2Gi", policy).as_deref(), Ok("0"));
        assert_eq!(give(&manager, "v", "memory: 2Gi", policy).as_deref(), Ok("1"));
        manager.release("u");
        manager.release("v");
    }
    let huge = "memory: 1Gi, hugepages-2Mi: 1Gi";
    assert_eq!(give(&manager, "h", huge, Policy::None).as_deref(), Ok("1"), "where the huge pages are");
    assert_eq!(manager.blocks("h", "a").len(), 2);
}

#[test]
fn nodes_that_are_used_together_are_used_by_nobody_alone() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(folder.path());
    assert_eq!(give(&manager, "big", "memory: 5Gi", Policy::Restricted).as_deref(), Ok("0-1"));
    let error = "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected";
    assert_eq!(give(&manager, "two", "memory: 2Gi", Policy::None).unwrap_err(), error);
    assert_eq!(give(&manager, "one", "memory: 1Gi", Policy::None).as_deref(), Ok("0-1"));
    manager.release("one");
    let apart = "Resources cannot be allocated with Topology locality";
    assert_eq!(give(&manager, "one-node", "memory: 1Mi", Policy::SingleNumaNode).unwrap_err(), apart);
    // One node would have been enough.
    assert_eq!(give(&manager, "one", "memory: 1Gi", Policy::Restricted).unwrap_err(), apart);
    assert_eq!(give(&manager, "one", "memory: 1Gi", Policy::BestEffort).as_deref(), Ok("0-1"));
    manager.keep_only(&BTreeSet::new());
    assert_eq!(give(&manager, "two", "memory: 2Gi", Policy::Restricted).as_deref(), Ok("0"));
    assert_eq!(give(&manager, "big", "memory: 5Gi", Policy::Restricted).unwrap_err(), apart);
}

/// Source: `TestStaticPolicyAllocate` of upstream's `pkg/kubelet/cm/memorymanager`.
#[test]
fn the_nodes_that_were_chosen_are_taken_or_others_around_them() {
    let gi = |text: &str| format!("memory: {text}");
    for (case, used, wants, hint, expect) in [
        ("as chosen", &[][..], gi("2Gi"), (&[1][..], true), Ok("1")),
        // For the whole Pod two are needed.
        ("more than it needs itself", &[], gi("2Gi"), (&[0, 1], true), Ok("0-1")),
        ("too few", &[], gi("5Gi"), (&[1], false), Ok("0-1")),
        ("too few, and that was best", &[], gi("5Gi"), (&[1], true), Ok("0-1")),
        (
            "too few, and less than all would do",
            &[],
            "memory: 1Gi, hugepages-2Mi: 1Gi".to_owned(),
            (&[0], true),
            Err("failed to find the extended preferred hint"),
        ),
        (
            "too few beside another",
            &["2Gi"],
            gi("5Gi"),
            (&[1], false),
            Err("failed to find NUMA nodes to extend the current topology hint"),
        ),
        (
            "one of two is another's",
            &["2Gi"],
            gi("3Gi"),
            (&[0, 1], true),
            Err("preferred hint violates NUMA node allocation"),
        ),
        ("together with another", &["5Gi"], gi("1Gi"), (&[0, 1], true), Ok("0-1")),
        ("one of those used together", &["4Gi"], gi("1Gi"), (&[1], false), Ok("0-1")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let manager = open(folder.path());
        for amount in used {
            give(&manager, "other", &gi(amount), Policy::None).unwrap();
        }
        let (spec, (nodes, is_preferred)) = (spec(&wants), hint);
        let hint = Hint { nodes: Some(nodes.iter().copied().collect()), is_preferred };
        let given = manager.allocate("u", &spec, &spec.containers[0], &hint);
        let given = given.map(|()| manager.nodes("u", "a")).map_err(|rejection| rejection.message);
        let expect = expect
            .map(str::to_owned)
            .map_err(|why| format!("Allocate failed due to [memorymanager] {why}, which is unexpected"));
        assert_eq!(given, expect, "{case}");
    }
}

#[test]
fn a_pod_whose_containers_need_two_nodes_together_has_both() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(folder.path());
    let text = format!(
        "{{containers: [{{name: a, resources: {r}}}, {{name: b, resources: {r}}}]}}",
        r = resources("memory: 2Gi"),
    );
    let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
    let alignment = Alignment { policy: Policy::Restricted, scope: Scope::Pod, ..Alignment::default() };
    let given = alignment.allocate(&manager.layout, "u", &spec, &[&manager]);
    assert_eq!(given, Ok(()));
    assert_eq!((manager.nodes("u", "a").as_str(), manager.nodes("u", "b").as_str()), ("0-1", "0-1"));
}

#[test]
fn the_checkpoint_has_upstreams_form_and_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    give(&open(folder.path()), "u", "memory: 2Gi", Policy::None).unwrap();
    let manager = open(folder.path());
    assert_eq!(manager.nodes("u", "a"), "0");
    assert_eq!(manager.nodes("u", "other"), "");
    let text = std::fs::read_to_string(folder.path().join(CHECKPOINT)).unwrap();
    let expect = concat!(
        r#"{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"#,
        r#""hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"#,
        r#""memory":{"total":4294967296,"systemReserved":1073741824,"allocatable":3221225472,"reserved":2147483648,"free":1073741824}},"#,
        r#""cells":[0]}"#,
    );
    assert!(text.starts_with(expect), "{text}");
    assert!(
        text.ends_with(r#""entries":{"u":{"a":[{"numaAffinity":[0],"type":"memory","size":2147483648}]}}}"#),
        "{text}"
    );
    let all = manager.allocatable();
    let told: Vec<_> = all.iter().map(|b| (b.numa_affinity[0], b.resource.as_str(), b.size / GI)).collect();
    assert_eq!(told, [(0, "memory", 3), (1, "hugepages-2Mi", 1), (1, "memory", 3)]);
}

#[test]
fn a_container_has_what_the_init_container_before_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(folder.path());
    let text = format!(
        "{{initContainers: [{{name: i, resources: {r}}}], containers: [{{name: a, resources: {r}}}]}}",
        r = resources("memory: 2Gi"),
    );
    let spec: PodSpec = serde_saphyr::from_str(&text).unwrap();
    let alignment = Alignment { policy: Policy::SingleNumaNode, scope: Scope::Pod, ..Alignment::default() };
    alignment.allocate(&manager.layout, "u", &spec, &[&manager]).unwrap();
    assert_eq!((manager.nodes("u", "i").as_str(), manager.nodes("u", "a").as_str()), ("0", "0"));
    assert_eq!((manager.blocks("u", "i")[0].size, manager.blocks("u", "a")[0].size), (0, 2 * GI));
    assert_eq!(asked_by_pod(&spec)["memory"], 2 * GI);
}

#[test]
fn a_checkpoint_that_cannot_be_so_is_told_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CHECKPOINT);
    let state = |policy: &str, block: &str| {
        format!(
            r#"{{"policyName":"{policy}","machineState":{{}},"entries":{{"u":{{"a":[{{"numaAffinity":{block}}}]}}}},"checksum":7}}"#
        )
    };
    for (text, why) in [
        ("{".to_owned(), "EOF while parsing an object at line 1 column 1"),
        (
            state("None", r#"[0],"type":"memory","size":1"#),
            r#"configured policy "Static" differs from state checkpoint policy "None""#,
        ),
        (
            state("Static", r#"[0,2],"type":"memory","size":1"#),
            "[memorymanager] (pod: u, container: a) the memory assignment uses the NUMA that does not exist",
        ),
        (
            state("Static", r#"[1],"type":"hugepages-1Gi","size":1"#),
            "[memorymanager] (pod: u, container: a) the memory assignment uses memory resource that does not exist",
        ),
        (
            state("Static", r#"[0],"type":"memory","size":3221225473"#),
            "[memorymanager] the expected machine state is different from the real one",
        ),
    ] {
        std::fs::write(&path, &text).unwrap();
        let error = try_open(folder.path()).map(drop).unwrap_err().to_string();
        let told = format!(
            "could not restore state from checkpoint: {why}, please drain this node and delete the memory manager checkpoint file {path:?} before restarting Kubelet"
        );
        assert_eq!(error, told, "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, state("Static", r#"[0],"type":"memory","size":3221225472"#)).unwrap();
    assert_eq!(open(folder.path()).nodes("u", "a"), "0");
    let error = MemoryManager::check_none(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(r#"configured policy "None" differs from state checkpoint policy "Static""#),
        "{error}"
    );
}
