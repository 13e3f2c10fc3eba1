//! The tables of iptables, and the ways into their chains.

/// A table that rules are in. In this order they are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Mangle,
    Filter,
    Nat,
}

impl Table {
    pub(crate) const ALL: [Self; 3] = [Self::Mangle, Self::Filter, Self::Nat];

    /// What iptables calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// A way from a chain of the kernel's to one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) table: Table,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    /// What else a packet has to be.
    pub(crate) only: &'static str,
    pub(crate) comment: &'static str,
}
