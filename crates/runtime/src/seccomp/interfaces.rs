//! The interfaces by which a program on this machine can call the kernel: its own, and those of 32 bits.
//!
//! Each numbers its calls differently. Source: the kernel's tables, `AUDIT_ARCH_*` of linux/audit.h, and libseccomp for
//! the names of interfaces.

#[cfg(target_arch = "aarch64")]
use syscalls::{aarch64, arm};
#[cfg(target_arch = "x86_64")]
use syscalls::{x86, x86_64};

/// An interface.
pub(super) struct Interface {
    /// As profiles have it.
    pub(super) name: &'static str,
    /// As filters see it.
    pub(super) architecture: u32,
    /// What its numbers begin with: x32 has the architecture of 64 bits.
    pub(super) first: u32,
    calls: fn() -> Vec<Call>,
}

/// The name of a call, and its number without [`Interface::first`].
pub(super) type Call = (&'static str, u32);

/// Bit of x32's numbers; also above every other number that there is.
pub(super) const X32: u32 = 0x4000_0000;

impl Interface {
    /// What it has.
    pub(super) fn calls(&self) -> Vec<Call> {
        (self.calls)()
    }
}

/// The machine's own first. Those of one architecture are neighbours, in the order of their numbers.
#[cfg(target_arch = "x86_64")]
pub(super) static ALL: [Interface; 3] = [
    Interface { name: "SCMP_ARCH_X86_64", architecture: 0xc000_003e, first: 0, calls: calls_of_x86_64 },
    Interface { name: "SCMP_ARCH_X32", architecture: 0xc000_003e, first: X32, calls: calls_of_x32 },
    Interface { name: "SCMP_ARCH_X86", architecture: 0x4000_0003, first: 0, calls: calls_of_x86 },
];

/// The machine's own first.
#[cfg(target_arch = "aarch64")]
pub(super) static ALL: [Interface; 2] = [
    Interface { name: "SCMP_ARCH_AARCH64", architecture: 0xc000_00b7, first: 0, calls: calls_of_aarch64 },
    Interface { name: "SCMP_ARCH_ARM", architecture: 0x4000_0028, first: 0, calls: calls_of_arm },
];

macro_rules! table {
    ($sysno:ty) => {
        (0..=<$sysno>::last().id().unsigned_abs())
            .filter_map(|number| <$sysno>::new(number as usize).map(|call| (call.name(), number)))
    };
}

#[cfg(target_arch = "x86_64")]
fn calls_of_x86_64() -> Vec<Call> {
    table!(x86_64::Sysno).collect()
}

#[cfg(target_arch = "x86_64")]
fn calls_of_x86() -> Vec<Call> {
    table!(x86::Sysno).collect()
}

/// Those of 64 bits, but for some whose arguments are laid out differently.
#[cfg(target_arch = "x86_64")]
fn calls_of_x32() -> Vec<Call> {
    const FIRST_OWN: u32 = 512;
    #[rustfmt::skip]
    const OWN: [&str; 36] = [
        "rt_sigaction", "rt_sigreturn", "ioctl", "readv", "writev", "recvfrom", "sendmsg", "recvmsg", "execve",
        "ptrace", "rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo", "sigaltstack", "timer_create", "mq_notify",
        "kexec_load", "waitid", "set_robust_list", "get_robust_list", "vmsplice", "move_pages", "preadv", "pwritev",
        "rt_tgsigqueueinfo", "recvmmsg", "sendmmsg", "process_vm_readv", "process_vm_writev", "setsockopt",
        "getsockopt", "io_setup", "io_submit", "execveat", "preadv2", "pwritev2",
    ];
    let shared = table!(x86_64::Sysno).filter(|(name, _)| !OWN.contains(name));
    shared.chain(OWN.into_iter().zip(FIRST_OWN..)).collect()
}

#[cfg(target_arch = "aarch64")]
fn calls_of_aarch64() -> Vec<Call> {
    // The table has this under its name in the C library alone.
    table!(aarch64::Sysno).chain([("newfstatat", 79)]).collect()
}

/// With those that are ARM's alone, and have numbers of their own.
#[cfg(target_arch = "aarch64")]
fn calls_of_arm() -> Vec<Call> {
    const OWN: [Call; 4] = [
        ("sync_file_range2", 341),
        ("breakpoint", 0xf_0001),
        ("cacheflush", 0xf_0002),
        ("set_tls", 0xf_0005),
    ];
    table!(arm::Sysno).chain(OWN).collect()
}
