//! The rules about taints of devices that controller and scheduler share: which devices a DeviceTaintRule is about, and what
//! a toleration is good for.
//!
//! Pure. A rule without a selector is about no device and one with an empty selector about all, as the API says; upstream's
//! scheduler takes the one for the other. Source: `k8s.io/dynamic-resource-allocation/resourceclaim`,
//! `devicetoleration.go`, and `resourceslice/tracker`, KEP-5055.

use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;

/// The effect of a taint whose device is given to nobody who does not tolerate it.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// The effect of a taint that, beside that, ends Pods that have the device.
pub const NO_EXECUTE: &str = "NoExecute";

/// `true` if the rule's taint is on the device of this driver, pool and name.
pub fn selects(rule: &DeviceTaintRule, driver: &str, pool: &str, device: &str) -> bool {
    let Some(selector) = &rule.spec.device_selector else { return false };
    [(&selector.driver, driver), (&selector.pool, pool), (&selector.device, device)]
        .iter()
        .all(|(wanted, name)| wanted.as_deref().is_none_or(|wanted| wanted == *name))
}

/// The taint of a rule as devices have it.
pub fn taint_of(rule: &DeviceTaintRule) -> DeviceTaint {
    let taint = rule.spec.taint.clone();
    DeviceTaint { effect: taint.effect, key: taint.key, time_added: taint.time_added, value: taint.value }
}

/// `true` if the toleration is one of the taint, whatever the taint's effect comes to.
pub fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let is_for =
        |mine: &Option<String>, theirs: &str| mine.as_deref().is_none_or(|m| m.is_empty() || m == theirs);
    if !is_for(&toleration.effect, &taint.effect) || !is_for(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
        serde_saphyr::from_str(yaml).expect("valid YAML")
    }

    #[test]
    fn a_rule_is_about_the_devices_that_meet_all_of_its_selector() {
        for (selector, expect) in [
            ("null", false),
            ("{}", true),
            ("{driver: d}", true),
            ("{driver: other}", false),
            ("{pool: p, device: a}", true),
            ("{driver: d, pool: p, device: a}", true),
            ("{driver: d, pool: p, device: b}", false),
            ("{driver: d, pool: other, device: a}", false),
        ] {
            let rule: DeviceTaintRule = parse(&format!(
                "{{metadata: {{name: r}}, spec: {{deviceSelector: {selector}, taint: {{key: k, effect: NoExecute}}}}}}"
            ));
            assert_eq!(selects(&rule, "d", "p", "a"), expect, "{selector}");
        }
    }

    #[test]
    fn a_toleration_is_for_its_effect_key_and_value() {
        let taint = parse("{key: k, value: v, effect: NoExecute}");
        for (toleration, expect) in [
            ("{operator: Exists}", true),
            ("{operator: Exists, key: k}", true),
            ("{operator: Exists, key: l}", false),
            ("{operator: Exists, key: k, effect: NoExecute}", true),
            ("{operator: Exists, key: k, effect: NoSchedule}", false),
            ("{operator: Equal, key: k, value: v}", true),
            ("{operator: Equal, key: k, value: w}", false),
            ("{operator: Equal, key: k}", false),
            ("{key: k, value: v}", true),
            ("{operator: Equal, value: v}", true),
            ("{operator: Like, key: k, value: v}", false),
        ] {
            assert_eq!(tolerates(&parse(toleration), &taint), expect, "{toleration}");
        }
    }
}
