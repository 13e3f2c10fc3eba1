//! For whom something that has happened is worth another try: a row per plugin that may have refused a Pod.
//!
//! A hint is asked only about Pods that its plugin has refused, and only of what its plugin looks at. It may say yes too
//! often, which costs a try, but not no where a try would succeed.
//! Source: `EventsToRegister` and the queueing hints of each plugin of kube-scheduler.

mod gangs;
mod nodes;
mod pods;
mod volumes;

use controller::pod::Pod;

use crate::events::Event;
use crate::node_info::Snapshot;

/// The name under which Pods are refused while there is no Node at all.
pub const NO_NODE: &str = "";

/// The relation of a plugin's refusal to an event.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// Upstream's plugin name.
    pub plugin: &'static str,
    /// `true` if the Pod may be in a better position now.
    pub helps: fn(&Event, &Pod, &Snapshot) -> bool,
}

/// One for each plugin that refuses Pods.
pub const HINTS: &[Hint] = &[
    Hint { plugin: NO_NODE, helps: nodes::any_new },
    Hint { plugin: "NodeUnschedulable", helps: nodes::unschedulable },
    Hint { plugin: "NodeName", helps: nodes::any_new },
    Hint { plugin: "TaintToleration", helps: nodes::taint_toleration },
    Hint { plugin: "NodeAffinity", helps: nodes::affinity },
    Hint { plugin: "NodePorts", helps: nodes::ports },
    Hint { plugin: "NodeResourcesFit", helps: nodes::resources_fit },
    Hint { plugin: "VolumeRestrictions", helps: volumes::restrictions },
    Hint { plugin: "NodeVolumeLimits", helps: volumes::limits },
    Hint { plugin: "VolumeBinding", helps: volumes::binding },
    Hint { plugin: "VolumeZone", helps: volumes::zone },
    Hint { plugin: "PodTopologySpread", helps: pods::topology_spread },
    Hint { plugin: "InterPodAffinity", helps: pods::inter_pod_affinity },
    Hint { plugin: "DynamicResources", helps: volumes::dynamic_resources },
    Hint { plugin: "GangScheduling", helps: gangs::gang_scheduling },
];

/// `true` if what has happened may help a Pod that these plugins have refused. A plugin that has no row is helped by
/// all.
pub fn helps(refused_by: &str, event: &Event, pod: &Pod, snapshot: &Snapshot) -> bool {
    let hint = HINTS.iter().find(|hint| hint.plugin == refused_by);
    hint.is_none_or(|hint| (hint.helps)(event, pod, snapshot))
}

#[cfg(test)]
mod tests;
