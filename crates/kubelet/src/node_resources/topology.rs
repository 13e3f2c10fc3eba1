//! Near or far: whether what a container gets of CPUs, memory and devices lies together.
//!
//! Whoever gives something away says from which NUMA nodes it could ([`Hints`]), a policy finds what suits all of them
//! or refuses the Pod, and then everybody gives. Pure; one caller at a time.
//! Source: `pkg/kubelet/cm/topologymanager` of upstream.

mod policy;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::config::alignment::{Alignment, Policy, Scope};
use crate::machine::layout::Layout;
use crate::machine::nodes::{Nodes, Order};
use crate::pod::admission::Rejection;

/// Why a Pod is refused whose resources do not lie together. Source: `TopologyAffinityError`.
pub(crate) const AFFINITY_ERROR: &str = "TopologyAffinityError";

/// Some of the NUMA nodes, as one that gives things away would use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// `None`: wherever.
    pub(crate) nodes: Option<Nodes>,
    /// There is none with fewer nodes.
    pub(crate) is_preferred: bool,
}

impl Hint {
    /// Nothing speaks for or against any node.
    pub(crate) const ANY: Self = Self { nodes: None, is_preferred: true };
}

/// By resource; `None` where it does not matter, an empty list where nothing is possible.
pub(crate) type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// Who is to be given something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker<'a> {
    /// One container.
    Container(&'a Container),
    /// All containers of the Pod from the same nodes.
    Pod,
}

/// Somebody who gives away what lies on NUMA nodes.
pub(crate) trait Provider {
    /// From which nodes it could give what is asked for.
    fn hints(&self, uid: &str, spec: &PodSpec, asker: Asker<'_>) -> Hints;

    /// Whether it gives the container something that is nobody else's.
    fn pins(&self, _: &PodSpec, _: &Container) -> bool {
        false
    }

    /// Gives the container what it asks for, near `hint` if that is possible. Twice is once.
    ///
    /// # Errors
    /// In upstream's words.
    fn allocate(
        &self,
        uid: &str,
        spec: &PodSpec,
        container: &Container,
        hint: &Hint,
    ) -> Result<(), Rejection>;
}

impl Alignment {
    /// Gives every container of the Pod what it asks for, or refuses the Pod. What was given of a Pod that is refused
    /// is the caller's to take back.
    ///
    /// # Errors
    /// In upstream's words.
    pub(crate) fn allocate(
        self,
        layout: &Layout,
        uid: &str,
        spec: &PodSpec,
        providers: &[&dyn Provider],
    ) -> Result<(), Rejection> {
        let best = |asker| -> Result<Hint, Rejection> {
            if self.policy == Policy::None {
                return Ok(Hint::ANY);
            }
            let hints: Vec<_> = providers.iter().map(|provider| provider.hints(uid, spec, asker)).collect();
            let order =
                if self.prefers_closest { Order::Closest(&layout.distances) } else { Order::Narrowest };
            self.policy.merge(layout.nodes(), &hints, order).ok_or_else(|| {
                let message = "Resources cannot be allocated with Topology locality";
                Rejection::new(AFFINITY_ERROR, message)
            })
        };
        let of_pod = match self.scope {
            Scope::Pod => Some(best(Asker::Pod)?),
            Scope::Container => None,
        };
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            let hint = of_pod.map_or_else(|| best(Asker::Container(container)), Ok)?;
            for provider in providers {
                provider.allocate(uid, spec, container, &hint)?;
            }
        }
        Ok(())
    }
}

/// Sets of nodes from which `request` can be had; those with the fewest nodes are preferred.
///
/// `has` is what a set has at all, `gives` what of that can be had now; `None` if the set must not be used.
pub(crate) fn hints_for(
    all: Nodes,
    request: i64,
    has: impl Fn(Nodes) -> i64,
    gives: impl Fn(Nodes) -> Option<i64>,
) -> Vec<Hint> {
    let possible: Vec<Nodes> = all.subsets();
    let fewest = possible.iter().filter(|nodes| has(**nodes) >= request).map(|nodes| nodes.len()).min();
    let fewest = fewest.unwrap_or(all.len());
    let enough = |nodes: &Nodes| gives(*nodes).is_some_and(|amount| amount >= request);
    let hint = |nodes: Nodes| Hint { nodes: Some(nodes), is_preferred: nodes.len() == fewest };
    possible.into_iter().filter(enough).map(hint).collect()
}

#[cfg(test)]
mod tests;
