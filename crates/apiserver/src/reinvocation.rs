//! The two rounds of admission that changes objects: what somebody changes late, those before may want to see.
//!
//! All that mutates runs once more, in a second round, if policies or webhooks have changed the object in the first; of
//! policies and webhooks only those that ask for it, and only what was changed behind them. There is no third round.
//!
//! Source: `k8s.io/apiserver/pkg/admission/reinvocation.go`, `plugin/webhook/mutating/reinvocationcontext.go`,
//! `plugin/policy/mutating/reinvocationcontext.go`.

use std::collections::BTreeSet;

use serde_json::Value;

/// The memory of the first round for the second.
#[derive(Debug, Default)]
pub struct Reinvocation {
    is_second: bool,
    is_changed: bool,
    /// The policies' part.
    policies: Asked,
    /// The webhooks' part.
    webhooks: Asked,
}

/// The phase: policies or webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Mutating policies.
    Policies,
    /// Mutating webhooks.
    Webhooks,
}

/// Those of one phase, by what tells each from all others.
#[derive(Debug, Default)]
struct Asked {
    /// Those that want to see what others make later of what they have seen.
    asked: BTreeSet<String>,
    /// Those of them that are to be asked again.
    again: BTreeSet<String>,
    /// What the last of them left.
    left: Option<Value>,
}

impl Reinvocation {
    /// `true` if this is the second round.
    pub fn is_second(&self) -> bool {
        self.is_second
    }

    /// `true` if the first round has changed the object, so that all that mutates runs once more.
    pub fn needs_second(&self) -> bool {
        self.is_changed && !self.is_second
    }

    /// Begins the second round.
    pub fn begin_second(&mut self) {
        self.is_second = true;
    }

    /// A phase begins with this object: if it is not as the phase left it, those that want that are asked again.
    pub fn begin(&mut self, phase: Phase, object: Option<&Value>) {
        let is_second = self.is_second;
        let asked = self.phase(phase);
        if is_second && asked.left.as_ref() != object {
            asked.ask_again();
        }
    }

    /// `true` if one is not asked, because it has been and nothing has changed that it wants to see.
    pub fn skips(&self, phase: Phase, key: &str) -> bool {
        let asked = match phase {
            Phase::Policies => &self.policies,
            Phase::Webhooks => &self.webhooks,
        };
        self.is_second && !asked.again.contains(key)
    }

    /// One has changed the object: those of the phase before it want to see it.
    pub fn changed(&mut self, phase: Phase) {
        self.phase(phase).ask_again();
        self.is_changed = true;
    }

    /// One was asked that wants to see what others make of it later.
    pub fn asked(&mut self, phase: Phase, key: String) {
        self.phase(phase).asked.insert(key);
    }

    /// `true` if any of the phase wants to see what others make of it later.
    pub fn has_asked(&self, phase: Phase) -> bool {
        match phase {
            Phase::Policies => !self.policies.asked.is_empty(),
            Phase::Webhooks => !self.webhooks.asked.is_empty(),
        }
    }

    /// A phase ends, and leaves this object.
    pub fn end(&mut self, phase: Phase, object: Option<&Value>) {
        let asked = self.phase(phase);
        // Only what wants to be asked again makes anybody ask what was left.
        asked.left = object.filter(|_| !asked.asked.is_empty()).cloned();
    }

    fn phase(&mut self, phase: Phase) -> &mut Asked {
        match phase {
            Phase::Policies => &mut self.policies,
            Phase::Webhooks => &mut self.webhooks,
        }
    }
}

impl Asked {
    fn ask_again(&mut self) {
        self.again.append(&mut self.asked);
    }
}
