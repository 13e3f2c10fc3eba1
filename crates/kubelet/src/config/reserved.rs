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

/// Cgroups that the kubelet limits. Source: `enforceNodeAllocatable`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// All Pods together have what is allocatable.
    pub pods: bool,
    /// What the operator has put Kubernetes' own processes in, such as `/podruntime.slice`.
    pub kube: Option<ReservedCgroup>,
    /// What everything else of the system is in.
    pub system: Option<ReservedCgroup>,
}

/// A cgroup of the operator's, which has what is reserved for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedCgroup {
    /// Below the root. Source: `kubeReservedCgroup`, `systemReservedCgroup`.
    pub path: String,
    /// Only CPU, which can be had again. Source: `kube-reserved-compressible`.
    pub is_cpu_only: bool,
}

impl Enforced {
    /// Upstream's words.
    pub(super) fn names(&self) -> Vec<String> {
        let of = |name: &str, cgroup: &Option<ReservedCgroup>| {
            let cgroup = cgroup.as_ref()?;
            Some(if cgroup.is_cpu_only { format!("{name}-compressible") } else { name.to_owned() })
        };
        let mut names: Vec<String> = self.pods.then(|| "pods".to_owned()).into_iter().collect();
        names.extend(of("system-reserved", &self.system));
        names.extend(of("kube-reserved", &self.kube));
        if names.is_empty() { vec!["none".into()] } else { names }
    }
}

#[cfg(test)]
mod tests;
