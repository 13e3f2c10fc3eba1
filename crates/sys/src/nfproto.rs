//! The families of netfilter, by the numbers that the kernel knows them by (`NFPROTO_*`).

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableFamily {
    /// `ip`
    #[default]
    Ipv4 = 2,
    /// `ip6`
    Ipv6 = 10,
    /// `inet`: both.
    Inet = 1,
}
