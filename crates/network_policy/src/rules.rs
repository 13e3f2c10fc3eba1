//! The table of one family, kept equal to what policies, namespaces and Pods say: a change costs what it changes.
//!
//! Nothing here decides by what happened: after each change, what hangs on it is settled from what is there. So a table
//! that was kept up to date is the one that [`render`] makes of everything at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use controller::selector::Labels;
use machinery::net::Family;
use sys::nftables::{Data, Draft, Key, Set, Table, Verdict};

use crate::chains::{Parts, pod_chain};
use crate::endpoints::{Endpoint, Locality, State};
use crate::frame::{ISOLATED, OWN, field, frame, key, named_fields};
use crate::policy::{Direction, PeerSelector, Policy};

/// Everything that rules are made of.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By `namespace/name`.
    pub policies: BTreeMap<String, Arc<Policy>>,
    /// Labels by name.
    pub namespaces: BTreeMap<String, Labels>,
    /// By any id.
    pub endpoints: BTreeMap<String, Endpoint>,
}

/// The table that a snapshot comes to.
pub fn render(name: &str, family: Family, snapshot: &Snapshot) -> Table {
    let mut rules = Rules::new(name, family);
    snapshot.namespaces.iter().for_each(|(name, labels)| rules.namespace(name, Some(labels.clone())));
    snapshot.endpoints.iter().for_each(|(id, endpoint)| rules.endpoint(id, Some(endpoint.clone())));
    snapshot.policies.iter().for_each(|(key, policy)| rules.policy(key, Some(policy.clone())));
    rules.draft.table().clone()
}

/// Something that as many stand on.
#[derive(Debug)]
struct Used<T> {
    what: T,
    users: usize,
}

/// A table and what it was made of.
#[derive(Debug)]
pub struct Rules {
    family: Family,
    draft: Draft,
    known: Snapshot,
    /// Ids of endpoints by their addresses of the family.
    by_address: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Ids of endpoints by their namespace.
    by_namespace: BTreeMap<String, BTreeSet<String>>,
    /// Sets of Pods, by name.
    pods: BTreeMap<String, Used<PeerSelector>>,
    /// Sets of ports with names.
    names: BTreeMap<String, Used<(u8, String)>>,
    /// Sets of numbers.
    numbers: BTreeMap<String, usize>,
    /// Chains of Pods.
    chains: BTreeMap<String, usize>,
    /// The chains that an address is led to.
    led: BTreeMap<IpAddr, [Option<String>; 2]>,
}

impl Rules {
    /// Without any policy.
    pub fn new(name: &str, family: Family) -> Self {
        Self {
            family,
            draft: Draft::new(frame(name, family)),
            known: Snapshot::default(),
            by_address: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            pods: BTreeMap::new(),
            names: BTreeMap::new(),
            numbers: BTreeMap::new(),
            chains: BTreeMap::new(),
            led: BTreeMap::new(),
        }
    }

    /// The table, to be committed.
    pub fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// `true` if there is no policy: then the table does nothing.
    pub fn is_idle(&self) -> bool {
        self.known.policies.is_empty()
    }

    /// A namespace has these labels now, or is gone.
    pub fn namespace(&mut self, name: &str, labels: Option<Labels>) {
        if self.known.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => self.known.namespaces.insert(name.to_owned(), labels),
            None => self.known.namespaces.remove(name),
        };
        for ip in self.addresses_in(name) {
            self.settle_peers(ip);
        }
    }

    /// An endpoint is like this now, or gone.
    pub fn endpoint(&mut self, id: &str, endpoint: Option<Endpoint>) {
        if self.known.endpoints.get(id) == endpoint.as_ref() {
            return;
        }
        let mut touched = BTreeSet::new();
        if let Some(old) = self.known.endpoints.remove(id) {
            for ip in self.own_family(&old.addresses) {
                leave(&mut self.by_address, &ip, id);
                touched.insert(ip);
            }
            leave(&mut self.by_namespace, &old.namespace, id);
        }
        if let Some(new) = endpoint {
            for ip in self.own_family(&new.addresses) {
                self.by_address.entry(ip).or_default().insert(id.to_owned());
                touched.insert(ip);
            }
            self.by_namespace.entry(new.namespace.clone()).or_default().insert(id.to_owned());
            self.known.endpoints.insert(id.to_owned(), new);
        }
        for ip in touched {
            self.settle_peers(ip);
            self.settle_subject(ip);
        }
    }

    /// A policy says this now, or is gone.
    pub fn policy(&mut self, key: &str, policy: Option<Arc<Policy>>) {
        if self.known.policies.get(key) == policy.as_ref() {
            return;
        }
        let old = match &policy {
            Some(policy) => self.known.policies.insert(key.to_owned(), policy.clone()),
            None => self.known.policies.remove(key),
        };
        let parts_of = |policy: Option<&Arc<Policy>>| {
            policy.map(|policy| Parts::of(policy, self.family)).unwrap_or_default()
        };
        let (before, after) = (parts_of(old.as_ref()), parts_of(policy.as_ref()));
        self.take(&after);
        for (name, rules) in &after.chains {
            self.draft.put_chain(name, rules.clone());
        }
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        for ip in self.addresses_in(namespace) {
            self.settle_subject(ip);
        }
        for name in before.chains.keys().filter(|name| !after.chains.contains_key(*name)) {
            self.draft.remove_chain(name);
        }
        self.give_back(&before);
    }

    fn own_family(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        addresses.iter().copied().filter(|ip| Family::of(*ip) == self.family).collect()
    }

    fn addresses_in(&self, namespace: &str) -> BTreeSet<IpAddr> {
        let ids = self.by_namespace.get(namespace).into_iter().flatten();
        let endpoints = ids.filter_map(|id| self.known.endpoints.get(id));
        endpoints.flat_map(|endpoint| self.own_family(&endpoint.addresses)).collect()
    }

    /// Makes the sets of a policy that nobody else has.
    fn take(&mut self, parts: &Parts) {
        let ip = field(self.family);
        for (name, selector) in &parts.pods {
            let known =
                self.pods.entry(name.clone()).or_insert_with(|| Used { what: selector.clone(), users: 0 });
            known.users += 1;
            if known.users == 1 {
                let members = self.by_address.keys().filter(|address| self.is_peer(selector, **address));
                let elements = members.map(|address| (key(*address), Data::None)).collect();
                self.draft.put_set(name, Set { key: vec![ip], elements, ..Set::default() });
            }
        }
        for (name, wanted) in &parts.names {
            let known =
                self.names.entry(name.clone()).or_insert_with(|| Used { what: wanted.clone(), users: 0 });
            known.users += 1;
            if known.users == 1 {
                let keys = self.by_address.keys().flat_map(|address| self.named_keys(wanted, *address));
                let elements = keys.map(|key| (key, Data::None)).collect();
                let fields = named_fields(self.family).to_vec();
                self.draft.put_set(name, Set { key: fields, elements, ..Set::default() });
            }
        }
        for (name, set) in &parts.numbers {
            *self.numbers.entry(name.clone()).or_default() += 1;
            self.draft.put_set(name, set.clone());
        }
    }

    /// Takes away the sets that nobody has any more.
    fn give_back(&mut self, parts: &Parts) {
        let mut unused: Vec<&String> = Vec::new();
        for name in parts.pods.keys() {
            unused.extend(is_last(self.pods.get_mut(name).map(|known| &mut known.users)).then_some(name));
        }
        for name in parts.names.keys() {
            unused.extend(is_last(self.names.get_mut(name).map(|known| &mut known.users)).then_some(name));
        }
        for name in parts.numbers.keys() {
            unused.extend(is_last(self.numbers.get_mut(name)).then_some(name));
        }
        for name in unused {
            self.pods.remove(name);
            self.names.remove(name);
            self.numbers.remove(name);
            self.draft.remove_set(name);
        }
    }

    /// Who has an address: several, while news of one that is gone are on their way. What this Node's network has given is
    /// certain.
    fn owners(&self, ip: IpAddr) -> Vec<&Endpoint> {
        let ids = self.by_address.get(&ip).into_iter().flatten();
        let all: Vec<&Endpoint> = ids.filter_map(|id| self.known.endpoints.get(id)).collect();
        let here: Vec<&Endpoint> = all.iter().copied().filter(|it| it.locality == Locality::Here).collect();
        if here.is_empty() { all } else { here }
    }

    /// Whether all who may have an address are selected: in doubt nobody is.
    fn is_peer(&self, selector: &PeerSelector, ip: IpAddr) -> bool {
        let owners = self.owners(ip);
        !owners.is_empty() && owners.iter().all(|owner| self.is_selected(selector, owner))
    }

    fn is_selected(&self, selector: &PeerSelector, owner: &Endpoint) -> bool {
        let of_namespace = self.known.namespaces.get(&owner.namespace);
        owner.state == State::Running && selector.selects(&owner.namespace, of_namespace, &owner.labels)
    }

    /// What an address has in the set of a name. In doubt nothing.
    fn named_keys(&self, (protocol, name): &(u8, String), ip: IpAddr) -> BTreeSet<Key> {
        let owners = self.owners(ip);
        let [owner] = owners.as_slice() else { return BTreeSet::new() };
        let ports = owner
            .ports
            .iter()
            .filter(|port| owner.state == State::Running && port.protocol == *protocol && port.name == *name);
        ports.map(|port| key(ip).protocol(port.protocol).port(port.port)).collect()
    }

    /// Puts an address into all the sets of peers that it belongs to, and out of the others.
    fn settle_peers(&mut self, ip: IpAddr) {
        let own = key(ip);
        let mut wanted: Vec<(&String, Key, Option<Data>)> = Vec::new();
        let owners = self.owners(ip);
        for (name, selector) in &self.pods {
            let is_in =
                !owners.is_empty() && owners.iter().all(|owner| self.is_selected(&selector.what, owner));
            wanted.push((name, own.clone(), is_in.then_some(Data::None)));
        }
        for (name, port) in &self.names {
            let keys = self.named_keys(&port.what, ip);
            let set = self.draft.table().sets.get(name);
            let begins = |key: &&Key| key.bytes().starts_with(own.bytes());
            let present =
                set.map(|set| set.elements.range(own.clone()..).map(|(key, _)| key).take_while(begins));
            let gone: Vec<Key> =
                present.into_iter().flatten().filter(|key| !keys.contains(*key)).cloned().collect();
            wanted.extend(gone.into_iter().map(|key| (name, key, None)));
            wanted.extend(keys.into_iter().map(|key| (name, key, Some(Data::None))));
        }
        for (name, key, data) in wanted {
            self.draft.put(name, &key, data);
        }
    }

    /// Leads an address of this Node to the chains of the policies that select its Pod.
    fn settle_subject(&mut self, ip: IpAddr) {
        let wanted = Direction::ALL.map(|direction| self.chain_for(direction, ip));
        let names = wanted.each_ref().map(|chain| chain.as_ref().map(|(name, _)| name.clone()));
        let before = self.led.get(&ip).cloned().unwrap_or_default();
        if before == names {
            return;
        }
        for (name, rules) in wanted.into_iter().flatten() {
            let users = self.chains.entry(name.clone()).or_default();
            *users += 1;
            if *users == 1 {
                self.draft.put_chain(&name, rules);
            }
        }
        let own = key(ip);
        for (direction, name) in Direction::ALL.into_iter().zip(&names) {
            let verdict = name.clone().map(|name| Data::Verdict(Verdict::Goto(name)));
            self.draft.put(direction.name(), &own, verdict);
        }
        let is_isolated = names.iter().any(Option::is_some).then_some(Data::None);
        self.draft.put(ISOLATED, &own, is_isolated.clone());
        self.draft.put(OWN, &own.clone().address(ip), is_isolated.clone());
        for name in before.iter().flatten() {
            if is_last(self.chains.get_mut(name)) {
                self.chains.remove(name);
                self.draft.remove_chain(name);
            }
        }
        match is_isolated {
            Some(_) => self.led.insert(ip, names),
            None => self.led.remove(&ip),
        };
    }

    /// `None` if no policy selects a Pod of this Node with the address.
    fn chain_for(&self, direction: Direction, ip: IpAddr) -> Option<(String, Vec<sys::nftables::Rule>)> {
        let owners = self.owners(ip);
        let owner = owners.into_iter().rfind(|owner| owner.locality == Locality::Here)?;
        let of_namespace = self.known.policies.range(format!("{}/", owner.namespace)..);
        let of_namespace = of_namespace.take_while(|(_, policy)| policy.namespace == owner.namespace);
        let selecting = of_namespace
            .filter(|(_, policy)| policy.rules(direction).is_some() && policy.selects(&owner.labels));
        let keys: Vec<&str> = selecting.map(|(key, _)| key.as_str()).collect();
        (!keys.is_empty()).then(|| pod_chain(direction, &keys))
    }
}

fn leave<K: Ord>(index: &mut BTreeMap<K, BTreeSet<String>>, key: &K, id: &str) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}

/// Takes one user away; whether none is left.
fn is_last(users: Option<&mut usize>) -> bool {
    users.is_some_and(|users| {
        *users = users.saturating_sub(1);
        *users == 0
    })
}

#[cfg(test)]
mod tests;
