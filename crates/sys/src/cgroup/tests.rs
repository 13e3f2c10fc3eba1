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

/// The lines of mountinfo without their first three fields, and what is found: where each hierarchy is, and those that only
/// others use.
#[test]
fn hierarchies_are_found_among_all_that_is_mounted() {
    let unified = tempfile::tempdir().unwrap();
    let at = unified.path().display();
    fs::write(unified.path().join("cgroup.controllers"), "cpuset cpu io memory hugetlb pids rdma\n").unwrap();
    let v2 = format!("/ {at} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate");
    let v2 = v2.as_str();
    let memory = "/ /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    let cpu = "/ /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
    let blkio = "/ /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio";
    let systemd = "/ /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd";
    let root = "/ / rw - ext4 /dev/vda rw";
    let tmpfs = "/ /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755";
    let bound = "/pod /run/bound rw - cgroup cgroup rw,memory";
    let v2_bound = "/pod /run/bound rw - cgroup2 cgroup2 rw,nsdelegate";
    let cpu_and_memory = "V1 /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup/memory";
    for (name, lines, expected) in [
        ("one for all", vec![root, v2], Some(format!("V2 {at}"))),
        ("one for each", vec![root, tmpfs, cpu, memory], Some(cpu_and_memory.into())),
        (
            "and some that only others use",
            vec![tmpfs, systemd, cpu, memory, blkio],
            Some(format!("{cpu_and_memory}, others /sys/fs/cgroup/systemd /sys/fs/cgroup/blkio")),
        ),
        (
            "both, where the old ones have the controllers",
            vec![tmpfs, v2, cpu, memory],
            Some(format!("{cpu_and_memory}, others {at}")),
        ),
        (
            "both, where the new one has them",
            vec![v2, systemd],
            Some(format!("V2 {at}, others /sys/fs/cgroup/systemd")),
        ),
        ("bound once more, after", vec![cpu, memory, bound], Some(cpu_and_memory.into())),
        ("the new one bound once more", vec![v2, v2_bound], Some(format!("V2 {at}"))),
        ("none", vec![root, tmpfs], None),
        ("one that is named like them", vec!["/ /sys/fs/cgroup rw - fuse.cgroup2 cgroup2 rw"], None),
        ("the new one without its file", vec!["/ /not/there rw - cgroup2 cgroup2 rw"], None),
        ("old ones without anything of use", vec![systemd, blkio], None),
    ] {
        let lines = (1..).zip(lines).map(|(id, line)| format!("{id} 1 0:{id} {line}\n")).collect::<String>();
        let found = Cgroups::among(crate::mount::parse_mountinfo(lines.as_bytes()));
        let paths =
            |of: &[Hierarchy]| -> String { of.iter().map(|it| format!(" {}", it.mount.display())).collect() };
        let found = found.ok().map(|found| {
            let others = paths(&found.foreign);
            let others = if others.is_empty() { others } else { format!(", others{others}") };
            format!("{:?}{}{others}", found.version, paths(&found.hierarchies))
        });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_new_cpuset_has_what_its_parent_has_unless_it_has_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let cgroups = Cgroups::in_folder(Version::V1, folder.path(), &["cpuset", "memory", "perf_event"]);
    let file = |path: &str| folder.path().join("cpuset").join(path);
    // The kernel makes these files with their folder.
    for (path, cpus, mems) in
        [("", "0-3\n", "0\n"), ("pod", "\n", "\n"), ("pod/own", "1\n", ""), ("pod/own/a", "", "")]
    {
        fs::create_dir_all(file(path)).unwrap();
        fs::write(file(path).join("cpuset.cpus"), cpus).unwrap();
        fs::write(file(path).join("cpuset.mems"), mems).unwrap();
    }
    cgroups.create("/pod/own/a").unwrap();
    let read = |path: &str| fs::read_to_string(file(path)).unwrap().trim().to_owned();
    for (path, cpus, mems) in [("pod", "0-3", "0"), ("pod/own", "1", "0"), ("pod/own/a", "1", "0")] {
        let found = (read(&format!("{path}/cpuset.cpus")), read(&format!("{path}/cpuset.mems")));
        assert_eq!(found, (cpus.to_owned(), mems.to_owned()), "{path}");
    }
    assert!(folder.path().join("memory/pod/own/a").is_dir(), "it is made in each hierarchy");
    assert!(!folder.path().join("perf_event").exists(), "but in those that only others use");
    // A parent whose own setting cannot be read gives none.
    fs::write(file("pod/own/a/cpuset.cpus"), "").unwrap();
    fs::remove_file(file("pod/own/cpuset.cpus")).unwrap();
    assert!(cgroups.create("/pod/own/a").unwrap_err().to_string().starts_with("set cpuset.cpus of "));
}

#[test]
fn groups_are_in_each_hierarchy_of_v1_and_a_limit_is_where_its_controller_is() {
    let folder = tempfile::tempdir().unwrap();
    let v1 = Cgroups::in_folder(Version::V1, folder.path(), &["cpu,cpuacct", "memory,rdma", "blkio"]);
    let groups: Vec<_> =
        v1.groups_of_v1("/pod").into_iter().map(|it| (it.name, it.dir, it.controllers)).collect();
    let dir = |path: &str| folder.path().join(path);
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        groups,
        [
            ("cpu,cpuacct".to_owned(), dir("cpu,cpuacct/pod"), names(&["cpu", "cpuacct"])),
            ("memory,rdma".to_owned(), dir("memory,rdma/pod"), names(&["memory"])),
        ]
    );
    for (controller, expected) in [
        ("cpuacct", Some("cpu,cpuacct/pod")),
        ("memory", Some("memory,rdma/pod")),
        ("blkio", Some("blkio/pod")),
        ("pids", None),
        ("mem", None),
        ("", None),
    ] {
        assert_eq!(v1.dir_of(controller, "/pod"), expected.map(dir), "{controller}");
    }
    let v2 = Cgroups::in_folder(Version::V2, folder.path(), &["cpu,memory"]);
    assert_eq!(v2.groups_of_v1("/pod"), []);
    assert_eq!(v2.dir_of("memory", "//pod"), Some(dir("pod")), "always below the mount");
}

#[test]
fn a_cgroup_goes_everywhere_and_the_root_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let cgroups = Cgroups::in_folder(Version::V1, folder.path(), &["cpu", "memory", "blkio"]);
    let dir = |path: &str| folder.path().join(path);
    cgroups.create("/pod/a").unwrap();
    cgroups.create("/other").unwrap();
    fs::create_dir_all(dir("blkio/pod/a/b")).unwrap();
    for root in ["/", "", "//"] {
        cgroups.remove(root).unwrap();
    }
    assert!(cgroups.exists("/pod/a") && cgroups.exists("/pod/a/b") && cgroups.exists("/other"));
    assert_eq!(cgroups.children("/pod/a"), ["b"]);
    cgroups.remove_if_empty("/pod/a");
    assert!(dir("blkio/pod/a").exists() && !dir("cpu/pod/a").exists(), "where nothing is in it");
    cgroups.remove("/pod").unwrap();
    assert!(!cgroups.exists("/pod") && cgroups.exists("/other"));
    cgroups.remove("/pod").unwrap();
    // A file is none of the kernel's own: nothing is removed in its place.
    fs::create_dir_all(dir("cpu/kept")).unwrap();
    fs::write(dir("cpu/kept/file"), "").unwrap();
    assert!(cgroups.remove("/kept").unwrap_err().to_string().starts_with("remove cgroup "));
    assert!(dir("cpu/kept/file").exists());
}
