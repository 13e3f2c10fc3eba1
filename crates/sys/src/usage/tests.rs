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

/// Source: `fs2/psi_test.go` of `opencontainers/cgroups`; Documentation/accounting/psi.rst.
#[test]
fn pressure_is_read_whatever_of_it_is_told() {
    let stall = |averages, total_us| Stall { averages, total_us };
    let none = Stall::default();
    for (name, text, some, full) in [
        (
            "both lines",
            "some avg10=1.71 avg60=2.36 avg300=2.57 total=230548833\nfull avg10=1.00 avg60=1.01 avg300=1.00 total=157622356\n",
            stall([1.71, 2.36, 2.57], 230_548_833),
            stall([1.0, 1.01, 1.0], 157_622_356),
        ),
        ("only some", "some avg10=1.71 avg60=2.36 avg300=2.57 total=3\n", stall([1.71, 2.36, 2.57], 3), none),
        ("only full", "full avg10=0.00 avg60=0.00 avg300=0.00 total=7", none, stall([0.0; 3], 7)),
        (
            "in another order",
            "some total=5 avg300=3.00 avg60=2.00 avg10=1.00\n",
            stall([1.0, 2.0, 3.0], 5),
            none,
        ),
        (
            "more words",
            "some avg10=1.00 avg60=0.00 avg900=9.00 avg300=0.50 total=5 x\n",
            stall([1.0, 0.0, 0.5], 5),
            none,
        ),
        ("fewer words", "some avg10=1.00\n", stall([1.0, 0.0, 0.0], 0), none),
        (
            "no numbers",
            "some avg10=a avg60= avg300 total=-1\nfull total=99999999999999999999999\n",
            none,
            none,
        ),
        ("another kind", "others avg10=1.00 avg60=1.00 avg300=1.00 total=1\nsomething total=1\n", none, none),
        ("nothing", "", none, none),
    ] {
        assert_eq!(Pressure::parse(text), Pressure { some, full }, "{name}");
    }
}

/// Source: `TestCpuWeightToCPUShares` of upstream's `pkg/kubelet/cm`.
#[test]
fn weights_become_shares_as_upstream_maps_them() {
    for (weight, shares) in
        [("1", 2), ("2", 28), ("3", 54), ("4", 80), ("245", 6398), ("10000", 262_144), ("0", 0), ("idle", 0)]
    {
        check(Version::V2, &[""], &[("pod/cpu.weight", weight)], |cgroups| {
            assert_eq!(cgroups.usage("/pod").cpu_shares, shares, "{weight}");
        });
    }
}

/// Source: `fs2/io_test.go`, `fs2/memory_test.go` and `fs/cpu_test.go` of `opencontainers/cgroups`.
#[test]
fn what_the_kernel_does_not_say_counts_for_nothing() {
    for (name, files, expect) in [
        ("nothing", &[][..], Usage::default()),
        (
            "empty files",
            &[
                ("pod/memory.current", ""),
                ("pod/memory.stat", ""),
                ("pod/cpu.max", ""),
                ("pod/cpu.stat", "\n"),
            ],
            Usage::default(),
        ),
        (
            "no numbers",
            &[
                ("pod/memory.current", "much"),
                ("pod/memory.stat", "anon\nfile x\nkernel -1\n"),
                ("pod/cpu.stat", "usage_usec 99999999999999999999999\nuser_usec 1.5\n"),
                ("pod/pids.current", "-3"),
            ],
            Usage::default(),
        ),
        (
            "no limits",
            &[("pod/cpu.max", "max 100000\n"), ("pod/memory.max", "max\n"), ("pod/memory.min", "max\n")],
            Usage { cpu_period_us: 100_000, ..Usage::default() },
        ),
        (
            "more cache than memory",
            &[("pod/memory.current", "5"), ("pod/memory.stat", "inactive_file 7\n")],
            Usage { memory_bytes: 5, inactive_file_bytes: 7, ..Usage::default() },
        ),
        (
            "names that begin alike",
            &[("pod/memory.stat", "file_mapped 1\nfile_dirty 2\nfile 3\nanon_thp 4\nanon 5\n")],
            Usage { mapped_bytes: 1, cache_bytes: 3, rss_bytes: 5, ..Usage::default() },
        ),
        (
            "more time than there is",
            &[("pod/cpu.stat", "usage_usec 18446744073709551615\n")],
            Usage { cpu_ns: u64::MAX, ..Usage::default() },
        ),
    ] {
        check(Version::V2, &[""], files, |cgroups| assert_eq!(cgroups.usage("/pod"), expect, "{name}"));
    }
    let unlimited = [
        ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/pod/memory.soft_limit_in_bytes", "4611686018427387904\n"),
        ("memory/pod/memory.memsw.limit_in_bytes", "4611686018427387903\n"),
    ];
    check(Version::V1, &["memory"], &unlimited, |cgroups| {
        let usage = cgroups.usage("/pod");
        assert_eq!((usage.memory_limit_bytes, usage.memory_reserved_bytes), (0, 0));
        assert_eq!(usage.swap_limit_bytes, (1 << 62) - 1, "the last that is a limit");
    });
}

/// Source: `TestStatIo` of `opencontainers/cgroups`, `fs2/io_test.go`, and `fs/blkio_test.go`.
#[test]
fn disks_that_cannot_be_read_hide_no_others() {
    let stat = "254:1 rbytes=6901432320 wbytes=14245535744 rios=263278 wios=248603 dbytes=0 dios=0\n\
                7:7\n7:6 \nx:0 rbytes=1\n8 rbytes=1\n8:0:0 rbytes=1\n9:0 rbytes=x wbytes=5 rios wios=6=7 cost.usage=3\n\n\
                259:0 rbytes=6911345664 wbytes=14245536256 rios=264538 wios=244914 dbytes=530485248 dios=2";
    check(Version::V2, &["io"], &[("pod/io.stat", stat)], |cgroups| {
        let devices = cgroups.devices("/pod");
        let numbers: Vec<(u32, u32)> = devices.iter().map(|it| (it.major, it.minor)).collect();
        assert_eq!(numbers, [(254, 1), (9, 0), (259, 0)]);
        let first = &devices[0];
        assert_eq!((first.bytes["Read"], first.bytes["Write"]), (6_901_432_320, 14_245_535_744));
        assert_eq!(
            (first.count["Read"], first.count["Write"], first.count["Discard"]),
            (263_278, 248_603, 0)
        );
        assert_eq!((devices[1].bytes.len(), devices[1].bytes["Write"], devices[1].count.len()), (1, 5, 0));
        assert_eq!((devices[2].bytes["Discard"], devices[2].count["Discard"]), (530_485_248, 2));
    });
    let bytes = "8:0 Read 100\n8:0 Write 200\n8:0 Sync 300\n8:0 Async 500\n8:0 Total 500\nTotal 500\n\
                 8:0 Read\nx Read 1\n8:16 Read much\n8:32 Read 1 2\n";
    check(
        Version::V1,
        &["blkio"],
        &[("blkio/pod/blkio.throttle.io_service_bytes_recursive", bytes)],
        |cgroups| {
            let [device] = cgroups.devices("/pod").try_into().unwrap();
            assert_eq!((device.major, device.minor, device.count.len()), (8, 0, 0));
            let names: Vec<&str> = device.bytes.keys().map(String::as_str).collect();
            assert_eq!(names, ["Async", "Read", "Sync", "Total", "Write"]);
            assert_eq!((device.bytes["Read"], device.bytes["Write"]), (100, 200));
        },
    );
}

#[test]
fn links_are_told_apart_whatever_their_names_are() {
    let names = |text: &str| links(text).into_iter().map(|link| link.name).collect::<Vec<_>>();
    let numbers = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
    assert_eq!(names(""), [""; 0]);
    assert_eq!(names("Inter-|   Receive  |  Transmit\n face |bytes    packets\n"), [""; 0]);
    let text = format!("lo: {numbers}\n  lo0:{numbers}\neth0@if2: {numbers}\n  a.100: {numbers}\n");
    assert_eq!(names(&text), ["lo0", "eth0@if2", "a.100"]);
    let [short] = links("eth0: 1 2").try_into().unwrap();
    assert_eq!((short.rx.bytes, short.rx.packets, short.rx.dropped, short.tx.bytes), (1, 2, 0, 0));
}

#[test]
fn kills_for_lack_of_memory_are_counted_by_their_own_name() {
    for (text, expect) in [
        ("low 0\nhigh 0\nmax 5\noom 4\noom_kill 3\noom_group_kill 2\n", 3),
        ("oom_group_kill 2\noom_kill 1\n", 1),
        ("oom_kill_disable 1\n", 0),
        ("oom 4\n", 0),
        ("oom_kill \n", 0),
        ("", 0),
    ] {
        check(Version::V2, &[""], &[("pod/memory.events", text)], |cgroups| {
            assert_eq!(cgroups.oom_kills("/pod"), expect, "{text:?}");
        });
        check(Version::V1, &["memory"], &[("memory/pod/memory.oom_control", text)], |cgroups| {
            assert_eq!(cgroups.oom_kills("/pod"), expect, "{text:?}");
        });
    }
}
