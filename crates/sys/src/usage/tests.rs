use super::*;

/// Cgroups in a folder: controllers that lie together, and what is in which file of `/pod`.
fn check(version: Version, hierarchies: &[&str], files: &[(&str, &str)], look: impl Fn(&Cgroups)) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    look(&Cgroups::in_folder(version, folder.path(), hierarchies));
}

#[test]
fn a_cgroup_of_version_1_is_read_in_all_its_hierarchies() {
    let files = [
        ("memory/pod/memory.usage_in_bytes", "1000\n"),
        (
            "memory/pod/memory.stat",
            "cache 1\npgfault 5\npgmajfault 6\ntotal_cache 4096\ntotal_rss 400\ntotal_swap 7\ntotal_mapped_file 8\n\
             total_pgfault 9\ntotal_pgmajfault 10\ntotal_inactive_file 300\ntotal_active_file 31\n",
        ),
        ("memory/pod/memory.memsw.limit_in_bytes", "4096\n"),
        ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/pod/memory.max_usage_in_bytes", "2000\n"),
        ("memory/pod/memory.failcnt", "4\n"),
        ("memory/pod/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("cpu,cpuacct/pod/cpuacct.usage", "77\n"),
        ("cpu,cpuacct/pod/cpuacct.stat", "user 3\nsystem 4\n"),
        ("cpu,cpuacct/pod/cpu.stat", "nr_periods 8\nnr_throttled 3\nthrottled_time 41\n"),
        ("cpu,cpuacct/pod/cpu.shares", "512\n"),
        ("cpu,cpuacct/pod/cpu.cfs_quota_us", "-1\n"),
        ("cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n"),
        ("pids/pod/pids.current", "12\n"),
        ("pids/pod/pids.max", "max\n"),
        ("pids/pod/cgroup.procs", "1\n2\n"),
        ("pids/pod/below/cgroup.procs", "3\n"),
    ];
    let hierarchies = ["memory", "cpu,cpuacct", "pids"];
    check(Version::V1, &hierarchies, &files, |cgroups| {
        let expected = Usage {
            cpu_ns: 77,
            cpu_user_ns: 30_000_000,
            cpu_system_ns: 40_000_000,
            cfs_periods: 8,
            cfs_throttled_periods: 3,
            cfs_throttled_ns: 41,
            cpu_shares: 512,
            cpu_quota_us: -1,
            cpu_period_us: 100_000,
            memory_bytes: 1000,
            memory_max_bytes: 2000,
            working_set_bytes: 700,
            rss_bytes: 400,
            cache_bytes: 4096,
            swap_bytes: 7,
            mapped_bytes: 8,
            active_file_bytes: 31,
            inactive_file_bytes: 300,
            swap_limit_bytes: 4096,
            memory_failures: 4,
            page_faults: 9,
            major_page_faults: 10,
            own_page_faults: 5,
            own_major_page_faults: 6,
            processes: 2,
            threads: 12,
            oom_kills: 2,
            ..Usage::default()
        };
        assert_eq!(cgroups.usage("/pod"), expected);
        assert_eq!(cgroups.usage("/gone"), Usage::default());
    });
}

#[test]
fn a_cgroup_of_version_2_tells_pressure_too() {
    let pressure =
        "some avg10=1.50 avg60=0.25 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
    let files = [
        ("pod/memory.current", "1000\n"),
        ("pod/memory.stat", "anon 400\nfile 500\nkernel 64\nfile_mapped 5\ninactive_file 300\npgfault 11\n"),
        ("pod/memory.max", "2048\n"),
        ("pod/memory.peak", "1500\n"),
        ("pod/memory.swap.current", "6\n"),
        ("pod/memory.swap.max", "max\n"),
        ("pod/memory.events", "low 0\nmax 2\noom_kill 1\n"),
        ("pod/cpu.stat", "usage_usec 7\nuser_usec 3\nsystem_usec 4\nnr_periods 8\nthrottled_usec 41\n"),
        ("pod/cpu.max", "50000 100000\n"),
        ("pod/cpu.weight", "39\n"),
        ("pod/cpu.pressure", pressure),
        ("pod/memory.pressure", pressure),
        ("pod/io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"),
        ("pod/cgroup.procs", "1\n"),
        ("pod/pids.current", "3\n"),
        ("pod/pids.max", "20\n"),
    ];
    // The controllers that it has been given do not matter: some files are there without.
    check(Version::V2, &[""], &files, |cgroups| {
        let some = Stall { averages: [1.5, 0.25, 0.0], total_us: 12 };
        let full = Stall { total_us: 3, ..Stall::default() };
        let io = Pressure { some: Stall { total_us: 1, ..Stall::default() }, full: Stall::default() };
        let expected = Usage {
            cpu_ns: 7000,
            cpu_user_ns: 3000,
            cpu_system_ns: 4000,
            cfs_periods: 8,
            cfs_throttled_ns: 41_000,
            cpu_shares: 998,
            cpu_quota_us: 50_000,
            cpu_period_us: 100_000,
            memory_bytes: 1000,
            memory_max_bytes: 1500,
            working_set_bytes: 700,
            rss_bytes: 400,
            cache_bytes: 500,
            swap_bytes: 6,
            mapped_bytes: 5,
            kernel_bytes: 64,
            inactive_file_bytes: 300,
            memory_limit_bytes: 2048,
            memory_failures: 2,
            page_faults: 11,
            own_page_faults: 11,
            processes: 1,
            threads: 3,
            threads_max: 20,
            oom_kills: 1,
            pressure: Some([Pressure { some, full }, Pressure { some, full }, io]),
            ..Usage::default()
        };
        assert_eq!(cgroups.usage("/pod"), expected);
        assert_eq!(cgroups.usage("/gone"), Usage::default());
    });
}

#[test]
fn disks_are_found_in_both_versions() {
    let map =
        |read: u64, write: u64| BTreeMap::from([("Read".to_owned(), read), ("Write".to_owned(), write)]);
    let files = [
        (
            "blkio/pod/blkio.throttle.io_service_bytes_recursive",
            "8:16 Read 4096\n8:16 Write 512\nTotal 4608\n",
        ),
        ("blkio/pod/blkio.throttle.io_serviced_recursive", "8:16 Read 2\n8:16 Write 1\nTotal 3\n"),
    ];
    check(Version::V1, &["memory", "blkio"], &files, |cgroups| {
        let device = Device { major: 8, minor: 16, bytes: map(4096, 512), count: map(2, 1) };
        assert_eq!(cgroups.devices("/pod"), [device]);
    });
    let files = [("pod/io.stat", "8:16 rbytes=4096 wbytes=512 rios=2 wios=1 dbytes=7 dios=3\n")];
    check(Version::V2, &["io"], &files, |cgroups| {
        let [device] = cgroups.devices("/pod").try_into().unwrap();
        assert_eq!((device.bytes["Read"], device.bytes["Write"], device.count["Discard"]), (4096, 512, 3));
    });
}

#[test]
fn huge_pages_are_those_of_the_sizes_that_there_are() {
    let pages = |size: &str, bytes, max_bytes| HugePages { size: size.to_owned(), bytes, max_bytes };
    let files = [
        ("hugetlb/pod/hugetlb.2MB.usage_in_bytes", "4\n"),
        ("hugetlb/pod/hugetlb.2MB.max_usage_in_bytes", "8\n"),
        ("hugetlb/pod/hugetlb.1GB.usage_in_bytes", "0\n"),
        ("hugetlb/pod/hugetlb.1GB.rsvd.usage_in_bytes", "0\n"),
    ];
    check(Version::V1, &["hugetlb"], &files, |cgroups| {
        assert_eq!(cgroups.huge_pages("/pod"), [pages("1GB", 0, None), pages("2MB", 4, Some(8))]);
    });
    let files = [("pod/hugetlb.2MB.current", "4\n"), ("pod/hugetlb.2MB.rsvd.current", "2\n")];
    check(Version::V2, &["hugetlb"], &files, |cgroups| {
        assert_eq!(cgroups.huge_pages("/pod"), [pages("2MB", 4, None)]);
        assert_eq!(cgroups.huge_pages("/gone"), []);
    });
}

#[test]
fn links_have_what_the_kernel_counts() {
    let text = "Inter-|\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12\n  eth0: 1 22 3 44 5 6 7 8 9 100 11 122 13\n";
    let rx = Traffic { bytes: 1, packets: 22, errors: 3, dropped: 44 };
    let tx = Traffic { bytes: 9, packets: 100, errors: 11, dropped: 122 };
    assert_eq!(links(text), [Link { name: "eth0".to_owned(), rx, tx }]);
}

#[test]
fn a_process_has_files_and_sockets_open() {
    let own = i32::try_from(std::process::id()).unwrap();
    let before = open_files(&[own]);
    let _sockets = std::os::unix::net::UnixStream::pair().unwrap();
    let after = open_files(&[own]);
    // Other tests open and close theirs at the same time.
    assert!(after.sockets >= 2 && after.files > after.sockets, "{before:?} {after:?}");
    assert_eq!(open_files(&[]), OpenFiles::default());
    assert!(open_files_max(own).is_some_and(|max| max > 0));
    assert_eq!(open_files_max(-1), None);
}
