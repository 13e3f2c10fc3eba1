//! The text of a taint, and its match with a toleration.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1`; `ParseTaints` and `CheckTaintValidation` of upstream's `pkg/util/taints`.

use crate::names;

/// All effects.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

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

/// A flaw of a taint's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It is not `key[=value]:effect`.
    Form,
    /// Its key or its value, and the rule that it breaks.
    Name(String),
    /// Its effect, which is none.
    Effect(String),
}

impl<'a> Taint<'a> {
    /// Reads `key=value:Effect` or `key:Effect`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, Vec<Flaw>> {
        let parts: Vec<&str> = text.split(':').collect();
        let [pair, effect] = parts[..] else { return Err(vec![Flaw::Form]) };
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let rules = names::qualified_name(key).into_iter().chain(names::label_value(value));
        let mut flaws: Vec<Flaw> = rules.map(Flaw::Name).collect();
        if !EFFECTS.contains(&effect) {
            flaws.push(Flaw::Effect(effect.to_owned()));
        }
        if flaws.is_empty() { Ok(Self { key, value, effect }) } else { Err(flaws) }
    }
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
