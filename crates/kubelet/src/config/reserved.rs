//! What of the machine is kept for the kubelet itself and for the system.

use std::collections::BTreeMap;

use machinery::quantity::Quantity;

/// Resources that Pods cannot have, by name.
///
/// Source: `kubeReserved` and `systemReserved`, KubeletConfiguration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reserved {
    /// For Kubernetes' own processes.
    pub kube: BTreeMap<String, String>,
    /// For everything else of the system.
    pub system: BTreeMap<String, String>,
}

/// What can be reserved. Source: `pkg/kubelet/apis/config/validation`.
pub(super) const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

impl Reserved {
    /// How much of `resource` is kept, in thousandths.
    pub(crate) fn milli(&self, resource: &str) -> i64 {
        let of = |map: &BTreeMap<String, String>| {
            let text = map.get(resource).and_then(|text| text.parse::<Quantity>().ok());
            text.map_or(0, Quantity::milli_value)
        };
        of(&self.kube).saturating_add(of(&self.system))
    }

    /// How much of `resource` is kept, in whole units.
    pub(crate) fn whole(&self, resource: &str) -> i64 {
        let of = |map: &BTreeMap<String, String>| {
            let text = map.get(resource).and_then(|text| text.parse::<Quantity>().ok());
            text.map_or(0, Quantity::value)
        };
        of(&self.kube).saturating_add(of(&self.system))
    }
}
