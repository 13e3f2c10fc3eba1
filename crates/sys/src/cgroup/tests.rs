use std::process::Command;

use super::*;

#[test]
fn shares_become_weights_as_upstream_maps_them() {
    for (shares, weight) in [(0, 1), (2, 1), (1024, 39), (262_144, 10_000)] {
        assert_eq!(weight_of_shares(shares), weight, "{shares} shares");
    }
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
