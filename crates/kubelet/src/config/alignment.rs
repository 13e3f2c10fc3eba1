//! How near to each other the CPUs, memory and devices of a container must lie, as the operator wants it.

/// More NUMA nodes are more combinations than are looked at if nobody says so. Source: `defaultMaxAllowableNUMANodes`.
pub(crate) const NODES_MAX: usize = 8;
/// More are more combinations than can be looked at.
pub(crate) const NODES_BOUND: usize = 16;

/// How much a Pod's resources must lie together. Source: `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nobody is asked.
    #[default]
    None,
    /// As near as possible, and never refused for it.
    BestEffort,
    /// On as few nodes as the machine could, or refused.
    Restricted,
    /// On one node, or refused.
    SingleNumaNode,
}

impl Policy {
    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

/// Whether containers are looked at one by one or all together. Source: `topologyManagerScope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// `container`
    #[default]
    Container,
    /// `pod`
    Pod,
}

impl Scope {
    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

/// What the operator wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// Source: `topologyManagerPolicy`.
    pub policy: Policy,
    /// Source: `topologyManagerScope`.
    pub scope: Scope,
    /// Of as many NUMA nodes those are better that are nearer to each other.
    /// Source: `topologyManagerPolicyOptions.prefer-closest-numa-nodes`.
    pub prefers_closest: bool,
    /// Most NUMA nodes of a machine; [`NODES_MAX`] if nobody says so.
    /// Source: `topologyManagerPolicyOptions.max-allowable-numa-nodes`.
    pub nodes_max: Option<usize>,
}
