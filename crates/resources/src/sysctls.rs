//! System controls: how they are named, which namespaces of the kernel have their own, and those that concern nobody but the
//! Pod that sets them.

/// The safe ones: Pod security lets everybody set them, and every node takes them.
///
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

/// A namespace of the kernel that has controls of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Semaphores, queues, shared memory.
    Ipc,
    /// Everything below `net`.
    Net,
}

impl Namespace {
    /// The namespace that has the control of this name with dots; or those that begin so, of a pattern without its `*`.
    /// Source: `GetNamespace`, `k8s.io/component-helpers/node/util/sysctl`.
    pub fn of(name: &str) -> Option<Self> {
        const IPC: [&str; 10] = [
            "kernel.sem",
            "kernel.shm",
            "kernel.shmall",
            "kernel.shmmax",
            "kernel.shmmni",
            "kernel.shm_rmid_forced",
            "kernel.msg",
            "kernel.msgmax",
            "kernel.msgmnb",
            "kernel.msgmni",
        ];
        if IPC.contains(&name) || name.starts_with("fs.mqueue.") {
            return Some(Self::Ipc);
        }
        name.starts_with("net.").then_some(Self::Net)
    }

    /// As messages have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        }
    }
}

/// The name with dots between its parts: the first separator is the one that it uses. Source: `NormalizeName`.
pub fn dotted(name: &str) -> String {
    let is_slashed = name.find(['.', '/']).is_some_and(|i| name[i..].starts_with('/'));
    if !is_slashed {
        return name.to_owned();
    }
    name.chars()
        .map(|c| match c {
            '/' => '.',
            '.' => '/',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_separator_counts() {
        for (name, expect) in [
            ("", ""),
            ("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
            ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
            ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
            ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ] {
            assert_eq!(dotted(name), expect, "{name}");
        }
    }

    /// Source: `namespace_test.go`.
    #[test]
    fn namespaces_have_controls_of_their_own() {
        for (name, expect) in [
            ("kernel.shm_rmid_forced", Some(Namespace::Ipc)),
            ("kernel.msg", Some(Namespace::Ipc)),
            ("kernel.sem", Some(Namespace::Ipc)),
            ("kernel.shm_next_id", None),
            ("kernel.", None),
            ("fs.mqueue.msg_max", Some(Namespace::Ipc)),
            ("fs.mqueue", None),
            ("net.a.b", Some(Namespace::Net)),
            ("net.", Some(Namespace::Net)),
            ("net", None),
            ("netx.a", None),
            ("foo", None),
        ] {
            assert_eq!(Namespace::of(name), expect, "{name}");
        }
    }
}
