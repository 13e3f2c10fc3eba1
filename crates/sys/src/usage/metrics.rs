//! The metrics of a cgroup, under the names that scrapers know, for exporters.

use super::Usage;

/// The kind of a metric: one that only grows, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It does.
    Counter,
    /// It is what it is now.
    Gauge,
}

/// Name, kind, help, and its value. Source: names and helps are cAdvisor's.
pub type UsageMetric = (&'static str, Kind, &'static str, fn(&Usage) -> u64);

/// The metrics that everybody tells alike: whole numbers without labels of their own.
pub const USAGE_METRICS: &[UsageMetric] = &[
    ("container_memory_cache", Kind::Gauge, "Number of bytes of page cache memory.", |used| used.cache_bytes),
    ("container_memory_rss", Kind::Gauge, "Size of RSS in bytes.", |used| used.rss_bytes),
    ("container_memory_swap", Kind::Gauge, "Container swap usage in bytes.", |used| used.swap_bytes),
    ("container_memory_mapped_file", Kind::Gauge, "Size of memory mapped files in bytes.", |used| {
        used.mapped_bytes
    }),
    ("container_memory_kernel_usage", Kind::Gauge, "Size of kernel memory allocated in bytes.", |used| {
        used.kernel_bytes
    }),
    (
        "container_memory_total_active_file_bytes",
        Kind::Gauge,
        "Current total active file in bytes.",
        |used| used.active_file_bytes,
    ),
    (
        "container_memory_total_inactive_file_bytes",
        Kind::Gauge,
        "Current total inactive file in bytes.",
        |used| used.inactive_file_bytes,
    ),
    ("container_memory_failcnt", Kind::Counter, "Number of memory usage hits limits", |used| {
        used.memory_failures
    }),
    (
        "container_memory_usage_bytes",
        Kind::Gauge,
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |used| used.memory_bytes,
    ),
    ("container_memory_max_usage_bytes", Kind::Gauge, "Maximum memory usage recorded in bytes", |used| {
        used.memory_max_bytes
    }),
    ("container_memory_working_set_bytes", Kind::Gauge, "Current working set in bytes.", |used| {
        used.working_set_bytes
    }),
    ("container_threads", Kind::Gauge, "Number of threads running inside the container", |used| used.threads),
    (
        "container_threads_max",
        Kind::Gauge,
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        |used| used.threads_max,
    ),
    (
        "container_oom_events_total",
        Kind::Counter,
        "Count of out of memory events observed for the container",
        |used| used.oom_kills,
    ),
];
