//! The usage of each namespace with quotas, kept level with the watch cache.
//!
//! A namespace's account is opened at the first charge, by a look at all of its objects, and closed when its quotas
//! change. Events replace an object's entry as a whole, so seeing one twice does no harm.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use resources::pod_resources::add_all;
use resources::quota::{self, Amounts, Quota};
use serde_json::Value;

use super::record::{Entry, Own};
use super::refusal::{QuotaRefusal, exceeded};
use crate::cache::{CacheEvent, CachedObject, EventType};
use crate::catalogue::{Catalogue, Snapshot};
use crate::cluster::Cluster;
use crate::kinds::Kind;

/// How long an admitted object that never came is held: longer than any request may take.
const HOLD: SignedDuration = SignedDuration::from_secs(70);

/// One request's claim on the quotas of its namespace.
pub(super) struct Charge<'a> {
    /// Group and plural.
    pub(super) resource: (&'a str, &'a str),
    /// The store's key.
    pub(super) key: String,
    /// The object as it is to be.
    pub(super) object: &'a Value,
    /// What it costs.
    pub(super) usage: Amounts,
    /// The object as it is, and what `object` costs more.
    pub(super) before: Option<(&'a Value, Amounts)>,
    /// Whether nothing is to be held.
    pub(super) is_dry_run: bool,
}

/// The usage of all namespaces with quotas, an account each.
#[derive(Debug, Default)]
pub struct UsageCache {
    accounts: Mutex<HashMap<String, Account>>,
}

#[derive(Debug)]
struct Account {
    quotas: Vec<Quota>,
    /// The revisions of the quotas that were read last.
    revisions: Vec<u64>,
    /// The state of the catalogue whose kinds are counted.
    generation: u64,
    /// What each object costs, per quota.
    objects: HashMap<Arc<str>, Vec<(usize, Amounts)>>,
    /// The sum per quota.
    used: Vec<Amounts>,
    held: Vec<Hold>,
    /// What became of the quotas' statuses, by name.
    statuses: HashMap<String, Own>,
    /// Who was refused when others wrote for them, and why.
    refused: HashMap<String, QuotaRefusal>,
    /// Only one request of this server at a time writes to the statuses: the others would only get in its way.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Hold {
    key: String,
    costs: Vec<(usize, Amounts)>,
    at: Timestamp,
    /// Whether the quotas' statuses have it.
    is_written: bool,
}

impl UsageCache {
    /// Charges, or says why not.
    pub(super) fn charge(
        &self,
        cluster: &Cluster,
        namespace: &str,
        stored: &[Arc<CachedObject>],
        charge: &Charge<'_>,
    ) -> Result<(), QuotaRefusal> {
        let now = cluster.clock.now();
        let mut accounts = self.accounts.lock();
        let revisions: Vec<u64> = stored.iter().map(|object| object.revision).collect();
        let catalogue = cluster.catalogue.current();
        let generation = catalogue.generation();
        let is_current = |account: &Account| account.generation == generation;
        let is_known = accounts
            .get(namespace)
            .is_some_and(|account| account.revisions == revisions && is_current(account));
        if !is_known {
            let quotas = super::read(stored);
            match accounts
                .get_mut(namespace)
                .filter(|account| account.quotas == quotas && is_current(account))
            {
                Some(account) => account.revisions = revisions,
                None => {
                    let before = accounts.remove(namespace);
                    let mut account = Account::new(quotas, revisions, generation);
                    account.open(&catalogue, namespace, now);
                    if let Some(before) = before {
                        account.take_over(before);
                    }
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

    /// The turn to write the statuses of a namespace's quotas, if there is something to be written for `key`.
    pub(super) fn turn(&self, namespace: &str, key: &str) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let accounts = self.accounts.lock();
        let account = accounts.get(namespace)?;
        account.held.iter().any(|hold| hold.key == key).then(|| Arc::clone(&account.turn))
    }

    /// What is charged and not written, by the names of the quotas.
    pub(super) fn unwritten(&self, namespace: &str) -> BTreeMap<String, Vec<Entry>> {
        let accounts = self.accounts.lock();
        let mut entries: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let Some(account) = accounts.get(namespace) else { return entries };
        for hold in account.held.iter().filter(|hold| !hold.is_written) {
            for (index, cost) in &hold.costs {
                let Some(quota) = account.quotas.get(*index) else { continue };
                let entry = Entry { key: hold.key.clone(), cost: cost.clone() };
                entries.entry(quota.name.clone()).or_default().push(entry);
            }
        }
        entries
    }

    /// What was written for these keys counts; who was refused gives back what was held.
    pub(super) fn settle(
        &self,
        namespace: &str,
        keys: &BTreeSet<String>,
        refused: &BTreeMap<String, QuotaRefusal>,
    ) {
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.get_mut(namespace) else { return };
        account.held.retain(|hold| !refused.contains_key(&hold.key));
        for hold in account.held.iter_mut().filter(|hold| keys.contains(&hold.key)) {
            hold.is_written = true;
        }
        account.refused.extend(refused.iter().map(|(key, why)| (key.clone(), why.clone())));
    }

    /// Why this key was refused, if it was; said once.
    pub(super) fn take_refusal(&self, namespace: &str, key: &str) -> Option<QuotaRefusal> {
        self.accounts.lock().get_mut(namespace)?.refused.remove(key)
    }

    /// What this server knows about a quota whose newest revision is `revision`.
    pub(super) fn own(&self, namespace: &str, name: &str, revision: u64, now: Timestamp) -> Own {
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.get_mut(namespace) else { return Own::default() };
        let counted =
            account.quotas.iter().position(|quota| quota.name == name).map(|index| account.total(index));
        let own = account.statuses.entry(name.to_owned()).or_default();
        if revision != own.written && own.foreign.is_none_or(|(seen, _)| seen != revision) {
            own.foreign = Some((revision, now));
        }
        Own { counted: counted.unwrap_or_default(), ..own.clone() }
    }

    /// This server has written a quota's status.
    pub(super) fn wrote(&self, namespace: &str, name: &str, revision: u64) {
        if let Some(account) = self.accounts.lock().get_mut(namespace) {
            account.statuses.entry(name.to_owned()).or_default().written = revision;
        }
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
    pub fn observe(&self, catalogue: &Catalogue, prefix: &str, event: &CacheEvent, now: Timestamp) {
        let mut accounts = self.accounts.lock();
        if accounts.is_empty() {
            return;
        }
        let key = &event.object.key;
        let Some(namespace) = key.strip_prefix(prefix).and_then(|rest| rest.split('/').next()) else {
            return;
        };
        let Some(account) = accounts.get_mut(namespace) else { return };
        let catalogue = catalogue.current();
        let Some(kind) = catalogue.stored_below(prefix) else { return };
        if account.counts(kind) {
            let object = (event.event_type != EventType::Deleted).then(|| kind.value(&event.object));
            account.set(kind, key, object.as_ref(), now);
            account.held.retain(|hold| hold.key != **key);
        }
    }
}

impl Account {
    fn new(quotas: Vec<Quota>, revisions: Vec<u64>, generation: u64) -> Self {
        let used = quotas.iter().map(Quota::nothing_used).collect();
        Self {
            quotas,
            revisions,
            generation,
            objects: HashMap::new(),
            used,
            held: Vec::new(),
            statuses: HashMap::new(),
            refused: HashMap::new(),
            turn: Arc::default(),
        }
    }

    /// Counts everything that is there.
    fn open(&mut self, catalogue: &Snapshot, namespace: &str, now: Timestamp) {
        let kinds = catalogue
            .iter()
            .filter(|kind| kind.is_namespaced() && kind.row().is_stored() && kind.is_stored_form());
        for kind in kinds.filter(|kind| self.counts(kind)).collect::<Vec<_>>() {
            for object in kind.cache().list(&kind.collection(namespace), 0).objects {
                self.set(kind, &object.key, Some(&kind.value(&object)), now);
            }
        }
    }

    /// Keeps what was admitted under earlier quotas: it may still come. It is counted in full once it is there.
    fn take_over(&mut self, before: Self) {
        let is_here = |hold: &Hold| self.objects.contains_key(hold.key.as_str());
        self.held = before.held.into_iter().filter(|hold| !is_here(hold)).collect();
        (self.statuses, self.refused, self.turn) = (before.statuses, before.refused, before.turn);
        for hold in &mut self.held {
            hold.costs.retain(|(index, _)| *index < self.quotas.len());
        }
    }

    fn counts(&self, kind: &Kind) -> bool {
        self.quotas.iter().any(|quota| quota.counts(kind.group(), kind.resource()))
    }

    fn set(&mut self, kind: &Kind, key: &Arc<str>, object: Option<&Value>, now: Timestamp) {
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
                add_all(used, cost);
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

    /// What a charge adds: all of it to a quota that did not count the object before.
    fn added(&self, charge: &Charge<'_>) -> Vec<(usize, Amounts)> {
        let (group, plural) = charge.resource;
        let Some((old, more)) = &charge.before else {
            return self.costs(charge.resource, charge.object, &charge.usage);
        };
        let counted = |quota: &Quota| quota.matches(group, plural, old);
        let usage = |quota| if counted(quota) { more } else { &charge.usage };
        let matching = self.quotas.iter().enumerate();
        matching
            .filter(|(_, quota)| quota.matches(group, plural, charge.object))
            .map(|(index, quota)| (index, quota.mask(usage(quota))))
            .filter(|(_, cost)| !cost.is_empty())
            .collect()
    }

    fn charge(&mut self, charge: &Charge<'_>, now: Timestamp) -> Result<(), QuotaRefusal> {
        let (group, plural) = charge.resource;
        if (group, plural) == ("", "pods") {
            for quota in self.quotas.iter().filter(|quota| quota.matches(group, plural, charge.object)) {
                if let Some(missing) = quota::unspecified(charge.object, &quota.names(group, plural)) {
                    return Err(QuotaRefusal::Unspecified { quota: quota.name.clone(), missing });
                }
            }
        }
        self.held.retain(|hold| hold.at + HOLD > now && !(charge.before.is_some() && hold.key == charge.key));
        let costs = self.added(charge);
        for (index, cost) in &costs {
            self.check(*index, cost)?;
        }
        if !charge.is_dry_run && !costs.is_empty() {
            self.held.push(Hold { key: charge.key.clone(), costs, at: now, is_written: false });
        }
        Ok(())
    }

    /// What is used by what is there and by what was charged and written.
    fn total(&self, index: usize) -> Amounts {
        let mut total = self.used.get(index).cloned().unwrap_or_default();
        let written = self.held.iter().filter(|hold| hold.is_written).flat_map(|hold| &hold.costs);
        written.filter(|(of, _)| *of == index).for_each(|(_, cost)| add_all(&mut total, cost));
        total
    }

    fn check(&self, index: usize, cost: &Amounts) -> Result<(), QuotaRefusal> {
        let (Some(quota), Some(counted)) = (self.quotas.get(index), self.used.get(index)) else {
            return Ok(());
        };
        let mut used = counted.clone();
        for (_, held) in self.held.iter().flat_map(|hold| &hold.costs).filter(|(of, _)| *of == index) {
            add_all(&mut used, held);
        }
        exceeded(quota, &used, cost).map_or(Ok(()), Err)
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
        Account::new(vec![Quota::of(&quota)], vec![1], 0)
    }

    fn charge(
        account: &mut Account,
        plural: &'static str,
        key: &str,
        is_dry_run: bool,
    ) -> Result<(), QuotaRefusal> {
        let object = Value::Null;
        let usage = quota::usage("", plural, &object, now());
        let charge = Charge {
            resource: ("", plural),
            key: key.into(),
            object: &object,
            usage,
            before: None,
            is_dry_run,
        };
        account.charge(&charge, now())
    }

    fn kind() -> Kind {
        crate::kinds::all::builtin().find("", "v1", "configmaps").unwrap().clone()
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
            refused.to_string(),
            "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2"
        );
        charge(&mut account, "secrets", "s", false).expect("another resource has its own limit");
    }

    #[test]
    fn a_claim_that_changes_its_class_counts_in_full_where_it_comes_to() {
        let parse = |yaml: &str| -> Value { serde_saphyr::from_str(yaml).unwrap() };
        let claim = |class: &str, size: &str| {
            parse(&format!(
                "{{spec: {{volumeAttributesClassName: {class}, resources: {{requests: {{storage: {size}}}}}}}}}"
            ))
        };
        let account = || {
            let quota = "{metadata: {name: gold}, spec: {hard: {requests.storage: 5Gi}, scopeSelector: \
                {matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [gold]}]}}}";
            Account::new(vec![Quota::of(&parse(quota))], vec![1], 0)
        };
        let told = "exceeded quota: gold, requested: requests.storage=8Gi, used: requests.storage=0, \
            limited: requests.storage=5Gi";
        for (before, object, expected) in [
            (claim("silver", "8Gi"), claim("gold", "8Gi"), Err(told.to_owned())),
            (claim("silver", "4Gi"), claim("gold", "4Gi"), Ok(())),
            (claim("gold", "4Gi"), claim("gold", "8Gi"), Ok(())),
            (claim("gold", "8Gi"), claim("silver", "80Gi"), Ok(())),
        ] {
            let usage = |object| quota::usage("", "persistentvolumeclaims", object, now());
            let more = quota::increase(&usage(&object), &usage(&before));
            let charge = Charge {
                resource: ("", "persistentvolumeclaims"),
                key: "c".into(),
                object: &object,
                usage: usage(&object),
                before: Some((&before, more)),
                is_dry_run: false,
            };
            let charged = account().charge(&charge, now()).map_err(|why| why.to_string());
            assert_eq!(charged, expected, "{before} to {object}");
        }
    }

    #[test]
    fn an_object_counts_once_however_often_it_is_seen() {
        let mut account = account();
        let key: Arc<str> = "a".into();
        for _ in 0..3 {
            account.set(&kind(), &key, Some(&Value::Null), now());
        }
        assert_eq!(quota::show(&account.used[0]), "configmaps=1,count/secrets=0");
        account.set(&kind(), &key, None, now());
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
