//! What tunes things that this kubelet does not do: it changes nothing, and what upstream's kubelet refuses is refused
//! all the same, so that a file that is good here is good there.
//!
//! Source: `ValidateKubeletConfiguration` of upstream's `pkg/kubelet/apis/config/validation`.

use serde_json::Value;

use super::Fields;

/// A field with the least and the most that it may be.
const RANGES: [(&str, f64, f64); 10] = [
    ("eventRecordQPS", 0.0, f64::INFINITY),
    ("eventBurst", 0.0, f64::INFINITY),
    ("healthzPort", 0.0, 65535.0),
    ("oomScoreAdj", -1000.0, 1000.0),
    ("maxOpenFiles", 0.0, f64::INFINITY),
    ("kubeAPIQPS", 0.0, f64::INFINITY),
    ("kubeAPIBurst", 0.0, f64::INFINITY),
    ("iptablesMasqueradeBit", 0.0, 31.0),
    ("iptablesDropBit", 0.0, 31.0),
    ("containerLogMaxWorkers", 1.0, f64::INFINITY),
];

const HAIRPIN_MODES: [&str; 3] = ["none", "hairpin-veth", "promiscuous-bridge"];

impl Fields<'_> {
    /// Numbers out of their range, and words that are none of those that there are.
    pub(super) fn check_ranges(&mut self) {
        for (name, least, most) in RANGES {
            let Some(given) = self.object.get(name).filter(|value| !value.is_null()) else { continue };
            match given.as_f64().filter(|_| given.is_i64() || given.is_u64()) {
                None => self.wrong(name, "a whole number"),
                Some(number) if number < least && most.is_infinite() => {
                    self.wrong(name, &format!("at least {least}"));
                }
                Some(number) if !(least..=most).contains(&number) => {
                    self.wrong(name, &format!("between {least} and {most}, inclusive"));
                }
                Some(_) => {}
            }
        }
        let mode = self.object.get("hairpinMode").and_then(Value::as_str);
        if mode.is_some_and(|mode| !mode.is_empty() && !HAIRPIN_MODES.contains(&mode)) {
            self.wrong("hairpinMode", "\"none\", \"hairpin-veth\" or \"promiscuous-bridge\"");
        }
        let factor = self.object.get("memoryThrottlingFactor").and_then(Value::as_f64);
        if factor.is_some_and(|factor| factor <= 0.0 || factor > 1.0) {
            self.wrong("memoryThrottlingFactor", "greater than 0 and less than or equal to 1.0");
        }
    }
}
