//! Health checks that the parts of one process answer for, by name; read by whoever serves its health.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Metrics;

/// A check: nothing if all is well, else why not, fit for anybody's eyes.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of one process.
#[derive(Default)]
pub struct Checks(Mutex<BTreeMap<String, Check>>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}

impl Checks {
    /// The checks of the process whose metrics these are.
    pub fn of(metrics: &Metrics) -> Arc<Self> {
        metrics.part(|_| Self::default())
    }

    /// Adds a check; one of the same name is replaced.
    pub fn add(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let mut checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.insert(name.to_owned(), Box::new(check));
    }

    /// Every check with what it says now, in order of name.
    pub fn all(&self) -> Vec<(String, Result<(), String>)> {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.iter().map(|(name, check)| (name.clone(), check())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_of_a_process_and_answer_by_name() {
        let (metrics, other) = (Metrics::new(), Metrics::new());
        Checks::of(&metrics).add("b", || Err("late".to_owned()));
        Checks::of(&metrics).add("a", || Err("replaced".to_owned()));
        Checks::of(&metrics).add("a", || Ok(()));
        let all = Checks::of(&metrics).all();
        assert_eq!(all, [("a".to_owned(), Ok(())), ("b".to_owned(), Err("late".to_owned()))]);
        assert!(Checks::of(&other).all().is_empty());
    }
}
