//! System controls that concern nobody but the Pod that sets them.
//!
//! Pod security lets everybody set them, and every node takes them.

/// The names with dots, in the order in which they became allowed; versions of a policy know the first few.
///
/// Source: `pkg/kubelet/sysctl/safe_sysctls.go`, `pod-security-admission/policy/check_sysctls.go`.
pub const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
