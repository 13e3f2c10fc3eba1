//! The policies and bindings of a server, compiled: nothing of them is read while a request waits.
//!
//! Whether anything has changed costs two atomic loads; what has changed is compiled by the first request that finds it,
//! and what has not is kept. So a policy counts once its write is answered, as a webhook does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use super::policy::{Binding, Evaluator, Hook, Policy};
use crate::cache::CachedObject;
use crate::kinds::Kind;
use crate::status::Result;

/// The policies that are bound, by name.
pub type Hooks<E> = Arc<[Hook<E>]>;

/// The policies of one sort.
pub struct Source<E> {
    /// The kinds of policies and of bindings; absent where they are not served.
    kinds: Option<(Kind, Kind)>,
    /// How often both caches had changed when the list was made, and one more; 0 if it never was.
    seen: AtomicU64,
    current: RwLock<Option<Hooks<E>>>,
    /// Whether there is any: most servers have none, and then nothing else is looked at.
    has_some: AtomicBool,
    known: Mutex<Known<E>>,
}

/// What was compiled.
struct Known<E> {
    policies: Compiled<Policy<E>>,
    bindings: Compiled<Binding>,
}

/// Objects by key, and what they were compiled to.
type Compiled<T> = HashMap<Arc<str>, (Arc<CachedObject>, Arc<T>)>;

impl<E: Evaluator> Source<E> {
    /// The policies and bindings of two kinds; nothing is compiled yet.
    pub fn new(kinds: Option<(Kind, Kind)>) -> Self {
        Self {
            kinds,
            seen: AtomicU64::new(0),
            current: RwLock::new(None),
            has_some: AtomicBool::new(false),
            known: Mutex::new(Known { policies: HashMap::new(), bindings: HashMap::new() }),
        }
    }

    /// All that are bound, as of what the caches hold. `None` if there are none.
    ///
    /// # Errors
    /// 500 if a policy or binding cannot be read: nobody knows what it would refuse.
    pub fn current(&self) -> Result<Option<Hooks<E>>> {
        let Some(kinds) = &self.kinds else { return Ok(None) };
        if self.seen.load(Ordering::Acquire) != changes(kinds) {
            self.compile(kinds)?;
        }
        match self.has_some.load(Ordering::Acquire) {
            true => Ok(self.current.read().clone()),
            false => Ok(None),
        }
    }

    fn compile(&self, kinds: &(Kind, Kind)) -> Result<()> {
        let mut known = self.known.lock();
        // Counted before anything is read: what comes in between is found by the next request.
        let changes = changes(kinds);
        if self.seen.load(Ordering::Acquire) == changes {
            return Ok(());
        }
        let (policies, bindings) = kinds;
        let bindings = refresh(bindings, &mut known.bindings, |_| true, Binding::new)?;
        let mut by_policy: HashMap<&str, Vec<Arc<Binding>>> = HashMap::new();
        for binding in &bindings {
            by_policy.entry(&binding.policy).or_default().push(Arc::clone(binding));
        }
        // What nobody has bound is not compiled.
        let is_bound = |object: &CachedObject| by_policy.contains_key(object.name());
        let policies = refresh(policies, &mut known.policies, is_bound, Policy::new)?;
        let hooks: Vec<Hook<E>> = policies
            .into_iter()
            .filter_map(|policy| Some(Hook { bindings: by_policy.remove(policy.name.as_str())?, policy }))
            .collect();
        self.has_some.store(!hooks.is_empty(), Ordering::Release);
        *self.current.write() = Some(hooks.into());
        self.seen.store(changes, Ordering::Release);
        Ok(())
    }
}

/// Counts up with every change of either kind.
fn changes((policies, bindings): &(Kind, Kind)) -> u64 {
    policies.cache().changes() + bindings.cache().changes() + 1
}

/// What a kind's objects compile to, by name; those that are as they were are not compiled again.
fn refresh<T>(
    kind: &Kind,
    known: &mut Compiled<T>,
    is_wanted: impl Fn(&CachedObject) -> bool,
    compile: impl Fn(&Value) -> T,
) -> Result<Vec<Arc<T>>> {
    let listing = kind.cache().read_list(kind.prefix(), 0)?;
    let mut now = HashMap::with_capacity(listing.objects.len());
    let mut all = Vec::with_capacity(listing.objects.len());
    for object in listing.objects.into_iter().filter(|object| is_wanted(object)) {
        let same = known.remove(&object.key).filter(|(same, _)| same.revision == object.revision);
        let compiled = same.map_or_else(|| Arc::new(compile(&kind.value(&object))), |(_, same)| same);
        all.push(Arc::clone(&compiled));
        now.insert(Arc::clone(&object.key), (object, compiled));
    }
    *known = now;
    Ok(all)
}
