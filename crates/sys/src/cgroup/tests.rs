use std::process::Command;

use super::*;

#[test]
fn shares_become_weights_as_upstream_maps_them() {
    for (shares, weight) in [
        (0, 1),
        (1, 1),
        (2, 1),
        (28, 1),
        (29, 2),
        (102, 4),
        (1024, 39),
        (6398, 244),
        (262_143, 9999),
        (262_144, 10_000),
        (262_145, 10_000),
        (u64::MAX, 10_000),
    ] {
        assert_eq!(weight_of_shares(shares), weight, "{shares} shares");
    }
}

/// Source: `TestConvertMemorySwapToCgroupV2Value` of `opencontainers/cgroups`.
#[test]
fn swap_is_what_is_more_than_memory() {
    for (memory, both, expect) in [
        (None, None, None),
        (Some(0), None, None),
        (None, Some(-1), Some("max")),
        (Some(-1), Some(-1), Some("max")),
        (Some(1000), Some(-1), Some("max")),
        (Some(1000), Some(1000), Some("0")),
        (Some(500), Some(1200), Some("700")),
        (Some(-1), Some(1000), Some("1000")),
        // Upstream refuses; here there is just none.
        (Some(1000), Some(500), Some("0")),
    ] {
        let limits =
            Limits { memory_max_bytes: memory, memory_and_swap_max_bytes: both, ..Limits::default() };
        let found = limits.settings(Version::V2).into_iter().find(|(_, file, _)| file == "memory.swap.max");
        let found = found.map(|(_, _, value)| value);
        assert_eq!(found.as_deref(), expect, "{memory:?} {both:?}");
    }
}

#[test]
fn limits_that_are_not_given_are_not_written() {
    assert_eq!(Limits::default().settings(Version::V1), []);
    assert_eq!(Limits::default().settings(Version::V2), []);
    let files = |limits: Limits, version| -> Vec<String> {
        limits.settings(version).into_iter().map(|(_, file, value)| format!("{file}={value}")).collect()
    };
    let of_cpu = |shares, quota, period| Limits {
        cpu_shares: shares,
        cpu_quota_us: quota,
        cpu_period_us: period,
        ..Limits::default()
    };
    for (name, limits, v1, v2) in [
        ("least shares", of_cpu(Some(0), None, None), &["cpu.shares=2"][..], &["cpu.weight=1"][..]),
        ("no quota", of_cpu(None, Some(-1), None), &["cpu.cfs_quota_us=-1"], &["cpu.max=max 100000"]),
        (
            "a period of its own",
            of_cpu(None, Some(5000), Some(10_000)),
            &["cpu.cfs_period_us=10000", "cpu.cfs_quota_us=5000"],
            &["cpu.max=5000 10000"],
        ),
        // v2 has one file for both: without a quota there is nothing to write there.
        ("a period alone", of_cpu(None, None, Some(10_000)), &["cpu.cfs_period_us=10000"], &[]),
        (
            "any number of tasks",
            Limits { pids_max: Some(-1), ..Limits::default() },
            &["pids.max=max"],
            &["pids.max=max"],
        ),
        (
            "nodes of memory",
            Limits { cpuset_mems: Some("0,2".into()), ..Limits::default() },
            &["cpuset.mems=0,2"],
            &["cpuset.mems=0,2"],
        ),
    ] {
        assert_eq!(files(limits.clone(), Version::V1), v1, "{name}");
        assert_eq!(files(limits, Version::V2), v2, "{name}");
    }
}

/// Folders that look like cgroups: what is counted of files that others write.
#[test]
fn processes_are_numbers_above_nothing_at_every_depth() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("pod/cgroup.procs", "7\n0\n-1\nx\n\n 8\n99999999999\n5\n");
    write("pod/a/cgroup.procs", "9\n5\n");
    write("pod/a/b/cgroup.procs", "3\n");
    write("pod/file", "");
    write("other/cgroup.procs", "4\n");
    let cgroups = Cgroups::in_folder(Version::V2, folder.path(), &["cpu"]);
    // 0 is a process of another namespace.
    assert_eq!(cgroups.processes("/pod"), [3, 5, 7, 9]);
    assert_eq!(cgroups.processes("pod/a"), [3, 5, 9]);
    assert_eq!(cgroups.processes("/none"), [0; 0]);
    assert_eq!(cgroups.children("/pod"), ["a"]);
    assert_eq!(cgroups.children("/"), ["other", "pod"]);
    assert!(cgroups.exists("/pod/a/b") && !cgroups.exists("/pod/c"));
    assert!(cgroups.has("cpu") && !cgroups.has("cpuset"));
}

#[test]
fn settings_by_name_are_files_of_the_cgroup_and_nothing_above() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("pod")).unwrap();
    fs::write(folder.path().join("pod/memory.high"), "0").unwrap();
    fs::write(folder.path().join("outside"), "kept").unwrap();
    let cgroups = Cgroups::in_folder(Version::V2, folder.path(), &["memory"]);
    let set = |file: &str| {
        let unified = [(file.to_owned(), "5".to_owned())].into();
        cgroups.set_limits("/pod", &Limits { unified, ..Limits::default() })
    };
    set("memory.high").unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("pod/memory.high")).unwrap(), "5");
    for bad in ["../outside", "/etc/outside", "a/b", "memory.low"] {
        assert!(set(bad).is_err(), "{bad}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("outside")).unwrap(), "kept");
    // A controller that is not there is told of, and so is a file.
    let limits = Limits { pids_max: Some(5), memory_max_bytes: Some(1), ..Limits::default() };
    assert_eq!(cgroups.set_limits("/pod", &limits).unwrap(), ["memory", "pids"]);
}

#[test]
fn limits_are_written_in_each_version_s_own_files() {
    let limits = Limits {
        cpu_quota_us: Some(50_000),
        memory_max_bytes: Some(-1),
        pids_max: Some(5),
        cpuset_cpus: Some("0-1".into()),
        huge_pages: [("2MB".to_owned(), 4 << 20)].into(),
        ..Limits::default()
    };
    let files = |limits: &Limits, version| -> Vec<String> {
        limits.settings(version).into_iter().map(|(_, file, value)| format!("{file}={value}")).collect()
    };
    assert_eq!(
        files(&limits, Version::V2),
        [
            "cpu.max=50000 100000",
            "memory.max=max",
            "pids.max=5",
            "cpuset.cpus=0-1",
            "hugetlb.2MB.max=4194304"
        ]
    );
    assert_eq!(
        files(&limits, Version::V1),
        [
            "cpu.cfs_quota_us=50000",
            "memory.limit_in_bytes=-1",
            "pids.max=5",
            "cpuset.cpus=0-1",
            "hugetlb.2MB.limit_in_bytes=4194304"
        ]
    );
    let swap =
        Limits { memory_max_bytes: Some(100), memory_and_swap_max_bytes: Some(150), ..Limits::default() };
    assert_eq!(files(&swap, Version::V2), ["memory.max=100", "memory.swap.max=50"]);
    assert_eq!(files(&swap, Version::V1), ["memory.limit_in_bytes=100", "memory.memsw.limit_in_bytes=150"]);
}

#[test]
fn what_makes_processes_without_end_is_killed() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes cgroups: run it as root");
    let cgroups = Cgroups::detect().unwrap();
    let group = format!("/knarr-test-bomb-{}", std::process::id());
    cgroups.create(&group).unwrap();
    let limits = Limits { pids_max: Some(100), ..Limits::default() };
    assert_eq!(cgroups.set_limits(&group, &limits).unwrap(), [""; 0], "without this it would not end");
    // Each starts another and is gone. They stay below the limit: a shell that cannot fork ends.
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "sh \"$0\" &\n").unwrap();
    let mut bomb = Command::new("sh");
    bomb.args(["-c", "read go; for n in 1 2 3 4 5 6 7 8 9 10; do sh \"$0\" & done; exec sleep 1000"])
        .arg(script);
    let mut bomb =
        bomb.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    cgroups.add_process(&group, bomb.id() as i32).unwrap();
    std::io::Write::write_all(bomb.stdin.as_mut().unwrap(), b"go\n").unwrap();
    while cgroups.usage(&group).threads < 10 {
        std::thread::yield_now();
    }
    cgroups.kill(&group, Duration::from_secs(60)).unwrap();
    bomb.wait().unwrap();
    assert_eq!(cgroups.processes(&group), [0; 0]);
    cgroups.remove(&group).unwrap();
}

#[test]
fn a_killed_cgroup_is_empty_and_can_be_removed_with_its_children() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes cgroups: run it as root");
    let cgroups = Cgroups::detect().unwrap();
    let root = format!("/knarr-test-{}", std::process::id());
    let group = format!("{root}/pod");
    cgroups.create(&group).unwrap();
    let limits = Limits {
        cpu_shares: Some(512),
        memory_max_bytes: Some(64 << 20),
        pids_max: Some(50),
        ..Limits::default()
    };
    cgroups.set_limits(&group, &limits).unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id() as i32;
    cgroups.add_process(&group, pid).unwrap();
    assert_eq!(cgroups.processes(&root), [pid]);
    assert_eq!(cgroups.children(&root), ["pod"]);
    if cgroups.has("pids") {
        assert_eq!(cgroups.usage(&group).threads, 1);
    }
    cgroups.kill(&root, Duration::from_secs(60)).unwrap();
    child.wait().unwrap();
    cgroups.remove(&root).unwrap();
    cgroups.remove(&root).unwrap();
    assert!(!cgroups.exists(&root));
}

#[test]
fn what_others_make_of_a_cgroup_in_more_hierarchies_is_found_and_removed() {
    assert!(nix::unistd::geteuid().is_root(), "this test makes cgroups: run it as root");
    let cgroups = Cgroups::detect().unwrap();
    let root = format!("/knarr-test-others-{}", std::process::id());
    for foreign in &cgroups.foreign {
        let dir = foreign.dir(&root);
        fs::create_dir_all(dir.join("pod/container")).unwrap();
        assert!(cgroups.exists(&root), "{}", dir.display());
        assert_eq!(cgroups.children(&root), ["pod"], "{}", dir.display());
        cgroups.remove_if_empty(&format!("{root}/pod"));
        assert!(dir.join("pod").exists(), "not while something is below: {}", dir.display());
        cgroups.remove_if_empty(&format!("{root}/pod/container"));
        cgroups.remove_if_empty(&format!("{root}/pod"));
        assert!(!dir.join("pod").exists(), "{}", dir.display());
        fs::create_dir(dir.join("pod")).unwrap();
        cgroups.remove(&root).unwrap();
        assert!(!dir.exists(), "{}", dir.display());
    }
    cgroups.remove("/").unwrap();
}
