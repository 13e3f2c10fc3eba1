//! What may run out: disk, memory, the watches that programs in containers use up, and the kernel's table of connections.

use std::path::Path;

use super::{Finding, Subject};

/// With less than this the first image does not fit.
const DISK_BYTES_MIN: u64 = 256 << 20;
/// With less than this a cluster fills up soon.
const DISK_BYTES_LOW: u64 = 2 << 30;
/// What a cluster without Pods needs, with some room.
const MEMORY_KIB_LOW: u64 = 256 << 10;
/// What programs in containers take; kernels before 5.11 have fewer. Source: kind's "too many open files" notes.
const INOTIFY_INSTANCES_LOW: u64 = 512;
/// From this share of the kernel's table on, in percent, peaks do not fit.
const CONNECTIONS_PERCENT_HIGH: u64 = 80;

pub(super) fn disk(subject: &Subject<'_>) -> Finding {
    let root = subject.layout.root();
    let folder = root.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    match sys::process::fs_stats(folder) {
        Ok(stats) => disk_of(stats.available_bytes, folder),
        Err(error) => Finding::warning(format!("{error}"), "choose another folder with --data-dir"),
    }
}

fn disk_of(available: u64, folder: &Path) -> Finding {
    let free = format!("{} free in {}", cli::status::size(available), folder.display());
    match available {
        ..DISK_BYTES_MIN => Finding::failure(
            format!("only {free}: a cluster does not fit"),
            "make room, or choose another folder with --data-dir",
        ),
        DISK_BYTES_MIN..DISK_BYTES_LOW => {
            Finding::warning(format!("only {free}"), "make room: images and logs need some")
        }
        _ => Finding::Fine(free),
    }
}

pub(super) fn memory(_: &Subject<'_>) -> Finding {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match field(&text, "MemAvailable:") {
        None => Finding::Fine("not known".into()),
        Some(kib) if kib < MEMORY_KIB_LOW => Finding::warning(
            format!("only {} available", cli::status::size(kib * 1024)),
            "end other programs: a cluster takes about 100 MiB, and Pods their own",
        ),
        Some(kib) => Finding::Fine(format!("{} available", cli::status::size(kib * 1024))),
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

pub(super) fn inotify(_: &Subject<'_>) -> Finding {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(most) if most < INOTIFY_INSTANCES_LOW => Finding::warning(
            format!(
                "a user may have {most} inotify instances: many Pods use them up (\"too many open files\")"
            ),
            "`sysctl fs.inotify.max_user_instances=8192`",
        ),
        Ok(most) => Finding::Fine(format!("{most} instances for each user")),
        Err(_) => Finding::Fine("not known".into()),
    }
}

pub(super) fn connections(_: &Subject<'_>) -> Finding {
    match kubelet::Tracked::now() {
        None => Finding::Fine("none is tracked yet".into()),
        Some(tracked) => connections_of(tracked),
    }
}

fn connections_of(tracked: kubelet::Tracked) -> Finding {
    let found = format!("{} tracked of at most {}", tracked.count, tracked.max);
    if tracked.percent() < CONNECTIONS_PERCENT_HIGH {
        return Finding::Fine(found);
    }
    Finding::warning(
        format!("{found}: the kernel drops new ones when there are more"),
        format!("`sysctl -w net.netfilter.nf_conntrack_max={}`", tracked.max.saturating_mul(2)),
    )
}

pub(super) fn release(_: &Subject<'_>) -> Finding {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::Fine(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_told_before_it_runs_out() {
        let check = |mib: u64, expected: &str| {
            let found = disk_of(mib << 20, Path::new("/d"));
            let text = match &found {
                Finding::Fine(what) => format!("ok {what}"),
                Finding::Warning { what, .. } => format!("WARN {what}"),
                Finding::Failure { what, .. } => format!("FAIL {what}"),
            };
            assert_eq!(text, expected);
        };
        check(30, "FAIL only 30 MiB free in /d: a cluster does not fit");
        check(300, "WARN only 300 MiB free in /d");
        check(3000, "ok 3000 MiB free in /d");
    }

    #[test]
    fn connections_are_told_before_the_kernel_drops_them() {
        let told = |count| match connections_of(kubelet::Tracked { count, max: 1000 }) {
            Finding::Fine(what) => what,
            Finding::Warning { what, fix } | Finding::Failure { what, fix } => format!("{what}; {fix}"),
        };
        assert_eq!(told(799), "799 tracked of at most 1000");
        let full = "1000 tracked of at most 1000: the kernel drops new ones when there are more; \
                    `sysctl -w net.netfilter.nf_conntrack_max=2000`";
        assert_eq!(told(1000), full);
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(field("MemTotal: 9 kB\nMemAvailable:   123456 kB\n", "MemAvailable:"), Some(123_456));
        assert_eq!(field("MemTotal: 9 kB\n", "MemAvailable:"), None);
    }
}
