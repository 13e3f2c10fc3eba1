//! Pods for which others are being made to go: until all of them have been told and are seen to leave.
//!
//! Until then the Pod is not tried again: it would find its victims still there, and choose others.
//! Source: KEP-4832, `IsPodRunningPreemption` of kube-scheduler.

use std::collections::{BTreeSet, HashMap};

/// The Pods that wait for victims to leave.
#[derive(Debug, Default)]
pub struct PendingPreemptions {
    waiting: HashMap<String, Waiting>,
    /// By the victim's uid: the keys of those who wait.
    victims: HashMap<String, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Waiting {
    victims: BTreeSet<String>,
    is_told: bool,
}

impl PendingPreemptions {
    /// These victims, by uid, are told to go for the Pod `key` from now on.
    pub fn begin(&mut self, key: &str, victims: impl Iterator<Item = String>) {
        self.end(key);
        let victims: BTreeSet<String> = victims.collect();
        for victim in &victims {
            self.victims.entry(victim.clone()).or_default().insert(key.to_owned());
        }
        self.waiting.insert(key.to_owned(), Waiting { victims, is_told: false });
    }

    /// The victims of `key` have all been told. Says whether that ends the wait.
    pub fn told(&mut self, key: &str) -> bool {
        let Some(waiting) = self.waiting.get_mut(key) else { return true };
        waiting.is_told = true;
        self.is_over(key)
    }

    /// A Pod is on its way out, or gone. Gives those whose wait that ends.
    pub fn left(&mut self, victim: &str) -> Vec<String> {
        let keys = self.victims.remove(victim).unwrap_or_default();
        for key in &keys {
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.victims.remove(victim);
            }
        }
        keys.into_iter().filter(|key| self.is_over(key)).collect()
    }

    fn is_over(&mut self, key: &str) -> bool {
        let is_over =
            self.waiting.get(key).is_none_or(|waiting| waiting.is_told && waiting.victims.is_empty());
        if is_over {
            self.waiting.remove(key);
        }
        is_over
    }

    /// The Pod waits no longer.
    pub fn end(&mut self, key: &str) {
        let Some(waiting) = self.waiting.remove(key) else { return };
        for victim in waiting.victims {
            if let Some(keys) = self.victims.get_mut(&victim) {
                keys.remove(key);
                if keys.is_empty() {
                    self.victims.remove(&victim);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> PendingPreemptions {
        let mut pending_preemptions = PendingPreemptions::default();
        pending_preemptions.begin("p", ["a".to_owned(), "b".to_owned()].into_iter());
        pending_preemptions
    }

    #[test]
    fn a_wait_ends_when_all_are_told_and_have_left_in_whatever_order() {
        let mut pending_preemptions = two();
        assert!(pending_preemptions.left("a").is_empty() && pending_preemptions.left("b").is_empty());
        assert!(pending_preemptions.told("p"));
        let mut pending_preemptions = two();
        assert!(
            !pending_preemptions.told("p")
                && pending_preemptions.left("b").is_empty()
                && pending_preemptions.left("b").is_empty()
        );
        assert_eq!(pending_preemptions.left("a"), ["p"]);
        assert!(pending_preemptions.waiting.is_empty() && pending_preemptions.victims.is_empty());
    }

    #[test]
    fn one_victim_may_be_waited_for_by_several() {
        let mut pending_preemptions = two();
        pending_preemptions.begin("q", std::iter::once("a".to_owned()));
        assert!(!pending_preemptions.told("q"));
        assert_eq!(pending_preemptions.left("a"), ["q"]);
        pending_preemptions.begin("q", std::iter::once("b".to_owned()));
        pending_preemptions.end("p");
        assert!(!pending_preemptions.told("q"));
        assert_eq!(pending_preemptions.left("b"), ["q"]);
        assert!(pending_preemptions.told("unknown") && pending_preemptions.left("unknown").is_empty());
        assert!(pending_preemptions.waiting.is_empty() && pending_preemptions.victims.is_empty());
    }
}
