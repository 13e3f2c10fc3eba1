use super::*;

#[test]
fn what_is_reserved_and_what_thresholds_keep_is_not_allocatable() {
    let machine = Machine {
        cpus: 4,
        memory: 8 << 30,
        storage: 100 << 30,
        huge_pages: vec![(2 << 20, 512)],
        ..Machine::default()
    };
    let mut config = Config::default();
    config.reserved.kube = [("cpu".to_owned(), "250m".to_owned()), ("memory".into(), "1Gi".into())].into();
    config.reserved.system = [("cpu".to_owned(), "250m".to_owned())].into();
    let status = status(&config, &machine);
    let text = |list: Option<BTreeMap<String, Quantity>>| {
        list.unwrap().into_iter().map(|(name, q)| format!("{name}={}", q.0)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        text(status.capacity),
        "cpu=4 ephemeral-storage=104857600Ki hugepages-2Mi=1Gi memory=8388608Ki pods=110"
    );
    assert_eq!(
        text(status.allocatable),
        "cpu=3500m ephemeral-storage=94371840Ki hugepages-2Mi=1Gi memory=6189056Ki pods=110"
    );
}

/// Source: `TestNodeAddress` of upstream's `nodestatus`, `initialNode`.
#[test]
fn a_clouds_node_waits_for_what_its_cloud_says() {
    let node = |has_cloud: bool, given: &[&str], provider_id: &str| {
        node(
            &Config {
                node_name: "a".into(),
                node_ips: vec!["192.0.2.1".into()],
                provided_node_ips: given.iter().map(|&ip| ip.to_owned()).collect(),
                provider_id: provider_id.into(),
                register_with_taints: vec!["x=y:NoExecute".into()],
                has_cloud,
                ..Config::default()
            },
            &Machine::default(),
        )
    };
    for (has_cloud, given, id, taints, annotations, addresses) in [
        (false, &["192.0.2.1"][..], "", "x=y:NoExecute", None, "InternalIP=192.0.2.1 Hostname=a"),
        (false, &[], "c://1", "x=y:NoExecute", None, "InternalIP=192.0.2.1 Hostname=a"),
        (true, &[], "", "x=y:NoExecute cloud=true:NoSchedule", None, "Hostname=a"),
        (
            true,
            &["192.0.2.1", "2001:db8::1"],
            "c://1",
            "x=y:NoExecute cloud=true:NoSchedule",
            Some("192.0.2.1,2001:db8::1"),
            "InternalIP=192.0.2.1 InternalIP=2001:db8::1 Hostname=a",
        ),
    ] {
        let node = node(has_cloud, given, id);
        let case = format!("{has_cloud} {given:?} {id}");
        let spec = node.spec.clone().unwrap_or_default();
        let shown = spec.taints.iter().flatten().map(|taint| {
            let key = taint.key.replace(UNINITIALIZED, "cloud");
            format!("{key}={}:{}", taint.value.as_deref().unwrap_or_default(), taint.effect)
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), taints, "{case}");
        assert_eq!(spec.provider_id.as_deref().unwrap_or_default(), id, "{case}");
        let told = node.metadata.annotations.as_ref().and_then(|all| all.get(PROVIDED_NODE_IP));
        assert_eq!(told.map(String::as_str), annotations, "{case}");
        let all = node.status.as_ref().and_then(|status| status.addresses.as_ref());
        let all = all.into_iter().flatten().map(|one| format!("{}={}", one.type_, one.address));
        assert_eq!(all.collect::<Vec<_>>().join(" "), addresses, "{case}");
        assert!(has_addresses(&node) && !has_addresses(&Node::default()));
    }
}

#[test]
fn a_node_that_is_there_is_told_what_its_cloud_must_know() {
    let with = |provider_id: &str, given: &[&str]| {
        let given = given.iter().map(|&ip| ip.to_owned()).collect();
        let config = Config {
            provider_id: provider_id.into(),
            provided_node_ips: given,
            has_cloud: true,
            ..Config::default()
        };
        node(&config, &Machine::default())
    };
    let told = |before: Option<&Node>, now: &Node| {
        let patch = anew(before, now);
        (patch["metadata"]["annotations"].clone(), patch.get("spec").cloned())
    };
    let (bare, named) = (Node::default(), with("c://1", &[]));
    let none = json!({PROVIDED_NODE_IP: null});
    assert_eq!(told(Some(&bare), &named), (none.clone(), Some(json!({"providerID": "c://1"}))));
    // It never changes.
    assert_eq!(told(Some(&named), &with("c://2", &[])), (none.clone(), None));
    assert_eq!(told(None, &with("", &[])), (none, None));
    let given = json!({PROVIDED_NODE_IP: "192.0.2.1"});
    assert_eq!(told(None, &with("", &["192.0.2.1"])), (given, None));
}

#[test]
fn what_others_put_into_capacity_is_allocatable() {
    let own = node(&Config::default(), &Machine::default());
    for (name, capacity, allocatable, expect) in [
        ("nothing", json!({}), json!({}), None),
        ("new", json!({"example.com/x": "1k"}), json!({}), Some(json!({"example.com/x": "1k"}))),
        ("known", json!({"example.com/x": "1k"}), json!({"example.com/x": "1k"}), None),
        (
            "less",
            json!({"example.com/x": "1"}),
            json!({"example.com/x": "5"}),
            Some(json!({"example.com/x": "1"})),
        ),
        ("gone", json!({}), json!({"example.com/x": "1"}), Some(json!({"example.com/x": null}))),
        ("our own", json!({"pods": "7", "cpu": "1"}), json!({}), None),
        ("pages of no size of ours", json!({"hugepages-3Mi": "3Mi"}), json!({}), None),
    ] {
        let before = json!({"status": {"capacity": capacity, "allocatable": allocatable}});
        let before: Node = serde_json::from_value(before).unwrap();
        assert_eq!(of_others(&before, own.status.as_ref().unwrap()), expect, "{name}");
    }
}

#[test]
fn huge_pages_that_are_no_more_are_taken_back() {
    let node = |sizes: &[u64]| {
        let huge_pages = sizes.iter().map(|size| (*size, 1)).collect();
        self::node(&Config::default(), &Machine { huge_pages, ..Machine::default() })
    };
    let (none, small, both) = (node(&[]), node(&[2 << 20]), node(&[2 << 20, 1 << 30]));
    let gone = json!({"hugepages-1Gi": null});
    let patch = json!({"status": {"capacity": gone, "allocatable": gone}});
    assert_eq!(without_unknown_pages(&both, &small), Some(patch));
    assert_eq!(without_unknown_pages(&small, &both), None);
    assert_eq!(without_unknown_pages(&none, &none), None);
}

#[test]
fn pressure_is_told_in_upstreams_words() {
    let told = conditions(None, &["DiskPressure"], &[], Timestamp::UNIX_EPOCH);
    let told: Vec<_> =
        told.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref())).collect();
    assert_eq!(told[0], ("MemoryPressure", "False", Some("KubeletHasSufficientMemory")));
    assert_eq!(told[1], ("DiskPressure", "True", Some("KubeletHasDiskPressure")));
    assert_eq!(told[3], ("Ready", "True", Some("KubeletReady")));
}

#[test]
fn events_tell_what_is_new_of_conditions() {
    let now =
        |problem: Option<&str>, pressure: &[&str]| conditions(problem, pressure, &[], Timestamp::UNIX_EPOCH);
    let first = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
    assert_eq!(news(&[], &now(None, &[])), first);
    assert_eq!(news(&now(None, &[]), &now(None, &[])), [""; 0]);
    let changed = news(&now(None, &["MemoryPressure"]), &now(Some("down"), &["DiskPressure"]));
    assert_eq!(changed, ["NodeHasSufficientMemory", "NodeHasDiskPressure", "NodeNotReady"]);
    assert_eq!(news(&now(Some("down"), &[]), &now(None, &[])), ["NodeReady"]);
}

/// Source: `TestMachineInfo` of upstream's `nodestatus`.
#[test]
fn what_pods_can_have_is_never_less_than_nothing() {
    let of = |kube: &[(&str, &str)], memory: u64, pages: &[(u64, u64)]| {
        let mut config = Config {
            eviction: crate::config::eviction::Policy::parse(&no_thresholds()).unwrap(),
            ..Config::default()
        };
        config.reserved.kube =
            kube.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let machine =
            Machine { cpus: 2, memory, storage: 4096, huge_pages: pages.to_vec(), ..Machine::default() };
        allocatable(&config, &machine)
            .into_iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (name, kube, memory, pages, expect) in [
        ("all of it", &[][..], 1024, &[][..], "cpu=2000 ephemeral-storage=4096 memory=1024 pods=110"),
        (
            "less what is reserved",
            &[("cpu", "1m"), ("memory", "1"), ("ephemeral-storage", "1")],
            1024,
            &[],
            "cpu=1999 ephemeral-storage=4095 memory=1023 pods=110",
        ),
        (
            "less huge pages",
            &[],
            5 << 20,
            &[(2 << 20, 1)],
            "cpu=2000 ephemeral-storage=4096 hugepages-2Mi=2097152 memory=3145728 pods=110",
        ),
        (
            "more pages than memory",
            &[],
            1024,
            &[(2 << 20, 1)],
            "cpu=2000 ephemeral-storage=4096 hugepages-2Mi=2097152 memory=0 pods=110",
        ),
        (
            "more is reserved than there is",
            &[("cpu", "3"), ("memory", "1Gi")],
            1024,
            &[],
            "cpu=0 ephemeral-storage=4096 memory=0 pods=110",
        ),
    ] {
        assert_eq!(of(kube, memory, pages), expect, "{name}");
    }
}

fn no_thresholds() -> crate::config::eviction::Statements {
    crate::config::eviction::Statements { hard: BTreeMap::new(), ..Default::default() }
}

/// Source: `TestImages` of upstream's `nodestatus`.
#[test]
fn the_largest_images_are_told_with_a_few_of_their_names() {
    let image = |id: &str, size: u64, digests: &[&str], tags: &[&str]| {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        v1::Image {
            id: id.into(),
            size,
            repo_digests: names(digests),
            repo_tags: names(tags),
            ..Default::default()
        }
    };
    let shown = |list: Vec<v1::Image>, most: Option<u32>| {
        let one = |image: ContainerImage| {
            format!("{} {}", image.size_bytes.unwrap(), image.names.unwrap().join("+"))
        };
        images(list, most).into_iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let four = || {
        vec![
            image("a", 3, &[], &["a"]),
            image("b", 1, &[], &["b"]),
            image("c", 4, &[], &["c"]),
            image("d", 2, &[], &["d"]),
        ]
    };
    for (name, list, most, expect) in [
        ("any number", four(), None, "4 c, 3 a, 2 d, 1 b"),
        ("some", four(), Some(2), "4 c, 3 a"),
        ("none", four(), Some(0), ""),
        (
            "digests before tags",
            vec![image("a", 1, &["foo", "bar"], &["baz", "quux"])],
            None,
            "1 foo+bar+baz+quux",
        ),
        ("five names", vec![image("a", 1, &["1", "2", "3"], &["4", "5", "6"])], None, "1 1+2+3+4+5"),
        ("without a name", vec![image("a", 1, &[], &[])], None, "1 "),
        ("there is none", vec![], None, ""),
    ] {
        assert_eq!(shown(list, most), expect, "{name}");
    }
}

/// Source: `TestReadyCondition`, `TestMemoryPressureCondition`, `TestPIDPressureCondition` and `TestDiskPressureCondition` of
/// upstream's `nodestatus`.
#[test]
fn conditions_keep_the_time_of_their_last_change() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    for (name, pressure_before, problem_before, pressure, problem, changed) in [
        ("nothing is new", &[][..], None, &[][..], None, ""),
        ("pressure comes", &[], None, &["MemoryPressure"], None, "MemoryPressure"),
        ("it stays", &["MemoryPressure"], None, &["MemoryPressure"], None, ""),
        ("it goes", &["PIDPressure"], None, &[], None, "PIDPressure"),
        (
            "one goes and another comes",
            &["DiskPressure"],
            None,
            &["PIDPressure"],
            None,
            "DiskPressure PIDPressure",
        ),
        ("the runtime goes", &[], None, &[], Some("down"), "Ready"),
        ("for another reason", &[], Some("down"), &[], Some("no network"), ""),
        ("and comes", &[], Some("down"), &[], None, "Ready"),
    ] {
        let before = conditions(problem_before, pressure_before, &[], at(10));
        let now = conditions(problem, pressure, &before, at(20));
        let time = |time: &Option<Time>| time.as_ref().unwrap().0.as_second();
        assert!(now.iter().all(|condition| time(&condition.last_heartbeat_time) == 20), "{name}");
        let new = now.iter().filter(|condition| time(&condition.last_transition_time) == 20);
        assert_eq!(
            new.map(|condition| condition.type_.as_str()).collect::<Vec<_>>().join(" "),
            changed,
            "{name}"
        );
        assert!(
            now.iter().all(|condition| matches!(time(&condition.last_transition_time), 10 | 20)),
            "{name}"
        );
        let ready = now.last().unwrap();
        let expect = problem.unwrap_or("kubelet is posting ready status");
        assert_eq!((ready.type_.as_str(), ready.message.as_deref()), ("Ready", Some(expect)), "{name}");
    }
}
