//! The memory of the device taint eviction controller: which Pods are to leave, how many have left because of which rule, and
//! which taints slices have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::Informers;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceSlice;
use parking_lot::Mutex;

use super::rule_status::PERIOD;
use super::taints::{Eviction, Tainted};
use crate::pod::since_until;

/// See the module.
#[derive(Default)]
pub(super) struct Memory {
    leaving: Mutex<BTreeMap<String, Leaving>>,
    /// By the rule's uid.
    evicted: Mutex<BTreeMap<String, usize>>,
    /// By the rule's name: when its status is looked at next because of changes of Pods.
    due: Mutex<BTreeMap<String, Timestamp>>,
    tainted: Mutex<Index>,
}

/// The taints of all slices as they were read last.
#[derive(Default)]
struct Index {
    tainted: Arc<Tainted>,
    /// Whether no slice has changed since.
    is_current: bool,
}

/// A Pod that is to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) uid: String,
    pub(super) eviction: Eviction,
    pub(super) state: State,
}

/// How far a Pod is that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its time is not over.
    Waits,
    /// It is being deleted by this controller.
    Goes,
}

impl Memory {
    pub(super) fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }

    /// The taints of all slices, read anew when these have changed.
    pub(super) fn tainted(&self, informers: &Informers) -> Arc<Tainted> {
        // Held while slices are read: who tells of a change meanwhile waits, and has them read again.
        let mut index = self.tainted.lock();
        if !index.is_current {
            let slices = informers.informer::<ResourceSlice>().list();
            *index = Index { tainted: Arc::new(Tainted::of(&slices)), is_current: true };
        }
        index.tainted.clone()
    }

    /// Has the taints read again; answers those that were read last.
    pub(super) fn slices_changed(&self) -> Arc<Tainted> {
        let mut index = self.tainted.lock();
        index.is_current = false;
        index.tainted.clone()
    }

    /// Whether the Pod under the key was to leave.
    pub(super) fn is_leaving(&self, key: &str) -> bool {
        self.leaving.lock().contains_key(key)
    }

    pub(super) fn keep(&self, key: &str, leaving: Leaving) {
        self.leaving.lock().insert(key.to_owned(), leaving);
    }

    pub(super) fn forget(&self, key: &str) {
        self.leaving.lock().remove(key);
    }

    /// Forgets the Pod under the key unless it has the uid `staying`; answers why it had to leave if this controller has made it
    /// leave, and counts it.
    pub(super) fn take_gone(&self, key: &str, staying: Option<&str>) -> Option<Eviction> {
        let mut all = self.leaving.lock();
        if all.get(key).is_none_or(|leaving| Some(leaving.uid.as_str()) == staying) {
            return None;
        }
        let gone = all.remove(key).filter(|leaving| leaving.state == State::Goes)?;
        let mut evicted = self.evicted.lock();
        gone.eviction.rules.iter().for_each(|rule| *evicted.entry(rule.clone()).or_default() += 1);
        Some(gone.eviction)
    }

    /// How many Pods have left because of the rule of that uid, since this process began.
    pub(super) fn evicted(&self, rule: &str) -> usize {
        self.evicted.lock().get(rule).copied().unwrap_or_default()
    }

    pub(super) fn forget_rule(&self, uid: &str) {
        self.evicted.lock().remove(uid);
    }

    /// How long the rule's status waits yet for more changes of Pods; nothing if it is time to look at it.
    pub(super) fn waits(&self, rule: &str, now: Timestamp) -> Option<Duration> {
        let mut all = self.due.lock();
        let Some(due) = all.get(rule).copied() else {
            all.insert(rule.to_owned(), now + PERIOD);
            return Some(PERIOD);
        };
        let left = since_until(now, due);
        if left.is_zero() {
            all.remove(rule);
            return None;
        }
        Some(left)
    }

    /// Has the rule's status looked at then.
    pub(super) fn postpone(&self, rule: &str, due: Timestamp) {
        self.due.lock().insert(rule.to_owned(), due);
    }
}
