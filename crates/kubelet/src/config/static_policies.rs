//! What of CPUs and memory one container can have alone, as the operator wants it.

use std::collections::BTreeMap;

use super::CpuSet;

/// The static policy, as its operator wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticPolicy {
    /// CPUs that nobody gets alone; empty for any. Source: `reservedSystemCPUs`.
    pub reserved: CpuSet,
    /// How many CPUs nobody gets alone if nobody says which: whole cores first.
    pub reserved_count: usize,
    /// Whole cores only. Source: `cpuManagerPolicyOptions.full-pcpus-only`.
    pub is_full_cores_only: bool,
    /// Nobody runs on the reserved CPUs. Source: `cpuManagerPolicyOptions.strict-cpu-reservation`.
    pub is_reservation_strict: bool,
    /// Even parts where one NUMA node has not enough. Source: `cpuManagerPolicyOptions.distribute-cpus-across-numa`.
    pub is_distributed: bool,
    /// CPUs that share a cache are kept together. Source: `cpuManagerPolicyOptions.prefer-align-cpus-by-uncorecache`.
    pub prefers_caches: bool,
}

/// What of each NUMA node nobody gets, by resource, in bytes. Source: `reservedMemory`.
pub type ReservedMemory = BTreeMap<usize, BTreeMap<String, i64>>;
