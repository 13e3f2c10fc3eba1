//! Series of disks, files and sockets, as cAdvisor has them: `prometheus_metrics` of its `metrics/testdata`.

use expect_test::expect;

use super::*;
use crate::stats::{ContainerStats, PodStats};

/// The machine's disk, and a container that has read and written.
fn look() -> Look {
    let container = ContainerStats {
        id: "abc".into(),
        name: "main".into(),
        image: "img".into(),
        cgroup: "/pod/abc".into(),
        ..ContainerStats::default()
    };
    let pod = PodStats {
        name: "web".into(),
        namespace: "shop".into(),
        cgroup: "/pod".into(),
        containers: vec![container],
        ..PodStats::default()
    };
    let amounts = |read: u64, write: u64| [("Read".to_owned(), read), ("Write".to_owned(), write)].into();
    let device = Device { major: 8, minor: 0, bytes: amounts(4096, 8192), count: amounts(1, 2) };
    let deep = Deep { devices: vec![device], open_files_max: Some(1024), ..Deep::default() };
    let fs = FileSystem { capacity: 1000, available: 600, used: 400, inodes: 10, inodes_free: 4 };
    Look {
        pods: vec![pod],
        disk: Some(("/dev/sda1".into(), fs)),
        disk_counters: Some([1, 2, 3, 4000, 5, 6, 7, 8000, 9, 10_000, 11_000]),
        deep: [("/pod/abc".to_owned(), deep)].into(),
        ..Look::default()
    }
}

/// The series whose names begin so, without help and types.
fn series(look: &Look, prefix: &str) -> String {
    let mut out = Exposition::default();
    render(&mut out, look, &crate::server::cadvisor::subjects(look), None);
    let text = out.finish();
    text.lines().filter(|line| line.starts_with(prefix)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_machines_file_system_is_the_only_one() {
    expect![[r#"
        container_fs_inodes_free{container="",device="/dev/sda1",id="/",image="",name="",namespace="",pod=""} 4
        container_fs_inodes_total{container="",device="/dev/sda1",id="/",image="",name="",namespace="",pod=""} 10
    "#]]
    .assert_eq(&series(&look(), "container_fs_inodes"));
    let nothing = Look { disk: None, ..look() };
    assert_eq!(series(&nothing, "container_fs_inodes"), "", "nobody knows it");
    assert_eq!(series(&nothing, "container_fs_reads_merged"), "");
}

#[test]
fn times_of_disks_are_in_seconds_and_counts_are_counts() {
    for (name, expect) in [
        ("container_fs_reads_merged_total", "2"),
        ("container_fs_sector_reads_total", "3"),
        ("container_fs_read_seconds_total", "4"),
        ("container_fs_writes_merged_total", "6"),
        ("container_fs_sector_writes_total", "7"),
        ("container_fs_write_seconds_total", "8"),
        ("container_fs_io_current", "9"),
        ("container_fs_io_time_seconds_total", "10"),
        ("container_fs_io_time_weighted_seconds_total", "11"),
    ] {
        let found = series(&look(), &format!("{name}{{"));
        assert_eq!(found.trim_end().rsplit(' ').next(), Some(expect), "{found}");
        assert_eq!(found.lines().count(), 1, "of the disk alone: {found}");
    }
    let uncounted = Look { disk_counters: None, ..look() };
    assert_eq!(series(&uncounted, "container_fs_io"), "");
}

#[test]
fn what_a_container_reads_and_writes_is_told_by_its_disks() {
    expect![[r#"
        container_fs_reads_bytes_total{container="main",device="/dev/sda",id="/pod/abc",image="img",name="abc",namespace="shop",pod="web"} 4096
    "#]]
    .assert_eq(&series(&look(), "container_fs_reads_bytes_total").replace(&device_name(), "/dev/sda"));
    let both = series(&look(), "container_fs_writes_total");
    let values: Vec<&str> = both.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(values, ["5", "2"], "the disk's own, and the container's");
    let operations = series(&look(), "container_blkio_device_usage_total");
    assert!(operations.contains("major=\"8\",minor=\"0\"") && operations.contains("operation=\"Write\""));
    assert_eq!(operations.lines().count(), 2);
    let idle = Look { deep: [("/pod/abc".to_owned(), Deep::default())].into(), ..look() };
    assert_eq!(series(&idle, "container_blkio"), "", "it has not read anything");
}

/// As the machine calls the first disk.
fn device_name() -> String {
    look().deep["/pod/abc"].devices[0].name().to_string()
}

#[test]
fn a_limit_that_is_none_is_minus_one() {
    let soft = |look: &Look| {
        let line = series(look, "container_ulimits_soft");
        line.trim_end().rsplit(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(soft(&look()), "1024");
    let unlimited = Look { deep: [("/pod/abc".to_owned(), Deep::default())].into(), ..look() };
    assert_eq!(soft(&unlimited), "-1");
    assert_eq!(soft(&Look { deep: Default::default(), ..look() }), "", "nobody has looked");
}
