use super::*;

fn look(version: Version, file: &'static (dyn Fn(&str) -> Option<&'static str> + Sync)) -> Look<'static> {
    Look {
        version,
        read: Box::new(move |_, name| file(name).map(str::to_owned)),
        texts: RefCell::default(),
        used: sys::cgroup::Stats { memory_working_set_bytes: 70, oom_kills: 1, ..Default::default() },
        limits: v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() },
        processes: vec![1, 2],
        open_files: (9, 3),
        open_files_max: Some(1024),
        disk: Some((10, 100, 50, 40)),
        now: 7 * SECOND_NS + 1,
        started_at: 5 * SECOND_NS,
    }
}

/// A family's series: labels of its own, and values.
fn series(look: &Look<'_>, name: &str) -> String {
    let (.., values) = FAMILIES.iter().find(|family| family.0 == name).unwrap();
    let values = values(look).into_iter().map(|(labels, value)| format!("{}{value}", labels.join(",") + " "));
    values.map(|it| it.trim_start().to_owned()).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_cgroup_of_version_1_tells_everything_but_pressure() {
    let look = look(Version::V1, &|name| {
        Some(match name {
            "cpuacct.usage" => "2999999999\n",
            "cpuacct.stat" => "user 250\nsystem 130\n",
            "cpu.stat" => "nr_periods 8\nnr_throttled 3\nthrottled_time 4100000000\n",
            "memory.stat" => {
                "cache 1\nrss 2\npgfault 11\npgmajfault 12\ntotal_cache 4096\ntotal_rss 8192\n\
                 total_mapped_file 5\ntotal_swap 6\ntotal_pgfault 21\ntotal_pgmajfault 22\n\
                 total_inactive_file 30\ntotal_active_file 31\n"
            }
            "memory.failcnt" => "4\n",
            "memory.usage_in_bytes" => "100\n",
            "memory.max_usage_in_bytes" => "9223372036854771712\n",
            "pids.current" => "12\n",
            "pids.max" => "max\n",
            "blkio.throttle.io_service_bytes_recursive" => {
                "0:0 Read 4096\n0:0 Write 512\n0:0 Total 4608\nTotal 4608\n"
            }
            _ => return None,
        })
    });
    for (name, expect) in [
        ("container_cpu_usage_seconds_total", "2"),
        ("container_cpu_user_seconds_total", "2"),
        ("container_cpu_system_seconds_total", "1"),
        ("container_cpu_cfs_periods_total", "8"),
        ("container_cpu_cfs_throttled_periods_total", "3"),
        ("container_cpu_cfs_throttled_seconds_total", "4"),
        ("container_memory_cache", "4096"),
        ("container_memory_rss", "8192"),
        ("container_memory_swap", "6"),
        ("container_memory_failcnt", "4"),
        ("container_memory_usage_bytes", "100"),
        ("container_memory_max_usage_bytes", "0"),
        ("container_memory_working_set_bytes", "70"),
        ("container_memory_kernel_usage", ""),
        (
            "container_memory_failures_total",
            "pgfault,container 11; pgfault,hierarchy 21; pgmajfault,container 12; pgmajfault,hierarchy 22",
        ),
        ("container_oom_events_total", "1"),
        ("container_fs_usage_bytes", "/ 10"),
        ("container_fs_inodes_free", "/ 40"),
        ("container_fs_reads_bytes_total", "0:0 4096"),
        ("container_fs_writes_bytes_total", "0:0 512"),
        ("container_fs_reads_total", ""),
        ("container_blkio_device_usage_total", "0:0,0,0,Read 4096; 0:0,0,0,Write 512"),
        ("container_processes", "2"),
        ("container_file_descriptors", "9"),
        ("container_sockets", "3"),
        ("container_threads", "12"),
        ("container_threads_max", "0"),
        ("container_ulimits_soft", "max_open_files 1024"),
        ("container_last_seen", "7"),
        ("container_start_time_seconds", "5"),
        ("container_spec_cpu_shares", "512"),
        ("container_spec_memory_limit_bytes", ""),
        ("container_pressure_cpu_waiting_seconds_total", ""),
    ] {
        assert_eq!(series(&look, name), expect, "{name}");
    }
}

#[test]
fn a_cgroup_of_version_2_tells_pressure_too() {
    let look = look(Version::V2, &|name| {
        Some(match name {
            "cpu.stat" => "usage_usec 2999999\nuser_usec 1000000\nnr_periods 8\nthrottled_usec 4100000\n",
            "memory.stat" => "anon 8192\nfile 4096\nfile_mapped 5\nkernel 64\npgfault 11\npgmajfault 12\n",
            "memory.events" => "low 0\nmax 4\noom_kill 1\n",
            "memory.peak" => "300\n",
            "memory.swap.current" => "6\n",
            "io.stat" => "0:0 rbytes=4096 wbytes=512 rios=3 wios=2 dbytes=0 dios=0\n",
            "memory.pressure" => {
                "some avg10=1.50 avg60=0.20 avg300=0.10 total=3500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n"
            }
            _ => return None,
        })
    });
    for (name, expect) in [
        ("container_cpu_usage_seconds_total", "2"),
        ("container_cpu_user_seconds_total", "1"),
        ("container_cpu_cfs_throttled_seconds_total", "4"),
        ("container_memory_cache", "4096"),
        ("container_memory_kernel_usage", "64"),
        ("container_memory_failcnt", "4"),
        ("container_memory_max_usage_bytes", "300"),
        ("container_fs_reads_total", "0:0 3"),
        ("container_fs_writes_bytes_total", "0:0 512"),
        ("container_pressure_memory_waiting_seconds_total", "3"),
        ("container_pressure_memory_stalled_seconds_total", "1"),
        ("container_pressure_cpu_stalled_seconds_total", ""),
    ] {
        assert_eq!(series(&look, name), expect, "{name}");
    }
}

#[test]
fn pressure_has_averages_and_nanoseconds() {
    let psi = psi("some avg10=1.50 avg60=0.20 avg300=0.10 total=3500\n");
    let some = v1::PsiData { total: 3_500_000, avg10: 1.5, avg60: 0.2, avg300: 0.1 };
    assert_eq!((psi.some, psi.full), (Some(some), None));
}

#[test]
fn no_family_is_there_twice() {
    let names: std::collections::BTreeSet<&str> = FAMILIES.iter().map(|family| family.0).collect();
    assert_eq!(names.len(), FAMILIES.len());
}
