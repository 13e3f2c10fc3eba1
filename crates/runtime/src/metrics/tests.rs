use super::*;

/// A family's series: labels of its own, and values.
fn series(look: &Look, name: &str) -> String {
    if let Some((.., value)) = USAGE_METRICS.iter().find(|metric| metric.0 == name) {
        return value(&look.used).to_string();
    }
    let (.., values) = FAMILIES.iter().find(|family| family.0 == name).unwrap();
    let values = values(look).into_iter().map(|(labels, value)| format!("{}{value}", labels.join(",") + " "));
    values.map(|it| it.trim_start().to_owned()).collect::<Vec<_>>().join("; ")
}

#[test]
fn families_have_whole_numbers_and_labels_of_their_own() {
    let stall = |total_us| Stall { total_us, ..Stall::default() };
    let pressure = Pressure { some: stall(3_500_000), full: stall(1_000_000) };
    let look = Look {
        used: Usage {
            cpu_ns: 2_999_999_999,
            cfs_throttled_ns: 4_100_000_000,
            working_set_bytes: 70,
            own_page_faults: 11,
            page_faults: 21,
            own_major_page_faults: 12,
            major_page_faults: 22,
            oom_kills: 1,
            threads: 12,
            pressure: Some([Pressure::default(), pressure, Pressure::default()]),
            ..Usage::default()
        },
        limits: v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() },
        processes: 2,
        open: OpenFiles { files: 9, sockets: 3 },
        open_files_max: Some(1024),
        huge_pages: vec![HugePages { size: "2MB".to_owned(), bytes: 4, max_bytes: None }],
        devices: vec![Device {
            bytes: [("Read", 4096), ("Write", 512), ("Total", 4608)]
                .map(|(operation, bytes)| (operation.to_owned(), bytes))
                .into(),
            ..Device::default()
        }],
        disk: Some((10, 100, 50, 40)),
        now: 7 * SECOND_NS + 1,
        started_at: 5 * SECOND_NS,
    };
    for (name, expect) in [
        ("container_cpu_usage_seconds_total", "2"),
        ("container_cpu_cfs_throttled_seconds_total", "4"),
        ("container_memory_working_set_bytes", "70"),
        (
            "container_memory_failures_total",
            "pgfault,container 11; pgfault,hierarchy 21; pgmajfault,container 12; pgmajfault,hierarchy 22",
        ),
        ("container_oom_events_total", "1"),
        ("container_hugetlb_usage_bytes", "2MB 4"),
        ("container_hugetlb_max_usage_bytes", ""),
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
        ("container_pressure_memory_waiting_seconds_total", "3"),
        ("container_pressure_memory_stalled_seconds_total", "1"),
    ] {
        assert_eq!(series(&look, name), expect, "{name}");
    }
    assert_eq!(series(&Look::default(), "container_pressure_cpu_stalled_seconds_total"), "");
}

#[test]
fn no_family_is_there_twice() {
    let plain = USAGE_METRICS.iter().map(|metric| metric.0);
    let names: std::collections::BTreeSet<&str> =
        FAMILIES.iter().map(|family| family.0).chain(plain).collect();
    assert_eq!(names.len(), FAMILIES.len() + USAGE_METRICS.len());
}
