use super::*;

const LENGTH: u32 = crate::config::USERS_OF_POD;

fn given(first: u32, of_pod: u32, pods: u32) -> Range {
    Range { first, of_pod, pods }
}

#[test]
fn each_pod_has_users_of_its_own_and_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let allocate = |uid: &str| allocate_in(dir.path(), uid, given(65_536, LENGTH, 2));
    assert_eq!(allocate("a").unwrap(), 65_536);
    assert_eq!(allocate("b").unwrap(), 131_072);
    assert_eq!(allocate("a").unwrap(), 65_536, "again");
    let none = allocate("c").unwrap_err().to_string();
    assert_eq!(none, "could not find an empty slot to allocate a user namespace");
    std::fs::remove_dir_all(dir.path().join("a")).unwrap();
    assert_eq!(allocate("c").unwrap(), 65_536);
}

#[test]
fn the_range_is_the_kubelet_users_if_it_has_one() {
    let check = |subuid: &str, subgid: &str, expect: Result<(u32, u32), &str>| {
        let found = range(subuid, subgid, LENGTH, 110).map(|found| (found.first, found.pods));
        match (&found, &expect) {
            (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
            _ => assert_eq!(found.map_err(|error| error.to_string()), expect.map_err(str::to_owned)),
        }
    };
    let both = "root:1:2\nkubelet:131072:7208960\n";
    check("", "", Ok((65_536, 65_535)));
    check("root:100000:65536", "", Ok((65_536, 65_535)));
    check(both, both, Ok((131_072, 110)));
    check(both, "", Err("differ"));
    check("kubelet:65536:2147483648", "kubelet:65536:2147483648", Ok((65_536, 32_768)));
    check("kubelet:65536:4294901760", "kubelet:65536:4294901760", Ok((65_536, 65_535)));
    for (line, expect) in [
        ("kubelet:1000:7208960", "multiple of 65536"),
        ("kubelet:65537:7208960", "multiple of 65536"),
        ("kubelet:1:7208960", "multiple of 65536"),
        ("kubelet:0:7208960", "at least that"),
        ("kubelet:65536:65536", "enough for 110 pods"),
        ("kubelet:65536:7208961", "enough for 110 pods"),
        ("kubelet:4294901760:7208960", "enough for 110 pods"),
        ("kubelet:65536:7208960\nkubelet:131072:7208960", "one line"),
        ("kubelet:65536", "two numbers"),
        ("kubelet:Foo:7208960", "two numbers"),
        ("kubelet:65536:Bar", "two numbers"),
        ("kubelet:65536:", "two numbers"),
        ("kubelet:4294967296:2147483648", "two numbers"),
        ("kubelet:65536:4294967296", "two numbers"),
        ("kubelet:-1:2147483648", "two numbers"),
        ("kubelet:65536:-1", "two numbers"),
    ] {
        check(line, line, Err(expect));
    }
    assert!(range("", "", LENGTH, 65_536).is_err(), "there are not so many users at all");
}

/// Source: `TestUserNsManagerParseUserNsFile` of upstream's `pkg/kubelet/userns`.
#[test]
fn what_a_pod_has_is_a_whole_range_that_is_given() {
    const SHAPE: &str = "not 65536 users, root first, and the same groups";
    let one = |host: u32, container: u32, length: u32| {
        format!("{{\"hostId\":{host},\"containerId\":{container},\"length\":{length}}}")
    };
    let right = one(131_072, 0, 65_536);
    let both = |mapping: String| (mapping.clone(), mapping);
    for (name, (users, groups), expect) in [
        ("as it is written", both(right.clone()), Ok(131_072)),
        ("the last one that is given", both(one(196_608, 0, 65_536)), Ok(196_608)),
        ("nobody", both(one(131_072, 0, 0)), Err(SHAPE)),
        ("more", both(one(131_072, 0, 131_072)), Err(SHAPE)),
        ("other groups", (right.clone(), one(1, 0, 65_536)), Err(SHAPE)),
        ("two of groups", (right.clone(), format!("{right},{}", one(196_608, 0, 65_536))), Err(SHAPE)),
        ("two of users", (format!("{right},{}", one(196_608, 0, 65_536)), right.clone()), Err(SHAPE)),
        ("none", both(String::new()), Err(SHAPE)),
        ("no root", (one(131_072, 1, 65_536), right.clone()), Err(SHAPE)),
        ("no group of root", (right.clone(), one(131_072, 1, 65_536)), Err(SHAPE)),
        ("amid another's", both(one(131_073, 0, 65_536)), Err(SHAPE)),
        ("the host's own", both(one(0, 0, 65_536)), Err(SHAPE)),
        ("before what is given", both(one(65_536, 0, 65_536)), Err("ID 65536 is out of range")),
        ("after it", both(one(262_144, 0, 65_536)), Err("ID 262144 is out of range")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let text = format!("{{\"uidMappings\":[{users}],\"gidMappings\":[{groups}]}}");
        std::fs::write(dir.path().join("a").join(FILE), text).unwrap();
        match (allocate_in(dir.path(), "a", given(131_072, LENGTH, 2)), expect) {
            (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{name}: {error}"),
            (found, expect) => assert_eq!(found.ok(), expect.ok(), "{name}"),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("a")).unwrap();
    std::fs::write(dir.path().join("a").join(FILE), "").unwrap();
    assert_eq!(allocate_in(dir.path(), "a", given(131_072, LENGTH, 2)).unwrap(), 131_072, "it had none");
    std::fs::write(dir.path().join("a").join(FILE), "{").unwrap();
    assert!(allocate_in(dir.path(), "b", given(131_072, LENGTH, 2)).is_err(), "nobody knows what is taken");
}

/// Source: `TestUserNsManagerAllocate`, `TestMakeUserNsManager` and `TestRecordBounds` of upstream's `pkg/kubelet/userns`.
#[test]
fn a_pod_may_have_more_users_than_the_least() {
    const MANY: u32 = 1 << 20;
    let line = |first: u32, length: u32| format!("kubelet:{first}:{length}\n");
    let found = |text: &str, of_pod: u32, pods_max: u32| {
        range(text, text, of_pod, pods_max).map_err(|error| error.to_string())
    };
    assert_eq!(found(&line(MANY, MANY * 2000), MANY, 110), Ok(given(MANY, MANY, 2000)));
    assert_eq!(found("", MANY, 110), Ok(given(MANY, MANY, 4095)), "all but the first");
    for (name, text, of_pod, pods_max, expect) in [
        (
            "the first is no multiple",
            line(LENGTH, MANY * 2000),
            MANY,
            110,
            "multiple of 1048576 and at least",
        ),
        ("they are no multiple", line(MANY, MANY + LENGTH), MANY, 1, "a multiple of 1048576 IDs"),
        ("too few for all Pods", line(MANY, MANY), MANY, 2, "enough for 2 pods, not 1048576"),
        ("too few by default", String::new(), 1 << 31, 2, "enough for 2 pods, not 2147483648"),
        ("all there are is no multiple", String::new(), 3 * LENGTH, 110, "a multiple of 196608 IDs"),
    ] {
        let error = found(&text, of_pod, pods_max).unwrap_err();
        assert!(error.contains(expect), "{name}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let given = given(MANY, MANY, 1000);
    let all: Vec<u32> =
        (0..1000).map(|pod| allocate_in(dir.path(), &pod.to_string(), given).unwrap()).collect();
    let expect: Vec<u32> = (1..=1000).map(|slot| slot * MANY).collect();
    assert_eq!(all, expect);
    assert!(allocate_in(dir.path(), "another", given).is_err(), "nobody is left");
    let users = namespace(MANY, MANY);
    assert_eq!((users.uids[0].host_id, users.uids[0].length, users.uids == users.gids), (MANY, MANY, true));
    // What a Pod was given before the operator said otherwise is no longer right.
    let fewer = Range { of_pod: LENGTH, ..given };
    let error = allocate_in(dir.path(), "0", fewer).unwrap_err().to_string();
    assert!(error.contains("not 65536 users"), "{error}");
}

/// Source: `TestGetOrCreateUserNamespaceMappings` of upstream's `pkg/kubelet/userns`.
#[test]
fn only_who_wants_users_of_its_own_gets_some() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { root_dir: dir.path().to_owned(), ..Config::default() };
    for (name, spec, expect) in [
        ("nothing said", "{containers: []}", false),
        ("the host's", "{containers: [], hostUsers: true}", false),
        ("its own", "{containers: [], hostUsers: false}", true),
    ] {
        let pod: Pod = serde_saphyr::from_str(&format!("{{metadata: {{uid: u}}, spec: {spec}}}")).unwrap();
        let users = of_pod(&config, &pod).unwrap();
        assert_eq!(users.is_some(), expect, "{name}");
        assert_eq!(dir.path().join("pods/u/userns").exists(), expect, "{name}");
        let option = v1::NamespaceOption::default();
        let context = |options| v1::LinuxSandboxSecurityContext {
            namespace_options: Some(options),
            ..Default::default()
        };
        let linux =
            v1::LinuxPodSandboxConfig { security_context: Some(context(option)), ..Default::default() };
        let mut sandbox = v1::PodSandboxConfig { linux: Some(linux), ..Default::default() };
        apply_to_sandbox(users.as_ref(), &mut sandbox);
        let told = sandbox.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
        assert_eq!(told.userns_options, users, "{name}");
    }
}
