//! The match of a toleration and a taint.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1`.

/// A taint's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taint<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value, or empty.
    pub value: &'a str,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'a str,
}

/// A toleration's fields; empty texts stand for absent fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// The taint's key; empty with `Exists` tolerates every key.
    pub key: &'a str,
    /// `Equal` (also when empty), `Exists`, or with the feature for it `Lt` and `Gt`.
    pub operator: &'a str,
    /// The value that `Equal` compares.
    pub value: &'a str,
    /// The taint's effect; empty for every effect.
    pub effect: &'a str,
}

impl Toleration<'_> {
    /// `true` if `taint` is tolerated.
    pub fn tolerates(&self, taint: &Taint<'_>) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_value_and_effect_must_fit() {
        let taint = Taint { key: "k", value: "v", effect: "NoExecute" };
        let exists = Toleration { operator: "Exists", ..Toleration::default() };
        assert!(exists.tolerates(&taint));
        let equal = Toleration { key: "k", value: "v", ..Toleration::default() };
        assert!(equal.tolerates(&taint));
        assert!(!Toleration { effect: "NoSchedule", ..equal }.tolerates(&taint));
        assert!(!Toleration { value: "w", ..equal }.tolerates(&taint));
        assert!(!Toleration { key: "other", ..exists }.tolerates(&taint));
    }
}
