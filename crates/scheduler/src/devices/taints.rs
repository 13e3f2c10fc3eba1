//! Taints of devices, as the allocator heeds them: those of slices, and those of DeviceTaintRules.
//!
//! Source: `taintPreventsAllocation` of `k8s.io/dynamic-resource-allocation/structured`, `resourceslice/tracker`, KEP-5055.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::device_taint::{NO_EXECUTE, NO_SCHEDULE, selects, taint_of, tolerates};
use controller::informer::Change;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint, DeviceToleration, ResourceSliceSpec};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;
use machinery::features::Feature;

/// The taints of devices.
#[derive(Clone, Debug, Default)]
pub enum Taints {
    /// Nobody heeds them.
    #[default]
    Ignored,
    /// A device goes to who tolerates its taints: those that its slice says, and those of these rules.
    Heeded(BTreeMap<String, Rule>),
}

/// A rule, and its taint as devices have it.
#[derive(Clone, Debug)]
pub struct Rule {
    rule: Arc<DeviceTaintRule>,
    taint: DeviceTaint,
}

impl Taints {
    /// Heeded if the feature is on.
    pub fn of_features() -> Self {
        if Feature::DraDeviceTaints.is_on() { Self::Heeded(BTreeMap::new()) } else { Self::Ignored }
    }

    /// `true` if they count.
    pub fn are_heeded(&self) -> bool {
        matches!(self, Self::Heeded(_))
    }

    /// Takes a change of a rule in.
    pub(super) fn rule_changed(&mut self, change: &Change<DeviceTaintRule>) {
        let Self::Heeded(rules) = self else { return };
        match &change.new {
            Some(rule) => {
                let made = Rule { rule: rule.clone(), taint: taint_of(rule) };
                rules.insert(change.key.to_string(), made);
            }
            None => drop(rules.remove(&*change.key)),
        }
    }

    /// Whether a device of the slice goes to nobody who tolerates no more than this.
    pub(super) fn prevent(
        &self,
        slice: &ResourceSliceSpec,
        device: &Device,
        tolerations: &[DeviceToleration],
    ) -> bool {
        let Self::Heeded(rules) = self else { return false };
        let of_rules = rules
            .values()
            .filter(|one| selects(&one.rule, &slice.driver, &slice.pool.name, &device.name))
            .map(|one| &one.taint);
        let mut taints = device.taints.iter().flatten().chain(of_rules);
        // What other effects come to is not known; None has none.
        taints.any(|taint| {
            [NO_EXECUTE, NO_SCHEDULE].contains(&taint.effect.as_str())
                && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    }
}

/// Whether the change is one of a rule's taint on a device of the slice.
pub(super) fn concerns(change: &Change<DeviceTaintRule>, slice: &ResourceSliceSpec) -> bool {
    let both = [change.old.as_deref(), change.new.as_deref()];
    let spec = |rule: Option<&DeviceTaintRule>| rule.map(|rule| rule.spec.clone());
    spec(both[0]) != spec(both[1])
        && slice.devices.iter().flatten().any(|device| {
            let mut rules = both.into_iter().flatten();
            rules.any(|rule| selects(rule, &slice.driver, &slice.pool.name, &device.name))
        })
}
