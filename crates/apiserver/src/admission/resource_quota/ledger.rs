//! What the objects of each namespace with quotas cost, kept level with the watch cache.
//!
//! A namespace's account is opened at the first charge, by a look at all of its objects, and closed when its quotas
//! change. Events replace an object's entry as a whole, so seeing one twice does no harm.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use resources::quota::{self, Amounts, Quota};
use serde_json::Value;

use crate::api::Api;
use crate::cache::{CacheEvent, CachedObject, EventType};
use crate::kinds::Kind;

/// How long an admitted object that never came is held: longer than any request may take.
const HOLD: SignedDuration = SignedDuration::from_secs(70);

/// One request's claim on the quotas of its namespace.
pub(super) struct Charge<'a> {
    /// Group and plural.
    pub(super) resource: (&'static str, &'static str),
    /// The store's key.
    pub(super) key: String,
    /// The object as it is to be.
    pub(super) object: &'a Value,
    /// What it adds.
    pub(super) more: Amounts,
    /// Whether the object is there already.
    pub(super) is_update: bool,
    /// Whether nothing is to be held.
    pub(super) is_dry_run: bool,
}

/// All accounts.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: Mutex<HashMap<String, Account>>,
}

#[derive(Debug)]
struct Account {
    quotas: Vec<Quota>,
    /// The revisions of the quotas that were read last.
    revisions: Vec<u64>,
    /// What each object costs, per quota.
    objects: HashMap<Arc<str>, Vec<(usize, Amounts)>>,
    /// The sum per quota.
    used: Vec<Amounts>,
    held: Vec<Hold>,
}

#[derive(Debug)]
struct Hold {
    key: String,
    costs: Vec<(usize, Amounts)>,
    at: Timestamp,
}

impl Ledger {
    /// Charges, or says why not.
    pub(super) fn charge(
        &self,
        api: &Api,
        namespace: &str,
        stored: &[Arc<CachedObject>],
        charge: &Charge<'_>,
    ) -> Result<(), String> {
        let now = api.clock.now();
        let mut accounts = self.accounts.lock();
        let revisions: Vec<u64> = stored.iter().map(|object| object.revision).collect();
        let is_known = accounts.get(namespace).is_some_and(|account| account.revisions == revisions);
        if !is_known {
            let quotas = super::read(stored);
            match accounts.get_mut(namespace).filter(|account| account.quotas == quotas) {
                Some(account) => account.revisions = revisions,
                None => {
                    let held = accounts.remove(namespace).map(|account| account.held).unwrap_or_default();
                    let mut account = Account::new(quotas, revisions);
                    account.open(api, namespace);
                    account.take_over(held);
                    accounts.insert(namespace.to_owned(), account);
                }
            }
        }
        accounts.get_mut(namespace).map_or(Ok(()), |account| account.charge(charge, now))
    }

    /// Closes all accounts: they are opened again from what the cache holds then.
    pub fn clear(&self) {
        self.accounts.lock().clear();
    }

    /// Closes the account of a namespace without quotas.
    pub(super) fn forget(&self, namespace: &str) {
        let mut accounts = self.accounts.lock();
        if !accounts.is_empty() {
            accounts.remove(namespace);
        }
    }

    /// Gives back what is held for a key.
    pub(super) fn release(&self, namespace: &str, key: &str) {
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.get_mut(namespace) else { return };
        if let Some(at) = account.held.iter().position(|hold| hold.key == key) {
            account.held.swap_remove(at);
        }
    }

    /// Takes note of a change in the watch cache.
    pub fn observe(&self, prefix: &str, event: &CacheEvent, now: Timestamp) {
        let mut accounts = self.accounts.lock();
        if accounts.is_empty() {
            return;
        }
        let key = &event.object.key;
        let Some(namespace) = key.strip_prefix(prefix).and_then(|rest| rest.split('/').next()) else {
            return;
        };
        let Some(account) = accounts.get_mut(namespace) else { return };
        let Some(kind) = stored_kind(prefix) else { return };
        if account.counts(kind) {
            let object = (event.event_type != EventType::Deleted).then(|| kind.value(&event.object));
            account.set(kind, key, object.as_ref(), now);
            account.held.retain(|hold| hold.key != **key);
        }
    }
}

/// The kind whose objects are stored under a prefix.
fn stored_kind(prefix: &str) -> Option<Kind> {
    Kind::all().find(|kind| kind.row().storage_prefix == prefix && !kind.is_converted())
}

impl Account {
    fn new(quotas: Vec<Quota>, revisions: Vec<u64>) -> Self {
        let used = quotas.iter().map(Quota::nothing_used).collect();
        Self { quotas, revisions, objects: HashMap::new(), used, held: Vec::new() }
    }

    /// Counts everything that is there.
    fn open(&mut self, api: &Api, namespace: &str) {
        let now = api.clock.now();
        let kinds =
            Kind::all().filter(|kind| kind.is_namespaced() && kind.row().is_stored() && !kind.is_converted());
        for kind in kinds.filter(|kind| self.counts(*kind)).collect::<Vec<_>>() {
            for object in kind.cache(api).list(&kind.collection(namespace), 0).objects {
                self.set(kind, &object.key, Some(&kind.value(&object)), now);
            }
        }
    }

    /// Keeps what was admitted under earlier quotas: it may still come. It is counted in full once it is there.
    fn take_over(&mut self, held: Vec<Hold>) {
        let is_here = |hold: &Hold| self.objects.contains_key(hold.key.as_str());
        self.held = held.into_iter().filter(|hold| !is_here(hold)).collect();
        for hold in &mut self.held {
            hold.costs.retain(|(index, _)| *index < self.quotas.len());
        }
    }

    fn counts(&self, kind: Kind) -> bool {
        self.quotas.iter().any(|quota| quota.counts(kind.group(), kind.resource()))
    }

    fn set(&mut self, kind: Kind, key: &Arc<str>, object: Option<&Value>, now: Timestamp) {
        for (index, cost) in self.objects.remove(key).unwrap_or_default() {
            if let Some(used) = self.used.get_mut(index) {
                for (name, amount) in &cost {
                    let entry = used.entry(name.clone()).or_default();
                    *entry = entry.minus(*amount);
                }
            }
        }
        let Some(object) = object else { return };
        let (group, plural) = (kind.group(), kind.resource());
        let usage = quota::usage(group, plural, object, now);
        let costs = self.costs((group, plural), object, &usage);
        for (index, cost) in &costs {
            if let Some(used) = self.used.get_mut(*index) {
                resources::pod_resources::add_all(used, cost);
            }
        }
        if !costs.is_empty() {
            self.objects.insert(Arc::clone(key), costs);
        }
    }

    /// What `usage` means to each quota that counts the object.
    fn costs(&self, (group, plural): (&str, &str), object: &Value, usage: &Amounts) -> Vec<(usize, Amounts)> {
        let matching =
            self.quotas.iter().enumerate().filter(|(_, quota)| quota.matches(group, plural, object));
        matching
            .map(|(index, quota)| (index, quota.mask(usage)))
            .filter(|(_, cost)| !cost.is_empty())
            .collect()
    }

    fn charge(&mut self, charge: &Charge<'_>, now: Timestamp) -> Result<(), String> {
        let (group, plural) = charge.resource;
        if (group, plural) == ("", "pods") {
            for quota in self.quotas.iter().filter(|quota| quota.matches(group, plural, charge.object)) {
                if let Some(missing) = quota::unspecified(charge.object, &quota.names(group, plural)) {
                    return Err(format!("failed quota: {}: {missing}", quota.name));
                }
            }
        }
        self.held.retain(|hold| hold.at + HOLD > now && !(charge.is_update && hold.key == charge.key));
        let costs = self.costs(charge.resource, charge.object, &charge.more);
        for (index, cost) in &costs {
            self.check(*index, cost)?;
        }
        if !charge.is_dry_run && !costs.is_empty() {
            self.held.push(Hold { key: charge.key.clone(), costs, at: now });
        }
        Ok(())
    }

    fn check(&self, index: usize, cost: &Amounts) -> Result<(), String> {
        let (Some(quota), Some(counted)) = (self.quotas.get(index), self.used.get(index)) else {
            return Ok(());
        };
        let mut used = counted.clone();
        for (_, held) in self.held.iter().flat_map(|hold| &hold.costs).filter(|(of, _)| *of == index) {
            resources::pod_resources::add_all(&mut used, held);
        }
        let mut exceeded = (Amounts::new(), Amounts::new(), Amounts::new());
        for (name, more) in cost {
            let Some(hard) = quota.hard.get(name) else { continue };
            let before = used.get(name).copied().unwrap_or_default();
            if before.plus(*more) > *hard {
                exceeded.0.insert(name.clone(), *more);
                exceeded.1.insert(name.clone(), before);
                exceeded.2.insert(name.clone(), *hard);
            }
        }
        if exceeded.0.is_empty() {
            return Ok(());
        }
        let (requested, used, limited) =
            (quota::show(&exceeded.0), quota::show(&exceeded.1), quota::show(&exceeded.2));
        Err(format!(
            "exceeded quota: {}, requested: {requested}, used: {used}, limited: {limited}",
            quota.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn account() -> Account {
        let quota: Value =
            serde_saphyr::from_str("{metadata: {name: q}, spec: {hard: {configmaps: 2, count/secrets: 1}}}")
                .unwrap();
        Account::new(vec![Quota::of(&quota)], vec![1])
    }

    fn charge(
        account: &mut Account,
        plural: &'static str,
        key: &str,
        is_dry_run: bool,
    ) -> Result<(), String> {
        let object = Value::Null;
        let more = quota::usage("", plural, &object, now());
        let charge = Charge {
            resource: ("", plural),
            key: key.into(),
            object: &object,
            more,
            is_update: false,
            is_dry_run,
        };
        account.charge(&charge, now())
    }

    fn kind() -> Kind {
        Kind::find("", "v1", "configmaps").unwrap()
    }

    #[test]
    fn what_was_admitted_counts_before_it_is_seen() {
        let mut account = account();
        for key in ["a", "b"] {
            charge(&mut account, "configmaps", key, true).expect("a dry run holds nothing");
            charge(&mut account, "configmaps", key, false).expect("there is room");
        }
        let refused = charge(&mut account, "configmaps", "c", false).unwrap_err();
        assert_eq!(
            refused,
            "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
        );
        charge(&mut account, "secrets", "s", false).expect("another resource has its own limit");
    }

    #[test]
    fn an_object_counts_once_however_often_it_is_seen() {
        let mut account = account();
        let key: Arc<str> = "a".into();
        for _ in 0..3 {
            account.set(kind(), &key, Some(&Value::Null), now());
        }
        assert_eq!(quota::show(&account.used[0]), "configmaps=1,count/secrets=0");
        account.set(kind(), &key, None, now());
        assert_eq!(quota::show(&account.used[0]), "configmaps=0,count/secrets=0");
    }

    #[test]
    fn what_never_came_is_given_back() {
        let mut account = account();
        charge(&mut account, "configmaps", "a", false).expect("there is room");
        account.held[0].at = now() - HOLD;
        charge(&mut account, "configmaps", "b", false).expect("there is room");
        charge(&mut account, "configmaps", "c", false).expect("the first is forgotten");
    }
}
