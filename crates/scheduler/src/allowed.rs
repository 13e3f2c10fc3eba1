//! Which Nodes the selectors and required affinities of Pods allow, as far as somebody has looked: Pods of a kind ask the same
//! of the same Nodes one after the other, and the labels of Nodes lie all over memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use controller::pod::{Pairs, Pod};
use k8s_openapi::api::core::v1::NodeSelector;
use parking_lot::Mutex;

/// Wishes that are remembered; the oldest is forgotten first.
const WISHES_MAX: usize = 16;
/// What is known of a Node: nothing yet, or one of these.
const ALLOWED: u8 = 1;
const REFUSED: u8 = 2;

/// By what Pods have asked for last.
#[derive(Debug, Default)]
pub(crate) struct Allowed(Mutex<VecDeque<(Wish, Verdicts)>>);

#[derive(Debug)]
struct Wish {
    selector: Option<Pairs<String>>,
    required: Option<NodeSelector>,
}

/// Of one wish: whether it allows a Node, by the Nodes' positions. Of those without one nothing is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdicts(Arc<[AtomicU8]>);

/// Another snapshot changes by itself.
impl Clone for Allowed {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Allowed {
    /// What is known for a Pod among so many Nodes; nothing if it may be on all.
    pub(crate) fn of(&self, pod: &Pod, nodes: usize) -> Verdicts {
        let Some(spec) = &pod.spec else { return Verdicts::default() };
        let own = spec.affinity.as_deref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = own.and_then(|own| own.required_during_scheduling_ignored_during_execution.as_ref());
        if spec.node_selector.as_ref().is_none_or(Pairs::is_empty) && required.is_none() {
            return Verdicts::default();
        }
        let mut known = self.0.lock();
        let is_same = |wish: &Wish| wish.selector == spec.node_selector && wish.required.as_ref() == required;
        if let Some((_, verdicts)) = known.iter().find(|(wish, _)| is_same(wish)) {
            return verdicts.clone();
        }
        let verdicts = Verdicts((0..nodes).map(|_| AtomicU8::default()).collect());
        known.truncate(WISHES_MAX - 1);
        let wish = Wish { selector: spec.node_selector.clone(), required: required.cloned() };
        known.push_front((wish, verdicts.clone()));
        verdicts
    }

    /// Forgets everything: there are other Nodes now, or one has other labels.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

impl Verdicts {
    /// Whether the Node at `position` is allowed; `look` says so for the first one who asks.
    pub(crate) fn of(&self, position: Option<usize>, look: impl FnOnce() -> bool) -> bool {
        let Some(known) = position.and_then(|position| self.0.get(position)) else { return look() };
        match known.load(Ordering::Relaxed) {
            ALLOWED => true,
            REFUSED => false,
            _ => {
                let is_allowed = look();
                known.store(if is_allowed { ALLOWED } else { REFUSED }, Ordering::Relaxed);
                is_allowed
            }
        }
    }
}
