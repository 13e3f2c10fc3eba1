//! What is kept from Pods, and what that is called.

use super::*;

fn amounts(text: &str) -> BTreeMap<String, String> {
    text.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
        .collect()
}

/// Source: `TestValueOfAllocatableResources` of upstream's `cmd/kubelet/app`; what cannot be read is refused before.
#[test]
fn what_is_kept_is_the_sum_of_both() {
    for (kube, system, resource, milli, whole) in [
        ("", "", "cpu", 0, 0),
        ("cpu=200m", "", "cpu", 200, 1),
        ("cpu=200m", "cpu=1300m", "cpu", 1500, 3),
        ("cpu=1", "cpu=2", "cpu", 3000, 3),
        ("memory=150G", "", "memory", 150_000_000_000_000, 150_000_000_000),
        ("memory=1Gi", "memory=1Mi", "memory", ((1 << 30) + (1 << 20)) * 1000, (1 << 30) + (1 << 20)),
        ("memory=1Gi", "", "cpu", 0, 0),
        ("pid=1000", "pid=24", "pid", 1_024_000, 1024),
        ("ephemeral-storage=1k", "", "ephemeral-storage", 1_000_000, 1000),
        ("cpu=many", "cpu=1", "cpu", 1000, 1),
        ("cpu=9223372036854775807", "cpu=9223372036854775807", "cpu", i64::MAX, i64::MAX),
    ] {
        let reserved = Reserved { kube: amounts(kube), system: amounts(system) };
        assert_eq!(
            (reserved.milli(resource), reserved.whole(resource)),
            (milli, whole),
            "{kube} {system} {resource}"
        );
    }
}

#[test]
fn what_is_enforced_has_upstreams_names() {
    let cgroup = |is_cpu_only| Some(ReservedCgroup { path: "/a".into(), is_cpu_only });
    for (pods, kube, system, expect) in [
        (false, None, None, &["none"][..]),
        (true, None, None, &["pods"]),
        (true, cgroup(false), None, &["pods", "kube-reserved"]),
        (true, cgroup(false), cgroup(false), &["pods", "system-reserved", "kube-reserved"]),
        (false, cgroup(true), cgroup(true), &["system-reserved-compressible", "kube-reserved-compressible"]),
        (false, cgroup(false), cgroup(true), &["system-reserved-compressible", "kube-reserved"]),
    ] {
        assert_eq!(Enforced { pods, kube, system }.names(), expect);
    }
}
