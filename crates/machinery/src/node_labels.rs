//! Labels of Kubernetes' own that a kubelet may give its Node. Source: `IsKubeletLabel` of `k8s.io/kubelet/pkg/apis`.

const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Domains of labels that are a kubelet's.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// `true` for what a kubelet may set: any label that is not of `kubernetes.io` and `k8s.io`, and of those a few. Those of
/// `node-restriction.kubernetes.io`, which isolate nodes from each other, are not among them.
pub fn is_kubelets(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return true };
    let is_in = |of: &str| domain.strip_suffix(of).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'));
    let is_reserved = is_in("kubernetes.io") || is_in("k8s.io");
    !is_reserved || KUBELET_LABELS.contains(&label) || KUBELET_DOMAINS.into_iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_sets_what_is_nobody_elses() {
        for (label, expect) in [
            ("disk", true),
            ("example.com/disk", true),
            ("notkubernetes.io/disk", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/rack", true),
            ("a.node.kubernetes.io/rack", true),
            ("kubelet.kubernetes.io/rack", true),
            ("kubernetes.io/rack", false),
            ("k8s.io/rack", false),
            ("a.k8s.io/rack", false),
            ("topology.kubernetes.io/rack", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("node-restriction.kubernetes.io/tenant", false),
            ("a.node-restriction.kubernetes.io/tenant", false),
        ] {
            assert_eq!(is_kubelets(label), expect, "{label}");
        }
    }
}
