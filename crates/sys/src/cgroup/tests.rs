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
        ..Limits::default()
    };
    let files = |version| -> Vec<String> {
        limits.settings(version).into_iter().map(|(_, file, value)| format!("{file}={value}")).collect()
    };
    assert_eq!(files(Version::V2), ["cpu.max=50000 100000", "memory.max=max", "pids.max=5"]);
    assert_eq!(files(Version::V1), ["cpu.cfs_quota_us=50000", "memory.limit_in_bytes=-1", "pids.max=5"]);
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
        assert_eq!(cgroups.stats(&group).pids, 1);
    }
    cgroups.kill(&root, Duration::from_secs(10)).unwrap();
    child.wait().unwrap();
    cgroups.remove(&root).unwrap();
    cgroups.remove(&root).unwrap();
    assert!(!cgroups.exists(&root));
}
