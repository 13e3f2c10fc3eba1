//! Features that are off until somebody turns them on, by upstream's names: `--feature-gates`.
//!
//! A process turns them on once, at its very beginning, and asks for them wherever they matter: what is served, what a
//! write may set, what a kubelet does. Features that are on by default, or that nothing here has, are no gates.
//! Source: `pkg/features/kube_features.go` at v1.35.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// A feature that is off by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// ClusterTrustBundles are served (`certificates.k8s.io/v1beta1`), and who tells them is asked for.
    ClusterTrustBundle,
    /// Pods mount them.
    ClusterTrustBundleProjection,
    /// PodCertificateRequests are served (`certificates.k8s.io/v1beta1`), and kubelets make them for Pods that mount
    /// certificates.
    PodCertificateRequest,
    /// Workloads are served (`scheduling.k8s.io/v1alpha1`), and Pods may name one.
    GenericWorkload,
    /// Pods of a Workload that is a gang go to Nodes together or not at all.
    GangScheduling,
    /// A HorizontalPodAutoscaler that goes by what is outside its Pods may have none.
    HpaScaleToZero,
    /// A StatefulSet may be without several of its Pods while it rolls.
    MaxUnavailableStatefulSet,
    /// The resources of a Job's containers may change while it is suspended and none of its Pods runs.
    MutablePodResourcesForSuspendedJobs,
    /// The scheduling directives of a Job's Pods may change whenever it is suspended and none of its Pods runs, and
    /// not only before it began.
    MutableSchedulingDirectivesForSuspendedJobs,
    /// MutatingAdmissionPolicies are served (`admissionregistration.k8s.io/v1beta1`), and change what is written.
    MutatingAdmissionPolicy,
    /// A Node counts by the share of a storage class' capacity there that a Pod's new volumes take.
    StorageCapacityScoring,
    /// StorageVersions are served (`internal.apiserver.k8s.io/v1alpha1`), API servers write them, and those that are gone are
    /// taken out.
    StorageVersionApi,
    /// StorageVersionMigrations are served (`storagemigration.k8s.io/v1beta1`) and carried out.
    StorageVersionMigrator,
    /// A Pod goes to a Node only when the CSI drivers of its volumes are there: before that their limits are not known.
    VolumeLimitScaling,
    /// Devices have taints and claims tolerations: who does not tolerate a device's taint is not given it, or leaves it.
    DraDeviceTaints,
    /// DeviceTaintRules are served (`resource.k8s.io/v1alpha3`), and taint the devices that they select.
    DraDeviceTaintRules,
}

const ALL: [(Feature, &str); 16] = [
    (Feature::ClusterTrustBundle, "ClusterTrustBundle"),
    (Feature::ClusterTrustBundleProjection, "ClusterTrustBundleProjection"),
    (Feature::PodCertificateRequest, "PodCertificateRequest"),
    (Feature::GenericWorkload, "GenericWorkload"),
    (Feature::GangScheduling, "GangScheduling"),
    (Feature::HpaScaleToZero, "HPAScaleToZero"),
    (Feature::MaxUnavailableStatefulSet, "MaxUnavailableStatefulSet"),
    (Feature::MutablePodResourcesForSuspendedJobs, "MutablePodResourcesForSuspendedJobs"),
    (Feature::MutableSchedulingDirectivesForSuspendedJobs, "MutableSchedulingDirectivesForSuspendedJobs"),
    (Feature::MutatingAdmissionPolicy, "MutatingAdmissionPolicy"),
    (Feature::StorageCapacityScoring, "StorageCapacityScoring"),
    (Feature::StorageVersionApi, "StorageVersionAPI"),
    (Feature::StorageVersionMigrator, "StorageVersionMigrator"),
    (Feature::VolumeLimitScaling, "VolumeLimitScaling"),
    (Feature::DraDeviceTaints, "DRADeviceTaints"),
    (Feature::DraDeviceTaintRules, "DRADeviceTaintRules"),
];

/// Who is of no use without whom.
const NEEDS: [(Feature, Feature); 3] = [
    (Feature::ClusterTrustBundleProjection, Feature::ClusterTrustBundle),
    (Feature::GangScheduling, Feature::GenericWorkload),
    (Feature::DraDeviceTaintRules, Feature::DraDeviceTaints),
];

static ON: OnceLock<BTreeSet<Feature>> = OnceLock::new();

impl Feature {
    /// `true` if this process has it on.
    #[must_use]
    pub fn is_on(self) -> bool {
        ON.get().is_some_and(|on| on.contains(&self))
    }

    fn name(self) -> &'static str {
        ALL.iter().find(|(feature, _)| *feature == self).map_or("", |(_, name)| name)
    }
}

/// Turns on for this process what the gates say; of two about one feature the later counts.
///
/// # Errors
/// If a feature lacks another that it needs, or this was done before.
pub fn turn_on(gates: &[Gate]) -> Result<(), GateError> {
    ON.set(chosen(gates)?).map_err(|_| GateError::Again)
}

fn chosen(gates: &[Gate]) -> Result<BTreeSet<Feature>, GateError> {
    let mut on = BTreeSet::new();
    for gate in gates {
        if gate.is_on {
            on.insert(gate.feature);
        } else {
            on.remove(&gate.feature);
        }
    }
    match NEEDS.iter().find(|(feature, needed)| on.contains(feature) && !on.contains(needed)) {
        Some((feature, needed)) => Err(GateError::Needs(feature.name(), needed.name())),
        None => Ok(on),
    }
}

/// The reason why gates cannot be as they are given. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// It says neither.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// There is none of the name.
    #[error("unrecognized feature gate: {}; those that there are: {}", .0, ALL.map(|(_, known)| known).join(", "))]
    Unknown(String),
    /// It says something else.
    #[error("invalid value of {0}={1}: neither true nor false")]
    Value(String, String),
    /// One feature lacks another.
    #[error("{0} is enabled, but depends on features that are disabled: [{1}]")]
    Needs(&'static str, &'static str),
    /// They were set before.
    #[error("feature gates are set once, when a process starts")]
    Again,
}

/// The part of a flag about one feature: `ClusterTrustBundle=true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    feature: Feature,
    is_on: bool,
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let (name, value) = text.split_once('=').ok_or_else(|| GateError::NoValue(text.to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let Some((feature, _)) = ALL.iter().find(|(_, known)| *known == name) else {
            return Err(GateError::Unknown(name.to_owned()));
        };
        // What Go's `strconv.ParseBool` takes.
        let is_on = match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(GateError::Value(name.to_owned(), value.to_owned())),
        };
        Ok(Self { feature: *feature, is_on })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.feature.name(), self.is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &[&str], expect: &str) {
        let gates: Result<Vec<Gate>, GateError> = flags.iter().map(|flag| flag.parse()).collect();
        let found = match gates.and_then(|gates| chosen(&gates)) {
            Ok(on) => on.into_iter().map(Feature::name).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect, "{flags:?}");
    }

    #[test]
    fn gates_are_read_and_fit_together() {
        check(&[], "");
        check(&["ClusterTrustBundle=true"], "ClusterTrustBundle");
        check(
            &["ClusterTrustBundle = T", "ClusterTrustBundleProjection=1"],
            "ClusterTrustBundle ClusterTrustBundleProjection",
        );
        check(&["ClusterTrustBundle=true", "ClusterTrustBundle=false"], "");
        let lacks = "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: \
                     [ClusterTrustBundle]";
        check(&["ClusterTrustBundleProjection=true"], lacks);
        let lacks = "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]";
        check(&["GangScheduling=true", "GenericWorkload=true", "GenericWorkload=false"], lacks);
        let lacks =
            "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]";
        check(&["DRADeviceTaintRules=true"], lacks);
        check(&["DRADeviceTaintRules=1", "DRADeviceTaints=1"], "DRADeviceTaints DRADeviceTaintRules");
        check(&["ClusterTrustBundle"], "missing bool value for ClusterTrustBundle");
        check(&["ClusterTrustBundle=yes"], "invalid value of ClusterTrustBundle=yes: neither true nor false");
        let unknown = "unrecognized feature gate: AllAlpha; those that there are: ClusterTrustBundle, \
                       ClusterTrustBundleProjection, PodCertificateRequest, GenericWorkload, GangScheduling, HPAScaleToZero, \
                       MaxUnavailableStatefulSet, MutablePodResourcesForSuspendedJobs, \
                       MutableSchedulingDirectivesForSuspendedJobs, MutatingAdmissionPolicy, StorageCapacityScoring, \
                       StorageVersionAPI, StorageVersionMigrator, VolumeLimitScaling, DRADeviceTaints, DRADeviceTaintRules";
        check(&["AllAlpha=true"], unknown);
    }

    #[test]
    fn a_gate_is_written_as_it_is_read() {
        let gate: Gate = "ClusterTrustBundle=t".parse().unwrap();
        assert_eq!(gate.to_string(), "ClusterTrustBundle=true");
        assert_eq!(gate.to_string().parse(), Ok(gate));
    }
}
